"""Files of questions for offline engines: written in order, answered in any, never asked twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from inspect import getsource
from pathlib import Path
from typing import Any

import pytest
from graphs.trees import food_metric
from programs.commands import start_program
from typer.testing import CliRunner

from dagengine import Store, evaluate
from dagengine.cli import app
from dagengine.errors import InputError
from dagengine.gateway import Limits
from dagengine.judges import FileBatchJudge, OpenAIBatchJudge
from dagengine.loading import load_file_judge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.test_case import LLMTestCase

LIMITS = Limits(max_in_flight=1000, backoff=0.0)
Line = dict[str, Any]


def cases(count: int) -> list[LLMTestCase]:
    return [LLMTestCase(input=f"case {number} here") for number in range(count)]


def answered(line: Line) -> Line:
    """The line of an answer: the topic is the number of the case, even ones are about food."""
    text = line["body"]["messages"][-1]["content"]
    number = int(text.split("case ")[1].split()[0])
    answer = (
        {"reason": "seen", "verdict": number % 2 == 0}
        if "Is it about food?" in text
        else {"output": f"case {number} "}
    )
    message = {"role": "assistant", "content": json.dumps(answer)}
    body = {
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }  # fmt: skip
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": "i", "custom_id": line["custom_id"], "response": response, "error": None}


class Engine:
    """An offline engine: on each sentence it answers the files that have no answers yet."""

    def __init__(
        self, folder: Path, answer: Callable[[Line], Line | str | None] = answered
    ) -> None:
        self.folder, self._answer = folder, answer
        self.sentences: list[str] = []

    def __call__(self, sentence: str) -> None:
        self.sentences.append(sentence)
        for questions in self.files():
            target = questions.with_name(questions.name.replace("questions", "answers"))
            if target.exists():
                continue
            lines = [self._answer(json.loads(line)) for line in reversed(_lines(questions))]
            given = [line if isinstance(line, str) else json.dumps(line) for line in lines if line]
            target.write_text("".join(f"{line}\n" for line in given))
            if len(given) < len(lines):
                target.with_name(f"{target.name}.done").touch()

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("questions-*.jsonl"))

    def judge(self) -> FileBatchJudge:
        return FileBatchJudge("m", self.folder, quiet=0.05, poll=0.01, announce=self)


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


RIGHT = [float(number % 2 == 0) for number in range(40)]


def test_every_layer_of_questions_is_one_file_and_answers_find_them(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "work")
    done = evaluate(cases(40), [food_metric()], model=engine.judge(), limits=LIMITS, show=False)
    assert done.scores("food") == RIGHT
    assert [len(_lines(path)) for path in engine.files()] == [40, 40]
    assert (done.totals.calls, done.totals.usage.input_tokens) == (80, 560)
    assert not (tmp_path / "work" / "journal").exists()
    first = engine.files()[0]
    assert engine.sentences[0].startswith(f"40 questions in {first}; the answers go to ")
    assert f"vllm run-batch -i {first} -o " in engine.sentences[0]


def test_judges_of_one_model_in_two_folders_share_no_answer(tmp_path: Path) -> None:
    def deny(line: Line) -> Line:
        reply = answered(line)
        message = reply["response"]["body"]["choices"][0]["message"]
        message["content"] = message["content"].replace("true", "false")
        return reply

    def metrics(**engines: str | None) -> list[DAGMetric]:
        one, another = (
            FileBatchJudge(
                "m", folder.folder, quiet=0.05, poll=0.01, announce=folder, engine=engine
            )
            for folder, engine in zip(folders, engines.values(), strict=True)
        )
        node = BinaryJudgementNode(
            "Is it about food?", evaluation_params=["input"], then={True: 10, False: 0}
        )
        return [DAGMetric("a", DAG(node), model=one), DAGMetric("b", DAG(node), model=another)]

    folders, store = (Engine(tmp_path / "a"), Engine(tmp_path / "b", deny)), tmp_path / "s.db"
    done = evaluate(cases(1), metrics(a=None, b=None), limits=LIMITS, show=False)
    assert (done.scores("a"), done.scores("b")) == ([1.0], [0.0])
    with pytest.raises(InputError, match=r"FileBatchJudge\(…, engine=…\)"):
        evaluate(cases(1), metrics(a=None, b=None), store=store, limits=LIMITS, show=False)
    for _ in range(2):
        both = metrics(a=None, b="int4")
        done = evaluate(cases(1), both, store=store, limits=LIMITS, show=False)
        assert (done.scores("a"), done.scores("b")) == ([1.0], [0.0])
    assert done.totals.calls == 0


def test_answers_may_hold_any_end_of_a_line_and_the_last_line_may_lack_its_own(
    tmp_path: Path,
) -> None:
    texts = "".join(f"{end}x" for end in "\u2028\u2029\x85\x0b\x0c")
    topic = TaskNode("Name the topic.", "topic", evaluation_params=["input"])
    seen = BinaryJudgementNode("Is it about food?", inputs=[topic], then={True: 10, False: 0})

    def answer(line: Line) -> str:
        reply = answered(line)
        message = reply["response"]["body"]["choices"][0]["message"]
        said = json.loads(message["content"])
        if "output" in said:
            said["output"] += texts
        message["content"] = json.dumps(said, ensure_ascii=False)
        return json.dumps(reply, ensure_ascii=False)

    class Unended(Engine):
        def __call__(self, sentence: str) -> None:
            super().__call__(sentence)
            for answers in self.folder.glob("answers-*.jsonl"):
                answers.write_bytes(answers.read_bytes().rstrip(b"\n"))

    engine = Unended(tmp_path, answer)
    metric = DAGMetric(name="food", dag=DAG(root_nodes=[topic, seen]))
    done = evaluate(cases(5), [metric], model=engine.judge(), limits=LIMITS, show=False)
    assert done.scores("food") == RIGHT[:5]
    assert len(engine.files()) == 2  # nothing was asked again
    assert all(texts in row.metrics[0].steps[0].output for row in done.rows)


def test_equal_beginnings_of_prompts_are_next_to_each_other(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    topics = [
        TaskNode(f"{number}. Name the topic.", f"topic {number}", evaluation_params=["input"])
        for number in range(3)
    ]
    asked = BinaryJudgementNode("Is it about food?", inputs=topics, then={True: 10, False: 0})
    metric = DAGMetric("food", DAG(root_nodes=[*topics, asked]))
    evaluate(cases(5), [metric], model=engine.judge(), limits=LIMITS, show=False)
    bodies = [json.loads(line)["body"] for line in _lines(engine.files()[0])]
    about = [body["messages"][-1]["content"].split("case ")[1][0] for body in bodies]
    assert about == sorted(about)  # three questions about each case, one after the other
    assert len(about) == 15


def test_what_an_engine_leaves_out_or_garbles_is_asked_again_in_another_file(
    tmp_path: Path,
) -> None:
    seen = set[str]()

    def some(line: Line) -> Line | str | None:
        again = line["custom_id"] in seen
        seen.add(line["custom_id"])
        number = int(line["custom_id"][:8], 16)
        if again or number % 3 == 0:
            return answered(line)
        return None if number % 3 == 1 else '{"custom_id": "half a li'

    engine = Engine(tmp_path, some)
    done = evaluate(cases(40), [food_metric()], model=engine.judge(), limits=LIMITS, show=False)
    assert done.scores("food") == RIGHT
    assert len(engine.files()) > 2
    assert done.totals.retried == done.totals.calls - 80 > 0


def test_a_line_with_an_error_fails_its_own_case_only(tmp_path: Path) -> None:
    def all_but_one(line: Line) -> Line:
        if "case 3 " not in line["body"]["messages"][-1]["content"]:
            return answered(line)
        response = {"status_code": 400, "body": {"error": {"message": "not with me"}}}
        return {"custom_id": line["custom_id"], "response": response}

    engine = Engine(tmp_path, all_but_one)
    done = evaluate(cases(5), [food_metric()], model=engine.judge(), limits=LIMITS, show=False)
    assert done.scores("food") == [1.0, 0.0, 1.0, None, 1.0]
    failure = done.rows[3].metrics[0].failure
    assert failure is not None
    assert "not with me" in failure.message


KILLED = f"""
import sys
from dagengine import evaluate
from dagengine.gateway import Limits
from dagengine.judges import FileBatchJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.test_case import LLMTestCase

{getsource(food_metric)}
{getsource(cases)}
judge = FileBatchJudge("m", sys.argv[1], quiet=0.05, poll=0.01)
evaluate(cases(40), [food_metric()], model=judge, limits=Limits(max_in_flight=1000), show=False)
"""


def test_a_killed_run_takes_its_file_up_again_and_asks_nothing_twice(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "work")
    process = start_program(KILLED, str(engine.folder))
    while not engine.files():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.ended()
    done = evaluate(cases(40), [food_metric()], model=engine.judge(), limits=LIMITS, show=False)
    assert done.scores("food") == RIGHT
    assert [len(_lines(path)) for path in engine.files()] == [40, 40]


def test_stored_answers_are_not_written_again(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "work")
    for _ in range(2):
        store = Store(tmp_path / "answers.db")
        evaluate(
            cases(4), [food_metric()], model=engine.judge(), limits=LIMITS, store=store, show=False
        )
    assert len(engine.files()) == 2
    assert engine.judge().durable_identity != OpenAIBatchJudge("m").durable_identity


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--batch"], "uses no server"),
        (["--base-url", "http://127.0.0.1:1/v1"], "uses no server"),
        (["--processes", "2"], "workers get the cases in chunks"),
        (["--judge", "judge.py:judge"], "needs the name of the model"),
        (["--judge", "gguf:small.gguf"], "needs the name of the model"),
    ],
)
def test_options_that_cannot_be_combined_are_refused(
    options: list[str], words: str, tmp_path: Path
) -> None:
    (tmp_path / "metrics.py").write_text(
        "from dagengine.metrics import GEval\n"
        "metric = GEval(name='m', criteria='Good?', evaluation_params=['input'])\n"
    )
    (tmp_path / "cases.jsonl").write_text('{"input": "a"}\n')
    command = ["run", f"{tmp_path}/metrics.py", "--data", f"{tmp_path}/cases.jsonl"]
    command += ["--out", f"{tmp_path}/out", "--batch-files", f"{tmp_path}/work", *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code != 0
    assert words in " ".join((done.output + str(done.exception)).replace("│", " ").split())
    assert not (tmp_path / "work").exists()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("mine")
    with pytest.raises(InputError, match="is a file; name a folder"):
        load_file_judge("m", tmp_path / "work")
