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
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from dagengine.compiler.execution_plan import NONE, Plan, compile_metrics
from dagengine.data.cases import Cases
from dagengine.errors import InputError
from dagengine.execution.cases_and_rows import JudgedCase, RunObserver
from dagengine.execution.interrupts import blocking
from dagengine.execution.local_executor import LocalExecutor, Settings, check_settings
from dagengine.graph.examples_and_quotes import Quotes
from dagengine.graph.graph import Metric
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.node import AskingNode
from dagengine.graph.nodes import FieldNode
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

ORDERS = ("given", "swapped", "reversed")
"""As given, with the symmetric inputs swapped, and with the options in reverse order."""

Paraphrases = Mapping[str, Mapping[str, Wording]]


@dataclass(frozen=True, slots=True)
class Variant:
    """One metric under one condition, under its own name."""

    metric: str
    condition: Condition
    rewritten: SpecMetric


@dataclass(frozen=True, kw_only=True)
class Design:
    """The conditions under which everything is asked again, as `a_repeat` takes them."""

    times: int
    orders: Sequence[str] = ("given",)
    temperatures: Sequence[float | None] = (None,)
    seeds: Sequence[int | None] = (None,)
    paraphrases: Paraphrases = field(default_factory=dict)
    judges: Mapping[str, Any] = field(default_factory=dict)
    symmetry: Symmetry = field(default_factory=Symmetry)
    top_logprobs: int = 0

    def conditions(self) -> list[Condition]:
        """Every combination, `times` times each; raises InputError for invalid conditions."""
        if not isinstance(self.times, int) or not 1 <= self.times < REPETITIONS:
            raise InputError(f"times must be a whole number from 1 on, got {self.times!r}")
        if unknown := [order for order in self.orders if order not in ORDERS]:
            raise InputError(f"there is no order {unknown[0]!r}; use {', '.join(ORDERS)}")
        for name in ("orders", "temperatures", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise InputError(f"{name} must be a list of different values, got {values!r}")
        ways = itertools.product(
            tuple(self.judges) or ("",), self.temperatures, self.seeds, self.orders,
            ("", *self.paraphrases), range(self.times),
        )  # fmt: skip
        return [
            Condition(sample, order, temperature, seed, wording, judge)
            for judge, temperature, seed, order, wording, sample in ways
        ]

    def variants(self, metrics: Sequence[Metric]) -> list[Variant]:
        """Every metric under every condition; the metrics themselves do not change.

        Raises GraphError for metrics that do not compile, InputError for unknown names.
        """
        rewritings = [(condition, self._rewriting(condition)) for condition in self.conditions()]
        specs = [replace(own.spec, judged_reason=False) for own in compile_metrics(metrics).metrics]
        titles = {node.title for spec in specs for node in spec.graph.nodes()}
        for name, wordings in self.paraphrases.items():
            for title in itertools.filterfalse(titles.__contains__, wordings):
                choices = ", ".join(map(repr, sorted(titles)))
                raise InputError(f"paraphrase {name!r}: no node is called {title!r}; use {choices}")
        variants: list[Variant] = []
        for spec in specs:
            for number, (condition, rewriting) in enumerate(rewritings):
                named = replace(rewriting.spec(spec), name=f"{spec.name} #{number}")
                variants.append(Variant(spec.name, condition, SpecMetric(named)))
        return variants

    def _rewriting(self, condition: Condition) -> Rewriting:
        """The changes of trees that a condition asks for."""
        changes: list[Change] = []
        if condition.paraphrase:
            changes.append(paraphrase(self.paraphrases[condition.paraphrase]))
        if condition.order == "reversed":
            changes.append(reverse_options)
        elif condition.order == "swapped":
            changes.append(self.symmetry)
        model = self.judges[condition.judge] if condition.judge else None
        return Rewriting([*changes, Resampling(condition, self.top_logprobs)], model)


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
    design = Design(
        times=times, orders=orders, temperatures=temperatures, seeds=seeds,
        paraphrases=paraphrases or {}, judges=judges or {}, symmetry=symmetry or Symmetry(),
        top_logprobs=top_logprobs,
    )  # fmt: skip
    variants = design.variants(metrics)
    if "swapped" in orders and isinstance(test_cases, Sequence):
        # A case that cannot be swapped is refused here, before the first question is asked.
        for case in cast(Sequence[TestCase], test_cases):
            if isinstance(case, CASE_TYPES):
                design.symmetry.swap(case)
    engine = LocalExecutor([variant.rewritten for variant in variants], cast(Settings, settings))

    checked = engine.cases(test_cases)
    total = checked.count() if isinstance(checked, Cases) else None
    with progress_bar(engine, total, show) as advance:
        record = _Record(engine, variants, texts, second_answers, on_row, advance)
        with engine.keeping(lambda: Observations(tuple(record.rows), engine.totals)):
            await engine.judge(checked, record)
    return Observations(tuple(record.rows), engine.totals)


repeat = blocking(a_repeat)


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
        self._plan, self._variants, self._keeps_texts = engine.plan, variants, texts
        self.rows: list[Observation] = []
        # By metric and setting, the numbers of the variants that are its repetitions
        settings = defaultdict[tuple[str, Condition], list[int]](list)
        for number, variant in enumerate(variants):
            settings[variant.metric, variant.condition.setting].append(number)
        self._repeated: list[tuple[Variant, SecondAnswers]] = []
        for group in settings.values():
            first = variants[group[0]]
            if second_answers and len(group) > 1:
                self._repeated.append((first, SecondAnswers(self._plan, group, first.rewritten)))
        self._questions: dict[int, dict[tuple[int, str], str]] = {}
        self._known: dict[Any, Any] = {}  # of equal values one is kept
        self._quoting = _quoting(self._plan, variants)

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
                    condition = self._known.setdefault(condition, condition)
                    row = self._step(case, variant, answer.step, written, answer.question)
                    self.rows.append(replace(row, condition=condition, alone=True))

    def row_finished(self, row: CaseResult) -> None:
        """Move the progress bar on."""
        self._advance(row)

    def row(self, row: CaseResult) -> None:
        """Make the observations of a case: metrics and their nodes."""
        questions = self._questions.pop(row.index, {})
        for number, (variant, result) in enumerate(zip(self._variants, row.metrics, strict=True)):
            written = [_texts_of(step, result) for step in result.steps]
            self.rows.append(
                Observation(
                    row.index,
                    variant.metric,
                    "",
                    variant.condition,
                    None,
                    result.score,
                    self._keep(list(itertools.chain.from_iterable(written))),
                    result.outcome,
                    self._known.setdefault(result.path, result.path),
                    weighted=result.mode == "weighted",
                )
            )
            for step, texts in zip(result.steps, written, strict=True):
                if step.kind != FieldNode.kind:
                    question = questions.get((number, step.node))
                    self.rows.append(self._step(row.index, variant, step, texts, question))
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

    def _step(
        self, case: int, variant: Variant, step: Step, written: Sequence[str], question: str | None
    ) -> Observation:
        # The verdicts about the items of a list
        listed = (step.output or ()) if step.kind == VerdictListNode.kind else ()
        keys, gains = _keyed_criteria(listed)
        return Observation(
            case, variant.metric, step.node, variant.condition, step.verdict, step.score,
            self._keep(written), step.outcome, confidence=step.confidence,
            items=tuple(row["verdict"] for row in listed), question=question,
            unsupported=_lacks_support(step, self._quoting.get((variant.metric, step.node))),
            keys=self._known.setdefault(keys, keys), gains=gains,
        )  # fmt: skip


def _keyed_criteria(
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
