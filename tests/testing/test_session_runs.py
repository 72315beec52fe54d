"""The run folder of a session, and a comparison with an earlier one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from programs.evaluations import JUDGED, run

from dagengine.record import load_run
from dagengine.record.writer import sole_writer

pytest_plugins = ["pytester"]
# pytester forgets what a suite is the first to import, and numpy cannot be imported twice.
import_module("scipy.stats")

SUITE = f"""{JUDGED}
CASES = [case(f"good {{n}}") for n in range(20)] + [case("bad 1"), case("bad 2")]


@pytest.mark.parametrize("one", CASES)
def test_each(one):
    assert_test(one, [quality])


def test_two():
    assert_test(good, [metric("Other", "Is it fine?")])
    assert_test(good, [quality])
"""


def test_a_session_leaves_the_folder_of_a_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=SUITE)
    left = run(pytester, "--evals-out=one")
    assert "run folder: one" in left.output
    assert (pytester.path / "one" / "report.html").stat().st_size > 10_000
    found = load_run(pytester.path / "one")
    assert found.finished
    rows, cases = list(found.rows()), list(found.cases())
    assert [row.index for row in rows] == list(range(24))
    assert [row.case for row in rows][-3:] == [
        "test_it.py::test_each[bad 2]", "test_it.py::test_two", "test_it.py::test_two #2"
    ]  # fmt: skip
    assert cases[0]["actual_output"] == "good 0"
    assert [metric.name for metric in found.manifest.metrics] == ["Quality", "Other"]
    assert found.manifest.counts is not None
    assert (found.manifest.counts.cases, found.manifest.counts.failed) == (24, 2)


def test_a_session_is_compared_with_an_earlier_one_case_by_case(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=SUITE)
    run(pytester, "--evals-out=before")
    same = run(pytester, "--evals-baseline=before", "-k", "good")
    assert "against before: Quality: pass rate +0% on 20 cases" in same.output
    assert same.code == 0
    pytester.makepyfile(test_it=SUITE.replace('"bad" not in text', '"8" not in text'))
    better = run(pytester, "--evals-baseline=before", "-k", "good or bad")
    assert "pass rate +0% on 22 cases" in better.output
    # Files of one size and second would be taken for the same: Python keeps what it compiled.
    pytester.makepyfile(test_it=SUITE.replace('"bad" not in text', '"1"   not in text'))
    worse = run(pytester, "--evals-baseline=before", "-k", "good")
    assert "pass rate -55% on 20 cases" in worse.output
    assert "worse by more than chance" in worse.output
    rolling = run(pytester, "--evals-baseline=before", "--evals-out=before", "-k", "good")
    assert "pass rate -55% on 20 cases" in rolling.output, "compared with what it replaces"
    pytester.makepyfile(test_other=SUITE.replace("good {n}", "fine {n}"))
    other = run(pytester, "--evals-baseline=before", "-k", "test_other and fine")
    assert "against before: none of its cases was judged" in other.output
    assert other.code == 1


def test_a_second_session_is_refused_the_folder_before_it_asks_anything(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_it="open('asked', 'w').close()\n" + SUITE)
    with sole_writer(pytester.path / "runs"):
        done = pytester.runpytest_inprocess("-p", "no:asyncio", "--evals-out=runs")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "--evals-out: runs is being written by another run" in done.stderr.str()
    assert not (pytester.path / "asked").exists()
    assert "run folder: runs" in run(pytester, "--evals-out=runs").output
    assert not (pytester.path / "runs" / ".writing").exists()


def test_a_folder_without_a_run_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=SUITE)
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "--evals-baseline=nowhere")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "nowhere does not exist" in done.stderr.str()
    Path(pytester.path, "taken").write_text("a file")
    left = pytester.runpytest_inprocess("-p", "no:asyncio", "--evals-out=taken")
    assert left.ret == pytest.ExitCode.USAGE_ERROR
    assert "--evals-out: cannot write taken" in left.stderr.str()
