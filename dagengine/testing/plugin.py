"""The pytest plugin: it imports nothing of dagengine until a test uses it."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dagengine.testing.session import Evaluations

_SESSION = pytest.StashKey[pytest.Session]()
_EVALUATIONS = pytest.StashKey["Evaluations"]()
# The sessions of this process, the innermost last: a test of a plugin runs a session inside one.
_running: list[pytest.Config] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("evals", "evaluations (dagengine)")
    group.addoption(
        "--evals-store",
        metavar="FILE",
        help="keep answers in this file, and ask nothing twice",
    )
    group.addoption(
        "--evals-immediate",
        action="store_true",
        help="wait for each verdict in its test, instead of running other tests meanwhile",
    )
    group.addoption(
        "--evals-ignore-errors",
        action="store_true",
        help="skip a test whose metric got no score, instead of failing it",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "evals(immediate=False): how the evaluations of a test are made; `immediate` waits for "
        "each verdict in place.",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_SESSION] = session
    _running.append(session.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if config in _running:
        _running.remove(config)


def current() -> Evaluations | None:
    """The evaluations of the session that runs, made when they are first needed."""
    return _evaluations(_running[-1]) if _running else None


def _evaluations(config: pytest.Config) -> Evaluations | None:
    """None as long as no test has imported `assert_test`."""
    found = config.stash.get(_EVALUATIONS, None)
    if found is None and "dagengine.testing.assertion" in sys.modules:
        from dagengine.testing.session import Evaluations

        found = config.stash[_EVALUATIONS] = Evaluations(config.stash[_SESSION])
    return found


def _is_immediate(config: pytest.Config) -> bool:
    """Whether every test waits for its verdicts: somebody watches each of them."""
    options = ("evals_immediate", "usepdb", "trace", "setupshow", "setuponly", "setupplan")
    live = config.getoption("log_cli_level", None) is not None or config.getini("log_cli")
    return bool(live) or any(config.getoption(name, False) for name in options)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    evaluations = None if _is_immediate(item.config) else _evaluations(item.config)
    if evaluations is None or evaluations.buffer.runs_again:
        return None
    evaluations.buffer.run(item, nextitem)
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if item.config.stash.get(_EVALUATIONS, None) is not None:
        from dagengine.testing.buffer import CALL, plain_headline

        plain_headline(call)
        if call.when == "call":
            item.stash[CALL] = call
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    try:
        result = yield
    except KeyboardInterrupt:
        if (evaluations := session.config.stash.get(_EVALUATIONS, None)) is not None:
            evaluations.buffer.interrupt()
        raise
    except BaseException:
        _finish(session)
        raise
    _finish(session)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return result


def _finish(session: pytest.Session) -> None:
    evaluations = session.config.stash.get(_EVALUATIONS, None)
    if evaluations is None:
        return
    try:
        evaluations.buffer.finish()
    except KeyboardInterrupt:
        evaluations.buffer.interrupt()
        raise


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After the fixtures of the session, which may wait for verdicts."""
    evaluations = session.config.stash.get(_EVALUATIONS, None)
    if evaluations is not None:
        evaluations.close()


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """The name of a test case, or of a golden."""
    if type(val).__module__ in ("dagengine.test_case", "dagengine.data.golden"):
        name: str | None = getattr(val, "name", None)
        return name
    return None
