"""Threads that work for a node, and how they are left behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dagengine.gateway.inner_metrics import joined_threads


def test_threads_and_pools_are_as_they_were_when_the_last_run_is_over() -> None:
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit
    with joined_threads():
        with joined_threads():
            assert threading.Thread.start is not start
        assert threading.Thread.start is not start
        assert ThreadPoolExecutor.submit is not submit
    assert threading.Thread.start is start
    assert ThreadPoolExecutor.submit is submit


def test_a_wrapper_of_another_tool_stays_when_a_run_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def traced(thread: threading.Thread) -> None:
        return None

    plain = threading.Thread.start
    with joined_threads():
        monkeypatch.setattr(threading.Thread, "start", traced)
    assert threading.Thread.start is traced
    monkeypatch.setattr(threading.Thread, "start", plain)
