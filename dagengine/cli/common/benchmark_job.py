"""The calls of `dagengine benchmark`: their number, their maximum, and making them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagengine.cli.common.benchmark_options import TIMES, BenchmarkOptions
from dagengine.cli.common.garbage import collector_at_work
from dagengine.cli.common.judge_access import CountedAccess
from dagengine.cli.common.options import saying_how_to_go_on
from dagengine.cli.common.streams import say
from dagengine.cli.plan import LATENCY, judges_of
from dagengine.errors import InputError
from dagengine.system.terminal import counted, wrap_lines

if TYPE_CHECKING:
    from dagengine.estimate.estimates import Estimate
    from dagengine.metrics import BaseMetric
    from dagengine.reliability.perturbations import Symmetry
    from dagengine.reliability.repetition import Observations
    from dagengine.test_case import TestCase

# Alternatives per token; a verdict's probability is read from them.
_ALTERNATIVES = 20


@dataclass(frozen=True)
class BenchmarkJob:
    """Metrics, cases, judges by name (none: each metric's), and how often all is asked.

    `ways` holds `times`, `orders`, `temperatures`, `seeds` and `paraphrases`, as `repeat` takes
    them; `second_answers` is that of `repeat`, too.
    """

    metrics: Sequence[BaseMetric]
    cases: Sequence[TestCase]
    judges: dict[str, Any]
    ways: dict[str, Any]
    symmetry: Symmetry
    probabilities: bool = False
    second_answers: bool = True

    @property
    def runs(self) -> int:
        """Number of runs of each case."""
        from dagengine.reliability.repetition import conditions_of

        return len(conditions_of(**self.ways, judges=self.judges))

    def print_plan(self, max_in_flight: int) -> float:
        """Print the number of calls; returns the maximum, infinity if there is no bound."""
        from dagengine.cli.tables.plan_table import Assumptions, print_estimate
        from dagengine.compiler.lowering import compile_metrics
        from dagengine.estimate.counting import estimate

        plan = compile_metrics(self.metrics)
        names, identities = judges_of(plan, next(iter(self.judges.values()), None))
        once = estimate(plan, self.cases, judges=identities)
        print_estimate(once, Assumptions(tuple(names), {}, LATENCY, max_in_flight, 10))
        second, every = self._most_second_answers(once)
        # A node has no second answers in a case where every run asked it.
        most = min(_bound(once.asked.most) * self.runs + second, every)
        runs, more = once.asked.likely * self.runs, self._likely_second_answers(once)
        say(
            f"{counted(self.runs, 'run')} of this: about {runs + more:,.0f} calls, at most "
            f"{_number(most)} (retries are extra)"
        )
        if second != 0:
            words = (
                f"about {more:,.0f} (+{100 * more / runs if runs else 0:.0f} %), at most "
                f"{_number(second)} of these repeat a node that a case reached only once "
                "(--no-second-answers skips them)"
            )
            say(wrap_lines(words))
        return most

    def _likely_second_answers(self, once: Estimate) -> float:
        """Answers for cases that reach a node in one of all runs, each with the same chance.

        A node that a run reaches with the chance q is reached in one of T with T·q·(1 - q)^(T-1).
        Of many cases that lack an answer only a part is asked (`chosen_cases`).
        """
        from dagengine.reliability.second_answers import LEAST_ASKED, MOST_MORE

        times, cases = self.ways["times"], len(self.cases)
        if not self.second_answers or times < 2:
            return 0.0
        expected = 0.0
        for metric in once.metrics:
            nodes = [node.asked for node in metric.nodes if node.kind != "reason"]
            chances = [
                min(questions.likely / cases, 1.0)
                for questions in nodes
                if questions.least != questions.most
            ]
            lacking = cases * sum(times * q * (1 - q) ** (times - 1) for q in chances)
            runs = times * sum(questions.likely for questions in nodes)
            expected += lacking if cases <= LEAST_ASKED else min(lacking, MOST_MORE * runs)
        return float(expected * self.runs / times)

    def _most_second_answers(self, once: Estimate) -> tuple[float, float]:
        """The most second answers, and the most calls if every run asked every node.

        Nodes that a case may or may not reach have at most two answers outside of runs.
        """
        nodes = [node for metric in once.metrics for node in metric.nodes if node.kind != "reason"]
        every, second = self.runs * sum(_bound(node.asked.most) for node in nodes), 0.0
        if self.second_answers and self.ways["times"] >= 2:
            maybe = (node.asked.most for node in nodes if node.asked.least != node.asked.most)
            second = 2 * (self.runs // self.ways["times"]) * sum(map(_bound, maybe))
        return second, every

    def require_calls(self, most: float, allowed: int, store: Path | None) -> None:
        """Raise InputError when more calls may be needed than are allowed."""
        from dagengine.results import OutcomeKind
        from dagengine.store.answers import Store

        lacking, stored = True, 0
        if store is not None and store.exists():
            # Only a run on the store alone shows which answers it lacks: later questions contain
            # the answers to earlier ones, so their keys are not known before.
            seen = self.observations(store=Store(store, replay=True))
            lacking = any(row.outcome is OutcomeKind.PROVIDER_ERROR for row in seen)
            stored = seen.totals.cached
        if lacking and most - stored > allowed:
            stored_note = f" ({stored:,} answers are in the store)" * bool(stored)
            raise InputError(
                f"up to {_number(most - stored)} calls may be needed{stored_note}, but --max-calls "
                f"allows {allowed:,}: lower --times, use fewer cases, or allow more calls; no call "
                "was made"
            )

    def all(self, store: Path | None, **settings: Any) -> Observations:
        """Ask everything; an interrupt says how to continue.

        Raises JudgeSetupError if the judge accepts no call.
        """
        access, cases = CountedAccess(), counted(len(self.cases), "case")
        with saying_how_to_go_on(store, lambda: f"interrupted after {access.done} of {cases}"):
            return self.observations(
                store=store, show=True, on_row=access.count, on_attempt=access.note, **settings
            )

    def observations(self, **settings: Any) -> Observations:
        """A single judge is the run's, several are a condition."""
        from dagengine.reliability.repetition import repeat

        collector_at_work()
        judges: dict[str, Any] | None = self.judges
        model = None
        if len(self.judges) < 2:
            judges, model = None, next(iter(self.judges.values()), None)
        return repeat(
            self.cases,
            self.metrics,
            judges=judges,
            model=model,
            symmetry=self.symmetry,
            top_logprobs=_ALTERNATIVES * self.probabilities,
            second_answers=self.second_answers,
            **self.ways,
            **settings,
        )


def _bound(most: int | None) -> float:
    """A greatest number; infinity for one without a bound."""
    return math.inf if most is None else most


def _number(calls: float) -> str:
    return f"{calls:,.0f}".replace("inf", "any number of")


def ways_of(options: BenchmarkOptions) -> dict[str, Any]:
    """Arguments of the repetition, as `repeat` takes it.

    Raises InputError for what is no number, and for a file of paraphrases that cannot be read.
    """
    from pydantic import TypeAdapter, ValidationError

    from dagengine.prompts.parsing import complaint

    wordings = options.paraphrases
    paraphrases: dict[str, dict[str, str]] = {}  # by name, and by the title of the node
    try:
        if wordings is not None:
            form = TypeAdapter(dict[str, dict[str, str]])
            paraphrases = form.validate_json(wordings.read_bytes())
    except OSError as error:
        raise InputError(f"--paraphrases {wordings}: {error.strerror}") from None
    except ValidationError as error:
        raise InputError(
            f"--paraphrases {wordings}: {complaint(error)}; write JSON, for instance "
            '{"short": {"name of a node": "other words"}}'
        ) from None
    return {
        "times": options.times or TIMES,
        "orders": [order.strip() for order in options.orders.split(",")],
        "temperatures": _numbers("--temperatures", options.temperatures, float, "0,0.7"),
        "seeds": _numbers("--seeds", options.seeds, int, "1,2,3"),
        "paraphrases": paraphrases,
    }


def _numbers(
    option: str, text: str | None, kind: Callable[[str], float], example: str
) -> list[float | None]:
    """The numbers of a list; without one, None once, which leaves nodes as they are."""
    try:
        return [kind(part) for part in text.split(",")] if text else [None]
    except ValueError:
        raise InputError(
            f"{option} takes numbers separated by commas, for instance {example}, not {text!r}"
        ) from None


def symmetry_of(swap: str | None) -> Symmetry:
    """Fields that the order `swapped` exchanges; raises InputError for anything but two fields."""
    from dagengine.reliability.perturbations import Symmetry

    if swap is None:
        return Symmetry()
    first, _, second = (name.strip() for name in swap.partition(","))
    if not first or not second or "," in second:
        raise InputError(f"--swap takes two fields, for instance context.0,context.1, not {swap!r}")
    return Symmetry(first, second)
