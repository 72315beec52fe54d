"""Every block of the published documents, tried: the table is in `folders/seed_blocks.py`.

The documents lie outside the project; the tests find them through the environment variable
DAGENGINE_SEEDS (by default a folder beside the checkout) and skip without them.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from folders.documents import write_docx, write_pdf
from folders.places import SEEDS
from folders.seed_blocks import PYTHON, SHELL, Block, ours
from programs.commands import run_command
from programs.evaluations import dagengine_test_run
from programs.snippets import Chat, Transformer, any_reply
from servers.openai_server import OpenAIServer
from typer.testing import CliRunner

from dagengine import evaluate
from dagengine.cli.commands import app
from dagengine.errors import DagengineError
from dagengine.metrics import BaseMetric
from dagengine.test_case import LLMTestCase

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(
    not list(SEEDS.glob("*.txt")), reason=f"no seed documents in {SEEDS} (set DAGENGINE_SEEDS)"
)
CASE = LLMTestCase(
    input="Who?",
    actual_output="Ada.",
    expected_output="Ada.",
    context=["Ada."],
    retrieval_context=["Ada."],
)


def named(block: Block) -> str:
    return f"{block.where} {block.what}: {block.verdict}"


_HARMS = ("UNSPECIFIED", "DANGEROUS_CONTENT", "HATE_SPEECH", "HARASSMENT", "SEXUALLY_EXPLICIT")
LIBRARIES: dict[str, dict[str, Any]] = {
    "langchain_openai": {"AzureChatOpenAI": Chat},
    "langchain_google_vertexai": {
        "ChatVertexAI": Chat,
        "HarmBlockThreshold": SimpleNamespace(BLOCK_NONE=0),
        "HarmCategory": SimpleNamespace(**{f"HARM_CATEGORY_{name}": name for name in _HARMS}),
    },
    "langchain_community": {},
    "langchain_community.chat_models": {"BedrockChat": Chat},
    "langchain": {},
    "langchain.chat_models": {"ChatAnthropic": Chat},
    "transformers": {"AutoModelForCausalLM": Transformer, "AutoTokenizer": Transformer},
}


class Always(BaseMetric):
    """A metric of the reader's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def measure(self, test_case: LLMTestCase) -> float:
        self.score = 1.0
        return self.score

    async def a_measure(self, test_case: LLMTestCase) -> float:
        return self.measure(test_case)


async def _later(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


LENT: dict[str, Any] = {
    "test_case": CASE,
    "fields": CASE.model_dump(exclude_none=True),
    "evaluate": evaluate,
    **{f"metric{n}": Always(f"metric {n}") for n in range(1, 5)},
    "generate_hypothetical_score": lambda case: 0.75,
    "generate_hypothetical_reason": lambda case: "so it is",
    "async_generate_hypothetical_score": lambda case: _later(0.75),
    "async_generate_hypothetical_reason": lambda case: _later("so it is"),
    **dict.fromkeys(
        ("openai_api_version", "azure_deployment", "azure_endpoint", "openai_api_key"), "x"
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(any_reply) as running:
        yield running


@pytest.fixture
def place(server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that blocks read, and the server where clients look for one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    row = {"query": "Who?", **dict.fromkeys(("actual_output", "expected_output"), "Ada.")}
    lists = ("context", "retrieval_context")
    rows = [{**row, **{name: ["Ada.", "Eve."] for name in lists}}]
    Path("example.json").write_text(json.dumps(rows), encoding="utf-8")
    flat = {**row, **dict.fromkeys(lists, "Ada.;Eve.")}
    csv = f"{','.join(flat)}\n{','.join(flat.values())}\n"
    Path("example.csv").write_text(csv, encoding="utf-8")
    Path("example.txt").write_text("Ada wrote the first program.", encoding="utf-8")
    write_docx(Path("example.docx"), ["Eve listened to what Ada and Bob said."])
    write_pdf(Path("example.pdf"), ["Bob was sent a letter in May."])
    for name, contents in LIBRARIES.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return tmp_path


def as_printed(block: Block, names: dict[str, Any]) -> None:
    exec(compile(ours(block.printed()), block.where, "exec", dont_inherit=True), names)
    exec(block.reader, names)


def run(block: Block, names: dict[str, Any]) -> None:
    code = ours(block.mended())
    exec(compile(code, block.where, "exec", dont_inherit=True), names)


@pytest.mark.parametrize("block", PYTHON, ids=named)
@pytest.mark.filterwarnings("ignore:.*both given; only the steps are used:UserWarning")
@pytest.mark.filterwarnings("ignore:Hallucination. a score of 1 means no faults:UserWarning")
@pytest.mark.filterwarnings("ignore:no golden was made:UserWarning")
@pytest.mark.usefixtures("place")
def test_a_block_of_python_does_what_the_table_says(block: Block) -> None:
    names: dict[str, Any] = {"__name__": "published"}
    names |= {name: LENT[name] for name in block.lent if name in LENT}
    for where in block.after:
        run(next(one for one in PYTHON if one.where == where), names)
    if block.verdict == "refused":
        assert block.why
        with pytest.raises(Exception, match=re.escape(block.why)):
            run(block, names)
        return
    if block.verdict == "mended":
        with pytest.raises((SyntaxError, NameError, TypeError, DagengineError)):
            as_printed(block, dict(names))
    else:
        assert (block.mends, block.indent) == ((), None)
    run(block, names)
    exec(block.reader, names)


def command(block: Block) -> str:
    return block.mended().replace("deepeval ", "dagengine ").replace("\\\n", " ").strip()


@pytest.mark.parametrize("block", SHELL, ids=named)
@pytest.mark.usefixtures("place")
def test_a_block_of_shell_does_what_the_table_says(
    block: Block, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = command(block)
    if not line.startswith("dagengine "):
        not_ours(block, line)
        return
    words = shlex.split(line)[1:]
    if words[0] == "test":
        pytester = request.getfixturevalue("pytester")
        passing = "def test_it() -> None:\n    assert True\n"
        Path(pytester.path, words[2]).write_text(passing, encoding="utf-8")
        if "-n" in words:  # all of it, with the processes that it starts
            process = run_command(pytester.path, *words)
            assert process.returncode == 0, process.stdout + process.stderr
            assert "1 passed" in process.stdout
            return
        code, session = dagengine_test_run(pytester, monkeypatch, *words[2:])
        assert code == 0
        session.assert_outcomes(passed=1)
        return
    done = CliRunner().invoke(app, words, input="n\n" * 20)
    said = re.sub(r"\s+", " ", done.output)
    if block.verdict == "refused":
        assert done.exit_code == 2
        assert block.why in said
        assert "secret" not in said
    else:
        assert done.exit_code == 0, done.output


BARE = re.compile(
    r"has no attribute '\w+'$|cannot import name|No module named '(?:deepeval|langchain|dagengine)"
    r"|unexpected keyword|(?:takes|missing) .*positional argument"
)


@pytest.mark.parametrize("command", ["check", "migrate", "run"])
def test_no_block_that_a_command_reads_ends_with_a_bare_error(command: str, place: Path) -> None:
    more = ["--data", "cases.jsonl", "--judge", "lexical", "--no-page"] if command == "run" else []
    (place / "cases.jsonl").write_text('{"input": "Who?", "actual_output": "Ada."}\n')
    bare: list[str] = []
    for number, block in enumerate(PYTHON):
        for whose, code in (("theirs", block.printed()), ("ours", ours(block.printed()))):
            path = Path(f"block_{number}_{whose}.py")
            path.write_text(code, encoding="utf-8")
            done = CliRunner().invoke(app, [command, str(path), *more])
            error = done.exception
            words = f"{done.output}\n{'' if isinstance(error, SystemExit) else error or ''}"
            if BARE.search(words) or not isinstance(error, DagengineError | SystemExit | None):
                bare.append(f"{block.where}: {words}")
    assert len(PYTHON) > 50
    assert bare == []


def not_ours(block: Block, line: str) -> None:
    """A line for the shell itself, a notebook, or another program."""
    if line.startswith("export "):
        check = f'{line} && test "$OPENAI_API_KEY" = any'
        assert subprocess.run(["bash", "-c", check], check=False).returncode == 0
        broken = subprocess.run(["bash", "-c", block.printed()], check=False, capture_output=True)
        assert broken.returncode != 0
        return
    assert block.verdict == "refused"
    assert line.lstrip("# ").startswith(("%", "ollama run"))


def test_the_table_has_every_block_of_the_documents() -> None:
    assert (len(PYTHON), len(SHELL)) == (72, 29)
    listed = [block.where for block in (*PYTHON, *SHELL)]
    assert len(set(listed)) == len(listed)
    covered = {block.document: set[int]() for block in (*PYTHON, *SHELL)}
    for block in (*PYTHON, *SHELL):
        first, last = map(int, block.where.partition(":")[2].split("-"))
        covered[block.document] |= set(range(first, last + 1))
    starts = re.compile(
        r"(from \w[\w.]* import |import \w+$|export |\s?%env |#? ?%pip |ollama run |"
        r"deepeval (login|recommend|test|set-|unset-)|(async )?def \w+\(|class \w+\()"
    )
    for path in SEEDS.glob("*.txt"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if starts.match(line) and not line.startswith("deepeval test run is"):
                assert number in covered[path.name[:3]], f"{path.name}:{number} {line}"
