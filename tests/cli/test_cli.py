"""The command line as people use it: files in, files and exit codes out, never a traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from programs.commands import run_command, start_command
from servers.openai_server import OpenAIServer, Reply, valid_reply
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.cli.commands import main
from dagengine.data import read_rows
from dagengine.errors import InputError, MissingExtraError

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode

kind = BinaryJudgementNode("Is it kind?", then={True: 10, False: 4}, name="kind")
short = BinaryJudgementNode("Is it short?", then={True: kind, False: 0}, name="short")
words = TaskNode("List the words", "words", [short, kind], ["actual_output"])
metric = DAGMetric("Good manners", DAG(words))
"""

JUDGE = """
from dagengine.judges import ScriptedJudge

def answer(question):
    text = question.messages[-1]["content"].splitlines()[1]
    if question.name == "words":
        return text
    return {"reason": "I looked.", "verdict": question.name in text}

judge = ScriptedJudge(answer)
"""

# Once the first row is written, the question about the second case is answered by Ctrl-C.
INTERRUPTS = """
import os
import signal
from pathlib import Path

import anyio
from dagengine.judges import ScriptedJudge

async def answer(question):
    text = question.messages[-1]["content"].splitlines()[1]
    if "long" in text:
        for _ in range(100_000):
            if Path("out/results.jsonl").exists():
                break
            await anyio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()
    return text if question.name == "words" else question.name in text

judge = ScriptedJudge(answer)
"""

OUTPUTS = ("kind and short", "long", "short")  # score 1, 0 and 0.4
CASES = "".join(
    json.dumps({"name": name, "input": "a", "actual_output": output}) + "\n"
    for name, output in zip(("first", "second", "third"), OUTPUTS, strict=True)
)
FILES = {"metrics.py": METRICS, "judge.py": JUDGE, "cases.jsonl": CASES}

CYCLE = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode

end = BinaryJudgementNode("Good?", then={True: 10, False: 0})
one = TaskNode("Begin", "one", evaluation_params=["input"])
two = TaskNode("Go on", "two", [end, one])
one.children.append(two)
metric = DAGMetric("Circle", DAG(one))
"""
NO_SCORE = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, TaskNode

metric = DAGMetric("Endless", DAG(TaskNode("Begin", "one", evaluation_params=["input"])))
"""
WARNS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

kind = BinaryJudgementNode("Kind?", evaluation_params=["input"], then={True: 10, False: 6})
metric = DAGMetric("Easy", DAG(kind))
"""
TWO = METRICS + '\nother = DAGMetric("Manners: in/out", DAG(words))\n'
RAISES = "import math\n\n\nvalue = 1 / 0\n"


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def dagengine(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m dagengine` in a folder, without any key of whoever runs the tests."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
    return run_command(
        folder, *arguments, environment={**variables, "COLUMNS": "200", **environment}
    )


RUN = ("run", "metrics.py", "--data", "cases.jsonl", "--judge", "judge.py:judge")


def rows_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# -- run -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """A run that went well: where it was, and what it printed."""

    folder: Path
    process: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = write(tmp_path_factory.mktemp("run"), FILES)
    return Done(folder, dagengine(folder, *RUN))


def test_a_run_writes_a_row_per_case_in_order(done: Done) -> None:
    assert done.process.returncode == 0, done.process.stderr
    rows = rows_of(done.folder / "out" / "results.jsonl")
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert [row["case"] for row in rows] == ["first", "second", "third"]
    assert [row["metrics"][0]["score"] for row in rows] == [1.0, 0.0, 0.4]
    assert rows[0]["metrics"][0]["path"] == [["short", True], ["kind", True]]


def test_a_run_prints_a_table_and_where_everything_is(done: Done) -> None:
    text = done.process.stdout
    for words in ("first", "second", "third", "1.000", "0.400", "kind → False"):
        assert words in text
    assert "Good manners" in text
    assert "0.467" in text  # the mean
    assert f"results: {Path('out', 'results.jsonl')}" in text
    assert text.count("picture: ") == 3
    assert "rror" not in done.process.stderr


def test_a_run_leaves_three_pictures(done: Done) -> None:
    names = [f"good-manners-{view}.svg" for view in ("counts", "path", "tree")]
    pictures = sorted(done.folder.glob("out/*.svg"))
    assert [picture.name for picture in pictures] == names
    counts, path, tree = ("".join(ElementTree.parse(p).getroot().itertext()) for p in pictures)
    assert "Good mannerspasses at 0.5 · 3 nodes" in tree
    assert "passes at 0.5 · 3 cases, ✕ 2 failed, 67% of them" in counts
    # The longest path, the first of those.
    assert "passes at 0.5 · first: ✓ score 1, passed" in path


@pytest.mark.usefixtures("without_graphviz")
def test_without_graphviz_a_run_leaves_text_for_its_pictures_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path, FILES))
    code, shown = invoke(*RUN)
    assert code == 0
    for view in ("counts", "path", "tree"):
        text = Path("out", f"good-manners-{view}.mmd").read_text(encoding="utf-8")
        assert text.splitlines()[3] == "flowchart TD"
    assert not [*Path("out").glob("*.svg"), *Path("out").glob("*.dot")]
    assert (
        shown.count("the pictures are written as Mermaid text: a picture as svg needs Graphviz")
        == 1
    )
    assert shown.count("picture: ") == 3
    assert Path("out", "report.html").is_file()


def test_assert_turns_a_case_below_its_threshold_into_exit_code_one(tmp_path: Path) -> None:
    done = dagengine(write(tmp_path, FILES), *RUN, "--assert", "--case", "1", "--out", "deep/er")
    assert done.returncode == 1
    assert len(rows_of(tmp_path / "deep" / "er" / "results.jsonl")) == 3
    path = (tmp_path / "deep" / "er" / "good-manners-path.svg").read_text(encoding="utf-8")
    assert "✕ score 0, failed" in path
    assert "Traceback" not in done.stderr


def test_a_case_without_a_score_is_a_row_and_exit_code_three(tmp_path: Path) -> None:
    cases = '{"input": "a", "name": "nothing said"}\n\n' + CASES
    folder = write(tmp_path, {**FILES, "cases.jsonl": cases})
    done = dagengine(folder, *RUN)
    assert done.returncode == 3
    assert dagengine(folder, *RUN, "--assert").returncode == 1  # another case failed
    assert dagengine(folder, *RUN, "--fail-if", "failed>0").returncode == 1
    rows = rows_of(tmp_path / "out" / "results.jsonl")
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["metrics"][0]["failure"]["kind"] == "missing_field"
    assert rows[0]["metrics"][0]["score"] is None
    assert [row["metrics"][0]["score"] for row in rows[1:]] == [1.0, 0.0, 0.4]
    assert "missing_field" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["run", "plan", "benchmark"])
def test_fields_that_cases_lack_are_said_before_the_first_question(
    tmp_path: Path, command: str
) -> None:
    """Nothing is asked if no case has what every path reads; half of them is a warning."""
    lacking = '{"input": "a", "name": "nothing said"}\n' * 3
    folder = write(tmp_path, {**FILES, "cases.jsonl": lacking})
    options = {"run": ["--out", "out"], "plan": [], "benchmark": ["--times", "2", "--out", "out"]}
    arguments = [command, "metrics.py:metric", "--data", "cases.jsonl", "--judge", "judge.py:judge"]
    done = dagengine(folder, *arguments, *options[command])
    assert done.returncode == 2
    assert "3 of 3 cases have no `actual_output` (first: nothing said)" in done.stderr
    assert "--map COLUMN=actual_output" in done.stderr
    assert not (folder / "out").exists()
    write(tmp_path, {**FILES, "cases.jsonl": lacking + CASES})
    done = dagengine(folder, *arguments, *options[command])
    assert done.returncode in (0, 3)
    assert "warning: 3 of 6 cases have no `actual_output`" in done.stderr
    write(tmp_path, {**FILES, "cases.jsonl": lacking[: len(lacking) // 3] + CASES})
    assert "have no" not in dagengine(folder, *arguments, *options[command]).stderr


def test_an_interrupted_run_keeps_its_rows_and_says_how_many(tmp_path: Path) -> None:
    folder = write(tmp_path, {**FILES, "judge.py": INTERRUPTS})
    done = dagengine(folder, *RUN)
    assert done.returncode == 130
    assert "interrupted: 2 of 3 rows" in done.stderr
    assert "Traceback" not in done.stderr
    # The last case was done; it carries its index, since the one before it is missing.
    assert [row["index"] for row in rows_of(tmp_path / "out" / "results.jsonl")] == [0, 2]


def test_text_in_every_script_reaches_the_results(tmp_path: Path) -> None:
    case = {"input": "a", "actual_output": "kind short שלום 漢字 🙂", "name": "žluťoučký"}
    files = {**FILES, "cases.jsonl": json.dumps(case, ensure_ascii=False)}
    done = dagengine(write(tmp_path, files), *RUN)
    assert done.returncode == 0, done.stderr
    (row,) = rows_of(tmp_path / "out" / "results.jsonl")
    assert row["case"] == "žluťoučký"
    assert row["metrics"][0]["steps"][0]["output"] == "kind short שלום 漢字 🙂"


def test_every_metric_of_a_file_is_run_or_the_one_that_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, {**FILES, "metrics.py": TWO})
    done = dagengine(folder, *RUN)
    assert done.returncode == 0, done.stderr
    names = [
        metric["metric"] for metric in rows_of(tmp_path / "out" / "results.jsonl")[0]["metrics"]
    ]
    assert names == ["Good manners", "Manners: in/out"]
    assert len(list(tmp_path.glob("out/*.svg"))) == 6
    named = ("run", "metrics.py:other", *RUN[2:], "--out", "one")
    assert dagengine(folder, *named).returncode == 0
    assert len(list(tmp_path.glob("one/*.svg"))) == 3


def test_names_that_differ_in_punctuation_only_get_pictures_of_their_own(tmp_path: Path) -> None:
    text = METRICS + '\nother = DAGMetric("Good: manners!", DAG(words))\n'
    assert dagengine(write(tmp_path, {**FILES, "metrics.py": text}), *RUN).returncode == 0
    assert len(list(tmp_path.glob("out/*.svg"))) == 6


# -- data in other forms, results in other forms, an app ------------------------------------

EXACT = """
from dagengine.metrics import ExactMatchMetric

metric = ExactMatchMetric()
"""
APP = """
async def answer(text):
    if text == "c":
        raise RuntimeError("the app is down")
    return text.upper()
"""


def test_columns_are_mapped_split_and_left_out_and_results_are_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = "question,answer,context,expected_output,notes\na,b,x;y,b,-\nc,d,z,e,-\n"
    folder = write(tmp_path, {"metrics.py": EXACT, "cases.csv": table})
    options = "--map question=input --map answer=actual_output --map notes= --delimiter context=;"
    data = ("metrics.py", "--data", "cases.csv", *options.split())
    done = dagengine(folder, "run", *data, "--results", "rows.parquet")
    assert done.returncode == 0, done.stderr
    rows = list(read_rows(tmp_path / "rows.parquet"))
    assert [row.metrics[0].score for row in rows] == [1.0, 0.0]
    assert "results: rows.parquet" in done.stdout
    assert dagengine(folder, "check", *data).stdout.startswith("ok: Exact Match")
    drawn = dagengine(folder, "render", "metrics.py", "--results", "rows.parquet")
    assert drawn.returncode == 0, drawn.stderr


def test_every_command_takes_a_run_by_its_folder_or_its_rows(tmp_path: Path) -> None:
    cases = '{"input": "a", "actual_output": "b", "expected_output": "b"}\n'
    folder = write(tmp_path, {"metrics.py": EXACT, "cases.jsonl": cases})
    data, rows = str(folder / "cases.jsonl"), str(folder / "run" / "results.jsonl")
    metrics, run = str(folder / "metrics.py"), str(folder / "run")
    assert invoke("run", metrics, "--data", data, "--out", run)[0] == 0
    picture = ("--out", str(folder / "tree.svg"))
    for named in (run, rows):
        for words in (
            ("show", named), ("diff", named, run), ("labels", "plan", named),
            ("render", metrics, "--results", named, *picture),
            ("plan", metrics, "--data", data, "--results", named),
        ):  # fmt: skip
            assert invoke(*words)[0] == 0, words
        with pytest.raises(InputError, match="have no ids of traces"):
            invoke("send", named, "--to", "otlp=http://127.0.0.1:9")
        with pytest.raises(InputError, match="its run had no --shard"):
            invoke("merge", named, "--out", str(folder / "all"))
        (folder / "other.py").write_text(EXACT.replace("Metric()", "Metric(name='Other')"))
        other = (str(folder / "other.py"), "--results", named, *picture)
        code, said = invoke("render", *other)
        assert (code, "has no result of 'Other'" in said) == (2, True)
        code, said = invoke("benchmark", metrics, "--data", data, "--verdicts", named)
        assert (code, "leave out METRICS.py and --data" in said) == (2, True)


def test_goldens_are_completed_by_an_app_whose_failure_is_an_outcome(tmp_path: Path) -> None:
    goldens = "".join(
        json.dumps({"input": text, "expected_output": text.upper()}) + "\n" for text in "abcd"
    )
    files = {"metrics.py": EXACT, "goldens.jsonl": goldens, "app.py": APP}
    arguments = "run metrics.py --data goldens.jsonl --app app.py:answer --app-in-flight 2"
    done = dagengine(write(tmp_path, files), *arguments.split())
    assert done.returncode == 3, done.stderr
    results = [row["metrics"][0] for row in rows_of(tmp_path / "out" / "results.jsonl")]
    assert [result["score"] for result in results] == [1.0, 1.0, None, 1.0]
    assert "app answer: RuntimeError: the app is down (app.py line" in str(
        results[2]["failure"]["node"] + ": " + results[2]["failure"]["message"]
    )


def test_a_bad_line_far_down_is_a_row_without_a_score_and_exit_code_three(tmp_path: Path) -> None:
    good = '{"input": "a", "actual_output": "b", "expected_output": "b"}'
    cases = "\n".join("{" if number == 1100 else good for number in range(1, 1201))
    folder = write(tmp_path, {"metrics.py": EXACT, "cases.jsonl": cases})
    done = dagengine(folder, "run", "metrics.py", "--data", "cases.jsonl")
    assert done.returncode == 3, done.stderr
    rows = rows_of(tmp_path / "out" / "results.jsonl")
    assert len(rows) == 1200
    assert rows[1099]["metrics"][0]["outcome"] == "invalid_case"
    assert "1x ⊘ data set → invalid_case" in done.stdout
    assert "cases.jsonl line 1100: not JSON" in done.stdout


# -- bad input -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Bad:
    """Something that cannot work: files to change, arguments, and what must be said."""

    says: tuple[str, ...]
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    arguments: tuple[str, ...] = RUN
    code: int = 2


def lines(count: int, place: int, text: str) -> str:
    """Good cases, with another text in one line."""
    good = '{"input": "a", "actual_output": "b"}'
    return "\n".join(text if number == place else good for number in range(1, count + 1))


WITHOUT_JUDGE = RUN[:4]
LINE_17 = lines(20, 17, '{"input": "a", "actual_output": }')
LINE_3 = lines(4, 3, '{"input": "a", "actual_ouput": "b"}')

BAD: dict[str, Bad] = {
    "no metrics file": Bad(("no file", "nope.py"), arguments=("run", "nope.py", *RUN[2:])),
    "no data file": Bad(
        ("no file", "nope.jsonl"), arguments=("run", "metrics.py", "--data", "nope.jsonl")
    ),
    "broken JSON": Bad(("cases.jsonl line 17", "not JSON", "column 33"), {"cases.jsonl": LINE_17}),
    "unknown field": Bad(
        ("cases.jsonl line 3", "unknown field 'actual_ouput'", "actual_output"),
        {"cases.jsonl": LINE_3},
    ),
    "missing field": Bad(
        ("cases.jsonl line 2", "'input'", "missing"), {"cases.jsonl": lines(3, 2, "{}")}
    ),
    "a list in a line": Bad(("cases.jsonl line 2",), {"cases.jsonl": lines(3, 2, "[1, 2]")}),
    "endless nesting": Bad(("cases.jsonl line 2",), {"cases.jsonl": lines(3, 2, "[" * 99_999)}),
    "no UTF-8": Bad(
        ("cases.jsonl", "UTF-8"), {"cases.jsonl": '{"input": "Größe"}'.encode("latin-1")}
    ),
    "no cases": Bad(("cases.jsonl", "no test case"), {"cases.jsonl": "\n\n"}),
    "cyclic tree": Bad(("cycle", "one -> two -> one", "hint"), {"metrics.py": CYCLE}),
    "tree without a score": Bad(("no-score", "'Endless'", "hint"), {"metrics.py": NO_SCORE}),
    "metrics that raise": Bad(
        ("metrics.py line 4", "ZeroDivisionError", "division by zero"), {"metrics.py": RAISES}
    ),
    "metrics with a typing error": Bad(
        ("metrics.py", "line 2", "SyntaxError"), {"metrics.py": "a = 1\nb = (\n"}
    ),
    "metrics that exit": Bad(("metrics.py line 2",), {"metrics.py": "import sys\nsys.exit(0)\n"}),
    "file without metrics": Bad(("metrics.py", "no metric"), {"metrics.py": "a = 1\n"}),
    "unknown name": Bad(
        ("metrics.py", "'nope'", "metric"), arguments=("run", "metrics.py:nope", *RUN[2:])
    ),
    "name of something else": Bad(
        ("metrics.py", "neither a metric nor"), arguments=("run", "metrics.py:kind", *RUN[2:])
    ),
    "judge file without the object": Bad(
        ("judge.py", "'judge'", "judge.py:NAME"), {"judge.py": "a = 1\n"}
    ),
    "judge that is none": Bad(("not a judge", "answer"), {"judge.py": "judge = 7\n"}),
    "judge file that raises": Bad(("judge.py line 4", "ZeroDivisionError"), {"judge.py": RAISES}),
    "no key": Bad(("OPENAI_API_KEY", "--base-url"), arguments=WITHOUT_JUDGE),
    "no key for a named model": Bad(
        ("OPENAI_API_KEY", "gpt-4.1"), arguments=(*WITHOUT_JUDGE, "--judge", "gpt-4.1")
    ),
    "unreachable endpoint": Bad(
        ("http://127.0.0.1:9/v1", "running"),
        arguments=(*WITHOUT_JUDGE, "--base-url", "http://127.0.0.1:9/v1"),
    ),
    "a key in the place of a model": Bad(
        ("has the form of a key", "OPENAI_API_KEY"),
        arguments=(*WITHOUT_JUDGE, "--judge", "sk-proj-abcdefghijklmnopqrst"),
    ),
    "no such provider": Bad(
        ("no provider 'antropic'", "did you mean 'anthropic'?", "--base-url"),
        arguments=(*WITHOUT_JUDGE, "--judge", "antropic/claude-sonnet-4-5"),
    ),
    "a model file without its prefix": Bad(
        ("gguf:models/tiny.gguf",), arguments=(*WITHOUT_JUDGE, "--judge", "models/tiny.gguf")
    ),
    "a command of other tools": Bad(
        ("no command 'evaluate'", "dagengine run"), arguments=("evaluate", *RUN[1:])
    ),
    "what people call failing cases": Bad(
        ("no command 'failures'", "show RUN --failed`"),
        arguments=("failures", "out"),
    ),
    "what people call labels": Bad(
        ("no command 'agreement'", "benchmark --verdicts RUN --labels LABELS`"),
        arguments=("agreement", "out"),
    ),
    "what people call reading traces": Bad(
        ("no command 'import'", "run METRICS.py --data FILE --map otel`"),
        arguments=("import", "traces.jsonl"),
    ),
    "an option of another command": Bad(
        ("no option '--repeat'", "benchmark METRICS.py --data FILE --times 5`"),
        arguments=(*RUN, "--repeat", "3"),
    ),
    "the first cases": Bad(
        (
            "no option '--limit'",
            "head -n 20 CASES.jsonl | dagengine run METRICS.py --data /dev/stdin`",
        ),
        arguments=(*RUN, "--limit", "3"),
    ),
    "prices apart": Bad(
        ("no option '--input-price'", "write --price IN,OUT."),
        arguments=(*RUN, "--input-price", "1"),
    ),
    "tests without their command": Bad(
        ("no command 'test_a.py'", "test run test_a.py`"),
        arguments=("test", "test_a.py"),
    ),
    "data for a picture": Bad(
        ("no option '--data'", "write --results. A run, or its rows"),
        arguments=("render", "metrics.py", "--data", "cases.jsonl"),
    ),
    "verdicts, metrics and no cases": Bad(
        ("--verdicts with METRICS.py needs --data", "without METRICS.py"),
        arguments=("benchmark", "metrics.py", "--verdicts", "cases.jsonl"),
    ),
    "no such run": Bad(("nowhere does not exist",), arguments=("show", "nowhere")),
    "spans without their format": Bad(
        ("is not one JSON array", "--map otel"),
        {"cases.json": '{"resourceSpans": []}'},
        ("run", "metrics.py", "--data", "cases.json"),
    ),
    "a command with a slip": Bad(("did you mean 'run'?",), arguments=("rnu", *RUN[1:])),
    "an option of other tools": Bad(
        ("no option '--output'", "write --out. Output folder"), arguments=(*RUN, "--output", "a")
    ),
    "traces without their format": Bad(
        ("no option '--traces'", "write --data.", "(`--map otel`)"),
        arguments=(*RUN, "--traces", "a.jsonl"),
    ),
    "data without its option": Bad(
        ("Missing option '--data'. Write --data cases.jsonl",),
        arguments=("run", "metrics.py", "cases.jsonl"),
    ),
    "data without its option where it may be left out": Bad(
        ("(cases.jsonl): write --data cases.jsonl",),
        arguments=("benchmark", "metrics.py", "cases.jsonl"),
    ),
    "a swapped mapping": Bad(
        ("'question' is not a field", "--map question=input"),
        {"cases.jsonl": '{"question": "a", "actual_output": "b"}'},
        (*RUN, "--map", "input=question"),
    ),
    "folder that is a file": Bad(("cases.jsonl",), arguments=(*RUN, "--out", "cases.jsonl")),
    "no such case": Bad(("no case 9",), arguments=(*RUN, "--case", "9")),
    "nothing in flight": Bad(("--max-in-flight",), arguments=(*RUN, "--max-in-flight", "0")),
    "unknown column": Bad(
        ("no row has a column 'answre'", "did you mean 'answer'"),
        {"cases.jsonl": '{"input": "a", "answer": "b"}'},
        arguments=(*RUN, "--map", "answre=actual_output"),
    ),
    "mapping to no field": Bad(("'nope' is not a field",), arguments=(*RUN, "--map", "input=nope")),
    "mapping without a column": Bad(("--map", "COLUMN="), arguments=(*RUN, "--map", "input")),
    "results in an unknown form": Bad((".parquet",), arguments=(*RUN, "--results", "a.csv")),
    "app file without the function": Bad(
        ("metrics.py", "'app'", "NAME"), arguments=(*RUN, "--app", "metrics.py")
    ),
    "unknown option": Bad(("--dta",), arguments=("run", "metrics.py", "--dta", "cases.jsonl")),
    "unknown picture": Bad(("svg", "mmd"), arguments=("render", "metrics.py", "--out", "a.gif")),
    "picture of a cyclic tree": Bad(
        ("cycle", "one -> two -> one"), {"metrics.py": CYCLE}, ("render", "metrics.py")
    ),
    "case without results": Bad(("--results",), arguments=("render", "metrics.py", "--case", "0")),
    "a mistake in a node": Bad(
        ("metrics.py line 9", "prompt= takes a template"),
        {"metrics.py": METRICS + 'BinaryJudgementNode("x", prompt="x")\n'},
        ("check", "metrics.py"),
    ),
    "a file of imports alone": Bad(
        ("defines no metric",),
        {"metrics.py": "from dagengine.metrics import *\n"},
        ("check", "metrics.py"),
    ),
    "results over cases": Bad(
        ("more.jsonl holds no results, and would be overwritten",),
        {"more.jsonl": '{"input": "a"}\n'},
        (*RUN, "--results", "more.jsonl"),
    ),
    "a folder with cases of its own": Bad(
        ("its cases.jsonl would be lost",),
        {"more.jsonl": '{"input": "a", "actual_output": "b"}\n'},
        ("run", "metrics.py", "--data", "more.jsonl", "--judge", "judge.py:judge", "--out", "."),
    ),
    "results that are none": Bad(
        ("cases.jsonl line 1",), arguments=("render", "metrics.py", "--results", "cases.jsonl")
    ),
    "check of a file that raises": Bad(
        ("metrics.py line 4", "ZeroDivisionError"), {"metrics.py": RAISES}, ("check", "metrics.py")
    ),
    "check of cases of another kind": Bad(
        ("`actual_output`", "ConversationalTestCase"),
        {"cases.jsonl": '{"turns": [{"role": "user", "content": "Hi"}]}'},
        ("check", "metrics.py", "--data", "cases.jsonl"),
    ),
}


@pytest.mark.parametrize(
    ("status", "command"),
    [(401, ("run",)), (404, ("run", "--processes", "2")), (404, ("benchmark", "--times", "2"))],
    ids=["run", "processes", "benchmark"],
)
def test_a_judge_that_accepts_no_call_is_one_line_and_leaves_an_earlier_run(
    status: int, command: tuple[str, ...], tmp_path: Path
) -> None:
    folder = write(tmp_path, {**FILES, "cases.jsonl": CASES * 10})
    name, *more = command
    if not more:
        assert dagengine(folder, *RUN).returncode == 0
    kept = {path.name: path.read_bytes() for path in (folder / "out").glob("*")}
    arguments = (name, *WITHOUT_JUDGE[1:], "--judge", "gpt-4o", "--out", "out", *more)
    with OpenAIServer(lambda body: Reply("no such thing", status=status)) as server:
        address = server.base_url
        done = dagengine(folder, *arguments, OPENAI_BASE_URL=address, OPENAI_API_KEY="x")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: the judge accepts no call: HTTP {status}: no such thing; check")
    assert done.returncode == 2
    assert name == "benchmark" or not done.stdout
    left = {path.name: path.read_bytes() for path in (folder / "out").glob("*")}
    assert left == kept or more


@pytest.mark.parametrize(("cases", "code"), [(1, 2), (4, 3)])
def test_a_command_goes_on_after_a_refusal_of_one_question(
    cases: int, code: int, tmp_path: Path
) -> None:
    lines = "".join(f'{{"input": "i{n}", "actual_output": "a{n}"}}\n' for n in range(cases))
    folder = write(tmp_path, {**FILES, "cases.jsonl": lines})

    def reply(body: Any) -> Reply:
        return refused(body) if "a0" in str(body["messages"]) else valid_reply(body)

    with OpenAIServer(reply) as server:
        key = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "x"}
        done = dagengine(folder, *WITHOUT_JUDGE, "--judge", "gpt-4o", **key)
    assert done.returncode == code
    assert (code == 2) == done.stderr.startswith("error: the judge accepts no call: HTTP 401")


def test_a_run_goes_on_if_a_stored_or_another_answer_was_accepted(tmp_path: Path) -> None:
    folder, replies = write(tmp_path, FILES), iter([valid_reply, *[refused] * 100])
    with OpenAIServer(lambda body: next(replies)(body)) as server:
        arguments = (*WITHOUT_JUDGE, "--judge", "gpt-4o", "--max-in-flight", "1")
        key = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "x"}
        done = dagengine(folder, *arguments, **key)
    assert done.returncode == 3
    assert "check the API key" in done.stdout


def refused(body: Any) -> Reply:
    return Reply("no such key", status=401)


def test_check_finds_two_metrics_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "metrics.py"
    path.write_text(METRICS + 'other = DAGMetric("Good manners", DAG(words))\n')
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 1
    assert "metric-name metric 'Good manners': 2 metrics have this name" in done.stdout


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_message_and_an_exit_code(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = BAD[name]
    monkeypatch.chdir(write(tmp_path, {**FILES, **bad.files}))
    monkeypatch.setattr(sys, "argv", ["dagengine", *bad.arguments])
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(SystemExit) as end:
        main()
    stderr = capsys.readouterr().err
    shown = " ".join(stderr.replace("│", " ").split())
    assert "Traceback" not in stderr
    assert end.value.code == bad.code, shown
    for words in bad.says:
        assert words in shown
    assert shown.lower().count("error") >= 1
    # One line, the lines of a graph's problems, or the box that typer draws.
    assert len(stderr.strip().splitlines()) <= 8


@pytest.mark.parametrize(
    ("files", "arguments"),
    [({"metrics.py": CYCLE}, RUN), ({}, WITHOUT_JUDGE)],
    ids=["cyclic tree", "no key"],
)
def test_a_run_that_cannot_start_leaves_earlier_results_alone(
    tmp_path: Path, files: dict[str, str], arguments: tuple[str, ...]
) -> None:
    folder = write(tmp_path, {**FILES, **files})
    write(folder / "out", {"results.jsonl": "what an earlier run cost money for\n"})
    assert dagengine(folder, *arguments).returncode == 2
    assert (folder / "out" / "results.jsonl").read_text() == "what an earlier run cost money for\n"


def test_a_case_to_draw_that_does_not_exist_is_found_before_the_first_question(
    tmp_path: Path,
) -> None:
    judge = JUDGE.replace("    text =", "    open('asked', 'w').close()\n    text =")
    folder = write(tmp_path, {**FILES, "judge.py": judge})
    assert dagengine(folder, *RUN, "--case", "9").returncode == 2
    assert not (folder / "asked").exists()


# -- check, render and help ----------------------------------------------------------------


def invoke(*arguments: str) -> tuple[int, str]:
    """Call the command line in this process; exit code and output on one line."""
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


def test_check_says_that_a_good_tree_is_good(tmp_path: Path) -> None:
    folder = write(tmp_path, FILES)
    code, text = invoke("check", str(folder / "metrics.py"), "--strict")
    assert (code, text) == (0, "ok: Good manners (0 warnings)")
    with_data = ("--data", str(folder / "cases.jsonl"))
    assert invoke("check", str(folder / "metrics.py"), *with_data)[0] == 0


def test_a_check_needs_no_model_file_and_no_package_of_the_judge_that_it_names(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path, FILES)
    metrics = folder / "metrics.py"
    for judge in ("gguf:elsewhere.gguf", "nobody.has.this:judge"):
        own = f'\nfor own in [metric]:\n    own.model = "{judge}"\n'
        metrics.write_text(METRICS + own, encoding="utf-8")
        code, text = invoke("check", str(metrics))
        assert code == 0, text
        assert f"asks a judge of its own: {judge}" in text


def test_check_prints_code_node_and_hint_of_every_problem(tmp_path: Path) -> None:
    text = METRICS.replace("True: 10", "True: 11").replace("actual_output", "actual_ouput")
    folder = write(tmp_path, {"metrics.py": text})
    code, shown = invoke("check", str(folder / "metrics.py"))
    assert code == 1
    assert "error: score-range metric 'Good manners', node 'kind'" in shown
    assert "error: field-unknown metric 'Good manners', node 'words'" in shown
    assert "hint: did you mean 'actual_output'?" in shown


def test_check_says_as_json_and_csv_how_prompts_show_a_case(tmp_path: Path) -> None:
    questions = "".join(
        f"BinaryJudgementNode('{name}?', evaluation_params={fields}, then={{True: 1, False: 0}}),"
        for name, fields in (
            ("Good", ["input", "actual_output"]), ("Kind", ["actual_output"]),
            ("Grounded", ["input", "retrieval_context"]),
        )
    )  # fmt: skip
    folder = write(tmp_path, {"metrics.py": (
        "from dagengine.metrics import DAGMetric\n"
        "from dagengine.metrics.dag import DAG, BinaryJudgementNode\n"
        f"metric = DAGMetric('m', DAG(root_nodes=[{questions}]))\n"
    )})  # fmt: skip
    path = str(folder / "metrics.py")
    done = CliRunner().invoke(app, ["check", path, "--format", "json"])
    *_, note = json.loads(done.stdout)
    assert (done.exit_code, note["severity"], note["code"]) == (0, "note", "reading-order")
    assert note["message"] == (
        "prompts show retrieval_context, actual_output, input, in this order; "
        "2 of 3 nodes share a beginning"
    )
    assert (
        "note,reading-order," in CliRunner().invoke(app, ["check", path, "--format", "csv"]).stdout
    )
    assert "reading-order" not in invoke("check", path)[1]


def test_warnings_about_data_are_counted_and_fail_a_strict_check(tmp_path: Path) -> None:
    folder = write(tmp_path, {**FILES, "cases.jsonl": '{"input": "a"}\n'})
    check = ("check", "metrics.py:metric", "--data", "cases.jsonl")
    done = dagengine(folder, *check)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].endswith(" (1 warning)")
    assert dagengine(folder, *check, "--strict").returncode == 1


def test_warnings_fail_a_check_only_when_it_is_strict(tmp_path: Path) -> None:
    folder = write(tmp_path, {"metrics.py": WARNS})
    code, shown = invoke("check", str(folder / "metrics.py"))
    assert code == 0
    assert "warning: threshold-trivial" in shown
    assert "ok: Easy (1 warning)" in shown
    assert invoke("check", str(folder / "metrics.py"), "--strict")[0] == 1


def test_a_graph_without_a_metric_is_checked_under_the_name_of_its_file(tmp_path: Path) -> None:
    text = METRICS.replace('DAGMetric("Good manners", DAG(words))', "DAG(words)")
    folder = write(tmp_path, {"manners.py": text})
    assert invoke("check", str(folder / "manners.py")) == (0, "ok: manners (0 warnings)")


@pytest.mark.parametrize(
    ("suffix", "start"),
    [
        ("svg", b"<?xml"),
        ("png", b"\x89PNG"),
        ("dot", b"digraph"),
        ("mmd", b"---\ntitle: "),
        ("md", b"```mermaid"),
    ],
)
def test_render_draws_the_tree_in_the_form_of_the_suffix(
    tmp_path: Path, suffix: str, start: bytes
) -> None:
    folder, target = write(tmp_path, FILES), tmp_path / f"tree.{suffix}"
    code, shown = invoke("render", str(folder / "metrics.py"), "--out", str(target))
    assert code == 0
    assert "tree." in shown
    assert target.read_bytes().startswith(start)


@pytest.mark.usefixtures("without_graphviz")
def test_without_graphviz_render_says_what_is_missing_and_writes_nothing(tmp_path: Path) -> None:
    folder, target = write(tmp_path, FILES), tmp_path / "new" / "tree.svg"
    with pytest.raises(MissingExtraError, match="needs Graphviz: pip install"):
        invoke("render", str(folder / "metrics.py"), "--out", str(target))
    assert not target.parent.exists()
    text = tmp_path / "tree.md"
    assert invoke("render", str(folder / "metrics.py"), "--out", str(text))[0] == 0
    assert text.read_text(encoding="utf-8").startswith("```mermaid\n")


def test_render_draws_counts_and_one_case_of_earlier_results(done: Done) -> None:
    metrics, results = str(done.folder / "metrics.py"), done.folder / "out" / "results.jsonl"
    target = done.folder / "again.mmd"
    given = ("render", metrics, "--out", str(target), "--results", str(results))
    assert invoke(*given)[0] == 0
    assert "(passes at 0.5 · 3 cases, ✕ 2 failed, 67% of them)" in target.read_text("utf-8")
    assert invoke(*given, "--case", "2")[0] == 0
    assert target.read_text(encoding="utf-8").count('" ==>') == 2
    drawn = target.read_bytes()
    target.unlink()
    (name,) = (row.case for row in read_rows(results) if row.index == 2)
    assert name != "2"
    assert invoke(*given, "--case", name)[0] == 0
    assert target.read_bytes() == drawn
    for unknown in ("7", "nobody"):
        code, said = invoke(*given, "--case", unknown)
        assert code == 2
        assert f"for a case '{unknown}'" in " ".join(said.replace("│", " ").split())


def test_render_gives_every_metric_a_file_of_its_own(tmp_path: Path) -> None:
    folder = write(tmp_path, {"metrics.py": TWO})
    code, _ = invoke("render", str(folder / "metrics.py"), "--out", str(folder / "tree.mmd"))
    assert code == 0
    assert len(list(folder.glob("*.mmd"))) == 2


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((), ("run", "render", "check", "decision trees")),
        (
            ("run",),
            ("METRICS.py[:NAME]", "--judge", "--base-url", "--assert", "--map", "--app", "130"),
        ),
        (("render",), ("--results", "--case", ".mmd", "Makes no judge calls")),
        (("check",), ("--strict", "--data", "Exit codes")),
    ],
    ids=["all", "run", "render", "check"],
)
def test_help_says_what_each_command_does(command: tuple[str, ...], words: tuple[str, ...]) -> None:
    code, shown = invoke(*command, "--help")
    assert code == 0
    for word in words:
        assert word in shown


# -- lists of metrics, and the judge without a model --------------------------------------------

LISTS = (
    METRICS
    + """
from dagengine.metrics import ExactMatchMetric

both = [metric, ExactMatchMetric()]
none = []
mixed = [metric, kind]
"""
)


@pytest.mark.parametrize(
    "command", ["check {}", "plan {} --data cases.jsonl", "render {}", RUN_LIST := "run {}"]
)
def test_a_list_of_metrics_is_named_like_a_metric(tmp_path: Path, command: str) -> None:
    folder = write(tmp_path, {**FILES, "metrics.py": LISTS.replace("mixed", "_ = None\nrest")})
    (folder / "metrics.py").write_text(
        (folder / "metrics.py").read_text().replace("rest = [metric, kind]", "")
    )
    options = (*RUN[2:],) if command == RUN_LIST else ()
    for target in ("metrics.py:both", "metrics.py"):
        done = dagengine(folder, *command.format(target).split(), *options)
        assert done.returncode in (0, 3), done.stderr
        assert "Exact Match" in done.stdout or len(list(folder.glob("tree-*.svg"))) == 2


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("lists.py:none", "the list none is empty"),
        ("lists.py:mixed", "<BinaryJudgementNode 'kind'> is neither a metric nor a DAG"),
        ("classes.py", "metric is a class, of which `metric(…)` makes a metric"),
        ("classes.py:metric", "ExactMatchMetric is a class"),
    ],
)
def test_what_is_no_metric_is_a_sentence(tmp_path: Path, target: str, says: str) -> None:
    classes = "from dagengine.metrics import ExactMatchMetric\n\nmetric = ExactMatchMetric\n"
    folder = write(tmp_path, {"lists.py": LISTS, "classes.py": classes})
    done = dagengine(folder, "check", target)
    assert done.returncode == 2
    assert says in done.stderr


def test_the_lexical_judge_is_refused_where_words_are_no_answer(tmp_path: Path) -> None:
    relevancy = "from dagengine.metrics import AnswerRelevancyMetric\nm = AnswerRelevancyMetric()\n"
    folder = write(tmp_path, {**FILES, "relevancy.py": relevancy})
    lexical = ("--data", "cases.jsonl", "--judge", "lexical")
    done = dagengine(folder, "run", "relevancy.py", *lexical)
    assert done.returncode == 0, done.stderr
    refused = dagengine(folder, "run", "metrics.py", *lexical)
    assert refused.returncode == 2
    assert "node 'kind': it asks for BinaryJudgementVerdict(reason, verdict)" in refused.stderr


# -- text that a terminal would obey -----------------------------------------------------------

EVIL = "a\x1b[2Jb\x9bc\u202ed\U000e0041e"
EVIL_METRICS = METRICS.replace('"Good manners"', repr(EVIL)).replace(
    'name="kind"', f"name={EVIL!r}"
)


def test_no_command_prints_control_or_bidi_characters_of_names_and_data(tmp_path: Path) -> None:
    case = json.dumps({"name": EVIL, "input": EVIL, "actual_output": f"kind and short {EVIL}"})
    judge = JUDGE.replace('"I looked."', repr(EVIL)).replace("(answer)", f"(answer, name={EVIL!r})")
    folder = write(
        tmp_path, {"metrics.py": EVIL_METRICS, "judge.py": judge, "cases.jsonl": case * 1 + "\n"}
    )
    for command in (
        (*RUN, "--store", "answers.db", "--results", "a\x1b[2Jb.jsonl"),
        ("check", "metrics.py", "--data", "cases.jsonl"),
        ("check", "a\x1b[2J\u202e.py"),
        RUN_PLAN,
        (*RUN_PLAN, "--json"),
        ("render", "metrics.py", "--out", "a\x1b[2Jb.mmd"),
        ("store", "show", "answers.db", "--limit", "9"),
        ("benchmark", *RUN[1:], "--times", "2"),
        ("run", "metrics.py", "--data", "a\x1b[2J\u202e.jsonl"),
        ("a\x1b[2J\u202e",),
        ("run", "metrics.py", "--a\x1b[2J\u202e"),
        ("benchmark", *RUN[1:], "--times", "2\x1b[2J\u202e"),
        ("store", "a\x1b[2J\u202e"),
        ("store", "show", "answers.db", "--limit", "\x1b[2J\u202e"),
        ("store", "show", "answers.db", "a\x1b[2J\u202e"),
    ):
        done = dagengine(folder, *command)
        printed = done.stdout + done.stderr
        assert "Traceback" not in printed, printed
        assert not set("\x1b\x9b\u202e\U000e0041") & set(printed), (command, printed)
        assert printed


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal of POSIX")
def test_an_export_to_a_terminal_is_json_without_hidden_characters(tmp_path: Path) -> None:
    case = json.dumps({"name": "ä", "input": EVIL, "actual_output": f"kind and short {EVIL} ä"})
    folder = write(tmp_path, {**FILES, "cases.jsonl": case + "\n"})
    assert dagengine(folder, *RUN, "--store", "answers.db").returncode == 0
    piped = dagengine(folder, "store", "export", "answers.db").stdout
    master, terminal = os.openpty()
    with open(master, "rb", buffering=0) as screen, open(terminal, "wb", buffering=0):
        command = ("store", "export", "answers.db")
        process = start_command(folder, *command, streams={1: os.ttyname(terminal)})
        shown = b""
        while shown.count(b"\n") < piped.count("\n"):
            shown += screen.read(1 << 16)
        assert process.ended().returncode == 0
    rows = shown.decode().replace("\r\n", "\n").splitlines()
    assert not set("\x1b\x9b\u202e\U000e0041") & set(shown.decode())
    assert [json.loads(row) for row in rows] == [json.loads(row) for row in piped.splitlines()]


RUN_PLAN = ("plan", *RUN[1:])


OWN_JUDGES = """
from dagengine.judges import ScriptedJudge
from dagengine.metrics import CriteriaMetric, DAGMetric
from dagengine.metrics.dag import DAG, CodeNode


class Mine:
    def generate(self, prompt):
        return '{"reason": "short", "verdict": true}'


def score(input):
    return Mine()


scripted = CriteriaMetric(["conciseness"], model=ScriptedJudge(lambda asked: {"verdict": True}))
mine = CriteriaMetric(["harmfulness"], model=Mine())
code = DAGMetric("Code", DAG(CodeNode(score, evaluation_params=["input"], name="code")))
"""


def test_no_command_prints_the_address_of_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    Path("metrics.py").write_text(OWN_JUDGES, encoding="utf-8")
    Path("cases.jsonl").write_text('{"input": "a", "actual_output": "b"}\n', encoding="utf-8")
    for command in (
        "check metrics.py", "plan metrics.py --data cases.jsonl",
        "run metrics.py --data cases.jsonl", "run metrics.py --data cases.jsonl --format json",
        "show out", "show out --case 0", "judge check metrics.py:mine --seconds 5",
        "run metrics.py:code --data cases.jsonl",
        "benchmark metrics.py:mine --data cases.jsonl --times 2", "diff out out",
    ):  # fmt: skip
        shown = CliRunner().invoke(app, command.split()).output
        assert shown, command
        assert not re.search(r"\b(0x[0-9a-f]+|[0-9a-f]{9,15})\b", shown), command
