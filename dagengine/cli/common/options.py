"""Options that several commands take, and what they stand for."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from dagengine.cli.common.files import Reads, Writes
from dagengine.errors import InputError
from dagengine.redaction import public_text

if TYPE_CHECKING:
    from dagengine.data.cases import Cases
    from dagengine.limits import Limits
    from dagengine.metrics.common.base import BaseMetric
    from dagengine.question import Judge
    from dagengine.store.answer_journal import Store

DEFAULT_IN_FLIGHT = 64
_TRACES = "otel"

OFFLINE = ("lexical", "gguf:")
"""Judges that are no model of a provider."""


def judge_names(incomplete: str) -> list[str]:
    """Complete a value of `--judge`: providers, and their models in the public price list."""
    from genai_prices.data import providers

    from dagengine.judges.resolve import PROVIDERS

    provider, slash, _ = incomplete.partition("/")
    models = {entry.id: [model.id for model in entry.models] for entry in providers}
    if slash:
        names = [f"{provider}/{model}" for model in models.get(provider, ())]
    else:
        names = [*OFFLINE, *(f"{name}/" for name in sorted(PROVIDERS))]
        names += models["openai"] if incomplete else []
    return [name for name in names if name.startswith(incomplete)]


AllowCode = Annotated[
    bool,
    Option(
        "--allow-code", help="Of a tree file: run the Python that it names, beside it or installed."
    ),
]
AllowModel = Annotated[
    bool, Option("--allow-model", help="Of a tree file: ask the models that it names.")
]
ALLOWED: dict[str, tuple[Any, Any]] = {
    "allow_code": (AllowCode, False), "allow_model": (AllowModel, False),
}  # fmt: skip
"""Options of every command that takes metrics, with their defaults."""
METRICS = Argument(metavar="METRICS.py[:NAME]")
JUDGE = Option(metavar="MODEL", autocompletion=judge_names)
BaseUrl = Annotated[
    str | None,
    Option(help="URL of an OpenAI-compatible server, for instance http://localhost:11434/v1."),
]
MaxTokens = Annotated[
    int | None,
    Option(
        min=1,
        help="Maximum tokens per answer, unless the node sets its own. Default: enough for the "
        "limits of the answer.",
    ),
]
Groups = Annotated[
    str | None, Option(metavar="FIELD", help="Cases with an equal value here stay together.")
]
SealedShare = Annotated[
    float, Option(min=0.1, max=0.9, help="The share of the labelled cases that is sealed.")
]
PlanOnly = Annotated[bool, Option("--plan", help="Only say how many calls this takes; make none.")]


def command_line() -> str:
    """The command as it was typed, without secrets."""
    return public_text(shlex.join(["dagengine", *sys.argv[1:]]))


def _pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """`COLUMN=VALUE` of a repeatable option."""
    values: dict[str, str] = {}
    for text in texts:
        column, equals, value = text.rpartition("=")
        if not equals or not (column or option == "--map"):  # a table may have a nameless column
            raise typer.BadParameter(f"{option} {value!r}: write COLUMN=…")
        values[column] = value
    return values


def sole_metric(target: str) -> BaseMetric:
    """The only metric of METRICS.py; raises InputError if there are several."""
    from dagengine.loading import load_metrics

    loaded = load_metrics(target)
    if len(loaded) > 1:
        names = ", ".join(repr(metric.spec().name) for metric in loaded)
        raise InputError(f"{target} has several metrics ({names}): choose one, metrics.py:NAME")
    return loaded[0]


def two_numbers(text: str, option: str) -> tuple[float, float]:
    """Two finite numbers from 0 on, with a comma between them; raises InputError."""
    try:
        first, second = map(float, text.split(","))
    except ValueError:
        raise InputError(f"{option}, for instance 2.5,10, not {text!r}") from None
    if not (0 <= first < float("inf") and 0 <= second < float("inf")):
        raise InputError(f"{option.partition(' ')[0]} must be two numbers from 0 on, not {text!r}")
    return first, second


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """What names the metrics."""

    metrics: Annotated[str, METRICS, Reads(metrics=True)]
    """A Python file with metrics at module level, a tree file (.json), a module
    (`pkg.metrics:NAME`), or a name that a package offers; NAME selects a metric or a list.
    """


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """How the columns of a file become the fields of cases."""

    mapped: Annotated[list[str] | None, Option("--map", metavar="COLUMN=FIELD|TOOL")] = None
    """Map a column to a field; `COLUMN=` ignores the column. `ragas`, `promptfoo`, `openai` and
    `healthbench` map the columns of such files, `otel` reads traces; packages offer others.
    Repeatable.
    """
    delimiter: Annotated[list[str] | None, Option(metavar="COLUMN=TEXT")] = None
    """The separator of the items in a column of lists; the default is JSON. Repeatable."""

    def columns(self) -> dict[str, str]:
        """The fields of `--map`, by column, without the name of a tool."""
        return _pairs("--map", [text for text in self.mapped or () if "=" in text])

    def delimiters(self) -> dict[str, str]:
        """The separators of `--delimiter`, by column."""
        return _pairs("--delimiter", self.delimiter or ())

    def cases_in(
        self, file: Path, *more: Path, goldens: bool = False, unit: str = "trace"
    ) -> Cases:
        """Read the cases of a file, or of files of traces."""
        from dagengine.data.cases import read_cases

        tools = [text for text in self.mapped or () if "=" not in text]
        if self.mapped == [_TRACES]:
            if self.delimiter or goldens:
                raise typer.BadParameter(f"--map {_TRACES} goes with neither --delimiter nor --app")
            from dagengine.traces import read_traces  # which loads the client of openai

            return read_traces(file, *more, unit=unit)
        if more or unit != "trace":
            raise typer.BadParameter(
                f"several --data files, and --unit, are for traces: use --map {_TRACES}"
            )
        columns, delimiters = self.columns(), self.delimiters()
        if _TRACES in tools:
            raise typer.BadParameter(f"--map {_TRACES} has no columns: use no other --map with it")
        if len(tools) > 1:
            raise typer.BadParameter(f"--map names two tools: {', '.join(tools)}")
        preset = next(iter(tools), None)
        return read_cases(file, map=columns, delimiters=delimiters, goldens=goldens, preset=preset)


@dataclass(frozen=True, kw_only=True)
class TraceOptions(ColumnOptions):
    """How traces become cases, too."""

    unit: Annotated[str, Option(metavar="trace|session|span:KIND")] = "trace"
    """With --map otel: what one case is. A session is a conversation of its traces."""


@dataclass(frozen=True, kw_only=True)
class CaseOptions(TraceOptions, MetricOptions):
    """Metrics, and the cases to judge."""

    data: Annotated[list[Path], Option(), Reads()]
    """Test cases: a .jsonl, .json, .csv, .tsv or .parquet file. Columns have the names of the
    fields of a test case. Repeatable for files of traces (`--map otel`).
    """

    def cases(self, *, goldens: bool = False) -> Cases:
        """Read the cases of --data."""
        return self.cases_in(*self.data, goldens=goldens, unit=self.unit)


@dataclass(frozen=True, kw_only=True)
class QuoteOptions:
    """Whether verdicts quote what they are based on."""

    quotes: Annotated[str | None, Option("--quotes", metavar="required|if_any")] = None
    """Make every verdict quote the words that it is based on, and check the quotes."""
    unsupported: Annotated[str, Option("--unsupported", metavar="fail|keep")] = "fail"
    """With --quotes: what becomes of a verdict whose quotes are not in the material."""

    def load_metrics(self, target: str) -> list[BaseMetric]:
        """Load METRICS.py with the quotes to demand; raises InputError for unknown values."""
        from dagengine.graph.examples_and_quotes import Quotes
        from dagengine.loading import load_metrics

        names = ("--quotes", "--unsupported")
        return load_metrics(target, Quotes.of(self.quotes, self.unsupported, names=names))


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Where answers are kept."""

    store: Annotated[Path | None, Writes(opened=True)] = None
    """A file that keeps every answer. Questions with a stored answer are not asked again."""


@dataclass(frozen=True, kw_only=True)
class PaceOptions:
    """How many calls are made at the same time."""

    max_in_flight: Annotated[int | None, Option(min=1)] = None
    """Maximum number of concurrent judge calls. Default: what `judge check` saved, else 64."""

    def in_flight(self, judge: str | None, base_url: str | None) -> int:
        """The number that was typed, else what was saved of the default judge, else 64."""
        from dagengine.judges.default import judge_settings

        saved = judge_settings(judge, base_url).tuning.max_in_flight
        return self.max_in_flight or saved or DEFAULT_IN_FLIGHT


@dataclass(frozen=True, kw_only=True)
class NamedJudge:
    """The judge of metrics that name none."""

    judge: Annotated[str | None, JUDGE, Reads()] = None
    """The judge: an OpenAI model (`gpt-4o`), another provider's model
    (`anthropic/claude-sonnet-4-5`), a model file (`gguf:model.gguf`), an object in a Python file
    (`judge.py:judge`) or a package (`pkg.judges:judge`, a name that it offers), or `lexical` (no
    model, compares words). Default: each metric's own judge, else gpt-4o.
    """
    base_url: BaseUrl = None

    def chosen_judge(self) -> Judge | None:
        """The judge of `--judge` and `--base-url`; None where neither is given."""
        from dagengine.loading import chosen_judge

        return chosen_judge(self.judge, self.base_url)


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(PaceOptions, NamedJudge):
    """The judge of metrics that name none, and how quickly and at what price it is asked."""

    price: Annotated[str | None, Option("--price", metavar="IN,OUT")] = None
    """Price in US dollars per million input and output tokens; replaces the public price list."""

    def prices(self) -> dict[str, tuple[float, float]]:
        """The prices of `--price`, for every model; raises InputError for invalid ones."""
        return {} if self.price is None else {"*": two_numbers(self.price, "--price is IN,OUT")}

    def limits(self, **settings: Any) -> Limits:
        """The limits of all calls, as options and `settings` say; raises InputError for others."""
        from dagengine.limits import Limits

        typed = {field.name for field in fields(self)} & {field.name for field in fields(Limits)}
        own: dict[str, Any] = {name: getattr(self, name) for name in typed}
        own["max_in_flight"] = self.in_flight(self.judge, self.base_url)
        return Limits(**{**own, "prices": self.prices(), **settings})


@dataclass(frozen=True, kw_only=True)
class LimitOptions(StoreOptions, JudgeOptions):
    """The judge, the store of its answers, and what the calls of a command may take."""

    max_calls: Annotated[int | None, Option(min=0)] = None
    """Stop after this number of judge calls."""
    budget: float | None = None
    """Stop before the judge calls cost more than this, in US dollars."""
    max_tokens: MaxTokens = None


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(LimitOptions):
    """The limits and the store of a command that may also live on its store alone."""

    replay: Annotated[bool, Option("--replay")] = False
    """Read every answer from --store; make no judge calls."""

    def require_store(self) -> None:
        """Raise BadParameter where the store is missing."""
        if self.replay and self.store is None:
            raise typer.BadParameter("--replay needs --store")

    def answers(self) -> Store | None:
        """The answers of --store; None without it."""
        from dagengine.store.answer_journal import Store

        return None if self.store is None else Store(self.store, replay=self.replay)
