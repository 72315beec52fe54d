"""Searches over recorded answers: what is replayed, and that no accepted change makes it worse."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("scipy")

from improved_recordings import SOURCES, main, starts
from recordings import Folder, data_directory, how_to_get

needs_recordings = pytest.mark.skipif(
    not all(Folder(data_directory() / name).is_there for name in SOURCES),
    reason=how_to_get(data_directory()),
)


@needs_recordings
def test_every_proposal_of_a_search_was_recorded() -> None:
    searches = list(starts(data_directory()))
    assert len({start.name for start in searches}) == len(searches) == 40
    for start in searches:
        criteria = {criterion for criterion, *_ in start.answers}
        assert {node.text for node in start.metric.spec().graph.nodes()} <= criteria
        assert set(start.proposals) <= criteria
        assert not start.holistic or start.holistic in criteria


@needs_recordings
def test_a_search_on_a_recording_ends_as_the_page_of_improve_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["improved_recordings.py", "PandaLM"])
    assert main() == 0
    printed = capsys.readouterr().out
    assert "score of tie: 0 → 7" in printed
    assert "refused: not shown with equal weight for every label" in printed
    assert "1 searches, 0 accepted, 0 proved, 0 worse on the sealed part" in printed
