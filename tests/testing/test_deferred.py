"""Deferred verdicts leave what immediate ones leave."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from programs.evaluations import JUDGED, MIXED, Left, both, run

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    "options",
    [
        (), ("-s", "-W", "error"), ("-x",), ("--maxfail=3",), ("-k", "each or class"),
        ("--tb=short", "-v", "--setup-show", "-o", "log_cli=true"), ("--runxfail",),
        ("-p", "no:terminal"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_suite_ends_as_with_immediate_verdicts(
    pytester: pytest.Pytester, options: Sequence[str]
) -> None:
    pytester.makepyfile(MIXED)
    deferred, immediate = both(pytester, *options)
    assert deferred.events == immediate.events
    assert deferred == immediate
    assert deferred.code == 1


@pytest.mark.parametrize("options", [("-x",), ()], ids=" ".join)
def test_what_failed_last_runs_again_as_with_immediate_verdicts(
    pytester: pytest.Pytester, options: Sequence[str]
) -> None:
    pytester.makepyfile(MIXED)
    cache = Path(pytester.path, ".pytest_cache/v/cache/lastfailed")
    found: list[list[tuple[Left, str]]] = []
    for mode in ((), ("--evals-immediate",)):
        cache.unlink(missing_ok=True)
        runs = [(), ("--lf", *options), ("--ff", "--maxfail=2"), ("--lf",)]
        found.append([])
        for more in runs:
            left = run(pytester, *options, *more, *mode, needs=["cacheprovider"])
            found[-1].append((left, cache.read_text()))
    assert found[0] == found[1]


def test_stepwise_goes_on_as_with_immediate_verdicts(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MIXED)
    found: list[list[Left]] = []
    for mode in ((), ("--evals-immediate",)):
        shutil.rmtree(pytester.path / ".pytest_cache", ignore_errors=True)
        runs = [("--sw",), ("--sw",), ("--sw", "--sw-skip")]
        found.append([run(pytester, *more, *mode, needs=["cacheprovider"]) for more in runs])
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_shuffled_suite_ends_as_with_immediate_verdicts(
    pytester: pytest.Pytester, seed: int
) -> None:
    pytester.makepyfile(MIXED)
    deferred, immediate = both(pytester, f"--randomly-seed={seed}", needs=["randomly"])
    assert deferred == immediate


RERUN = f"""{JUDGED}
import random

tries = {{}}


async def better(question):
    text = question.messages[-1]["content"]
    good = question.options.sample >= 1 or "bad" not in text or "hopeless" in text
    return {{"verdict": good and "hopeless" not in text, "reason": "as it is"}}


flaky = metric(judge=ScriptedJudge(better, name="better"))


def test_passes():
    assert_test(good, [flaky])


def test_is_better_the_second_time():
    assert_test(bad, [flaky])


def test_is_hopeless():
    assert_test(case("hopeless"), [flaky])


@pytest.mark.flaky(reruns=1)
def test_is_marked():
    assert_test(bad, [flaky])


def test_without_an_evaluation_fails():
    assert 1 + 1 == 3


@pytest.fixture(scope="module")
def shared():
    yield metric("Shared", judge=ScriptedJudge(better, name="better"))


def test_with_a_fixture(shared):
    assert_test(bad, [shared])


@pytest.fixture
def judged():
    assert_test(case("good and first"), [flaky])


def test_with_an_evaluation_in_a_fixture(judged):
    assert_test(good, [flaky])
    assert_test(bad, [flaky])


def test_last():
    assert_test(good, [flaky])
"""


@pytest.mark.parametrize("options", [(), ("-x",), ("--only-rerun", "RuntimeError")], ids=" ".join)
def test_reruns_end_as_with_immediate_verdicts(
    pytester: pytest.Pytester, options: Sequence[str]
) -> None:
    pytester.makepyfile(RERUN)
    deferred, immediate = both(pytester, "--reruns=2", *options, needs=["rerunfailures"])
    assert deferred.events == immediate.events
    assert deferred == immediate


def test_a_rerun_asks_anew(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RERUN)
    left = run(pytester, "--reruns=2", needs=["rerunfailures"])
    outcomes = [event[1:3] for event in left.outcomes if "better" in event[1]]
    assert [outcome for _, outcome in outcomes] == ["rerun", "passed"]
    outcomes = [event[1:3] for event in left.outcomes if "hopeless" in event[1]]
    assert [outcome for _, outcome in outcomes] == ["rerun", "rerun", "failed"]
