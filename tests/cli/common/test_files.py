"""The files of commands: none is read and written at once, and what cannot be written is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from folders.recorded_runs import judge, polite
from programs.commands import CLOSED, LEFT, run_command
from typer.testing import CliRunner

from dagengine import evaluate
from dagengine.cli import app
from dagengine.cli.common.commands_and_help import Commands
from dagengine.cli.common.files import Reads, Writes, guard, require_writable
from dagengine.data.result_files import read_rows
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.system.file_locks import one_writer
from dagengine.system.safe_files import descriptor
from dagengine.test_case import LLMTestCase

METRICS = """
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from pathlib import Path

def answer(question):
    Path(__file__).with_name("asked").touch()
    return "kind" in question.messages[-1]["content"]

judge = ScriptedJudge(answer, name="pupil")
kind = BinaryJudgementNode(
    "Is it kind?", evaluation_params=["actual_output"], then={True: 10, False: 4}, name="kind"
)
metric = DAGMetric("Good manners", DAG(kind), model=judge)
"""
MAKER = """
from dagengine.judges import ScriptedJudge

def answer(question):
    match question.name:
        case "Draft":
            return ["How many masts has a ship of the line?"]
        case "Rewrite":
            return "How many masts has a ship of the line?"
        case "Expected output":
            return {"answer": "three", "supporting_sentences": ["Ships have three masts."]}
        case "Blind answer":
            return "three"
    return question.name not in ("Answerable without context", "Leaks the answer")

judge = ScriptedJudge(answer, name="maker")
"""
CASE = '{"input": "a", "actual_output": "kind"}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(METRICS)
    (tmp_path / "cases.jsonl").write_text(CASE * 3)
    (tmp_path / "words.json").write_text("{}")
    return tmp_path


def refused(*arguments: str) -> str:
    """What a command says before it refuses to start."""
    done = CliRunner().invoke(app, list(arguments))
    assert isinstance(done.exception, InputError), done.output
    return str(done.exception)


def commands(group: Commands = app) -> dict[str, Any]:
    """Every command of the command line with its callback, by its name."""
    found = {
        command.name or command.callback.__name__: command.callback
        for command in group.registered_commands
        if command.callback is not None
    }
    for inner in group.registered_groups:
        assert isinstance(inner.typer_instance, Commands)
        found |= commands(inner.typer_instance)
    return found


def hints_of(callback: Any) -> dict[str, Any]:
    return get_type_hints(callback, include_extras=True)


def test_every_option_that_names_a_file_says_whether_it_is_read_or_written() -> None:
    unmarked = [
        f"{command} {name}"
        for command, callback in commands().items()
        for name, hint in hints_of(callback).items()
        if "Path" in str(hint) or ".py" in str(getattr(hint, "__metadata__", ()))
        if not any(isinstance(one, Reads | Writes) for one in getattr(hint, "__metadata__", ()))
    ]
    assert len(commands()) >= 10
    assert unmarked == []


def marked(callback: Any, kind: type[Any]) -> list[tuple[str, Any]]:
    return [
        (name, one)
        for name, hint in hints_of(callback).items()
        for one in getattr(hint, "__metadata__", ())
        if isinstance(one, kind)
    ]


def option(name: str) -> str:
    return {"assert_pass": "--assert"}.get(name, f"--{name.replace('_', '-')}")


# Arguments that may also name something else than a file.
NAMED = {"metrics", "path", "others", "judge", "rewriter", "app", "check", "compare"}
PAIRS = [
    (command, read, written)
    for command, callback in commands().items()
    for read, _ in marked(callback, Reads)
    for written, mark in marked(callback, Writes)
    if mark == Writes() or mark == Writes(opened=True)
    if command not in ("synthesize", "watch")  # they take no --data
    if not {read, written} & NAMED
]


@pytest.mark.parametrize(("command", "read", "written"), PAIRS)
def test_no_command_reads_and_writes_one_file(
    folder: Path, command: str, read: str, written: str
) -> None:
    name = "cases.jsonl" if read == "data" else "words.json"
    (folder / "link.jsonl").symlink_to(folder / name)
    before = (folder / name).read_bytes()
    needed = {"labels": "words.json"} if command == "improve" else {}
    files = {"data": "cases.jsonl", **needed, read: name, written: "./link.jsonl"}
    options = [part for name, path in files.items() for part in (option(name), path)]
    says = refused(command, "m.py", *options)
    assert f"{option(read)} and {option(written)} are the same file" in says
    assert (folder / name).read_bytes() == before
    assert not (folder / "asked").exists()


@pytest.mark.parametrize(
    "options",
    [
        "--data cases.jsonl --results cases.jsonl",
        "--data ./cases.jsonl --results sub/../cases.jsonl",
        "--data hard.jsonl --results cases.jsonl",
        "--data out/results.jsonl",
        "--data out/results.jsonl --out ./out/../out",
        "--data cases.jsonl --store cases.jsonl",
        "--data cases.jsonl --results new.jsonl --store new.jsonl",
        "--data cases.jsonl --store out/results.jsonl",
        "--data cases.jsonl --store m.py",
        "--data cases.jsonl --store judge.py --judge judge.py:judge",
        "--data cases.jsonl --store judge.py --app judge.py:judge",
        "--data out/good-manners-tree.svg",
    ],
)
def test_a_run_whose_files_are_one_is_refused(folder: Path, options: str) -> None:
    (folder / "sub").mkdir()
    (folder / "out").mkdir()
    (folder / "judge.py").write_text(METRICS)
    os.link(folder / "cases.jsonl", folder / "hard.jsonl")
    for name in ("results.jsonl", "good-manners-tree.svg"):
        (folder / "out" / name).write_text(CASE)
    before = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    assert "are the same file" in refused("run", "m.py", *options.split())
    assert before == {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


@pytest.mark.parametrize(
    "command",
    [
        "render m.py --results cases.jsonl --out cases.jsonl",
        "benchmark m.py --data benchmark/card.json",
        "benchmark m.py --data cases.jsonl --paraphrases benchmark/card.json",
        "benchmark m.py --data cases.jsonl --store m.py",
        "store export answers.db --out answers.db",
        "store merge answers.db other.db ./answers.db",
        "synthesize cases.jsonl --out cases.jsonl",
        "synthesize m.py --quotas cases.jsonl --out cases.jsonl",
    ],
)
def test_other_commands_keep_their_files_apart_as_well(folder: Path, command: str) -> None:
    (folder / "benchmark").mkdir()
    (folder / "benchmark" / "card.json").write_text("{}")
    for name in ("answers.db", "other.db"):
        (folder / name).write_text("")
    assert "are the same file" in refused(*command.split())


@pytest.mark.parametrize("name", ["results.jsonl", "cases.jsonl", "times.jsonl", "labels.jsonl"])
def test_no_command_writes_over_a_file_of_a_run(folder: Path, name: str) -> None:
    run = ("run", "m.py", "--data", "cases.jsonl", "--results", "out/results.jsonl")
    for _ in range(2):  # a run itself may
        assert CliRunner().invoke(app, run).exit_code == 0
    before = {path: path.read_bytes() for path in (folder / "out").iterdir()}
    for command in ("show out --as-cases", "run m.py --data cases.jsonl --out new --junit"):
        assert "out is the folder of `dagengine run`" in refused(*command.split(), f"out/{name}")
    assert {path: path.read_bytes() for path in (folder / "out").iterdir()} == before


def test_results_in_another_file_leave_the_folder_for_data(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "results.jsonl").write_text(CASE)
    given = ("m.py", "--data", "out/results.jsonl", "--results", "rows.jsonl")
    assert CliRunner().invoke(app, ["run", *given]).exit_code == 0
    assert len((folder / "rows.jsonl").read_text().splitlines()) == 1


def test_a_file_may_be_read_twice(folder: Path) -> None:
    (folder / "both.py").write_text(METRICS)
    given = ("both.py:metric", "--data", "cases.jsonl", "--judge", "both.py:judge")
    assert CliRunner().invoke(app, ["run", *given]).exit_code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--results cases.jsonl/rows.jsonl", "cases.jsonl is a file, not a folder"),
        ("--out cases.jsonl", "cases.jsonl is a file, not a folder"),
        ("--results out.jsonl", "out.jsonl is a folder"),
        ("--results sealed/rows.jsonl", "sealed"),
        ("--results sealed/deeper/rows.jsonl", "sealed"),
        (f"--results {'n' * 300}.jsonl", "File name too long"),
    ],
)
def test_results_that_cannot_be_written_are_noticed_before_the_first_call(
    folder: Path, options: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "out.jsonl").mkdir()
    (folder / "sealed").mkdir(mode=0o500)
    allowed = os.access
    monkeypatch.setattr(  # who runs the tests may write everywhere
        os, "access", lambda path, mode: Path(path).name != "sealed" and allowed(path, mode)
    )
    assert says in refused("run", "m.py", "--data", "cases.jsonl", *options.split())
    assert not (folder / "asked").exists()


def test_looking_whether_a_file_can_be_written_leaves_everything_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("kept")
    require_writable(tmp_path / "old")
    require_writable(tmp_path / "new" / "deep" / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "kept"


def process(folder: Path, *arguments: str, shell: str) -> subprocess.CompletedProcess[str]:
    """A command in a process that was started, with the redirections of `shell`."""
    command = f'unset PYTHONUNBUFFERED; exec "{sys.executable}" -m dagengine "$@" {shell}'
    return subprocess.run(
        ["bash", "-c", command, "bash", *arguments],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def full_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let a new file of this name be on a device that takes nothing."""

    def opened(path: Path, flags: int, mode: int = 0o666) -> int:
        device = flags & os.O_EXCL and f".{name}." in path.name
        return os.open("/dev/full", os.O_WRONLY) if device else descriptor(path, flags, mode)

    monkeypatch.setattr("dagengine.system.safe_files.descriptor", opened)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is played by /dev/full")
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("run m.py --data cases.jsonl --junit all.xml", "all.xml"),
        ("run m.py --data cases.jsonl", "report.html"),
        ("render m.py", "tree.svg"),
        ("store export answers.db --out all.jsonl", "all.jsonl"),
    ],
)
def test_a_full_disk_is_named_with_its_file(
    folder: Path, arguments: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "answers.db" in arguments:
        run_command(folder, "run", "m.py", "--data", "cases.jsonl", "--store", "answers.db")
    full_disk(monkeypatch, name)
    says = refused(*arguments.split())
    assert f"{name} cannot be written: No space left on device" in says
    assert not list(folder.rglob(f".{name}.*"))


# Every option whose file is written, with what its command needs before it looks at its files.
WRITTEN = [
    (command, name, mark)
    for command, callback in commands().items()
    for name, mark in marked(callback, Writes)
    if not mark.opened
]


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
@pytest.mark.parametrize(("command", "name", "mark"), WRITTEN)
def test_no_command_writes_through_a_link_or_into_a_pipe(
    folder: Path, command: str, name: str, mark: Writes, kind: str
) -> None:
    target = folder / "named"
    given = {"results": None, "batch": None}
    (folder / "private").write_text("kept")
    for path in mark.files(target, given):
        path.parent.mkdir(exist_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(folder / ("private" if kind == "link" else "nothing"))
        with pytest.raises(InputError, match=r"is a (link|pipe), not a regular file"):
            guard({name: mark}, {name: option(name)}, {**given, name: target})
        path.unlink()
    assert (folder / "private").read_text() == "kept"
    assert not (folder / "nothing").exists()


@pytest.mark.parametrize(
    "options",
    [
        "run m.py --data cases.jsonl", "attack m.py --data cases.jsonl",
        "benchmark m.py --data cases.jsonl", "improve m.py --data cases.jsonl --labels name",
    ],
)  # fmt: skip
def test_a_folder_of_another_command_is_refused_before_the_first_call(
    folder: Path, options: str
) -> None:
    left = {
        "run": "run.json", "attack": "attack.json", "benchmark": "card.json",
        "improve": "improve.json", "synthesize": "yield.json", "watch": "alerts.jsonl",
    }  # fmt: skip
    own = options.split()[0]
    for other, name in left.items():
        if other == own or (own, other) == ("improve", "run"):
            continue
        (folder / "there").mkdir(exist_ok=True)
        (folder / "there" / name).write_text("{}")
        says = refused(*options.split(), "--out", "there")
        assert f"there is the folder of `dagengine {other}` (it has {name})" in says
        (folder / "there" / name).unlink()
    assert not (folder / "asked").exists()


def test_evaluate_refuses_the_folder_of_another_command_as_the_command_line_does(
    folder: Path,
) -> None:
    case, metric = LLMTestCase(input="a", actual_output="b"), polite()
    done = evaluate([case], [metric], model=judge(), show=False, out=folder / "out")
    for name in ("attack.json", "card.json", "improve.json", "yield.json", "alerts.jsonl"):
        (folder / "there").mkdir(exist_ok=True)
        (folder / "there" / name).write_text("{}")
        for write in (
            lambda: evaluate([case], [metric], model=ScriptedJudge({}), out=folder / "there"),
            lambda: done.save(folder / "there"),
        ):
            with pytest.raises(InputError, match=rf"there is the folder of .* \(it has {name}\)"):
                write()
        assert [path.name for path in (folder / "there").iterdir()] == [name]
        (folder / "there" / name).unlink()
    evaluate([case], [metric], model=judge(), show=False, out=folder / "out")


@pytest.mark.parametrize(("command", "name"), [("attack", "attack"), ("benchmark", "card")])
def test_two_commands_do_not_make_one_card(folder: Path, command: str, name: str) -> None:
    with one_writer(folder / "there" / f"{name}.json"):
        says = refused(command, "m.py", "--data", "cases.jsonl", "--out", "there")
    assert f"there/{name}.json is being written by another run" in says
    assert not (folder / "asked").exists()


@pytest.mark.parametrize("name", ["results.jsonl", "good-manners-tree.svg"])
def test_a_run_writes_through_no_link_of_its_folder(folder: Path, name: str) -> None:
    (folder / "out").mkdir()
    (folder / "out" / name).symlink_to("/dev/full")
    says = refused("run", "m.py", "--data", "cases.jsonl")
    assert f"out/{name} is a link" in says
    assert not (folder / "asked").exists()


@pytest.mark.parametrize("path", ["llama3.1:8b", "s3:a/b", "file:a", "a%20b?c#d"])
def test_a_path_is_never_taken_for_an_address(folder: Path, path: str) -> None:
    pytest.importorskip("pyarrow")
    rows = f"{path}.parquet"
    run_command(folder, "run", "m.py", "--data", "cases.jsonl", "--out", path)
    done = run_command(folder, "run", "m.py", "--data", "cases.jsonl", "--results", rows)
    assert done.returncode == 0, done.stderr
    assert (folder / path / "columns.parquet").exists()
    assert (folder / rows).is_file()
    shown = run_command(folder, "show", path, "--format", "csv")
    assert len(shown.stdout.splitlines()) == 4, shown.stderr
    assert len(list(read_rows(folder / rows))) == 3


def test_a_reader_who_leaves_costs_no_row_no_page_and_no_picture(folder: Path) -> None:
    """And standard input is data."""
    pipes = "< <(cat cases.jsonl) | true"
    done = process(folder, "run", "m.py", "--data", "/dev/stdin", shell=pipes)
    assert "Traceback" not in done.stderr
    assert len((folder / "out" / "results.jsonl").read_text().splitlines()) == 3
    names = {path.name for path in (folder / "out").iterdir()}
    assert {"report.html", "good-manners-tree.svg", "good-manners-counts.svg"} <= names


def test_a_reader_who_leaves_costs_no_card_and_no_goldens(folder: Path) -> None:
    """Whoever looks at the first lines has paid for the rest, which comes last."""
    (folder / "ships.md").write_text("Ships have three masts. They carry sails and guns.")
    (folder / "maker.py").write_text(MAKER)
    for command in (
        "benchmark m.py --data cases.jsonl --times 2 --out card",
        "synthesize ships.md --count 1 --evolutions 0 --judge maker.py:judge --out goldens.jsonl",
    ):
        done = run_command(folder, *command.split(), streams={1: LEFT})
        assert "Traceback" not in done.stderr
        assert "Broken pipe" not in done.stderr
    assert (folder / "card" / "card.json").stat().st_size > 0
    assert (folder / "goldens.jsonl").read_text().count("\n") >= 1


def test_an_output_that_has_not_every_character_gets_escapes(folder: Path) -> None:
    (folder / "m.py").write_text(METRICS.replace("Good manners", "Good \u2192 manners"), "utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = run_command(folder, "run", "m.py", "--data", "cases.jsonl", environment=environment)
    assert (done.returncode, "\\u2192" in done.stdout) == (0, True), done.stderr


def kept_its_rows(folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, (done.stdout, done.stderr)
    rows = (folder / "out" / "results.jsonl").read_text().splitlines()
    assert [json.loads(row)["index"] for row in rows] == [0, 1, 2]


def test_closed_streams_do_not_end_a_run(folder: Path) -> None:
    command = ("run", "m.py", "--data", "cases.jsonl")
    kept_its_rows(folder, process(folder, *command, shell="<&- >&- 2>&-"))
    kept_its_rows(folder, run_command(folder, *command, streams={1: CLOSED}))


def test_an_error_is_said_on_the_stream_that_is_open(folder: Path) -> None:
    done = run_command(folder, "run", "nope.py", "--data", "cases.jsonl", streams={2: CLOSED})
    assert done.returncode == 2
    assert "error: there is no file nope.py" in done.stdout


def test_output_that_is_closed_is_said(folder: Path) -> None:
    done = run_command(folder, "check", "m.py", streams={1: CLOSED})
    assert "standard output is closed" in done.stderr


def test_output_that_cannot_be_written_is_an_error(folder: Path) -> None:
    done = run_command(folder, "check", "m.py", streams={1: "/dev/full"})
    assert done.returncode == 2
    assert "error: standard output: No space left on device" in done.stderr


@pytest.mark.parametrize("data", ["/dev/fd/{}", "fifo.jsonl"])
@pytest.mark.parametrize(
    "command", ["run m.py", "plan m.py", "plan m.py --store answers.db", "check m.py"]
)
def test_a_pipe_is_data(folder: Path, command: str, data: str) -> None:
    if "--store" in command:
        run_command(folder, "run", "m.py", "--data", "cases.jsonl", "--store", "answers.db")
    os.mkfifo("fifo.jsonl")
    reader, writer = os.pipe()
    if "fifo" in data:
        os.close(writer)
    feeder = threading.Thread(target=feed, args=["fifo.jsonl" if "fifo" in data else writer])
    feeder.start()
    done = CliRunner().invoke(app, [*command.split(), "--data", data.format(reader)])
    feeder.join()
    os.close(reader)
    assert done.exit_code == 0, done.output
    if command.startswith("run"):
        assert len(Path("out/results.jsonl").read_text().splitlines()) == 3


def feed(target: str | int) -> None:
    """Write the cases into a pipe, and end it."""
    with open(target, "wb") as pipe:
        pipe.write(Path("cases.jsonl").read_bytes())


@pytest.mark.parametrize(
    ("command", "replaced"),
    [
        ("render m.py --out tree.svg", "tree.svg in ."),
        ("show base --as-cases few.jsonl", "few.jsonl in ."),
        (
            "run m.py --data cases.jsonl --judge m.py:judge --out again --junit j.xml --no-page",
            "cases.jsonl, columns.parquet,",
        ),
    ],
)
def test_what_a_command_replaces_is_said_once_when_it_is_written(
    folder: Path, command: str, replaced: str
) -> None:
    runner, words = CliRunner(), command.split()
    base = "run m.py --data cases.jsonl --judge m.py:judge --out base"
    assert runner.invoke(app, base.split()).exit_code == 0
    first, second = runner.invoke(app, words), runner.invoke(app, words)
    assert "replaced" not in first.output
    assert second.output.count(f"replaced {replaced}") == 1


def test_what_a_command_does_not_write_it_does_not_replace(folder: Path) -> None:
    (folder / "tree.svg").write_text("mine")
    done = CliRunner().invoke(app, ["render", "nothing.py", "--out", "tree.svg"])
    assert isinstance(done.exception, InputError)
    assert "replaced" not in done.output
    assert (folder / "tree.svg").read_text() == "mine"
