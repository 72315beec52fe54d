"""What `show` passes over unread is never what was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagengine.data.json_lines import line_of, value_of
from dagengine.report.selection import Selection
from dagengine.results import CaseResult, Failure, MetricResult, OutcomeKind, Step

NAMES = st.sampled_from(
    [
        "Kind",
        "a=b",
        "=",
        "Tür",
        'say "x"',
        "K",
        "\u212a",
        "False",
        "straße",
        "Inner > Kind",
        "\ud800",
        "7",
    ]
)
VERDICTS = st.one_of(st.booleans(), NAMES)


@st.composite
def rows(draw: st.DrawFn) -> CaseResult:
    """A row of one result, with a step that decided or failed."""
    node, verdict, reason = draw(NAMES), draw(VERDICTS), draw(NAMES)
    score = draw(st.sampled_from([None, 0.0, 1.0]))
    failure = Failure(OutcomeKind.TIMEOUT, node, reason) if score is None else None
    step = Step(node, "judgement", OutcomeKind.OK, verdict=verdict, reason=reason)
    success = None if score is None else score > 0
    metric = MetricResult("M", score, success, reason, failure=failure, steps=(step,))
    return CaseResult(draw(st.integers(0, 20)), draw(NAMES), (metric,))


def asked(row: CaseResult) -> list[str]:
    """Everything that one may ask for at the nodes of a row."""
    (step,) = row.metrics[0].steps
    return [
        step.node,
        step.node.partition(" > ")[0],
        f"{step.node}={step.verdict}",
        f"{step.node}=timeout",
        "Kind=other",
    ]


@given(rows(), st.data())
def test_a_line_that_is_passed_over_is_none_of_those_asked_for(
    row: CaseResult, data: st.DataObject
) -> None:
    def maybe(strategy: st.SearchStrategy[Any]) -> Any:
        return data.draw(st.one_of(st.none(), strategy))

    at, text = maybe(st.sampled_from(asked(row))), maybe(NAMES)
    chosen = Selection(
        failed=data.draw(st.booleans()),
        no_score=data.draw(st.booleans()),
        case=maybe(st.one_of(NAMES, st.just(str(row.index)))),
        at=() if at is None else (at,),
        text=text if text is None else data.draw(st.sampled_from([text.upper(), text.lower()])),
    )
    if chosen.takes(row, mentioned=False):
        assert chosen.may_take(line_of(row.as_dict()), frozenset())


@pytest.mark.parametrize(
    ("at", "verdict"), [("Kind=False", True), ("Kind=no", "yes"), ("Tone=warm", "warm")]
)
def test_a_line_with_another_answer_is_not_read(at: str, verdict: str | bool) -> None:
    step = Step("Kind", "judgement", OutcomeKind.OK, verdict=verdict)
    row = CaseResult(0, "case", (MetricResult("M", 1.0, True, None, steps=(step,)),))
    assert not Selection(at=(at,)).may_take(line_of(row.as_dict()), frozenset())


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
        return [one.index for one in rows if selection.takes(one, mentioned=False)]

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
