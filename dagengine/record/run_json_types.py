"""What `run.json` holds: plain data, equal in memory and in the file."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from dagengine.question import Usage, judge_name
from dagengine.results.metric_results import FORMAT, unknown_metric
from dagengine.results.pass_rules import Combine
from dagengine.results.usage_totals import Totals
from dagengine.system.terminal_text import one_line

Exit = Literal["ok", "failed", "no_score", "interrupted", "error"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True)


class NodeRecord(_Value):
    """One node of a metric, by the name that steps have for it.

    `question` is the criteria, instructions or function that it was written with, `reads` are
    field paths, `inputs` the nodes that it reads. `judges` are positions in the run's `judges`
    (none if it asks nothing), `panel` says how several votes are cast. `examples` counts the solved
    examples in its prompts. A node that `grades` gives a score itself. `scale` is that of a rating:
    what may be answered, and its number. A `root` runs whenever its metric does (None: an older
    version wrote the record). `hash` is the SHA-256 of everything that the node says, reads and
    leads to. A node of the kind `metric` stands for a metric under a verdict, which is in `metric`.
    """

    name: str
    kind: str
    question: str | None = None
    reads: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    judges: tuple[int, ...] = ()
    panel: str | None = None
    examples: int = 0
    grades: bool = False
    scale: dict[str, float] | None = None
    root: bool | None = None
    hash: str | None = None
    metric: MetricRecord | None = None


class EdgeRecord(_Value):
    """One edge: where a verdict of a node leads, or which other node takes its value.

    With a `verdict` it leads to a `target`, to a `score` (0 to 1), or to nothing. Without one its
    `target` reads the value of its `source`. Then `starts` says that a source which runs makes its
    target run, and `pulls` the reverse (None: an older version wrote the record).
    """

    source: str = Field(validation_alias="from", serialization_alias="from")
    verdict: bool | str | None = None
    target: str | None = Field(default=None, validation_alias="to", serialization_alias="to")
    score: float | None = None
    starts: bool = True
    pulls: bool | None = None


class MetricRecord(_Value):
    """A metric as it was compiled; `hash` covers all of it, nested metrics included.

    `terminals` are what may give the score, in the order that `combine` goes by: nodes by name,
    scores behind a verdict as `node = verdict` (none: an older version wrote the record). `tree` is
    the metric as a document; one that cannot be written says why under `refused` (None: the metric
    is nested, or an older version wrote the record).
    """

    name: str
    threshold: float | None
    strict: bool
    combine: Combine
    hash: str
    nodes: tuple[NodeRecord, ...]
    edges: tuple[EdgeRecord, ...]
    terminals: tuple[str, ...] = ()
    tree: dict[str, Any] | None = None

    def every_metric(self) -> Iterator[MetricRecord]:
        """The metric itself, and those nested in it."""
        yield self
        for node in self.nodes:
            if node.metric is not None:
                yield from node.metric.every_metric()

    def every_node(self) -> Iterator[NodeRecord]:
        """The nodes that run, in topological order: a nested metric gives way to its nodes."""
        for node in self.nodes:
            yield from ([node] if node.metric is None else node.metric.every_node())

    def nodes_and_nested(self) -> Iterator[NodeRecord]:
        """All nodes: those that run, and those of the kind `metric`, for nested metrics."""
        return chain.from_iterable(metric.nodes for metric in self.every_metric())

    def every_edge(self) -> Iterator[EdgeRecord]:
        """The edges, also those of nested metrics, which come last."""
        return chain.from_iterable(metric.edges for metric in self.every_metric())

    def verdicts(self) -> dict[str, list[bool | str]]:
        """The verdicts on edges, each once, by the name of the node that they leave."""
        verdicts: dict[str, list[bool | str]] = {}
        for edge in self.every_edge():
            of_source = verdicts.setdefault(edge.source, [])
            if edge.verdict is not None and edge.verdict not in of_source:
                of_source.append(edge.verdict)
        return verdicts

    def definitions(self) -> dict[str, str | None]:
        """The hashes of the nodes by name, and under "" that of the metric."""
        return {node.name: node.hash for node in self.every_node()} | {"": self.hash}


class Standing(_Value):
    """What is known of a judge since a date: `says` in words. Scores of a `weak` one mean little.

    `model` is what the server said it answered with (None: nothing). `wording` is a digest of the
    questions that were asked. A checkup also has the numbers of easy questions, of valid answers
    and of right ones; `repeats` says whether an equal question got an equal text again (None: not
    known).
    """

    source: Literal["judge check", "judge card"]
    identity: str
    name: str
    model: str | None = None
    date: datetime.date
    dagengine: str
    wording: str
    says: str
    weak: bool
    asked: int | None = None
    answered: int | None = None
    right: int | None = None
    repeats: bool | None = None

    def __str__(self) -> str:
        model = "" if self.model in (None, self.name) else f", as {self.model}"
        weak = ": these scores mean little" if self.weak else ""
        return one_line(f"{self.name}{model} {self.says} ({self.source}, {self.date}){weak}", 500)


class JudgeRecord(_Value):
    """Who answered: the name that tells the judge apart, without a secret, and its model.

    `price` (None: not known) is US dollars per million tokens: of input, of output, and of input
    that the provider had cached (None: as other input). `standing` is what a checkup or a judge
    card found of it before.
    """

    identity: str
    model: str | None = None
    price: tuple[float, float, float | None] | None = None
    standing: Standing | None = None

    @property
    def name(self) -> str:
        """The model, or the identity without its settings."""
        return self.model or judge_name(self.identity)


class DataRecord(_Value):
    """Where the cases came from; `sha256` is that of the file (None: it was not a plain file)."""

    file: str | None = None
    sha256: str | None = None
    map: dict[str, str | None] = {}  # of columns to fields
    delimiters: dict[str, str] = {}
    cases: int | None = None


class SpentRecord(_Value):
    """What was asked and used for one node of one metric, at one judge.

    Entries are disjoint: they add up to `totals`. A node that several metrics share stands
    with the first of them. `judge` is a position in the run's `judges`. `seconds` is the time that
    calls took, added up over calls that ran side by side. `cost` is in US dollars, None without
    a known price.
    """

    metric: str
    node: str
    judge: int | None
    asked: int = 0
    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0


class TotalsRecord(_Value):
    """The sums of a run (see `dagengine.results.Totals`), some of them only in newer records."""

    asked: int
    shared: int
    cached: int
    damaged: int
    calls: int
    retried: int
    failed: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost: float | None
    requests: int | None = None
    speculated: int | None = None
    unneeded: int | None = None

    def totals(self) -> Totals:
        """The sums as of a run that ended now; what an older version did not count is 0."""
        usage = Usage(self.input_tokens, self.output_tokens, self.cached_tokens)
        counts = self.model_dump(exclude_none=True, exclude={*asdict(usage)})
        counts.setdefault("requests", self.calls)  # older versions did not count them
        return Totals(usage=usage, **counts)


class CountsRecord(_Value):
    """Cases by how they ended.

    `failed`: some metric is below its threshold; `passed`: none is, and all gave a score, at least
    one of them against a threshold; `no_score`: some metric gave none, failed cases among them.
    """

    cases: int = 0
    passed: int = 0
    failed: int = 0
    no_score: int = 0


class Manifest(_Value):
    """What a run was, and how it ended.

    `started` and `ended` are UTC; a run that is in progress, or was killed, has no `ended`, no
    `totals` and no `counts`. `results` is the file of rows, seen from the folder. `limits` and
    `settings` are as the run was given them. `texts` says whether the cases are kept,
    `redacted` which of their fields are hidden. `usage` is what each node spent at each judge.
    """

    format: int = FORMAT
    dagengine: str
    python: str
    started: AwareDatetime
    ended: AwareDatetime | None = None
    exit: Exit | None = None
    error: str | None = None
    command: str | None = None
    metrics: tuple[MetricRecord, ...]
    judges: tuple[JudgeRecord, ...]
    data: DataRecord = DataRecord()
    limits: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    store: str | None = None
    results: str = "results.jsonl"
    texts: bool = True
    redacted: tuple[str, ...] = ()
    totals: TotalsRecord | None = None
    counts: CountsRecord | None = None
    usage: tuple[SpentRecord, ...] = ()

    @property
    def metric_names(self) -> list[str]:
        """The names of the metrics, in their order."""
        return [metric.name for metric in self.metrics]

    def records(self, metric: str | None) -> list[MetricRecord]:
        """The metrics, or only the one of a name; raises InputError if the run had none of it."""
        records = [record for record in self.metrics if metric in (None, record.name)]
        if metric is not None and not records:
            raise unknown_metric(metric, self.metric_names)
        return records

    @property
    def seconds(self) -> float | None:
        """The duration of the run; None without an end."""
        return None if self.ended is None else (self.ended - self.started).total_seconds()

    @property
    def finished(self) -> bool:
        """Whether every case has its row."""
        return self.ended is not None and self.exit not in ("interrupted", "error")
