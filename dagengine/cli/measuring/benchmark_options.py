"""The options of `dagengine benchmark`, and its calls: their number, and making them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Reads
from dagengine.cli.common.files import within as writes
from dagengine.cli.common.judge_access import CountedAccess, collector_at_work, saying_how_to_go_on
from dagengine.cli.common.output import say, warn
from dagengine.cli.plan import LATENCY, TIMES
from dagengine.errors import InputError
from dagengine.system.terminal_text import counted, text_if, wrap_lines

if TYPE_CHECKING:
    from dagengine.compiler.execution_plan import Plan
    from dagengine.estimate.estimate_types import Estimate
    from dagengine.metrics import BaseMetric
    from dagengine.reliability.observations import Observations
    from dagengine.reliability.perturbations import Symmetry
    from dagengine.test_case import TestCase

# Alternatives per token; a verdict's probability is read from them.
_ALTERNATIVES = 20

_ASKING = (
    *("judge", "base_url", "times", "orders", "temperatures", "seeds", "paraphrases"),
    *("probabilities", "second_answers", "max_calls", "max_in_flight", "store"),
)
"""Options about judge calls, by their fields."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions(
    shared.ColumnOptions, shared.QuoteOptions, shared.StoreOptions, shared.PaceOptions
):
    """The options of one benchmark, as they were typed."""

    metrics: Annotated[str | None, shared.METRICS, Reads(metrics=True)] = None
    """A Python file with metrics."""
    data: Annotated[Path | None, Reads()] = None
    """Test cases in a file, as for `run`."""
    judge: Annotated[list[str] | None, shared.JUDGE, Reads()] = None
    """The judge, as for `run`. Repeatable: several judges are compared."""
    base_url: shared.BaseUrl = None
    times: Annotated[int | None, Option(min=1)] = None
    """How many times each question is asked. Default: 20."""
    orders: str = "given"
    """Orders of presentation, separated by commas: given, swapped, reversed."""
    temperatures: str | None = None
    """Temperatures, separated by commas. Default: the temperature of each node."""
    seeds: str | None = None
    """Seeds for the judge, separated by commas."""
    paraphrases: Annotated[Path | None, Option(metavar="FILE.json"), Reads()] = None
    """Other criteria for nodes: {"short": {"name of a node": "other words"}, …}."""
    swap: Annotated[str | None, Option(metavar="FIRST,SECOND")] = None
    """The two fields that the order `swapped` exchanges. Default: the two contestants."""
    probabilities: Annotated[bool, Option("--probabilities")] = False
    """Ask for token probabilities, to measure the judge's calibration."""
    second_answers: bool = True
    """If a case reached a node only once, ask that node a second time."""
    verdicts: Annotated[Path | None, Option(metavar="FILE"), Reads()] = None
    """Existing verdicts, instead of judge calls: a table with the columns `case` and `verdict` or
    `score` (optional: `run`, `node`, `judge` …), or a file from `Observations.save`. Without
    METRICS.py: of any judge, also a run, or results of promptfoo, deepeval, inspect and MLflow.
    """
    scale: Annotated[str | None, Option(metavar="LOW,HIGH")] = None
    """The range of the scores in --verdicts. Default: 0,1."""
    labels: Annotated[str | None, Option(metavar="FIELD|FILE")] = None
    """Human labels: a case field such as `additional_metadata.label`, a file with the columns
    `case` (name, or index from 0) and `label`, or the `labels.jsonl` of `dagengine view`.
    """
    labels_random: Annotated[bool, Option("--labels-random")] = False
    """State that the labelled cases are a random sample of all cases. The card then corrects the
    judge's pass rate with them.
    """
    label_scale: Annotated[str | None, Option(metavar="LOW,HIGH")] = None
    """The lowest and the highest label there can be, of labels that are numbers."""
    need: Annotated[str | None, Option(metavar="NAME=NUMBER,…")] = None
    """What the judge must meet to be used: agreement=80,kappa=0.4,flips=5 (agreement and flips in
    per cent).
    """
    metric: Annotated[str | None, Option(metavar="NAME")] = None
    """The metric in --verdicts, if there are several and no METRICS.py is given."""
    threshold: float | None = None
    """From which score on a verdict passes, where --verdicts has scores and no METRICS.py is given.
    Default: half-way.
    """
    ties: Literal["wrong", "share"] = "share"
    """Where --verdicts has a column `candidate`: a tie of the best candidates is wrong, or shared
    (right as often as a draw among them).
    """
    within: Annotated[float, Option(min=0, max=100)] = 1.0
    """Where --verdicts has a column `candidate`: fewer scores are enough if they are surely at most
    so many points short of all of them.
    """
    verbose: Annotated[bool, Option("--verbose")] = False
    """Print all figures, not only the verdict."""
    groups: Annotated[str | None, Option(metavar="FIELD")] = None
    """The case field that identifies a group of dependent cases, for instance of one document."""
    out: Annotated[
        Path, writes("card.html", "card.json", "card.md", unless=("check", "compare"))
    ] = Path("benchmark")
    """Folder for the card."""
    fail_if: Annotated[list[str] | None, Option(metavar="MEASURE>NUMBER")] = None
    """Exit with 1 if this condition holds; also verdict!=use. Repeatable. With --compare, it must
    hold for the difference, with p < 0.05 after correction for all conditions.
    """
    target: Annotated[float, Option(min=0, max=0.5)] = 0.05
    """The flip rate to reach; the card says how many votes it takes."""
    max_calls: Annotated[int | None, Option(min=0)] = None
    """Make no calls at all if more calls than this may be needed."""
    max_tokens: shared.MaxTokens = None
    check: Annotated[Path | None, Option(metavar="CARD.json"), Reads()] = None
    """Only say whether this card is still valid. Makes no calls."""
    compare: Annotated[tuple[Path, Path] | None, Option(metavar="OLD.json NEW.json"), Reads()] = (
        None
    )
    """Only compare two cards."""

    def require_no_asking(self) -> None:
        """Raise BadParameter for options about judge calls where none is made."""
        without = {"--compare": self.compare, "--verdicts": self.verdicts}
        mode = next((name for name, value in without.items() if value is not None), None)
        for field in fields(self):
            if mode and field.name in _ASKING and getattr(self, field.name) != field.default:
                name = f"--{text_if(field.default is True, 'no-')}{field.name.replace('_', '-')}"
                raise typer.BadParameter(f"{mode} makes no judge calls: leave out {name}")

    def ways(self) -> dict[str, Any]:
        """How often, and in which ways, `repeat` asks; raises InputError for invalid values."""
        from pydantic import TypeAdapter, ValidationError

        from dagengine.prompts.parsing import complaint

        wordings = self.paraphrases
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
            "times": self.times or TIMES,
            "orders": list(map(str.strip, self.orders.split(","))),
            "temperatures": _numbers("--temperatures", self.temperatures, float, "0,0.7"),
            "seeds": _numbers("--seeds", self.seeds, int, "1,2,3"),
            "paraphrases": paraphrases,
        }

    def symmetry(self) -> Symmetry:
        """Fields that the order `swapped` exchanges; raises InputError if they are not two."""
        from dagengine.reliability.perturbations import Symmetry

        if self.swap is None:
            return Symmetry()
        first, _, second = map(str.strip, self.swap.partition(","))
        if not first or not second or "," in second:
            raise InputError(
                f"--swap takes two fields, for instance context.0,context.1, not {self.swap!r}"
            )
        return Symmetry(first, second)

    def with_labels(self) -> BenchmarkOptions:
        """The options with the table of verdicts as that of labels, if it has such a column."""
        from dagengine.data.case_lookup import named_cells
        from dagengine.data.row_readers import table_of

        path = self.verdicts
        if self.labels is not None or path is None or not path.is_file():
            return self
        row = next(table_of(path).read(), None)
        has = row is not None and named_cells(row.value or {}, ["label"])
        return replace(self, labels=str(path)) if has else self


@dataclass(frozen=True)
class BenchmarkJob:
    """Metrics, cases, judges by name (none: each metric's), and in which `ways` all is asked."""

    options: BenchmarkOptions
    metrics: Sequence[BaseMetric]
    cases: Sequence[TestCase]
    judges: dict[str, Any]
    ways: dict[str, Any]
    symmetry: Symmetry

    @classmethod
    def of(cls, options: BenchmarkOptions) -> BenchmarkJob:
        """The questions to ask; raises BadParameter and InputError for invalid options."""
        from dagengine.data.cases import valid_cases
        from dagengine.loading import load_judge

        if options.verdicts is not None and options.data is None:
            raise typer.BadParameter(
                "--verdicts with METRICS.py needs --data; without METRICS.py, its file names the "
                "cases"
            )
        if options.metrics is None or options.data is None:
            raise typer.BadParameter(
                "METRICS.py and --data are required, except with --compare or --verdicts of any "
                "judge"
            )
        metrics = options.load_metrics(options.metrics)
        cases: list[Any] = list(valid_cases(options.cases_in(options.data)))
        if not cases:
            raise InputError(f"{options.data} has no cases: there is nothing to measure")
        names = options.judge or ()
        if len(set(names)) < len(names):
            raise InputError(f"--judge is given twice: {', '.join(names)}")
        judges = {name: load_judge(name, options.base_url) for name in names}
        # Without a judge each metric asks its own, unless an address names the server of all.
        if not names and options.base_url is not None:
            judges = {"": load_judge(None, options.base_url)}
        ways, symmetry = options.ways(), options.symmetry()
        return cls(options.with_labels(), metrics, cases, judges, ways, symmetry)

    def check(self) -> None:
        """Raise the errors that show before the first call; print warnings."""
        from dagengine.estimate.case_warnings import example_lines
        from dagengine.reliability.card.card_maker import check_labels
        from dagengine.reliability.statistics.intervals import require_benchmark_extra

        require_benchmark_extra()
        warn(*example_lines(self._plan, enumerate(self.cases)))
        if self.options.labels is not None:
            warn(*check_labels(self.metrics, self.cases, self.options.labels))

    @cached_property
    def _plan(self) -> Plan:
        from dagengine.compiler.execution_plan import compile_metrics

        return compile_metrics(self.metrics)

    def identities(self) -> list[str]:
        """Identities of the judges: the name that a judge has in every process, or was given."""
        from dagengine.judges import as_judge
        from dagengine.question import durable_identity

        plan, identities = self._plan, dict[str, None]()
        for name, chosen in self.judges.items() or [("", None)]:
            for own in map(plan.models.__getitem__, plan.asked):
                judge = as_judge(chosen if own is None else own)
                identity, number = durable_identity(judge) or judge.identity, f" {id(judge):x}"
                if name and own is None and identity.endswith(number):
                    identity = name + number  # without its own name it is called as it was given
                identities[identity] = None
        return list(identities)

    @property
    def runs(self) -> int:
        """Number of runs of each case."""
        from dagengine.reliability.repetition import Design

        return len(Design(**self.ways, judges=self.judges).conditions())

    def ask(self) -> Observations:
        """Print the number of calls, then ask."""
        from dagengine.estimate.case_warnings import fields_before
        from dagengine.limits import Limits
        from dagengine.reliability.card.sentences import could_be_seen

        options = self.options
        if options.scale is not None:
            raise typer.BadParameter("--scale describes the scores in --verdicts: give both")
        warn(*fields_before(self._plan, self.cases))
        self.check()
        judge = next(iter(options.judge or ()), None)
        at_a_time = options.in_flight(judge, options.base_url)
        most = self._print_plan(at_a_time)
        say(wrap_lines(could_be_seen(len(self.cases), self.ways["times"])))
        if options.max_calls is not None:
            self._require_calls(most, options.max_calls)
        limits = Limits(
            max_in_flight=at_a_time, max_calls=options.max_calls, max_tokens=options.max_tokens
        )
        access, cases = CountedAccess(), counted(len(self.cases), "case")
        with saying_how_to_go_on(
            options.store, lambda: f"interrupted after {access.done} of {cases}"
        ):
            return self._observe(
                store=options.store, show=True, on_row=access.count, on_attempt=access.note,
                limits=limits,
            )  # fmt: skip

    def _print_plan(self, max_in_flight: int) -> float:
        """Print the number of calls; returns the maximum, infinity if there is no bound."""
        from dagengine.estimate.estimate_report import Assumptions, print_estimate
        from dagengine.estimate.estimator import estimate, judges_of

        plan = self._plan
        judges = judges_of(plan, next(iter(self.judges.values()), None))
        once = estimate(plan, self.cases, judges=judges)
        print_estimate(once, Assumptions({}, LATENCY, max_in_flight))
        more, second, every = self._second_answers(once)
        # A node has no second answers in a case where every run asked it.
        most = min(_bound(once.asked.most) * self.runs + second, every)
        runs = once.asked.likely * self.runs
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

    def _second_answers(self, once: Estimate) -> tuple[float, float, float]:
        """Likely and most second answers, and the most calls if every run asked every node.

        A node that a run reaches with the chance q is reached in one of T with T·q·(1 - q)^(T-1),
        and has at most two answers outside of runs. Of many cases that lack an answer only a part
        is asked (`chosen_cases`).
        """
        from dagengine.reliability.second_answers import LEAST_ASKED, MOST_MORE

        times, cases = self.ways["times"], len(self.cases)
        likely = most = every = 0.0
        for metric in once.metrics:
            lacking = answers = 0.0
            for asked in (node.asked for node in metric.nodes if node.kind != "reason"):
                every += _bound(asked.most)
                answers += asked.likely
                if asked.least != asked.most:
                    most += _bound(asked.most)
                    chance = min(asked.likely / cases, 1.0)
                    lacking += times * chance * (1 - chance) ** (times - 1)
            lacking *= cases
            likely += lacking if cases <= LEAST_ASKED else min(lacking, MOST_MORE * times * answers)
        if times < 2 or not self.options.second_answers:
            return 0.0, 0.0, self.runs * every
        return likely * self.runs / times, 2 * (self.runs // times) * most, self.runs * every

    def _require_calls(self, most: float, allowed: int) -> None:
        """Raise InputError when more calls may be needed than are allowed."""
        from dagengine.results import OutcomeKind
        from dagengine.store.answer_journal import Store

        lacking, stored, store = True, 0, self.options.store
        if store is not None and store.exists():
            # Only a run on the store alone shows which answers it lacks: later questions contain
            # the answers to earlier ones, so their keys are not known before.
            seen = self._observe(store=Store(store, replay=True))
            lacking = any(row.outcome is OutcomeKind.PROVIDER_ERROR for row in seen)
            stored = seen.totals.cached
        if lacking and most - stored > allowed:
            stored_note = text_if(stored, f" ({stored:,} answers are in the store)")
            raise InputError(
                f"up to {_number(most - stored)} calls may be needed{stored_note}, but --max-calls "
                f"allows {allowed:,}: lower --times, use fewer cases, or allow more calls; no call "
                "was made"
            )

    def _observe(self, **settings: Any) -> Observations:
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
            top_logprobs=_ALTERNATIVES * self.options.probabilities,
            second_answers=self.options.second_answers,
            **self.ways,
            **settings,
        )


def _bound(most: int | None) -> float:
    """A greatest number; infinity for one without a bound."""
    return math.inf if most is None else most


def _number(calls: float) -> str:
    return f"{calls:,.0f}".replace("inf", "any number of")


def _numbers(
    option: str, text: str | None, kind: Callable[[str], float], example: str
) -> list[float | None]:
    """The numbers of a list; without one, None once, which leaves nodes as they are."""
    try:
        return list(map(kind, text.split(","))) if text else [None]
    except ValueError:
        raise InputError(
            f"{option} takes numbers separated by commas, for instance {example}, not {text!r}"
        ) from None
