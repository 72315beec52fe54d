"""Fixtures for all tests."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pytest
from hypothesis import settings

# No example fails because the machine is busy.
settings.register_profile("dagengine", deadline=None)
settings.load_profile("dagengine")


def pytest_configure() -> None:
    """Let tests be interrupted also where the whole run was started in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # what subprocesses would inherit
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the package nor the program that lays out pictures, for as long as a test runs."""
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    monkeypatch.setenv("PATH", "")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Every async test runs on both event loops."""
    return request.param
