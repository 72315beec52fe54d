"""A selection of cases by the answers on their paths, and how their lines are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagengine.data.written_lines import line_of, value_of
from dagengine.report.case_selection import Selection
from dagengine.results import CaseResult, MetricResult, OutcomeKind, Step


def test_exclusions_leave_out_the_rows_whose_path_has_one() -> None:
    def row(index: int, *steps: Step) -> CaseResult:
        return CaseResult(index, "case", (MetricResult("M", 1.0, True, None, steps=steps),))

    def step(node: str, verdict: Any = None, output: Any = None) -> Step:
        return Step(node, "judgement", OutcomeKind.OK, verdict=verdict, output=output)

    items = [{"verdict": "no", "reason": "x"}, {"verdict": "yes", "reason": "y"}]
    rows = [
        row(0, step("Kind", True), step("Tone", "warm")),
        row(1, step("Kind", True), step("Tone", "rude")),
        row(2, step("Kind", False)),
        row(3, step("Items", output=items)),
    ]

    def taken(**conditions: tuple[str, ...]) -> list[int]:
        selection = Selection(**conditions)  # type: ignore[arg-type]
        return [one.index for one in rows if selection.fits_row(one, {})]

    assert taken(at=("Kind=True",), not_at=("Tone=rude",)) == [0]
    assert taken(not_at=("Tone",)) == [2, 3]
    assert taken(at=("Items=no",)) == [3]
    assert taken(not_at=("Items=no", "Kind=False")) == [0, 1]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON)
def test_a_line_is_read_as_json_reads_it(value: Any) -> None:
    assert value_of(json.dumps(value).encode()) == value


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "nothing special"])
def test_a_lone_surrogate_is_read_again(text: str) -> None:
    assert value_of(line_of({"text": text})) == {"text": text}


@pytest.mark.parametrize("line", [b"{", b"", b'{"a": 1} x'])
def test_what_is_no_json_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        value_of(line)
