"""Evaluations repeated: every question is asked again, under the conditions that are given.

A condition is a repetition in one order, at one temperature and so on. Under each condition
every metric is rewritten, and all rewritten metrics run as one evaluation. Every question is
repeated. One that does not depend on the case, for instance that for the steps of G-Eval, is asked
once per condition. Pass `evaluation_steps` to keep the steps fixed. A judge writes no reasons about
results here, since reasons come after the score.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from dagengine.compiler.plan import NONE, Plan, compile_metrics
from dagengine.data.cases import Cases
from dagengine.errors import InputError
from dagengine.execution.flow import JudgedCase, RunObserver
from dagengine.execution.interrupts import sync
from dagengine.execution.local_executor import LocalExecutor, Settings, check_settings
from dagengine.graph.graph import Metric
from dagengine.graph.judging import Quotes
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.node import AskingNode
from dagengine.graph.rewriting import Change, Rewriting, SpecMetric
from dagengine.prompts.quotes import has_support
from dagengine.question import REPETITIONS
from dagengine.reliability.observations import Condition, Observation, Observations
from dagengine.reliability.perturbations import (
    Resampling,
    Symmetry,
    Wording,
    paraphrase,
    reverse_options,
)
from dagengine.reliability.second_answers import SecondAnswers
from dagengine.report.progress import progress_bar
from dagengine.results import CaseResult, MetricResult, OutcomeKind, Step, Totals
from dagengine.test_case import CASE_TYPES, TestCase

__all__ = ["ORDERS", "Condition", "Observation", "Observations", "a_repeat", "repeat"]

T = TypeVar("T", bound=BaseModel)

ORDERS = ("given", "swapped", "reversed")
"""As given, with the symmetric inputs swapped, and with the options in reverse order."""

Paraphrases = Mapping[str, Mapping[str, Wording]]
_FIELD = "field"


@dataclass(frozen=True, slots=True)
class Variant:
    """One metric under one condition, under its own name."""

    metric: str
    condition: Condition
    rewritten: SpecMetric

    @property
    def setting(self) -> Condition:
        """The condition without its sample: what repetitions have in common."""
        return replace(self.condition, sample=0)


def variants(
    metrics: Sequence[Metric],
    conditions: Iterable[Condition],
    *,
    symmetry: Symmetry | None = None,
    paraphrases: Paraphrases | None = None,
    judges: Mapping[str, Any] | None = None,
    top_logprobs: int = 0,
) -> list[Variant]:
    """Every metric under every condition; the metrics themselves do not change.

    Raises GraphError for metrics that do not compile, InputError for unknown names.
    """
    plan = compile_metrics(metrics)
    specs = [replace(metric.spec, judged_reason=False) for metric in plan.metrics]
    titles = {node.title for spec in specs for node in spec.graph.nodes()}
    for name, wordings in (paraphrases or {}).items():
        if unknown := [title for title in wordings if title not in titles]:
            choices = ", ".join(map(repr, sorted(titles)))
            raise InputError(
                f"paraphrase {name!r}: no node is called {unknown[0]!r}; use {choices}"
            )
    by_spec: list[list[Variant]] = [[] for _ in specs]
    for number, condition in enumerate(conditions):
        changes = [*_changes(condition, symmetry, paraphrases or {})]
        model = (judges or {})[condition.judge] if condition.judge else None
        rewriting = Rewriting([*changes, Resampling(condition, top_logprobs)], model)
        for spec, own in zip(specs, by_spec, strict=True):
            named = replace(rewriting.spec(spec), name=f"{spec.name} #{number}")
            own.append(Variant(spec.name, condition, SpecMetric(named)))
    return list(itertools.chain.from_iterable(by_spec))


def _changes(
    condition: Condition, symmetry: Symmetry | None, paraphrases: Paraphrases
) -> Iterator[Change]:
    """The changes of a tree that a condition asks for."""
    if condition.paraphrase:
        yield paraphrase(paraphrases[condition.paraphrase])
    if condition.order == "reversed":
        yield reverse_options
    elif condition.order == "swapped":
        yield symmetry or Symmetry()


def conditions_of(
    times: int,
    orders: Sequence[str] = ("given",),
    temperatures: Sequence[float | None] = (None,),
    seeds: Sequence[int | None] = (None,),
    paraphrases: Iterable[str] = (),
    judges: Iterable[str] = (),
) -> list[Condition]:
    """Every combination, `times` times each; raises InputError for invalid conditions."""
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
    second_answers: bool = True,
    texts: bool = False,
    top_logprobs: int = 0,
    show: bool = False,
    on_row: Callable[[CaseResult], None] | None = None,
    **settings: Any,
) -> Observations:
    """Evaluate all cases `times` times under every combination of conditions, as one evaluation.

    `orders` are names of `ORDERS` (`symmetry` says what is swapped). `temperatures` and `seeds`
    replace those of the nodes unless None. `paraphrases` maps a name to other criteria for nodes,
    by title; each is used in addition to the original. `judges` maps names to judges (as `model` of
    `evaluate`) that replace the metrics' judges. Conditions never share answers. `settings` are
    those of `stream`: `model`, `limits`, `on_attempt` and the like. `on_row` receives the results
    of each case during the run, one per metric and condition. `show` draws a progress bar (on a
    terminal).

    With `second_answers`, a node that decides or scores is asked once more if a case reached it
    only once under a setting. It gets the same input as in that run, after all runs. If there are
    many such cases, a random sample of them is asked (`chosen_cases`). Without second answers, the
    share of the noise of such nodes is unknown. These answers are observations marked `alone`; they
    belong to no run. `times=1` makes one run per case: it gives scores, paths and the agreement
    with labels, but no noise and no second answers.

    With `top_logprobs` (1 to 20), every question asks for that many alternatives per token.
    Observations then have a `confidence` if the judge gives them. Such questions differ from those
    of a normal evaluation, also in a store.

    Observations keep a digest of the judge's text, or with `texts` the text itself. Raises what
    `stream` raises, and InputError for invalid conditions.
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
    if "swapped" in orders and isinstance(test_cases, Sequence):
        # A case that cannot be swapped is refused here, before the first question is asked.
        for case in cast(Sequence[TestCase], test_cases):
            if isinstance(case, CASE_TYPES):
                (symmetry or Symmetry()).swap(case)
    engine = LocalExecutor([variant.rewritten for variant in made], cast(Settings, settings))

    checked = engine.cases(test_cases)
    total = checked.count() if isinstance(checked, Cases) else None
    with progress_bar(engine, total, show) as advance:
        record = _Record(engine, made, texts, second_answers, on_row, advance)
        with engine.keeping(lambda: Observations(tuple(record.rows), engine.totals)):
            await engine.judge(checked, record)
    return Observations(tuple(record.rows), engine.totals)


def repeat(
    test_cases: Iterable[TestCase], metrics: Sequence[Metric], **settings: Any
) -> Observations:
    """`a_repeat` for callers without an event loop (it works inside one, too)."""
    check_settings(a_repeat, settings)
    return sync(lambda: a_repeat(test_cases, metrics, **settings))


@dataclass(kw_only=True)
class Experiment:
    """Evaluations one after the other, each of them `times` times, with limits for all together.

    `settings` are those of `a_repeat`. `totals` add up what was used, `spent` is the known part of
    the cost in US dollars, which the budget has to cover.
    """

    settings: Mapping[str, Any]
    times: int
    show: bool = False
    on_row: Callable[[CaseResult], None] | None = None
    totals: Totals = field(default_factory=lambda: Totals(cost=0.0))
    spent: float = 0.0

    async def ask(
        self,
        cases: Sequence[TestCase],
        metrics: Sequence[Metric],
        keep: Callable[[CaseResult], None] | None = None,
    ) -> Observations:
        """Repeat metrics on cases, without second answers; `keep` receives the rows, too."""

        def take(row: CaseResult) -> None:
            for function in filter(None, (keep, self.on_row)):
                function(row)

        observations = await a_repeat(
            cases, metrics, times=self.times, second_answers=False, show=self.show, on_row=take,
            **self.remaining(),
        )  # fmt: skip
        self.add(observations.totals)
        return observations

    def add(self, totals: Totals) -> None:
        """Count what was asked."""
        self.totals = self.totals + totals
        self.spent += totals.cost or 0.0

    def remaining(self) -> dict[str, Any]:
        """The settings, with the limits of what is still allowed."""
        settings = dict(self.settings)
        if (limits := settings.get("limits")) is not None:
            settings["limits"] = limits.after(self.totals.calls, self.spent)
        return settings


class _Record(RunObserver):
    """Makes observations of results, asking what a case lacks before it is done."""

    def __init__(
        self,
        engine: LocalExecutor,
        variants: Sequence[Variant],
        texts: bool,
        second_answers: bool,
        on_row: Callable[[CaseResult], None] | None,
        advance: Callable[[CaseResult], None],
    ) -> None:
        """`on_row` gets each row after its observations, `advance` each that is finished."""
        self._timeout = engine.limits.case_timeout  # again, for the second answers of a case
        self._on_row, self._advance = on_row, advance
        plan = engine.plan
        self.rows: list[Observation] = []
        self._plan, self._variants = plan, variants
        self._keeps_texts = texts
        # By metric and setting, the numbers of the variants that are its repetitions
        settings: dict[tuple[str, Condition], list[int]] = {}
        for number, variant in enumerate(variants):
            settings.setdefault((variant.metric, variant.setting), []).append(number)
        self._repeated = [
            (variants[group[0]], SecondAnswers(plan, group, variants[group[0]].rewritten))
            for group in settings.values()
            if second_answers and len(group) > 1
        ]
        self._questions: dict[int, dict[tuple[int, str], str]] = {}
        self._known: dict[Any, Any] = {}  # of equal values one is kept
        self._quoting = _quoting(plan, variants)

    def case_judged(self, case: JudgedCase) -> None:
        """Note which questions a case was asked, and what it lacks."""
        questions = self._questions[case.index] = {}
        for metric in self._plan.metrics:
            for slot in metric.slots:
                value = case.state.values.get(slot)
                if value is not None and value.question is not None:
                    digest = self._known.setdefault(value.question, value.question)
                    questions[metric.index, self._plan.slots[slot].name] = digest
        for _, repeated in self._repeated:
            repeated.note(case)

    async def all_judged(self) -> None:
        """Ask what cases lack, when all of them have their runs."""
        for variant, repeated in self._repeated:
            for case, answers in await repeated.ask(self._timeout):
                for answer in answers:
                    written = answer.step.answers if answer.raw is None else (answer.raw,)
                    # It belongs to no run: its sample is one that a longer benchmark would use.
                    condition = replace(variant.condition, sample=answer.sample)
                    row = replace(
                        self._step(case, variant, answer.step, written),
                        condition=self._known.setdefault(condition, condition),
                        alone=True,
                        question=answer.question,
                    )
                    self.rows.append(row)

    def row_finished(self, row: CaseResult) -> None:
        """Move the progress bar on."""
        self._advance(row)

    def row(self, row: CaseResult) -> None:
        """Make the observations of a case: metrics and their nodes."""
        questions = self._questions.pop(row.index, {})
        for number, (variant, result) in enumerate(zip(self._variants, row.metrics, strict=True)):
            wrote = [text for step in result.steps for text in _texts_of(step, result)]
            self.rows.append(
                Observation(
                    row.index,
                    variant.metric,
                    "",
                    variant.condition,
                    None,
                    result.score,
                    self._keep(wrote),
                    result.outcome,
                    self._known.setdefault(result.path, result.path),
                    weighted=result.mode == "weighted",
                )
            )
            self.rows += (
                replace(
                    self._step(row.index, variant, step, _texts_of(step, result)),
                    question=questions.get((number, step.node)),
                )
                for step in result.steps
                if step.kind != _FIELD
            )
        if self._on_row is not None:
            self._on_row(row)

    def _keep(self, answers: Sequence[str]) -> str | None:
        """The judge's texts, or 64 bits of their SHA-256, which tell all but equal texts apart."""
        if not answers:
            return None
        if self._keeps_texts:
            return "\n\n".join(answers)
        text = "\0".join(answers).encode(errors="surrogatepass")
        return hashlib.sha256(text).hexdigest()[:16]

    def _step(self, case: int, variant: Variant, step: Step, written: Sequence[str]) -> Observation:
        # The verdicts about the items of a list
        listed = step.output if step.kind == VerdictListNode.kind else None
        items = tuple(row["verdict"] for row in listed or ())
        keys, gains = keyed_criteria(listed or ())
        return Observation(
            case, variant.metric, step.node, variant.condition, step.verdict, step.score,
            self._keep(written), step.outcome, confidence=step.confidence, items=items,
            unsupported=_lacks_support(step, self._quoting.get((variant.metric, step.node))),
            keys=self._known.setdefault(keys, keys), gains=gains,
        )  # fmt: skip


def keyed_criteria(
    listed: Sequence[Mapping[str, Any]],
) -> tuple[tuple[tuple[str, ...], ...], tuple[float | None, ...]]:
    """The keys of the criteria in a list of verdicts, and what they brought to the score."""
    rows = [row for row in listed if "criterion" in row]
    keys = tuple((row["criterion"], row.get("name", ""), *row.get("tags", ())) for row in rows)
    points = [row["points"] for row in rows if "won" in row]
    possible = math.fsum(p for p in points if p > 0) or -math.fsum(points)
    shares = (row["won"] / possible if possible and "won" in row else None for row in rows)
    return keys, tuple(shares)


def _quoting(plan: Plan, variants: Sequence[Variant]) -> dict[tuple[str, str], Quotes]:
    """Ways of quoting by metric and node; nodes that do not are left out."""
    quotes: dict[tuple[str, str], Quotes] = {}
    for variant, metric in zip(variants, plan.metrics, strict=True):
        for slot in plan.slots_at(metric.slots):
            node = None if slot.unit == NONE else plan.units[slot.unit].node
            if isinstance(node, AskingNode) and node.quoting is not None:
                quotes[variant.metric, slot.name] = node.quoting
    return quotes


def _lacks_support(step: Step, quoting: Quotes | None) -> bool | None:
    """Whether a verdict of a step has no support; None if it has no verdict that quotes."""
    if quoting is None or step.outcome not in (OutcomeKind.OK, OutcomeKind.UNSUPPORTED):
        return None
    if step.outcome is OutcomeKind.UNSUPPORTED:
        return True
    if not isinstance(step.output, list):
        return not has_support(step.quotes, quoting.mode)
    # No item that quotes anything: a step then has no quotes of items.
    each = step.item_quotes or ((),) * len(step.output)
    return any(not has_support(own, quoting.mode) for own in each) if each else None


def _texts_of(step: Step, result: MetricResult) -> Sequence[str]:
    """Texts of the judge for a step, also when it could not be read."""
    failure = result.failure
    if failure is not None and failure.node == step.node and failure.raw is not None:
        return (failure.raw,)
    return step.answers
