"""The pytest plugin: it imports nothing of dagengine until a test uses it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dagengine.results import CaseResult
    from dagengine.testing.report_order import Buffer
    from dagengine.testing.session import Evaluations
    from dagengine.testing.xdist_workers import Workers


_WORKERS: pytest.StashKey[Workers] = pytest.StashKey()
_DESELECTED = pytest.StashKey[bool]()
_LINES = pytest.StashKey[list[str]]()
_BUFFER: pytest.StashKey[Buffer] = pytest.StashKey()
# On a report, which travels between processes
_MISSING, _GATED = "dagengine_missing", "dagengine_gated"
# The sessions of this process, the innermost last: a test of a plugin runs a session inside one.
_running: list[pytest.Session] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("evals", "evaluations (dagengine)")
    group.addoption(
        "--evals",
        choices=["live", "record", "refresh", "replay"],
        help="answers recorded next to each test file: record missing ones, refresh all, or "
        "replay them without judge calls (the default if CI is set and a recording exists)",
    )
    group.addoption(
        "--evals-store",
        metavar="FILE",
        help="keep answers in this file, and never ask a question twice",
    )
    group.addoption(
        "--evals-min",
        action="append",
        metavar="METRIC>=SHARE",
        help="fail unless this share of the cases passes; METRIC[tag]>=SHARE for the cases with a "
        "tag",
    )
    group.addoption(
        "--evals-out", metavar="DIR", help="write the folder of a run: rows, cases, settings"
    )
    group.addoption(
        "--evals-baseline",
        metavar="DIR",
        help="compare with the run in this folder, and fail if a metric is worse",
    )
    group.addoption(
        "--evals-card",
        metavar="FILE",
        help="the judge card that says how noisy the judge is, for tests with votes",
    )
    group.addoption(
        "--evals-immediate",
        action="store_true",
        help="wait for each verdict in its test, instead of running other tests in the meantime",
    )
    group.addoption(
        "--evals-repeat",
        type=_count,
        default=1,
        metavar="N",
        help="judge every test N times, each time with new answers",
    )
    group.addoption(
        "--evals-ignore-errors",
        action="store_true",
        help="skip a test without a score, instead of failing it",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "evals(votes=1, pass_rule='sprt', immediate=False): how the evaluations of a test are "
        "made: a case that fails is judged up to `votes` times, until `pass_rule` is content; "
        "`immediate` waits for each verdict in place.",
    )

    if any(map(config.getoption, ("evals_min", "evals_baseline", "evals_card"))):
        from dagengine.errors import DagengineError
        from dagengine.testing.session_end import check_options

        try:
            check_options(config)
        except DagengineError as error:
            raise pytest.UsageError(str(error)) from None


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    _hold_folder(config)
    _running.append(session)
    if config.pluginmanager.has_plugin("dsession"):
        from dagengine.testing.xdist_workers import Workers

        config.stash[_WORKERS] = Workers()
        config.pluginmanager.register(config.stash[_WORKERS], "dagengine workers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse marks that nobody knows before anything runs."""
    marked = [item for item in items if item.get_closest_marker("evals")]
    if marked:
        from dagengine.errors import InputError
        from dagengine.testing.repeat_votes import Mark

        try:
            for item in marked:
                Mark.of(item)
        except InputError as error:
            raise pytest.UsageError(str(error)) from None


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    if items:
        items[0].config.stash[_DESELECTED] = True


def _hold_folder(config: pytest.Config) -> None:
    """Hold the folder of `--evals-out` from the start: what two sessions ask, one could not write.

    Workers write in folders of their own inside of it.
    """
    out: Any = config.getoption("evals_out")
    if out is None or hasattr(config, "workerinput"):
        return
    from pathlib import Path

    from dagengine.errors import InputError
    from dagengine.record.writer import MANIFEST, sole_writer
    from dagengine.system.safe_files import require_own_folder

    lock = ExitStack()
    try:
        require_own_folder(Path(out), [MANIFEST])
        lock.enter_context(sole_writer(out))
    except InputError as error:
        raise pytest.UsageError(f"--evals-out: {error}") from None
    config.add_cleanup(lock.close)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Answer a module of ours that a file of tests imports, and nobody has, in words."""
    report = yield
    call: pytest.CallInfo[object] | None = getattr(report, "call", None)
    if report.failed and call is not None and call.excinfo is not None:
        from dagengine.unknown import module_words

        cause = call.excinfo.value.__cause__
        if words := "" if cause is None else module_words(cause):
            report.sections.append(("dagengine", words))
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    if _running and _running[-1].config is config:
        _running.pop()


def current() -> Evaluations | None:
    """The evaluations of the session that runs, made when they are first needed."""
    buffer = buffer_of(_running[-1]) if _running else None
    return None if buffer is None else buffer.evaluations


def buffer_of(session: pytest.Session) -> Buffer | None:
    """The buffer of a session; None as long as no test has imported `assert_test`."""
    buffer = session.config.stash.get(_BUFFER, None)
    if buffer is None and "dagengine.testing.assertion" in sys.modules:
        from dagengine.testing.report_order import Buffer

        buffer = session.config.stash[_BUFFER] = Buffer(session)
    return buffer


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    buffer = buffer_of(item.session)
    if buffer is None or buffer.runs_again:
        return None
    # What shows a test while it runs has no use for reports that wait for those before them.
    options = ("evals_immediate", "usepdb", "trace", "setupshow", "setuponly", "setupplan")
    live = item.config.getoption("log_cli_level", None) is not None or item.config.getini("log_cli")
    if live or any(item.config.getoption(name, False) for name in options):
        return None
    buffer.run(item, nextitem)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if (buffer := buffer_of(item.session)) is not None:
        buffer.evaluations.begin(item)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> None:
    """pytest-timeout sets a timer: it is stopped while the test waits for others."""
    if "dagengine.testing.assertion" in sys.modules:
        from dagengine.testing.deferral import TIMEOUT

        item.stash[TIMEOUT] = settings


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    buffer = item.config.stash.get(_BUFFER, None)
    if buffer is None:
        return (yield)
    from dagengine.testing.report_order import CALL, evaluation_of
    from dagengine.testing.verdicts import tree_sections

    failed = evaluation_of(item, call)
    if call.excinfo is not None and call.when != "teardown":
        buffer.evaluations.note_end(call.excinfo.value)
    if call.when == "call":
        item.stash[CALL] = call
    report = yield
    if failed is not None:
        verdict, excuse = failed.verdict, getattr(failed, "excuse", "")
        vars(report)[_MISSING] = verdict.is_missing
        if verdict.is_missing and "wasxfail" in vars(report):  # nothing failed as expected
            report.outcome = "failed"
            del vars(report)["wasxfail"]
        if excuse and report.failed:  # as pytest reports what was expected to fail
            report.outcome = "skipped"
            vars(report).update(
                {"wasxfail": f"{excuse}: {str(failed).splitlines()[0]}", _GATED: True}
            )
        if item.config.get_verbosity() > 0:
            report.sections.extend(tree_sections(verdict))
    return report


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test whose failure a gate decides about stays among those that `--lf` runs again."""
    if _running and vars(report).get(_GATED):
        plugin: Any = _running[-1].config.pluginmanager.get_plugin("lfplugin")
        if plugin is not None:
            plugin.lastfailed[report.nodeid] = True


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A test that lacks a recorded answer was not judged: that is an error, and no failure."""
    return ("error", "E", "ERROR") if vars(report).get(_MISSING) and report.failed else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    stash = session.config.stash
    try:
        result = yield
    except KeyboardInterrupt:
        if _BUFFER in stash:
            stash[_BUFFER].flush()
        if _WORKERS in stash:
            stash[_WORKERS].drain(session.config)
        raise
    except BaseException:
        if _BUFFER in stash:
            stash[_BUFFER].finish()
        raise
    if _BUFFER in stash:
        stash[_BUFFER].finish()
    if _WORKERS in stash:
        stash[_WORKERS].report_lost(session)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After the fixtures of the session, which may wait for verdicts."""
    config = session.config
    buffer, workers = config.stash.get(_BUFFER, None), config.stash.get(_WORKERS, None)
    if buffer is None and not (workers and workers.sent) and not _lacks_evaluations(session):
        return
    from dagengine.testing import session_end
    from dagengine.testing.xdist_workers import KEY, Workers

    if buffer is None:
        outcome = session_end.end_of_workers(config, workers or Workers())
    else:
        evaluations = buffer.evaluations
        evaluations.close()
        left_out = evaluations.is_cut or config.stash.get(_DESELECTED, False)
        whole = session_end.is_whole(session, left_out)
        output = getattr(config, "workeroutput", None)
        if output is not None:
            output[KEY] = evaluations.pack(is_whole=whole)
            return
        summary, files, run = evaluations.summary, evaluations.files, evaluations.run
        outcome = session_end.end(config, summary, files, run, is_whole=whole)
    config.stash[_LINES] = outcome.lines
    outcome.report(config)
    if outcome.failing and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _lacks_evaluations(session: pytest.Session) -> bool:
    """Return whether gates fail a session, which went well, since nobody evaluated anything."""
    config = session.config
    gates = config.getoption("evals_min") or config.getoption("evals_baseline")
    runs_tests = not (hasattr(config, "workerinput") or config.getoption("collectonly", False))
    return bool(gates) and runs_tests and session.exitstatus == pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    lines = config.stash.get(_LINES, [])
    if lines:
        terminalreporter.section("evaluations", "=")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def dagengine_repetition(request: pytest.FixtureRequest) -> int:
    """Number of this repetition of `--evals-repeat`, from 1 on."""
    number: int = getattr(request, "param", 1)
    return number


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Parametrise over files of cases and, last of all, over repetitions."""
    parametrize = metafunc.parametrize

    def parametrize_list(argnames: Any, argvalues: Any, *more: Any, **named: Any) -> None:
        # pytest wants to know how many there are; cases are read lazily.
        lazy = type(argvalues).__module__ == "dagengine.data.cases"
        parametrize(argnames, list(argvalues) if lazy else argvalues, *more, **named)

    metafunc.parametrize = parametrize_list  # type: ignore[method-assign]
    yield
    times: Any = metafunc.config.getoption("evals_repeat")
    if times > 1:
        name, numbers = "dagengine_repetition", range(1, times + 1)
        metafunc.fixturenames.append(name)
        ids = [f"{number} of {times}" for number in numbers]
        metafunc.parametrize(name, numbers, indirect=True, ids=ids)


@pytest.fixture
def dagengine_case() -> Callable[..., CaseResult]:
    """Judge a case at once and get its row: `dagengine_case(test_case, metrics, **settings)`.

    For code that needs scores, and not only a verdict: the test waits for them. The case counts
    in the summary of the session; nothing fails.
    """
    from dagengine.testing.assertion import assert_at_once

    return assert_at_once


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """The name of a test case, or of a golden."""
    if type(val).__module__ in ("dagengine.test_case", "dagengine.data.golden"):
        from dagengine.system.terminal_text import plain

        name: str | None = getattr(val, "name", None)
        # What a terminal or the environment of a process cannot hold is escaped.
        return name and plain(name).replace("\n", "\\n").replace("\t", "\\t")
    return None
