"""Evaluations repeated: every question asked again, under conditions of one's choice.

Each condition (a repetition in one order, at one temperature, …) is a rewrite of every
metric, and all rewrites run as one evaluation. What is repeated is everything that asks:
also questions that do not depend on the case, such as the one for G-Eval's steps, are asked
once per condition. Pass `evaluation_steps` to keep them fixed. Reasons that a judge would
write about a result are left out; they come after the score.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from dagengine.compiler.lowering import compile_metrics
from dagengine.data.cases import Cases
from dagengine.errors import InputError
from dagengine.execution.engine import Engine, Settings, check_settings
from dagengine.execution.evaluation import sync
from dagengine.gateway.host import asking_with
from dagengine.graph.graph import Metric
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.node import BaseNode
from dagengine.graph.rewriting import Change, Rewriting, SpecMetric
from dagengine.graph.values import Ask, Given, NodeValue, Work
from dagengine.question import REPETITIONS, Answer, Options, Question
from dagengine.reliability.observations import Condition, Observation, Observations, Turns
from dagengine.reliability.perturbations import Symmetry, Wording, paraphrase, reverse_options
from dagengine.report.progress import progress_bar
from dagengine.results import CaseResult, MetricResult, Step, Verdict
from dagengine.test_case import CASE_TYPES, TestCase

__all__ = ["ORDERS", "Condition", "Observation", "Observations", "a_repeat", "repeat"]

T = TypeVar("T", bound=BaseModel)

ORDERS = ("given", "swapped", "reversed")
"""As given, with the symmetric inputs swapped, and with the options in reverse order."""

Paraphrases = Mapping[str, Mapping[str, Wording]]
_FIELD = "field"


@dataclass(frozen=True, slots=True)
class Resampling:
    """As a change: has a node ask under a condition.

    The samples of repetition r of the metric as given are r where a node asks for sample 0,
    so repetition 0 asks what a plain evaluation asks. No sample is shared by two conditions.
    """

    condition: Condition
    top_logprobs: int = 0

    def __call__(self, node: BaseNode) -> None:
        def wrap(work: Work) -> Work:
            async def resampled(given: Given, ask: Ask) -> NodeValue:
                asking = _Resampled(ask, self.options)
                with asking_with(asking.changed):
                    return await work(given, asking)

            return resampled

        node.around = (*node.around, wrap)

    def options(self, options: Options) -> Options:
        """The options of a question under the condition."""
        at = self.condition
        sample = at.sample + REPETITIONS * (options.sample + REPETITIONS * _space(at))
        temperature = options.temperature if at.temperature is None else at.temperature
        seed = options.seed if at.seed is None else at.seed
        return replace(
            options,
            sample=sample,
            temperature=temperature,
            seed=seed,
            top_logprobs=max(options.top_logprobs, self.top_logprobs),
        )


def _space(condition: Condition) -> int:
    """A number that conditions share when they differ in sample and judge only."""
    plain = replace(condition, sample=0, judge="")
    if plain == Condition():
        return 0
    return int.from_bytes(hashlib.sha256(repr(plain).encode()).digest()[:3]) + 1


class _Resampled:
    """Asks as another does, but with other options."""

    def __init__(self, ask: Ask, options: Callable[[Options], Options]) -> None:
        self._ask = ask
        self._options = options

    async def __call__(self, question: Question[T]) -> Answer[T]:
        return await self._ask(self.changed(question))

    async def each(self, questions: Sequence[Question[T]]) -> list[Answer[T]]:
        return await self._ask.each([self.changed(question) for question in questions])

    def changed(self, question: Question[T]) -> Question[T]:
        """The question with other options."""
        return replace(question, options=self._options(question.options))


@dataclass(frozen=True, slots=True)
class Variant:
    """One metric under one condition, under a name of its own."""

    metric: str
    condition: Condition
    rewritten: SpecMetric


def variants(
    metrics: Sequence[Metric],
    conditions: Iterable[Condition],
    *,
    symmetry: Symmetry | None = None,
    paraphrases: Paraphrases | None = None,
    judges: Mapping[str, Any] | None = None,
    top_logprobs: int = 0,
) -> list[Variant]:
    """Every metric under every condition; nothing of the metrics is touched.

    Raises GraphError for metrics that do not compile, InputError for names that are not known.
    """
    plan = compile_metrics(metrics)
    specs = [replace(metric.spec, judged_reason=False) for metric in plan.metrics]
    _check_titles(specs, paraphrases or {})
    found: list[list[Variant]] = [[] for _ in specs]
    for number, condition in enumerate(conditions):
        asking = Resampling(condition, top_logprobs)
        shown = _changes(condition, symmetry or Symmetry(), paraphrases or {})
        model = (judges or {})[condition.judge] if condition.judge else None
        rewriting = Rewriting([*shown, asking], model)
        for spec, own in zip(specs, found, strict=True):
            named = replace(rewriting.spec(spec), name=f"{spec.name} #{number}")
            own.append(Variant(spec.name, condition, SpecMetric(named)))
    return list(itertools.chain.from_iterable(found))


def _changes(
    condition: Condition, symmetry: Symmetry, paraphrases: Paraphrases
) -> Iterator[Change]:
    if condition.paraphrase:
        yield paraphrase(paraphrases[condition.paraphrase])
    if condition.order == "reversed":
        yield reverse_options
    elif condition.order == "swapped":
        yield symmetry


def _check_titles(specs: Iterable[Any], paraphrases: Paraphrases) -> None:
    titles = {node.title for spec in specs for node in spec.graph.nodes()}
    for name, wordings in paraphrases.items():
        if unknown := [title for title in wordings if title not in titles]:
            known = ", ".join(map(repr, sorted(titles)))
            raise InputError(f"paraphrase {name!r}: no node is called {unknown[0]!r}; {known} are")


def conditions_of(
    times: int,
    orders: Sequence[str] = ("given",),
    temperatures: Sequence[float | None] = (None,),
    seeds: Sequence[int | None] = (None,),
    paraphrases: Iterable[str] = (),
    judges: Iterable[str] = (),
) -> list[Condition]:
    """Every combination, `times` times each; raises InputError for what makes no condition."""
    if not isinstance(times, int) or not 1 <= times < REPETITIONS:
        raise InputError(f"times must be a whole number from 1 on, got {times!r}")
    if unknown := [order for order in orders if order not in ORDERS]:
        raise InputError(f"there is no order {unknown[0]!r}; use {', '.join(ORDERS)}")
    worded, named = ("", *paraphrases), tuple(judges) or ("",)
    ways = (named, temperatures, seeds, orders, worded, range(times))
    for name, way in (("orders", orders), ("temperatures", temperatures), ("seeds", seeds)):
        if not way or len(set(way)) < len(way):
            raise InputError(f"{name} must be a list of different values, got {way!r}")
    return [
        Condition(sample, order, temperature, seed, wording, judge)
        for judge, temperature, seed, order, wording, sample in itertools.product(*ways)
    ]


async def a_repeat(
    test_cases: Iterable[TestCase],
    metrics: Sequence[Metric],
    *,
    times: int = 20,
    orders: Sequence[str] = ("given",),
    temperatures: Sequence[float | None] = (None,),
    seeds: Sequence[int | None] = (None,),
    paraphrases: Paraphrases | None = None,
    judges: Mapping[str, Any] | None = None,
    symmetry: Symmetry | None = None,
    texts: bool = False,
    top_logprobs: int = 0,
    show: bool = False,
    on_row: Callable[[CaseResult], None] | None = None,
    **settings: Any,
) -> Observations:
    """Evaluate `times` times in every combination of the conditions, as one evaluation.

    `orders` are names of `ORDERS` (`symmetry` says what is swapped), `temperatures` and
    `seeds` replace those of the nodes unless None. `paraphrases` maps a name to other words
    for nodes by title; each is used beside the words as given. `judges` maps names to judges
    (as `model` of `evaluate`) that take the place of the metrics' own. No question shares an
    answer with that of another condition. `settings` are those of `stream`: `model`,
    `limits`, `on_attempt` and the like. `on_row` gets each case's results as they come, one
    per metric and condition; `show` draws a progress bar (on a terminal).

    With `top_logprobs` (1 to 20) every question asks for that many alternatives per token, so
    that observations have a `confidence` where the judge gives them; such questions are not
    those of a plain evaluation.

    Observations keep a digest of what the judge wrote, or with `texts` the text itself.
    Raises what `stream` raises, and InputError for conditions that make no sense.
    """
    check_settings(a_repeat, settings)
    conditions = conditions_of(times, orders, temperatures, seeds, paraphrases or (), judges or ())
    made = variants(
        metrics,
        conditions,
        symmetry=symmetry,
        paraphrases=paraphrases,
        judges=judges,
        top_logprobs=top_logprobs,
    )
    rows: list[Observation] = []
    keep = _texts if texts else _digest
    paths: dict[Turns, Turns] = {}

    def take(row: CaseResult) -> None:
        for variant, result in zip(made, row.metrics, strict=True):
            path = paths.setdefault(result.path, result.path)
            rows.extend(_observed(row.index, variant, result, path, keep))
        advance(row)
        if on_row is not None:
            on_row(row)

    if "swapped" in orders and isinstance(test_cases, Sequence):
        _check_symmetry(test_cases, symmetry or Symmetry())
    engine = Engine([variant.rewritten for variant in made], cast(Settings, settings))
    checked = engine.cases(test_cases)
    total = checked.count() if isinstance(checked, Cases) else None
    with (
        engine.keeping(lambda: Observations(tuple(rows), engine.totals)),
        progress_bar(total, show, lambda: engine.totals) as advance,
    ):
        await engine.judge(checked, take)
    return Observations(tuple(rows), engine.totals)


def repeat(
    test_cases: Iterable[TestCase], metrics: Sequence[Metric], **settings: Any
) -> Observations:
    """`a_repeat` for callers without an event loop (it works inside one, too)."""
    check_settings(a_repeat, settings)
    return sync(lambda: a_repeat(test_cases, metrics, **settings))


def _check_symmetry(cases: Sequence[TestCase], symmetry: Symmetry) -> None:
    for case in cases:
        if isinstance(case, CASE_TYPES):
            symmetry.swapped(case)


Keep = Callable[[Sequence[str]], str | None]


def _observed(
    case: int, variant: Variant, result: MetricResult, path: Turns, keep: Keep
) -> Iterator[Observation]:
    """The metric's observation, then those of its nodes that did more than hand on a field."""
    wrote = [text for step in result.steps for text in _written(step, result)]
    yield Observation(
        case, variant.metric, "", variant.condition, None, result.score, keep(wrote),
        result.outcome, path, weighted=result.mode == "weighted",
    )  # fmt: skip
    for step in result.steps:
        if step.kind != _FIELD:
            yield Observation(
                case, variant.metric, step.node, variant.condition, step.verdict, step.score,
                keep(_written(step, result)), step.outcome, confidence=step.confidence,
                items=_items(step),
            )  # fmt: skip


def _items(step: Step) -> tuple[Verdict, ...]:
    """The verdicts about the items of a list."""
    listed = step.output if step.kind == VerdictListNode.kind else None
    return tuple(one["verdict"] for one in listed or ())


def _written(step: Step, result: MetricResult) -> Sequence[str]:
    """What the judge wrote for a step, also when it could not be read."""
    failure = result.failure
    if failure is not None and failure.node == step.node and failure.raw is not None:
        return (failure.raw,)
    return step.answers


def _texts(answers: Sequence[str]) -> str | None:
    return "\n\n".join(answers) if answers else None


def _digest(answers: Sequence[str]) -> str | None:
    """64 bits of SHA-256: equal texts are certain to be told, others all but certain."""
    if not answers:
        return None
    text = "\0".join(answers).encode(errors="surrogatepass")
    return hashlib.sha256(text).hexdigest()[:16]
