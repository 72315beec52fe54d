"""Files that grow, rotate and are cut: every span is read, and nothing stops at a bad line."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders.spans import export, line, trace_id
from hypothesis import given
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.traces.otlp import records_of
from dagengine.watch.pending import Pending
from dagengine.watch.tailing import Folder


def numbers(folder: Folder) -> list[int]:
    """The traces of what is new."""
    return [int(record.trace_id, 16) for record in folder.poll()]


@given(cuts=st.lists(st.integers(0, 2000), max_size=6))
def test_a_file_that_grows_by_any_bytes_gives_every_span_once(
    cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("grows")
    folder, data = Folder(place), "".join(map(line, range(1, 6))).encode()
    seen: list[int] = []
    with (place / "spans.jsonl").open("ab", buffering=0) as file:
        for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
            file.write(data[start:end])
            seen += numbers(folder)
    assert [*seen, *numbers(folder)] == [1, 2, 3, 4, 5]


def test_a_rotated_file_goes_on_and_a_cut_one_begins_anew(tmp_path: Path) -> None:
    folder, path = Folder(tmp_path), tmp_path / "spans.jsonl"
    path.write_text(line(1))
    assert numbers(folder) == [1]
    path.rename(tmp_path / "spans-1.jsonl")
    with (tmp_path / "spans-1.jsonl").open("a") as file:
        file.write(line(2))
    path.write_text(line(3))
    assert numbers(folder) == [2, 3]
    path.write_text(line(4))  # emptied and written again: as long as before
    assert numbers(folder) == [4]
    path.unlink()
    (tmp_path / "spans-1.jsonl").unlink()
    assert numbers(folder) == []


def test_a_last_line_without_an_end_is_read_once_it_is_whole(tmp_path: Path) -> None:
    folder, path = Folder(tmp_path), tmp_path / "spans.jsonl"
    path.write_text(line(1) + line(2).rstrip("\n"))
    assert numbers(folder) == [1]
    assert numbers(folder) == [2]  # it did not grow, and is JSON
    with path.open("a") as file:
        file.write("\n" + line(3)[:40])
    assert [numbers(folder) for _ in range(3)] == [[], [], []]


def test_what_is_no_export_is_counted_and_left_out(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "spans.jsonl").write_text(f'no\n{{"a": 1}}\n\n{line(1)}')
    (tmp_path / "notes.txt").write_text("no")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "spans.jsonl")
    assert numbers(folder) == [1]
    assert folder.flaws == {"not JSON": 1, "neither resourceSpans nor resourceLogs": 1}
    assert set(folder.first.values()) == {"spans.jsonl"}


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spans.jsonl").write_text("")
    with pytest.raises(InputError, match=r"spans\.jsonl is not a folder.*--listen PORT"):
        Folder(tmp_path / "spans.jsonl")


def test_a_trace_is_ready_when_its_root_has_ended_and_it_was_quiet() -> None:
    pending = Pending()

    def ready(since: float) -> list[str]:
        return [trace for trace, _ in pending.take(since, 10)]

    pending.add(records_of(export(1, child=True)), 0.0)
    assert ready(100.0) == []  # its root is not there
    assert (pending.count(ended=True), pending.count(ended=False)) == (0, 1)
    pending.add(records_of(export(1)), 5.0)
    pending.add(records_of(export(2, endTimeUnixNano="0")), 5.0)  # not ended
    assert ready(4.9) == []
    pending.add(records_of(export(1, child=True, name="late")), 7.0)
    assert ready(5.0) == []
    ((trace, records),) = pending.take(7.0, 10)
    assert (trace, len(records)) == (trace_id(1), 3)
    assert pending.add(records_of(export(1, child=True)), 8.0) == 0
    assert (pending.late, ready(100.0)) == (1, [])
    pending.decide(trace_id(3))  # by a process before, whose spans are read once more
    assert pending.add(records_of(export(3)), 8.0) == 0
    assert (pending.late, ready(100.0)) == (1, [])
