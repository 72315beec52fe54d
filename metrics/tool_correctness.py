"""Tool correctness: whether an agent called the tools it should have called."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Unpack

import networkx as nx

from dagengine.errors import InputError
from dagengine.graph.graph import Graph
from dagengine.graph.node_values import NodeValue
from dagengine.metrics.common.prebuilt import MetricSettings, PrebuiltMetric
from dagengine.system.terminal_text import few
from dagengine.test_case import ToolCall, ToolCallParams

# By expected call and call made. Fractions, so that no order of calls changes a sum by a bit.
Credits = Sequence[Sequence[Fraction]]


class ToolCorrectnessMetric(PrebuiltMetric):
    """How well the tools called match the tools expected; makes no judge calls.

    A call that matches an expected call of the same name and type gets a credit: 1, or the share of
    the `evaluation_params` that agrees. A call without a type matches any type. For input
    parameters, and for outputs that are mappings, this is the share of keys with equal values; the
    two shares are multiplied. Score: sum of credits / expected calls. With `precision` it is sum of
    credits / calls made, so extra calls cost and missing ones do not. The score is 1 if both lists
    are empty and 0 if one of them is.

    By default calls are matched in any order, every call once, for the largest sum.
    `should_consider_ordering` matches only calls in the same order (the longest common subsequence,
    by credit). `should_exact_match` gives 1 if every position has exactly the expected call, with
    none missing and none added, and 0 otherwise. It overrides the other two settings.
    """

    title = "Tool Correctness"
    judged = ()  # calls, not text: none expected and none made is right
    no_template = "has no prompts, so it takes no evaluation_template"

    def __init__(
        self,
        *common: Any,
        should_exact_match: bool = False,
        should_consider_ordering: bool = False,
        evaluation_params: Iterable[str | ToolCallParams] = (),
        precision: bool = False,
        **settings: Unpack[MetricSettings],
    ) -> None:
        self.take_common(common, settings)
        self.should_exact_match = should_exact_match
        self.should_consider_ordering = should_consider_ordering
        params = list(evaluation_params)
        for name in params:
            if name not in tuple(ToolCallParams):
                names = ", ".join(ToolCallParams)
                raise InputError(
                    f"evaluation_params of tool correctness may contain {names}, not {name!r}"
                )
        self.evaluation_params = tuple(dict.fromkeys(map(ToolCallParams, params)))
        self.precision = precision

    def graph(self) -> Graph:
        params, precision = self.evaluation_params, self.precision
        in_order, exact = self.should_consider_ordering, self.should_exact_match

        def score(called: list[ToolCall], expected: list[ToolCall]) -> NodeValue:
            if not called and not expected:
                return NodeValue(1.0, score=1.0, reason="No tool was expected and none was called.")
            credits = [
                [credit(expectation, call, params) for call in called] for expectation in expected
            ]
            if exact:
                return _exact_score(credits, called, expected)
            pairs = best_in_order(credits) if in_order else best_assignment(credits)
            return _score(Matching(called, expected, pairs, in_order), precision)

        fields = ["tools_called", "expected_tools"]
        return self.score_graph(score, [], fields)


def credit(one: ToolCall, other: ToolCall, params: Iterable[ToolCallParams]) -> Fraction:
    """Credit of a match of two calls: 0 for different tools, 1 if all that counts agrees."""
    # Fractions: the best order is read off a table of sums by comparing them for equality.
    worth = Fraction(one.name == other.name and not differ_in_type(one, other))
    for param in params if worth else ():
        value, counterpart = getattr(one, param), getattr(other, param)
        if param is ToolCallParams.INPUT_PARAMETERS:  # none and an empty mapping are the same
            value, counterpart = value or {}, counterpart or {}
        worth *= agreement(value, counterpart)
    return worth


def differ_in_type(one: ToolCall, other: ToolCall) -> bool:
    """Return whether two calls have different types of tool; a call without a type fits any."""
    types = {call.type.casefold() for call in (one, other) if call.type}
    return len(types) > 1


def agreement(left: Any, right: Any) -> Fraction:
    """Share of two values that agrees: of mappings the share of keys, of others all or nothing."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = left.keys() | right.keys()
        equal = sum(agreement(left[key], right[key]) for key in left.keys() & right.keys())
        return Fraction(equal, len(keys)) if keys else Fraction(1)
    if isinstance(left, list) and isinstance(right, list):
        pairs = zip(left, right, strict=False)
        return Fraction(len(left) == len(right) and all(agreement(*pair) == 1 for pair in pairs))
    # True is no 1 in the arguments of a tool.
    return Fraction(isinstance(left, bool) == isinstance(right, bool) and bool(left == right))


@dataclass(frozen=True, slots=True)
class Pair:
    """The indices of an expected call and of the call that was matched with it."""

    expected: int
    call: int
    credit: Fraction


# Two sets of names would be too little: a tool may be rightly called twice. So is the first call
# that fits: with credit for arguments, another one may lead to a larger sum.
def best_assignment(credits: Credits) -> list[Pair]:
    """Every call at most once, for the largest sum of credits, whatever the order."""
    scale = math.lcm(*(worth.denominator for row in credits for worth in row))
    graph: nx.Graph[int] = nx.Graph()
    for expected, row in enumerate(credits):
        for number, worth in enumerate(row, len(credits)):
            if worth:  # whole numbers as weights keep the matching exact
                graph.add_edge(expected, number, weight=int(worth * scale))
    pairs: list[Pair] = []
    for expected, number in sorted(sorted(edge) for edge in nx.max_weight_matching(graph)):
        call = number - len(credits)
        pairs.append(Pair(expected, call, credits[expected][call]))
    return pairs


def best_in_order(credits: Credits) -> list[Pair]:
    """The longest common subsequence, by credit."""
    height, width = len(credits), len(credits[0]) if credits else 0
    # best[i][j]: the largest sum for the expected calls from i on and the calls from j on
    best = [[Fraction(0)] * (width + 1) for _ in range(height + 1)]
    for i in reversed(range(height)):
        for j in reversed(range(width)):
            pair = credits[i][j] + best[i + 1][j + 1]
            best[i][j] = max(pair, best[i + 1][j], best[i][j + 1])
    pairs: list[Pair] = []
    i = j = 0
    while i < height and j < width:
        if credits[i][j] and best[i][j] == credits[i][j] + best[i + 1][j + 1]:
            pairs.append(Pair(i, j, credits[i][j]))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


@dataclass(frozen=True, slots=True)
class Matching:
    """Expected calls, calls made, and the pairs that were matched."""

    calls: Sequence[ToolCall]
    expected: Sequence[ToolCall]
    pairs: Sequence[Pair]
    in_order: bool

    def findings(self) -> list[str]:
        """Findings: missing, right in part only, or not expected (or wrong in all that counts)."""
        paired = {pair.expected for pair in self.pairs}
        matched = {pair.call for pair in self.pairs}
        missing = [call for n, call in enumerate(self.expected) if n not in paired]
        extra = [call for n, call in enumerate(self.calls) if n not in matched]
        mistyped: list[str] = []
        for expectation, call in itertools.product(missing, extra):
            if expectation.name == call.name and differ_in_type(expectation, call):
                types = f"expected {expectation.type}, called {call.type}"
                mistyped.append(f"{call.name} ({types})")
        partly: list[str] = []
        for pair in self.pairs:
            if pair.credit < 1:
                partly.append(f"{self.expected[pair.expected].name} ({float(pair.credit):.4g})")
        suffix = " in this place" if self.in_order else ""
        unmatched = f"Called, but matches nothing expected{suffix}"
        return [
            *_named_calls(f"Expected, but no call matches{suffix}", [c.name for c in missing]),
            *_named_calls("Of another type", mistyped),
            *_named_calls("Right in part", partly),
            *_named_calls(unmatched, [call.name for call in extra]),
        ]


def _score(matching: Matching, precision: bool) -> NodeValue:
    whole = len(matching.calls if precision else matching.expected)
    total = sum((pair.credit for pair in matching.pairs), Fraction(0))
    score = float(total / whole) if whole else 0.0
    subject = "calls made were expected" if precision else "expected calls were made"
    order = "in order" if matching.in_order else "in any order"
    sum_of = f"{float(total):.4g}"
    lead = f"{sum_of} of {whole} {subject}, {order}: {sum_of}/{whole} = {score:.4g}."
    if not whole:
        lead = f"None of {len(matching.calls or matching.expected)} calls has a counterpart: 0."
    return NodeValue(score, score=score, reason="\n".join([lead, *matching.findings()]))


def _exact_score(
    credits: Credits, called: Sequence[ToolCall], expected: Sequence[ToolCall]
) -> NodeValue:
    whole, common = max(len(called), len(expected)), min(len(called), len(expected))
    wrong = [n for n in range(whole) if n >= common or credits[n][n] < 1]
    score = 0.0 if wrong else 1.0
    right = whole - len(wrong)
    lead = f"{right} of {whole} positions hold the expected call; all must: {score:.4g}."
    at = list[str]()
    for n in wrong:
        text = f"{n + 1}: {_name(called, n)} for {_name(expected, n)}"
        # A call of the expected name may be of another type: then both types are said.
        if n < common:
            expectation, call = expected[n], called[n]
            if expectation.name == call.name and differ_in_type(expectation, call):
                text += f" (expected {expectation.type}, called {call.type})"
        at.append(text)
    return NodeValue(score, score=score, reason="\n".join([lead, *_named_calls("Wrong", at)]))


def _name(calls: Sequence[ToolCall], place: int) -> str:
    return calls[place].name if place < len(calls) else "no call"


def _named_calls(what: str, names: Sequence[str]) -> list[str]:
    """A line that names some calls, or none when there are none."""
    return [f"{what}: {few(names)}."] if names else []
