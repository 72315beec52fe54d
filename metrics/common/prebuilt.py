"""What the metrics that come with dagengine share: settings, scores of lists, explanations."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypedDict

from dagengine.errors import InputError, NotApplicableError
from dagengine.graph.examples_and_quotes import Quotes, Unsupported
from dagengine.graph.graph import Graph, Judged, MetricSpec, is_blank
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.node_values import Given, Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.base import DrawnMetric
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.prompts.probabilities.options import unknown_of
from dagengine.prompts.quotes import QuoteMode
from dagengine.question import Odds
from dagengine.results import Verdict
from dagengine.system.terminal_text import text_if

# Failing items quoted in a reason; the rest is counted.
_QUOTED = 5
MOST_ENUMERATED = 10
"""Items of a list all of whose combinations are worked out: 2 to the power of this."""
_LEAST = 1e-12  # a score less likely than this is left out


class CommonSettings(TypedDict, total=False):
    """What all metrics take besides a name and what is their own: see `PrebuiltMetric`."""

    threshold: float | None
    model: Any
    include_reason: bool
    async_mode: bool
    strict_mode: bool
    verbose_mode: bool
    evaluation_template: type[Any] | None
    judged_reason: bool
    verdicts_per_call: int | None
    expected: bool
    quote: QuoteMode | None
    unsupported: Unsupported


class MetricSettings(CommonSettings, total=False):
    """What metrics take that have a name by themselves."""

    name: str | None


class PrebuiltMetric(DrawnMetric):
    """Base of the metrics that come with dagengine; each builds a graph.

    `threshold` is the lowest score from 0 to 1 that passes (None: no pass or fail).
    `strict_mode` turns every score below 1 into 0 and the threshold into 1. `model` is the
    metric's judge (the run's judge or gpt-4o by default). `evaluation_template` is a class
    whose methods replace prompts of the metric. With `judged_reason` the judge writes the reason in
    one last call (by the template's `generate_reason(score, path)`, if it has one). By default, the
    reason is composed from the reasons of the verdicts without a call. `verdicts_per_call` is the
    largest number of items that one question is about (None: all items; 1: every item by itself).
    InputError is raised if it is below 1. With `expected` the score is the expectation over the
    judge's odds if all of them are known. Otherwise it is the score of the most likely verdicts,
    and the result's `mode` says so. `name` tells apart two metrics of one kind in one run. With
    `quote` ("required", "if_any") the verdicts quote what they stand on, and code checks it; see
    `quoted` of `dagengine.voting`, also for `unsupported`.
    """

    title: ClassVar[str] = ""

    # The fields whose text the metric judges: a case without any is skipped, never passed.
    judged: Judged = (("actual_output",),)

    # Whether others score the faults that this metric counts: in deepeval up to 4.1.10 0 is best.
    counts_faults: ClassVar[bool] = False

    # The built-in prompts, of which `evaluation_template` replaces some.
    template: ClassVar[type[Any]]

    # What asks about the items of a list, where it reads fields of the case.
    list_kind: ClassVar[type[VerdictListNode]] = VerdictListNode

    # Settings of others that a metric does not have.
    lacks: ClassVar[tuple[str, ...]] = ()

    # Why there is no `evaluation_template`, of a metric without one.
    no_template: ClassVar[str] = ""

    # An attribute of a metric only where it quotes: definitions of others stay as they are.
    quoting: Quotes | None = None

    def __init__(
        self,
        threshold: float | None = 0.5,
        model: Any = None,
        include_reason: bool = True,
        async_mode: bool = True,
        strict_mode: bool = False,
        verbose_mode: bool = False,
        evaluation_template: type[Any] | None = None,
        *,
        judged_reason: bool = False,
        verdicts_per_call: int | None = None,
        expected: bool = False,
        name: str | None = None,
        quote: QuoteMode | None = None,
        unsupported: Unsupported = "fail",
    ) -> None:
        if evaluation_template is not None and self.no_template:
            raise TypeError(f"{type(self).__name__} {self.no_template}")
        self.name = name or self.title
        self.threshold = 1.0 if strict_mode else threshold
        if (
            self.counts_faults
            and isinstance(threshold, int | float)
            and (self.threshold or 0) < 0.5
        ):
            warnings.warn(
                f"{self.name}: a score of 1 means no faults, so threshold={threshold:g} lets most "
                f"answers pass; to allow a share of faults of {threshold:g}, use "
                f"threshold={1 - threshold:g}",
                UserWarning,
                stacklevel=2,
            )
        self.model = model
        self.include_reason = include_reason
        self.async_mode = async_mode
        self.strict_mode = strict_mode
        self.verbose_mode = verbose_mode
        self.evaluation_template = evaluation_template
        self.judged_reason = judged_reason
        self.verdicts_per_call = at_least_one("verdicts_per_call", verdicts_per_call)
        self.expected = expected
        quoting = Quotes.of(quote, unsupported)
        if quoting is not None:
            self.quoting = quoting

    def take_common(self, common: Iterable[Any], settings: MetricSettings) -> None:
        """Take what a constructor was given besides its own settings: by position, and by name."""
        PrebuiltMetric.__init__(self, *common, **dict[str, Any](settings))

    def graph(self) -> Graph:
        """The metric's graph, newly made at every call."""
        raise TypeError(f"{type(self).__name__} must override graph")

    def spec(self) -> MetricSpec:
        # The graph, newly made, with quotes if the metric quotes
        graph = self.graph()
        if self.quoting is not None:
            nodes = [node for node in graph.nodes() if isinstance(node, AskingNode) and node.quotes]
            if not nodes:
                raise InputError(f"{self.name}: it has no verdict that could quote anything")
            for node in nodes:
                node.quote_with(self.quoting)
        wording = getattr(self.evaluation_template, "generate_reason", None)
        return self.spec_of(self.__name__, graph, reason_wording=wording, judged=self.judged)

    def wording(self, method: str, *read: str, **fixed: Any) -> Callable[[Given], str] | None:
        """The prompt of `evaluation_template`, where it overrides `method` of `template`.

        `read` names what the method is called with: labels and case fields of the node.
        `fixed` are arguments that are the same for every case, passed by name.
        """
        # Only an overridden method counts: the engine builds its own prompts in parts, which
        # begin alike for all questions of a case, so that servers read the beginning once.
        own = getattr(self.evaluation_template, method, None)
        if own is None or own is getattr(self.template, method):
            return None

        def prompt(given: Given) -> str:
            values = dict((*given.fields, *given.inputs))
            return str(own(*(values[name] for name in read), **fixed))

        return prompt

    def judge_items(
        self,
        question: ItemQuestion,
        over: BaseNode | str,
        label: str,
        wording: Callable[[Given], str] | None,
        reads: Sequence[str] = (),
        **settings: Any,
    ) -> VerdictListNode:
        """The node that asks about every item of a list, in view of the fields that it `reads`."""
        kind = self.list_kind if reads else VerdictListNode
        return kind(
            question.text,
            over,
            label,
            verdicts=question.verdicts,
            item_label=question.item,
            evaluation_params=reads,
            wording=wording,
            per_call=self.verdicts_per_call,
            **settings,
        )

    @staticmethod
    def score_graph(
        function: Callable[..., Any], inputs: Iterable[BaseNode], reads: Iterable[str] = ()
    ) -> Graph:
        """The graph that ends in the score of a function, which `reads` fields and gets inputs."""
        return Graph(CodeNode(function, evaluation_params=reads, inputs=inputs, name="score"))


def at_least_one(name: str, limit: int | None) -> int | None:
    """`limit` itself; raises InputError when it is below 1."""
    if limit is not None and limit < 1:
        raise InputError(f"{name} must be at least 1, got {limit}")
    return limit


def in_brackets(reason: str | None) -> str:
    """A reason behind what it is about; nothing where the judge gave none."""
    return text_if(reason, f" ({reason})")


def a_text(name: str, given: Any) -> str:
    """A setting that has to be a text; raises TypeError and InputError."""
    if not isinstance(given, str):
        raise TypeError(f"{name} must be a text, got {given!r:.80}")
    if is_blank(given):
        raise InputError(f"{name} is empty: say in words what it is")
    return given


def texts(name: str, given: Any) -> list[str]:
    """A setting that has to be a list of texts, of one at least; raises TypeError, InputError."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a list of texts, got {given!r:.80}")
    checked = [a_text(f"{name}[{index}]", text) for index, text in enumerate(given)]
    if not checked:
        raise InputError(f"{name} is an empty list: name at least one")
    return checked


def share(
    items: Sequence[str],
    judgements: Sequence[Judgement],
    good: Sequence[str],
    *,
    what: str,
    passed: str,
    empty: float,
) -> NodeValue:
    """The share of items with a good verdict as a score, with the count and the failing items.

    `what` names the items ("statements"), `passed` what the good ones are ("relevant"). `empty` is
    the score from 0 to 1 if there is nothing to judge. Where the judge gave odds, the value has
    those of every share, items taken to be independent.
    """
    count = len(judgements)
    if not count:
        return NodeValue(empty, score=empty, reason=f"There are no {what} to judge.")
    failing: list[str] = []
    for item, judgement in zip(items, judgements, strict=True):
        if judgement.verdict not in good:
            failing.append(f"Not: {item!r}{in_brackets(judgement.reason)}")
    passing = count - len(failing)
    score = passing / count
    parts = [f"{passing} of {count} {what} are {passed}: {passing}/{count} = {score:.4g}."]
    parts += failing[:_QUOTED]
    if len(failing) > _QUOTED:
        parts.append(f"… and {len(failing) - _QUOTED} more.")
    odds = share_odds(judgements, good)
    return NodeValue(score, score=score, reason="\n".join(parts), odds=odds)


def least_of(parts: Mapping[str, float | None], empty: str) -> NodeValue:
    """The least score of some parts; a part with nothing to judge (None) does not count.

    Raises NotApplicableError, which says `empty`, if there is nothing to judge in any.
    """
    scores = [score for score in parts.values() if score is not None]
    if not scores:
        raise NotApplicableError(f"nothing to judge: {empty}")
    score = min(scores)
    terms: list[str] = []
    for name, part in parts.items():
        terms.append(f"{name} nothing to judge" if part is None else f"{name} {part:.4g}")
    return NodeValue(score, score=score, reason=f"min({', '.join(terms)}) = {score:.4g}.")


def share_odds(judgements: Sequence[Judgement], good: Collection[Verdict]) -> Odds | None:
    """The odds of each share (0 to 1) of items with a good verdict; None without any odds.

    The number of good items is Poisson-binomial: worked out exactly, one item after another.
    """
    if not _any_odds(judgements):
        return None
    counts = [1.0]
    for chance, miss in (_chances(judgement, good) for judgement in judgements):
        # So many good items come from as many before a miss, or from one fewer before a hit.
        pairs = zip([*counts, 0.0], [0.0, *counts], strict=True)
        counts = [count * miss + fewer * chance for count, fewer in pairs]
    return tuple(
        (count / len(judgements), mass) for count, mass in enumerate(counts) if mass > _LEAST
    )


def order_odds(
    judgements: Sequence[Judgement],
    good: Collection[Verdict],
    score: Callable[[Sequence[bool]], float],
) -> Odds | None:
    """The odds of each score (0 to 1) that depends on which items are good.

    `score` takes, in the order of the items, whether each one is good. None without any odds,
    and for more than `MOST_ENUMERATED` items, whose combinations are too many.
    """
    if not _any_odds(judgements) or len(judgements) > MOST_ENUMERATED:
        return None
    chances = [_chances(judgement, good) for judgement in judgements]
    odds: dict[float, float] = {}
    for combination in itertools.product((True, False), repeat=len(chances)):
        pairs = zip(chances, combination, strict=True)
        mass = math.prod(chance if hit else miss for (chance, miss), hit in pairs)
        if mass > _LEAST:
            number = score(combination)
            odds[number] = odds.get(number, 0.0) + mass
    return tuple(sorted(odds.items()))


def _any_odds(judgements: Sequence[Judgement]) -> bool:
    return any(judgement.odds is not None for judgement in judgements)


def _chances(judgement: Judgement, good: Collection[Verdict]) -> tuple[float, float]:
    """Probabilities of a good verdict and of another one, as far as they are known."""
    if judgement.odds is None:
        hit = float(judgement.verdict in good)
        return hit, 1 - hit
    hit = min(1.0, math.fsum(chance for verdict, chance in judgement.odds if verdict in good))
    return hit, max(0.0, 1 - hit - unknown_of(judgement.odds))
