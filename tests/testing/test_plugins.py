"""Other plugins of pytest, and other kinds of tests, beside deferred verdicts."""

from __future__ import annotations

import pytest
from programs.evaluations import JUDGED, both, run

pytest_plugins = ["pytester"]

ASYNC = f"""{JUDGED}
import asyncio

MARKS


async def helper(one):
    await anyio.lowlevel.checkpoint()
    assert_test(one, [quality])


async def test_good():
    assert_test(good, [quality])


async def test_bad():
    await anyio.lowlevel.checkpoint()
    assert_test(bad, [quality])


async def test_in_a_helper():
    await helper(bad)


async def test_caught():
    with pytest.raises(AssertionError):
        assert_test(bad, [quality])


async def test_last():
    assert_test(good, [quality])
"""
GATHERED = """

async def test_gathered():
    await asyncio.gather(helper(good), helper(bad))
"""
GROUPED = """

async def test_in_a_group():
    async with anyio.create_task_group() as group:
        group.start_soon(helper, good)
"""
ANYIO = """
pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param
"""


@pytest.mark.parametrize(
    ("marks", "more", "needs"),
    [
        ("pytestmark = pytest.mark.asyncio", GATHERED, ["asyncio"]),
        (ANYIO, GROUPED, ["anyio"]),
        ("pytestmark = pytest.mark.trio", GROUPED, ["trio"]),
    ],
    ids=["asyncio", "anyio", "trio"],
)
def test_coroutine_tests_end_as_with_immediate_verdicts(
    pytester: pytest.Pytester, marks: str, more: str, needs: list[str]
) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(ASYNC.replace("MARKS", marks) + more)
    deferred, immediate = both(pytester, needs=needs)
    assert [event[:3] for event in deferred.outcomes] == [event[:3] for event in immediate.outcomes]
    assert {event[2] for event in deferred.outcomes} == {"passed", "failed"}
    if needs != ["trio"]:  # which wraps an immediate failure in a group
        assert deferred.outcomes == immediate.outcomes


OTHERS = f"""{JUDGED}
import unittest

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


class TestCase(unittest.TestCase):
    def test_good(self):
        assert_test(good, [quality])

    def test_bad(self):
        assert_test(bad, [quality])

    def test_caught(self):
        with self.assertRaises(AssertionError):
            assert_test(bad, [quality])

    def test_parts(self):
        for one in (good, bad, good):
            with self.subTest(one=one.name):
                assert_test(one, [quality])


def test_before():
    assert_test(good, [quality])


def test_subtests(subtests):
    for one in (good, bad):
        with subtests.test(one.name):
            assert_test(one, [quality])
    assert_test(bad, [quality])


@settings(max_examples=5, database=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["good", "fine"]))
def test_any(text):
    assert_test(case(text), [quality])


@settings(max_examples=5, database=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["bad", "good"]))
def test_some(text):
    assert_test(case(text), [quality])


def decorated(function):
    def within():
        try:
            function()
        except AssertionError:
            return
        raise RuntimeError("it was not caught")

    return within


@decorated
def test_is_caught_by_a_decorator():
    assert_test(bad, [quality])


@pytest.mark.timeout(20)
def test_in_time():
    assert_test(good, [quality])


@pytest.mark.evals(immediate=True)
def test_at_once():
    assert_test(case("good and new"), [quality])
    assert any("good and new" in prompt for prompt in asked)


def test_needs_a_score(dagengine_case):
    row = dagengine_case(bad, [quality])
    assert row.metrics[0].score == 0.3
    with pytest.raises(TypeError, match=r"dagengine_case\\(\\) has no argument 'modle'"):
        dagengine_case(bad, [quality], modle="other")
"""


def test_other_kinds_of_tests_end_as_with_immediate_verdicts(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(OTHERS)
    deferred, immediate = both(pytester, needs=["hypothesispytest", "timeout"])
    assert deferred.events == immediate.events
    assert "it was not caught" not in deferred.output
    assert "test_is_caught_by_a_decorator" in deferred.junit


def test_no_timeout_runs_while_a_test_waits_for_verdicts_of_others(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest("""
import pathlib
import threading

timers = []
last_waits = threading.Event()


def pytest_timeout_set_timer(item, settings):
    timers.append(f"{item.name} set {settings.timeout}")
    return True


def pytest_timeout_cancel_timer(item):
    timers.append(f"{item.name} cancelled")
    if item.name == "test_full":
        last_waits.set()
    return True


def pytest_sessionfinish():
    pathlib.Path("timers.txt").write_text("\\n".join(timers))
""")
    pytester.makepyfile(f"""{JUDGED}
from conftest import last_waits


@pytest.fixture(scope="class")
def wide():
    yield


class TestOne:
    @pytest.mark.timeout(7)
    def test_held(self, wide):
        assert_test(good, [quality])


async def late(question):
    await anyio.to_thread.run_sync(last_waits.wait)
    return await answer(question)


@pytest.mark.timeout(8)
def test_free():
    assert_test(case("good, but late"), [metric(judge=ScriptedJudge(late))])


@pytest.mark.timeout(9)
def test_full():
    assert_test(good, [quality])
""")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dagengine.testing.session._WAITING", 1 / 64)  # one test may wait
        assert run(pytester, needs=["timeout"]).code == 0
    assert (pytester.path / "timers.txt").read_text().splitlines() == [
        "test_held set 7.0", "test_held cancelled", "test_held set 7.0", "test_held cancelled",
        "test_free set 8.0", "test_free cancelled",
        "test_full set 9.0", "test_full cancelled", "test_full set 9.0", "test_full cancelled",
    ]  # fmt: skip


def test_the_debugger_stands_in_the_test_that_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it=f"""{JUDGED}
def test_bad():
    here = "in the test"
    assert_test(bad, [quality])


def test_good():
    assert_test(good, [quality])
"""
    )
    pytester.makepyfile(
        debugger="""
import pdb


class Debugger(pdb.Pdb):
    def interaction(self, frame, traceback):
        traceback = getattr(traceback, "__traceback__", traceback)
        while traceback.tb_next and "here" not in traceback.tb_frame.f_locals:
            traceback = traceback.tb_next
        print("stopped", traceback.tb_frame.f_locals.get("here"))
"""
    )
    pytester.syspathinsert()
    left = run(pytester, "--pdb", "--pdbcls=debugger:Debugger", "-s")
    assert [event[2] for event in left.outcomes] == ["failed", "passed"]
    assert "stopped in the test" in left.output


def test_a_name_with_control_characters_is_an_id_that_can_be_printed(
    pytester: pytest.Pytester,
) -> None:
    name = r"a\nb\t\x1b[31m\x00\ud83d é"
    pytester.makepyfile(f"""
import pytest
from dagengine.test_case import LLMTestCase


@pytest.mark.parametrize("one", [LLMTestCase(name="{name}", input="i"), LLMTestCase(input="i")])
def test_each(one):
    assert one.input == "i"
""")
    done = pytester.runpytest_inprocess("-v", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines([r"*::test_each[[]a\nb\t\x1b[[]31m\x00\ud83d é[]] PASSED*"])
