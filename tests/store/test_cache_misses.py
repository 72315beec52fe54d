"""What is said of stored answers before the first case: the code that gave them was edited."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dagengine import evaluate
from dagengine.judges import CustomJudge, LexicalJudge, OpenAIJudge, RecordedJudge, ScriptedJudge
from dagengine.judges.custom import ChatModel
from dagengine.loading import load_judge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Judge, Question
from dagengine.store.cache_misses import code_of
from dagengine.store.maintenance import AnswerSelection, prune
from dagengine.test_case import LLMTestCase

THEN = {True: 10, False: 0}
METRIC = DAGMetric("m", DAG(BinaryJudgementNode("ok?", evaluation_params=["input"], then=THEN)))
SCRIPT = """
from functools import partial
from dagengine.judges import CustomJudge, ScriptedJudge

def answer(question, verdict=True):
    return verdict

class Mine:
    def generate(self, prompt):
        return '{"reason": "r", "verdict": true}'
    def get_model_name(self):
        return "mine"

scripted = ScriptedJudge(answer, name="stand-in")
part = ScriptedJudge(partial(answer, verdict=True), name="stand-in")
custom = Mine()
"""


class Runs:
    """Runs with one store, and what is said before the first answer of each."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.store, self.script, self._log = folder / "answers.db", folder / "judge.py", caplog

    def scores(self, judge: Judge, cases: int = 3) -> list[float | None]:
        self._log.clear()
        data = [LLMTestCase(input=f"{number}") for number in range(cases)]
        return evaluate(data, [METRIC], model=judge, store=self.store, show=False).scores("m")

    @property
    def said(self) -> list[str]:
        return [record.getMessage() for record in self._log.records]

    def load(self, name: str, source: str) -> Judge:
        self.script.write_text(source)
        return load_judge(f"{self.script}:{name}", None)


@pytest.fixture
def runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Runs:
    return Runs(tmp_path, caplog)


def test_a_node_in_other_words_says_once_that_its_answers_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = partial(_run_ok, tmp_path / "a", caplog)
    assert run({"m": "ok?"}, "1", "2") == []
    assert run({"m": "ok?"}, "1", "3") == []  # another case is no other word
    (line,) = run({"m": "all right?"}, "1", "2", "3")
    assert "3 answers of 'Ok' not used: stored when it was put in other words" in line
    assert run({"m": "all right?"}, "1") == run({"m": "ok?"}, "1", "2") == []


def test_a_metric_with_a_node_of_the_same_name_has_no_other_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = partial(_run_ok, tmp_path / "a", caplog)
    assert run({"old": "ok?"}, "1", "2") == []
    assert run({"new": "polite?", "old": "ok?"}, "1", "2") == []
    assert run({"old": "ok?", "third": "short?", "new": "polite?"}, "1", "2", "3") == []
    (line,) = run({"old": "ok?", "new": "kind?"}, "1")  # those of "polite?" and "short?"
    assert "6 answers of 'Ok' not used" in line


def _run_ok(
    store: Path, caplog: pytest.LogCaptureFixture, metrics: dict[str, str], *inputs: str
) -> list[str]:
    """Judge inputs by metrics with one node each, all called Ok; what is said of their words."""
    caplog.clear()
    node = partial(BinaryJudgementNode, evaluation_params=["input"], then=THEN, name="Ok")
    made = [DAGMetric(name, DAG(node(words))) for name, words in metrics.items()]
    cases, judge = [LLMTestCase(input=text) for text in inputs], ScriptedJudge({"Ok": True}, "s")
    evaluate(cases, made, model=judge, store=store, show=False)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("name", ["scripted", "part", "custom"])
def test_an_edited_judge_uses_its_answers_and_says_so_once(name: str, runs: Runs) -> None:
    assert runs.scores(runs.load(name, SCRIPT)) == [1.0] * 3
    assert not runs.said
    edited = SCRIPT.replace("True", "False").replace("true", "false")
    judge = runs.load(name, edited)
    for _ in range(2):
        assert runs.scores(judge, 4) == [1.0, 1.0, 1.0, 0.0]
        assert len(runs.said) == 1
    assert "judge.py has changed since answers of" in runs.said[0]
    assert "4 answers used as stored" in runs.said[0]
    assert "dagengine store prune" in runs.said[0]
    prune(runs.store, AnswerSelection())
    assert runs.scores(judge) == [0.0] * 3
    assert not runs.said
    assert runs.scores(runs.load(name, edited)) == [0.0] * 3
    assert not runs.said


def test_a_judge_that_gave_no_answer_yet_may_change(runs: Runs) -> None:
    source = SCRIPT.replace("return verdict", "raise ValueError")
    assert runs.scores(runs.load("scripted", source)) == [None] * 3
    assert runs.scores(runs.load("scripted", SCRIPT)) == [1.0] * 3
    assert not runs.said


def test_a_store_without_digests_gets_one_silently(runs: Runs) -> None:
    runs.scores(runs.load("scripted", SCRIPT))
    with closing(sqlite3.connect(runs.store)) as db:
        db.execute("ALTER TABLE judges DROP COLUMN code")
    assert runs.scores(runs.load("scripted", SCRIPT + "\n")) == [1.0] * 3
    assert not runs.said
    runs.scores(runs.load("scripted", SCRIPT))
    assert len(runs.said) == 1


def test_two_scripts_of_one_name_in_one_run_are_told(runs: Runs) -> None:
    judges = [ScriptedJudge({"ok?": verdict}, name="n") for verdict in (True, False)]
    metrics = [METRIC, DAGMetric("b", METRIC.dag, model=judges[1])]
    evaluate([LLMTestCase(input="i")], metrics, model=judges[0], store=runs.store, show=False)
    assert len([line for line in runs.said if "its content has changed" in line]) == 1


class Settings(BaseModel):
    """A chat model whose settings are fields, as LangChain's are."""

    model: str = "m"
    base_url: str = "http://h/v1"
    metadata: dict[str, str] = {}

    async def ainvoke(self, prompt: str) -> str:
        return ""


def answer(question: Question[Any]) -> bool:
    return True


class Script:
    def __call__(self, question: Question[Any]) -> bool:
        return True


OWN: dict[str, Callable[[], Judge]] = {
    "function": lambda: ScriptedJudge(answer, "n"),
    "lambda": lambda: ScriptedJudge(lambda question: True, "n"),
    "part of a function": lambda: ScriptedJudge(partial(partial(answer)), "n"),
    "method": lambda: ScriptedJudge(Script().__call__, "n"),
    "object": lambda: ScriptedJudge(Script(), "n"),
}


@pytest.mark.parametrize("kind", OWN)
def test_the_code_of_a_judge_is_the_file_that_it_is_written_in(kind: str) -> None:
    code = code_of(OWN[kind]())
    assert code is not None
    assert code == code_of(OWN["function"]())
    assert code[0] == Path(__file__).name


def test_the_code_of_data_is_the_data() -> None:
    def scripted(**script: Any) -> Any:
        return code_of(ScriptedJudge(script, "n"))

    assert scripted(a=1, b=object()) == scripted(b=object(), a=1) != scripted(a=2, b=object())
    recorded = [code_of(RecordedJudge({"a": text}, name="n")) for text in "xxy"]
    assert recorded[0] == recorded[1] != recorded[2]

    def chat(**settings: Any) -> Any:
        return code_of(CustomJudge(ChatModel(Settings(**settings))))

    assert chat() == chat(metadata={"version": "2"}) != chat(base_url="http://another/v1")


def test_judges_whose_names_say_everything_have_no_code() -> None:
    judges: list[Judge] = [OpenAIJudge("m"), LexicalJudge(), ScriptedJudge(print, "n")]
    assert [code_of(judge) for judge in judges] == [None] * 3
