"""Suites of evaluations for the tests of the pytest plugin, and what their runs left."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

# pytester forgets every module that a suite is the first to import: two copies of one class.
import dagengine.judges
import dagengine.metrics
import dagengine.metrics.dag
import dagengine.testing.report_order
import dagengine.testing.session_end
import dagengine.voting  # noqa: F401
from dagengine import assert_test, evaluate, read_cases  # noqa: F401
from dagengine.cli import app

# Plugins that a test names if it needs them; some take long to load, which every worker does.
UNUSED = (
    "anyio", "asyncio", "cacheprovider", "hypothesispytest", "randomly", "rerunfailures", "timeout",
    "trio", "xdist",
)  # fmt: skip

JUDGED = """
import anyio
import pytest
from dagengine import assert_test
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, VerdictNode
from dagengine.test_case import LLMTestCase

asked = []


async def answer(question):
    text = question.messages[-1]["content"]
    asked.append(text)
    await anyio.lowlevel.checkpoint()  # others ask meanwhile
    return {"verdict": "bad" not in text, "reason": "so it seems"}


def metric(name="Quality", criterion="Is it good?", judge=None):
    root = BinaryJudgementNode(
        criterion, name="Good", evaluation_params=["actual_output"],
        children=[VerdictNode(True, score=10), VerdictNode(False, score=3)],
    )
    return DAGMetric(name, DAG(root_node=root), model=judge or ScriptedJudge(answer, name="toy"))


def case(text):
    return LLMTestCase(name=text, input="x", actual_output=text)


quality = metric()
good, bad = case("good"), case("bad")
"""

# One of everything that a test may do around an evaluation.
MIXED = f"""{JUDGED}
import warnings


def test_passes():
    assert_test(good, [quality])


def test_fails():
    assert_test(bad, [quality])


EACH = [case(f"{{kind}} #{{n}}") for n in range(3) for kind in ("good", "bad")]


@pytest.mark.parametrize("one", EACH)
def test_each(one):
    assert_test(one, [quality])


def test_without_an_evaluation():
    assert 1 + 1 == 2


def test_without_an_evaluation_fails():
    assert 1 + 1 == 3


def helper(one):
    assert_test(one, [quality])


def test_in_a_helper():
    print("before")
    helper(bad)


def test_in_a_loop():
    for one in (good, bad, good):
        assert_test(one, [quality])


def test_two_metrics():
    assert_test(bad, [quality, metric("Other", "Is it fine?")])


def test_is_expected_to_raise():
    with pytest.raises(AssertionError, match="0.3 < 0.5 Quality"):
        assert_test(bad, [quality])


@pytest.mark.xfail(reason="known")
def test_is_expected_to_fail():
    assert_test(bad, [quality])


@pytest.mark.xfail(reason="known", strict=True)
def test_is_wrongly_expected_to_fail():
    assert_test(good, [quality])


def test_is_skipped_afterwards():
    assert_test(good, [quality])
    pytest.skip("enough")


def test_fails_afterwards():
    assert_test(good, [quality])
    raise RuntimeError("afterwards")


def test_lacks_a_field():
    assert_test(LLMTestCase(input="x"), [quality])


def test_is_wrong_in_itself():
    assert_test(good, ["no metric"])


def test_captures(capsys):
    print("seen")
    assert capsys.readouterr().out == "seen\\n"
    print("left")
    assert_test(bad, [quality])


def test_warns():
    warnings.warn("look", UserWarning, stacklevel=1)
    assert_test(good, [quality])


class TestClass:
    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls):
        yield metric("In a class")
        print("torn down")

    def test_good(self, shared):
        assert_test(good, [shared])

    def test_bad(self, shared):
        assert_test(bad, [shared])


@pytest.fixture
def broken():
    yield
    raise RuntimeError("broken teardown")


def test_with_a_broken_teardown(broken):
    assert_test(bad, [quality])


@pytest.fixture
def judged():
    assert_test(bad, [quality])


def test_with_an_evaluation_in_a_fixture(judged):
    pass


def test_last():
    assert_test(good, [quality])
"""


class Recorder:
    """A plugin that notes every event of a run, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.events.append(("start", nodeid))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.events.append(("finish", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = str(getattr(crash, "message", report.longrepr or "")).splitlines()
        expected = getattr(report, "wasxfail", "")
        first = said[0] if said else ""
        self.events.append((str(report.when), report.nodeid, report.outcome, expected, first))

    @property
    def outcomes(self) -> list[tuple[str, ...]]:
        """What came of every call, and every setup and teardown that did not pass."""
        return [
            event for event in self.events
            if event[0] not in ("start", "finish")
            and (event[0] == "call" or event[2] != "passed")
        ]  # fmt: skip


@dataclass(frozen=True)
class Left:
    """What a run left: exit code, events in order, the JUnit file without times, its output."""

    code: int
    events: list[tuple[str, ...]]
    outcomes: list[tuple[str, ...]]
    junit: str
    output: str = field(compare=False)


def without(*plugins: str, but: Collection[str] = ()) -> list[str]:
    """Options that keep pytest from loading plugins."""
    return [part for name in plugins if name not in but for part in ("-p", f"no:{name}")]


def run(pytester: pytest.Pytester, *options: str, needs: Collection[str] = ()) -> Left:
    """Run the suite in this process; of the plugins that may be there it has those it needs.

    An interrupt ends the suite alone.
    """
    noted = Recorder()
    arguments = (*without(*UNUSED, but=needs), "--junitxml=junit.xml", *options)
    done = pytester.runpytest_inprocess(*arguments, plugins=[noted], no_reraise_ctrlc=True)
    output = done.stdout.str() + done.stderr.str()
    return Left(int(done.ret), noted.events, noted.outcomes, junit(pytester), output)


def junit(pytester: pytest.Pytester) -> str:
    """The JUnit file without times, the host's name and addresses of objects."""
    path = pytester.path / "junit.xml"
    if not path.exists():  # nothing ran
        return ""
    root = ElementTree.parse(path).getroot()
    for element in root.iter():
        for name in ("time", "timestamp", "hostname"):
            element.attrib.pop(name, None)
    return re.sub(r"0x[0-9a-f]+", "0x", ElementTree.tostring(root, encoding="unicode"))


def both(
    pytester: pytest.Pytester, *options: str, needs: Collection[str] = ()
) -> tuple[Left, Left]:
    """A run with deferred verdicts, and one with immediate ones."""
    return run(pytester, *options, needs=needs), run(
        pytester, *options, "--evals-immediate", needs=needs
    )


def dagengine_test_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, pytest.RunResult]:
    """`dagengine test run`, whose pytest runs in this process, and the exit codes of both."""
    done: list[pytest.RunResult] = []

    def code(command: list[str]) -> int:
        assert command[:3] == [sys.executable, "-m", "pytest"]
        options = without(*UNUSED, but=["xdist"])
        done.append(pytester.runpytest_inprocess(*command[3:], *options))
        return int(done[-1].ret)

    monkeypatch.setattr("dagengine.cli.test._exit_code", code)
    return CliRunner().invoke(app, ["test", "run", *arguments]).exit_code, done[0]
