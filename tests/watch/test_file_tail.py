"""Files that grow, rotate and are cut: every span is read, and nothing stops at a bad line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from folders.spans import export, line, trace_id
from hypothesis import given
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.traces.formats import RawRecord, otlp_records
from dagengine.watch.file_tail import Folder, Pending


def undamaged(value: Any) -> list[RawRecord]:
    """The records of an export without damage."""
    damaged: list[Exception] = []
    read = list(otlp_records(value, damaged.append))
    assert not damaged
    return read


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


@pytest.mark.parametrize("written", [1, 3])
@pytest.mark.parametrize("shared", ["", "a long prompt that all spans have " * 4000])
def test_a_file_that_is_written_anew_is_known_by_more_than_its_begin_and_its_place(
    tmp_path: Path, written: int, shared: str
) -> None:
    folder, path = Folder(tmp_path), tmp_path / "spans.jsonl"

    def lines(*numbers: int) -> str:
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "s" * 200}}]}
        exports = [export(number, shared) for number in numbers]
        for value in exports:
            value["resourceSpans"][0] = {"resource": resource, **value["resourceSpans"][0]}
        return "".join(json.dumps(value) + "\n" for value in exports)

    path.write_text(lines(*range(1, written + 1)))
    assert numbers(folder) == list(range(1, written + 1))
    path.write_text(lines(*range(11, 16)))  # the same inode, the same begin, and longer
    assert numbers(folder) == [11, 12, 13, 14, 15]


def test_a_long_line_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagengine.watch.file_tail._AT_ONCE", 1000)
    folder, path = Folder(tmp_path), tmp_path / "spans.jsonl"
    text, read = line(1, "x" * 100_000) + line(2), 0

    class Counting(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            nonlocal read
            data = super().read(size) or b""
            read += len(data)
            return data

    monkeypatch.setattr("dagengine.watch.file_tail.open_to_read", Counting)
    seen: list[int] = []
    with path.open("a") as file:
        for start in range(0, len(text), 5000):
            file.write(text[start : start + 5000])
            file.flush()
            seen += numbers(folder) + numbers(folder)  # it also stands still
    assert seen + numbers(folder) == [1, 2]
    assert read < 3 * len(text)


def test_a_damaged_span_costs_itself_only(tmp_path: Path) -> None:
    folder, whole = Folder(tmp_path), export(1)
    spans = whole["resourceSpans"][0]["scopeSpans"][0]["spans"]
    good = export(2)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    no_id = {name: value for name, value in good.items() if name != "spanId"}
    damages: list[dict[str, Any]] = [
        {"startTimeUnixNano": float("nan")},
        {"traceId": 7},
        {"attributes": [{"value": 1}]},
    ]
    spans += [5, no_id, *({**good, **damage} for damage in damages), good]
    nested = [{"spans": [good]}, {"resourceSpans": [{}]}, {"scopeSpans": [{"scopeSpans": [{}]}]}]
    whole["resourceSpans"] += ["no resource", {"scopeSpans": 3}, *nested, {}, {"resource": {}}]
    (tmp_path / "spans.jsonl").write_text(json.dumps([whole, export(3)]) + "\n")
    assert numbers(folder) == [1, 2, 3]
    assert folder.flaws == {"damaged": 10}
    assert folder.first["damaged"].startswith("spans.jsonl: ")


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

    pending.add(undamaged(export(1, child=True)), 0.0)
    assert ready(100.0) == []  # its root is not there
    assert (pending.count(ended=True), pending.count(ended=False)) == (0, 1)
    pending.add(undamaged(export(1)), 5.0)
    pending.add(undamaged(export(2, endTimeUnixNano="0")), 5.0)  # not ended
    assert ready(4.9) == []
    pending.add(undamaged(export(1, child=True, name="late")), 7.0)
    assert ready(5.0) == []
    ((trace, records),) = pending.take(7.0, 10)
    assert (trace, len(records)) == (trace_id(1), 3)
    assert pending.add(undamaged(export(1, child=True)), 8.0) == 0
    assert (pending.late, ready(100.0)) == (1, [])
    pending.decide(trace_id(3))  # by a process before, whose spans are read once more
    assert pending.add(undamaged(export(3)), 8.0) == 0
    assert (pending.late, ready(100.0)) == (1, [])
