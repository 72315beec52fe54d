"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, settings
from trio._core import _run as trio_run
from typer import testing

# Commands compile the package once, and not at each start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No example fails because the machine is busy, or because of what was drawn this time. Examples
# that do not fit are left out, and what a fixture makes is the same for all examples of a test.
settings.register_profile(
    "dagengine",
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)
settings.load_profile("dagengine")

gc.disable()  # until all tests are collected: nothing that is imported becomes garbage

# The parsers of all commands are built once, and not for each command that a test runs.
testing._get_command = cache(testing._get_command)  # type: ignore[attr-defined]


def pytest_configure() -> None:
    """Let tests be interrupted also where the whole run was started in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # what subprocesses would inherit
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Let no collection of garbage go through thousands of tests and their modules.

    Afterwards the collector looks less often, and no more at what a file of tests has imported:
    with Python's own thresholds it takes an eighth of the time of the suite.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Outside CI take a sample of tables that cost much; a test that is named has all its cases.

    Every value of every parameter is still tried. What is left out are combinations of two or more:
    of these every fourth stays, and always the same.
    """
    if os.environ.get("DAGENGINE_TESTS") == "whole" or any("::" in path for path in config.args):
        return
    tables = defaultdict[str, list[Any]](list)
    for item in items:
        if item.get_closest_marker("sampled") and hasattr(item, "callspec"):
            tables[item.nodeid.partition("[")[0]].append(item)
    dropped = set[pytest.Item]()
    for table in tables.values():
        seen = set[tuple[object, ...]]()
        for item in sorted(table, key=_number):
            values = _values(item)
            if values <= seen and _number(item) % 4:
                dropped.add(item)
            seen |= values
    config.hook.pytest_deselected(items=list(dropped))
    items[:] = [item for item in items if item not in dropped]


def _values(item: Any) -> set[tuple[object, ...]]:
    """What a case has of each table of parameters; two that are equal may be two rows of it."""
    left, values = dict(item.callspec.params), set[tuple[object, ...]]()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        row = [id(left.pop(name.strip(), None)) for name in names]
        values.add((*names, *row))
    return values | {(name, id(value)) for name, value in left.items()}


def _number(item: pytest.Item) -> int:
    return zlib.crc32(item.nodeid.encode())


@pytest.fixture(scope="module", autouse=True)
def garbage_of_one_file() -> Iterator[None]:
    """What a file of tests leaves is collected at its end, and would warn there."""
    yield
    gc.collect()
    gc.freeze()


def seed(name: str) -> None:
    """Let chance begin anew in a way that only `name` decides.

    That is Python's `random`, which also libraries draw from, numpy's, and the order in which trio
    runs tasks that are ready at the same time.
    """
    number = zlib.crc32(name.encode())
    random.seed(number)
    numpy.random.seed(number)
    trio_run._r.seed(number)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    """Seed each fixture, too: which test needs one of a module first is chance."""
    seed(f"{fixturedef.baseid}::{fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Seed each test, whatever ran before it."""
    seed(item.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A part of the files for each worker: what a module has is made once, by one of them."""
    if config.option.dist != "load":
        return None
    return import_module("xdist.scheduler").WorkStealingScheduling(config, log)


ROOT = Path(__file__).resolve().parents[1]


def _checkout() -> dict[str, tuple[int, int]]:
    """What a test could leave in the checkout by mistake: beside the sources, and in `out`."""
    paths = [path for path in ROOT.iterdir() if path.name[0] not in "._"]
    found = {path: path.stat() for path in [*paths, *(ROOT / "out").glob("*")]}
    return {
        os.path.relpath(path, ROOT): (one.st_size, one.st_mtime_ns)
        for path, one in found.items()
        if path.is_file() or path.parent != ROOT
    } | {path.name: (0, 0) for path in paths}


@pytest.fixture(scope="session", autouse=True)
def checkout_as_it_was() -> Iterator[None]:
    """The suite leaves the checkout as it was, and what `python3 dev.py run` wrote into `out`."""
    before = _checkout()
    yield
    now = _checkout()
    changed = sorted(name for name in before | now if before.get(name) != now.get(name))
    assert not changed, f"a test wrote into the checkout (run it in tmp_path): {changed}"


@pytest.fixture(autouse=True)
def facts_of_no_earlier_server() -> None:
    """A server of a test may have the port of one that another test asked a moment ago."""
    servers = sys.modules.get("dagengine.judges.wire.server_facts")
    if servers is not None:
        servers._RECENT.clear()


@pytest.fixture
def without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the package nor the program that lays out pictures, for as long as a test runs."""
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    monkeypatch.setenv("PATH", "")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Every async test runs on both event loops."""
    return request.param
