"""Rubrics: weighted criteria, those of the metric or those that each case brings."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Unpack, get_args

from pydantic import BaseModel, model_serializer

from dagengine.errors import InputError, NotApplicableError, Problem, RefusedError, did_you_mean
from dagengine.graph.examples_and_quotes import Example
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.node import BaseNode, shorten
from dagengine.graph.node_values import Given, Judgement, NodeValue, QuestionCount
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.prebuilt import CommonSettings, PrebuiltMetric, in_brackets
from dagengine.metrics.common.rubric_items import MET, UNMET, UNSURE, RubricItem, items_of
from dagengine.prompts.answer_types import judgement_type
from dagengine.prompts.quotes import QuoteCheck, quoted_type
from dagengine.results import Points
from dagengine.test_case import LLMTestCaseParams, field_name, is_known_field, read_field

Unsure = Literal["skip", "unmet", "worst", "fail"]
"""What becomes of a criterion of which the judge cannot tell whether the answer meets it."""

_MANY: Final = 20  # criteria in one call, from which on judges are known to err more
_QUOTED, _REASONS, _WIDTH = 3, 5, 40  # criteria in the first line of a reason, and below it
_WORDS: Final = (
    "Say whether {subject} meets a criterion. Take the criterion by its own words; where it needs "
    "knowledge of the subject, use yours. {met}: all that it says is true of {subject}. {unmet}: "
    "some of it is not. A criterion may describe a fault; it is met if the fault is there. Where "
    "other labels are allowed, choose the one that fits {subject} best."
)
_CANNOT_TELL: Final = f" {UNSURE}: neither {{subject}} nor what you know shows it."


class Marked(Judgement):
    """The verdict on one criterion, with the points that it won.

    `won` is None for a gate, and where a judge that cannot tell is left out of the sums.
    """

    item: RubricItem
    won: float | None = None

    @property
    def lost(self) -> float:
        """The points that another verdict would have brought more."""
        return 0.0 if self.won is None else self.item.best - self.won

    def __str__(self) -> str:
        """The points and the criterion, in one line: "-8 Invents a policy"."""
        points, prefix = self.item.points, ""
        if self.won is not None:
            prefix = f"{with_sign(self.won)} of {with_sign(points)} "
        if self.won == points:
            prefix = f"{'+' * (points > 0)}{with_sign(points)} "
        verdict = f" → {self.verdict}" * (self.verdict not in (MET, UNMET))
        return f"{prefix}{shorten(self.item.key, _WIDTH)}{verdict}"

    @model_serializer
    def _with_its_criterion(self) -> dict[str, Any]:
        own = {"verdict": self.verdict, "reason": self.reason, "won": self.won}
        own |= self.item.model_dump()
        return dict(filter(lambda pair: pair[1] is not None, own.items()))


class RubricNode(VerdictListNode):
    """Asks which criteria of a rubric an answer meets, the gates or all the others.

    Criteria with the same labels are asked together, at most `per_call` in one question, and equal
    ones once. Readers get a list of `Marked`.
    """

    of_criteria = True

    def __init__(self, metric: RubricMetric, criteria: BaseNode, *, gates: bool) -> None:
        subject, unsure = "the material", metric.unsure
        if "turns" in metric.evaluation_params:
            subject = "what the assistant says"
        elif "actual_output" in metric.evaluation_params:
            subject = "`actual_output`"
        words = _WORDS.format(subject=subject, met=MET, unmet=UNMET)
        super().__init__(
            words + _CANNOT_TELL.format(subject=subject) * (unsure is not None),
            criteria,
            "gates" if gates else "verdicts",
            verdicts=(MET, UNMET) + (UNSURE,) * (unsure is not None),
            item_label="criterion",
            evaluation_params=metric.evaluation_params,
            per_call=metric.size,
            examples=metric.examples,
        )
        self.gates, self.unsure, self.show_points = gates, unsure, metric.show_points

    def _split(self, reads: Given) -> tuple[list[Any], Given]:
        items, context = super()._split(reads)
        return self._own(items), context

    def _own(self, items: Iterable[RubricItem]) -> list[RubricItem]:
        return [item for item in items if item.gate == self.gates]

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        listed = known.get(self._list_name)
        if not isinstance(listed, list):
            return super().questions(known, items)
        return QuestionCount.exactly(len(self.groups(self._own(listed), self.per_call)))

    def groups(self, items: Sequence[Any], size: int | None) -> list[Sequence[int]]:
        alike: dict[tuple[str, ...], list[int]] = {}
        for index in dict.fromkeys(_firsts(items)):
            alike.setdefault(items[index].verdicts, []).append(index)
        groups: list[Sequence[int]] = []
        for indices in alike.values():
            step = size or len(indices)
            groups += (indices[start : start + step] for start in range(0, len(indices), step))
        return groups

    def in_order(self, items: Sequence[Any], judged: Mapping[int, Judgement]) -> list[Judgement]:
        return list(map(self.mark, items, (judged[index] for index in _firsts(items))))

    def mark(self, item: RubricItem, judgement: Judgement) -> Marked:
        """Give a criterion its verdict and points; raises RefusedError where that is wanted."""
        verdict, won = str(judgement.verdict), None
        if verdict == UNSURE and self.unsure == "fail":
            why = in_brackets(judgement.reason)
            raise RefusedError(f"the judge cannot tell whether {item.key!r:.80} is met{why}")
        if not item.gate:
            unsure = {"worst": item.worst, "unmet": 0.0}.get(self.unsure or "")
            won = unsure if verdict == UNSURE else item.won(verdict)
        return Marked(
            verdict=judgement.verdict, reason=judgement.reason, odds=judgement.odds,
            quotes=judgement.quotes, item=item, won=won,
        )  # fmt: skip

    def evidence_in(self, item: Any) -> Any:
        return item.criterion + f" ({item.points:+g} points)" * self.show_points

    def verdicts_of(self, items: Sequence[Any]) -> tuple[str, ...]:
        labels: tuple[str, ...] = items[0].verdicts + (UNSURE,) * (UNSURE in self.verdicts)
        return labels[:: -1 if self.verdicts[-1] == MET else 1]  # they may be in reverse order

    def step(self, verdicts: tuple[str, ...], count: int, field: str | None) -> str:
        order = "First give your reason, then your verdict."
        subject = "The criterion is in the material."
        if count > 1:
            subject = f"The material has {count} criteria, called criterion 1 to criterion {count}."
            order = (
                f"Under the number of each criterion, from 1 to {count}, give your reason, then "
                "your verdict; leave none out and add none."
            )
        listed = '"\n- "'.join(verdicts)
        return f'{subject} {self.criteria}\n\n{order}\n\nEach verdict is one of:\n- "{listed}"'

    def shape(
        self, verdicts: tuple[str, ...], count: int, quotes: QuoteCheck | None = None
    ) -> type[BaseModel]:
        if count > 1:
            return super().shape(verdicts, count, quotes)
        single = judgement_type(verdicts)
        return single if quotes is None else quoted_type(single, quotes.mode)


def _firsts(items: Sequence[RubricItem]) -> list[int]:
    """For each item the index of the first one that is asked in the same words."""
    indices: dict[tuple[str, tuple[str, ...]], int] = {}
    return [indices.setdefault((i.criterion, i.verdicts), index) for index, i in enumerate(items)]


class RubricMetric(PrebuiltMetric):
    """Weighted criteria: the points that an answer wins, of those that it could win.

    `criteria` are `RubricItem`s (also as dicts or texts), or the path of a field that has them in
    every case (`additional_metadata.rubrics`). Score: the points of the criteria that are met, also
    negative ones, divided by all positive points, from 0 to 1. The row has the points themselves
    (`points`), where the score may be negative. If all points are negative, the score is 1 minus
    the share that is lost. A rubric without points is skipped. A gate that is closed makes the
    score 0, and nothing else is asked.

    One call per criterion; with `per_call` one for so many, or for "all", which is cheaper and less
    accurate. With `unsure` the judge may say that it cannot tell: such a criterion is left out of
    both sums ("skip"), counts as "unmet" or as the "worst" for the answer, or leaves the case
    without a score ("fail"). `evaluation_params` are the fields that the judge reads. It sees no
    points without `show_points`. `examples` are solved examples. Raises InputError for invalid
    criteria and settings; those of the first 1,000 cases are checked before the first call.

    Points as in HealthBench (Arora et al. 2025, https://arxiv.org/abs/2505.08775).
    """

    lacks = ("evaluation_template", "verdicts_per_call", "expected")
    no_template = "has no evaluation_template: its questions are the criteria"

    def __init__(
        self,
        name: str,
        criteria: str | Sequence[RubricItem | Mapping[str, Any] | str],
        *common: Any,
        per_call: int | Literal["all"] = 1,
        unsure: Unsure | None = None,
        evaluation_params: Iterable[str | LLMTestCaseParams] = ("input", "actual_output"),
        show_points: bool = False,
        examples: Iterable[Example] = (),
        **settings: Unpack[CommonSettings],
    ) -> None:
        self.take_common(common, {**settings, "name": name})
        if unsure is not None and unsure not in get_args(Unsure):
            near = did_you_mean(str(unsure), get_args(Unsure))
            raise InputError(f"unsure takes {', '.join(get_args(Unsure))}, got {unsure!r}; {near}")
        if per_call != "all" and (type(per_call) is not int or per_call < 1):
            raise InputError(f"per_call is a whole number from 1 on, or 'all', got {per_call!r}")
        self.per_call, self.show_points = per_call, show_points
        self.unsure: Unsure | None = unsure
        self.evaluation_params = tuple(map(field_name, evaluation_params))
        self.examples = tuple(examples)
        judged = {"actual_output", "turns"}.intersection(self.evaluation_params)
        self.judged = tuple((field,) for field in sorted(judged))
        self.path, self.items = "", tuple[RubricItem, ...]()
        self.criteria: str | tuple[RubricItem, ...]
        if not isinstance(criteria, str):
            self.criteria = self.items = tuple(self._checked(criteria))
        elif is_known_field(criteria.partition(".")[0]):
            self.criteria = self.path = field_name(criteria)
        else:
            raise InputError(
                f"criteria is a list, [RubricItem(…), …], or the path of a field that has one in "
                f"every case; no field is called {criteria!r:.60}"
            )
        for concern in self._concerns(self.items):
            warnings.warn(f"{name}: {concern}", UserWarning, stacklevel=2)

    def graph(self) -> Graph:
        criteria = CodeNode(
            self.read_criteria,
            evaluation_params=filter(None, [self.path]),
            name="criteria",
        )
        verdicts = RubricNode(self, criteria, gates=False)
        gates = RubricNode(self, criteria, gates=True)
        score = CodeNode(self.count_points, inputs=[criteria, verdicts], name="score")
        if not self.path and not any(item.gate for item in self.items):
            return Graph(score)
        closed = CodeNode(self.close_case, inputs=[criteria, gates], name="closed")
        branches = {"open": score, "closed": closed}
        return Graph(CodeNode(self.decide_gates, inputs=[gates], name="gate", then=branches))

    @property
    def size(self) -> int | None:
        """The most criteria of one question; None for all."""
        return self.per_call if isinstance(self.per_call, int) else None

    def spec(self) -> MetricSpec:
        return replace(super().spec(), case_problems=self.case_problems)

    def _checked(self, given: Any) -> list[RubricItem]:
        """The criteria of a rubric; raises InputError for what is none."""
        items = items_of(given)
        if self.unsure == "skip" and any(item.gate for item in items):
            raise InputError("unsure='skip' leaves a gate neither open nor closed: use 'worst'")
        return items

    def _concerns(self, items: Sequence[RubricItem]) -> Iterator[str]:
        for text, times in Counter(item.criterion for item in items).items():
            if times > 1:
                yield f"the criterion {text!r:.60} occurs {times} times: its points count as often"
        size = min(self.size or len(items), len(items))
        if size > _MANY:
            yield f"{size} criteria in one call; judges err more from about {_MANY} on: per_call="

    def case_problems(self, case: Any) -> Iterator[Problem]:
        """Problems of the criteria that a case brings; none of a case without any."""
        rubric, where = read_field(case, self.path), f"`{self.path}`"
        if not self.path or rubric is None:
            return
        try:
            for concern in self._concerns(self._checked(rubric)):
                yield Problem("criteria", where, concern, "", "warning")
        except InputError as error:
            yield Problem("criteria", where, str(error), "correct it in the data")

    def read_criteria(self, *rubric: Any) -> list[RubricItem]:
        """The criteria; raises InputError, and NotApplicableError where none has points."""
        items = list(self.items)
        for own in rubric:
            items += self._checked(own)
        if not any(item.gate or item.points for item in items):
            raise NotApplicableError("nothing to judge: the rubric has no criterion with points")
        return items

    def decide_gates(self, gates: list[Marked]) -> NodeValue:
        """Whether all gates are open."""
        verdict = "open" if all(map(self._passes, gates)) else "closed"
        return NodeValue(verdict, verdict=verdict)

    def _passes(self, mark: Marked) -> bool:
        if mark.verdict != UNSURE:
            return mark.item.passes(str(mark.verdict))
        return self.unsure == "unmet" and mark.item.passes(UNMET)

    def close_case(self, items: list[RubricItem], gates: list[Marked]) -> NodeValue:
        """The score 0, and which gates are closed."""
        possible = points_of([(item, 0.0) for item in items if not item.gate], items)
        closed = (mark for mark in gates if not self._passes(mark))
        reason = "\n".join(f"{mark.verdict}: {mark}{in_brackets(mark.reason)}" for mark in closed)
        value = possible.model_copy(update={"won": 0.0})
        return NodeValue(value if possible.possible else 0.0, score=0.0, reason=reason)

    def count_points(self, items: list[RubricItem], marks: list[Marked]) -> NodeValue:
        """The score, the points, and why."""
        points = points_of([(m.item, m.won) for m in marks if m.won is not None], items)
        if points.possible:
            score = min(max(points.share, 0.0), 1.0)
            return NodeValue(points, score=score, reason=self.explain(marks, points))
        if any(mark.item.points for mark in marks):
            raise RefusedError("no score: the judge cannot tell any criterion with points to win")
        return NodeValue(1.0, score=1.0, reason="All gates are open.")

    def explain(self, marks: Sequence[Marked], points: Points) -> str:
        """The greatest losses and gains in one line, the sum, and why points were lost."""
        ordered = sorted(marks, key=lambda mark: (-mark.lost, -abs(mark.won or 0)))
        line = " · ".join(map(str, ordered[:_QUOTED]))
        remainder = f" · {len(ordered) - _QUOTED} more" * (len(ordered) > _QUOTED)
        clipped = ", which counts as 0" * (points.share < 0)
        sums = f"{with_sign(points.won)} of {points.possible:g} points = {with_sign(points.share)}"
        lines = [line + remainder, sums + clipped]
        lines += [f"{mark}{in_brackets(mark.reason)}" for mark in ordered[:_REASONS] if mark.lost]
        faults = sum(mark.verdict == UNSURE and mark.item.points < 0 for mark in marks)
        if faults and self.unsure == "unmet":
            lines.append(f"{faults} of the faults count as not there, as the judge cannot tell.")
        return "\n".join(lines)


def points_of(won: Iterable[tuple[RubricItem, float]], items: Iterable[RubricItem]) -> Points:
    """The points of criteria, each with those that it won, of a rubric with these `items`.

    They are counted against the positive points. If the rubric has none, what is not lost is won.
    """
    positive = any(item.points > 0 and not item.gate for item in items)
    total = possible = 0.0
    tags: dict[str, tuple[float, float]] = {}
    for item, points in won:
        best = max(item.points, 0.0)
        possible += best if positive else -item.points
        total += points
        for tag in item.tags:
            own, most = tags.get(tag, (0.0, 0.0))
            tags[tag] = own + points, most + best
    total += possible * (not positive)
    with_figure = filter(lambda pair: pair[1][1], tags.items())
    return Points(won=total, possible=possible, tags=dict(with_figure))


def with_sign(number: float) -> str:
    """A number with a minus sign as people write it."""
    return f"{number:.4g}".replace("-", "\N{MINUS SIGN}")
