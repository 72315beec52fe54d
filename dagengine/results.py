"""What a run leaves behind: outcomes, steps, metric results, rows. Plain data.

A failure is data too: never a NaN, never a silent 0, never a bare None.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from dagengine.errors import InputError, did_you_mean
from dagengine.prompts.evidence import as_data
from dagengine.question import NO_USAGE, Origin, Usage
from dagengine.test_case import CASE_TYPES

Verdict = str | bool

_REASON = 200  # characters of a failure in a `repr`
_LISTED = 5  # metrics in the `repr` of a row


class OutcomeKind(StrEnum):
    """How a node, or a metric on one case, ended."""

    OK = "ok"
    SKIPPED = "skipped"
    MISSING_FIELD = "missing_field"
    INVALID_CASE = "invalid_case"
    JUDGE_REFUSED = "judge_refused"
    UNPARSEABLE = "unparseable"
    PROVIDER_ERROR = "provider_error"
    TIMEOUT = "timeout"
    OVER_BUDGET = "over_budget"
    CODE_ERROR = "code_error"


# Characters of a message, and of the raw answer beside it, that a result keeps.
LONGEST = 10_000


def shortened(text: str) -> str:
    """At most `LONGEST` characters of a text; where it is cut, how many there were."""
    if len(text) <= LONGEST:
        return text
    note = f"… ({len(text):,} characters in all)"
    return text[: LONGEST - len(note)] + note


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no score: the kind, where it happened, and what to do about it.

    `raw` is what the judge wrote, where that could not be used. Texts of more than 10,000
    characters are shortened and end with their length.
    """

    kind: OutcomeKind
    node: str
    message: str
    raw: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shortened(self.message))
        if self.raw is not None:
            object.__setattr__(self, "raw", shortened(self.raw))

    def __str__(self) -> str:
        return f"{self.kind} at {self.node}: {self.message}"

    @property
    def may_pass(self) -> bool:
        """Whether the same question may get an answer at another time."""
        return self.kind in (OutcomeKind.PROVIDER_ERROR, OutcomeKind.TIMEOUT)

    @classmethod
    def missing_field(cls, paths: Iterable[str], node: str) -> Failure:
        """A case without fields that a node reads."""
        names = ", ".join(f"`{path}`" for path in dict.fromkeys(paths))
        message = f"the case has no {names}, which this metric reads; add it to the test case"
        return cls(OutcomeKind.MISSING_FIELD, node, message)

    @classmethod
    def of_code(cls, error: BaseException, node: str) -> Failure:
        """An exception of the caller's code: what, and where."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
        return cls(OutcomeKind.CODE_ERROR, node, f"{type(error).__name__}: {error}{place}")

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        row: dict[str, Any] = {"kind": str(self.kind), "node": self.node, "message": self.message}
        return row if self.raw is None else {**row, "raw": self.raw}


@dataclass(frozen=True, slots=True)
class Step:
    """What one node did for one case.

    `output` is what readers of the node saw, as plain data (text, numbers, lists, dicts);
    `verdict` is set for decisions, `score` (0 to 1) for ratings and scoring code. `mode`
    says how a rating was read (`weighted` or `raw`, and why), `confidence` the probability (0 to
    1) that the judge's tokens gave the verdict, where it is known. `usage` counts the tokens of
    the answers that the node rests on, shared and stored answers included. `answers` are their
    texts as the judge wrote them, in the order of the questions; files of results leave them out.

    `votes` are what the node's panel said, in the order of asking: verdicts, ratings, or a
    list of verdicts for each vote; None is an answer that could not be read (in a list also an
    item that was settled before). `voters` says which judge of the panel gave each vote.
    """

    node: str
    kind: str
    outcome: OutcomeKind
    output: Any = None
    verdict: Verdict | None = None
    reason: str | None = None
    score: float | None = None
    mode: str | None = None
    usage: Usage = NO_USAGE
    votes: tuple[Any, ...] = ()
    voters: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()
    confidence: float | None = None

    @property
    def agreeing(self) -> int:
        """The number of votes for the verdict."""
        mine = (type(self.verdict), self.verdict)
        return sum((type(vote), vote) == mine for vote in self.votes)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form without the absent entries, and without what stands there twice."""
        names = ("node", "kind", "output", "verdict", "confidence", "reason", "score", "mode")
        row = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.verdict is not None and repr(self.output) == repr(implied_output(row)):
            row.pop("output")
        elif self.verdict is not None:
            row["output"] = self.output  # also None, which a row without an output is not
        if self.usage != NO_USAGE:
            # Not what a provider had in its cache: that depends on the timing.
            used = self.usage
            row["usage"] = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
        if self.votes:
            row |= {"votes": list(self.votes), "voters": list(self.voters)}
        return {**row, "outcome": str(self.outcome)}


@dataclass(frozen=True, slots=True)
class MetricResult:
    """One metric on one case.

    `score` lies in [0, 1], or is None with `failure` saying why. `raw_score` is the score
    before strict mode. `success` is None when the metric has no threshold or no score.
    `path` lists (node, verdict) of every decision taken, in topological order.
    """

    metric: str
    score: float | None
    success: bool | None
    reason: str | None
    threshold: float | None = None
    raw_score: float | None = None
    mode: str | None = None
    failure: Failure | None = None
    path: tuple[tuple[str, Verdict], ...] = ()
    steps: tuple[Step, ...] = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {_quoted(self.metric)}: {self._said()}>"

    def _said(self) -> str:
        """The score, and whether that passes; or why there is none."""
        if self.failure is not None:
            return _quoted(str(self.failure), _REASON)
        passed = {True: ", passed", False: ", not passed", None: ""}[self.success]
        return "no score" if self.score is None else f"score {self.score:.4g}{passed}"

    @property
    def outcome(self) -> OutcomeKind:
        """`ok`, or the kind of failure."""
        return self.failure.kind if self.failure else OutcomeKind.OK

    @property
    def usage(self) -> Usage:
        """Tokens of the answers that the result rests on; shared ones count in full."""
        return sum((step.usage for step in self.steps), NO_USAGE)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form; equal for equal answers, whatever the timing."""
        return {
            "metric": self.metric,
            "score": self.score,
            "success": self.success,
            "outcome": str(self.outcome),
            "reason": self.reason,
            "threshold": self.threshold,
            "raw_score": self.raw_score,
            "mode": self.mode,
            "failure": self.failure.as_dict() if self.failure else None,
            "path": [list(turn) for turn in self.path],
            "steps": [step.as_dict() for step in self.steps],
        }


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One row: what every metric said about one case.

    `test_case` is what was judged, and the golden itself where an app failed at it. It is None
    for a row of the data that was no test case, and for rows that were read from a file.
    """

    index: int
    case: str
    metrics: tuple[MetricResult, ...]
    test_case: Any = field(default=None, compare=False, repr=False)
    recorded_hash: str | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        said = [f"{_quoted(metric.metric)} {metric._said()}" for metric in self.metrics]
        more = [f"{len(said) - _LISTED} more"] if len(said) > _LISTED else []
        what = "; ".join([*said[:_LISTED], *more]) or "no metric"
        return f"<{type(self).__name__} {self.index} {_quoted(self.case)}: {what}>"

    @property
    def success(self) -> bool:
        """Whether every metric that has a threshold was met and none failed."""
        met = (m.failure is None and m.success is not False for m in self.metrics)
        return bool(self.metrics) and all(met)

    @property
    def hash(self) -> str | None:
        """SHA-256 (hex) of the case's content, equal in every run; None where there is none."""
        if self.recorded_hash is None and isinstance(self.test_case, CASE_TYPES):
            with suppress(TypeError, ValueError, RecursionError):  # metadata without a JSON form
                return self.test_case.content_hash()
        return self.recorded_hash

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form, one line of `results.jsonl`."""
        metrics = [metric.as_dict() for metric in self.metrics]
        return {"index": self.index, "case": self.case, "hash": self.hash, "metrics": metrics}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call to a judge, as the ledger keeps it; failed ones included.

    `key` is the SHA-256 (hex) of the question, `number` counts its calls, from 1 on, and
    `seconds` is how long this call took. An answer out of a store is in the ledger, too: its
    `origin` says so, and it used nothing.
    """

    node: str
    judge: str
    key: str
    number: int
    outcome: OutcomeKind
    seconds: float
    usage: Usage = NO_USAGE
    mode: str | None = None
    message: str | None = None
    origin: Origin = "live"


@dataclass(frozen=True, slots=True)
class Spent:
    """What was asked and used for one node of one metric at one judge, by the judge's identity.

    `asked` counts questions, `calls` the attempts made and `failed` those without an answer;
    `seconds` adds up the time that calls took, side by side or not. `cost` is in US dollars,
    None without a known price.
    """

    metric: str
    node: str
    judge: str
    asked: int = 0
    calls: int = 0
    failed: int = 0
    usage: Usage = NO_USAGE
    cost: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the ledger of one run.

    `asked` counts questions, `shared` those of them answered by an equal one, `cached` those
    answered by a store, `calls` the attempts made, `retried` the attempts after a first one,
    `damaged` the stored answers that could not be read any more and were asked for anew.
    `cost` is in US dollars by the known prices (see `dagengine.gateway.prices`), None when a judge
    without one was asked. `in_flight` are the calls under way (0 when a run is over).
    """

    asked: int = 0
    shared: int = 0
    calls: int = 0
    retried: int = 0
    failed: int = 0
    usage: Usage = NO_USAGE
    cached: int = 0
    cost: float | None = None
    in_flight: int = 0
    damaged: int = 0

    def __add__(self, other: Totals) -> Totals:
        """The sums over both ledgers."""
        unpriced = self.cost is None or other.cost is None
        return Totals(
            asked=self.asked + other.asked,
            shared=self.shared + other.shared,
            calls=self.calls + other.calls,
            retried=self.retried + other.retried,
            failed=self.failed + other.failed,
            usage=self.usage + other.usage,
            cached=self.cached + other.cached,
            cost=None if unpriced else (self.cost or 0.0) + (other.cost or 0.0),
            in_flight=self.in_flight + other.in_flight,
            damaged=self.damaged + other.damaged,
        )


class Saves(Protocol):
    """What a run says of itself beside its rows, and writes into a folder with them."""

    def save(self, folder: str | Path, rows: Iterable[CaseResult], /) -> None: ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """Questions of a run under way that wait to be asked again.

    `count` of them because of `why`: the HTTP status of a rejection, `timeout`, `no answer`. The
    first of them goes on in `seconds`.
    """

    why: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EvaluationResult(Sequence[CaseResult]):
    """Every row of a run in data set order, and what the run cost."""

    rows: tuple[CaseResult, ...]
    totals: Totals = field(default_factory=Totals)
    record: Saves | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        passed = sum(row.success for row in self.rows)
        unscored = sum(any(metric.failure for metric in row.metrics) for row in self.rows)
        failed = f", {unscored} without a score" if unscored else ""
        asked = f"{self.totals.asked} questions, {self.totals.calls} judge calls"
        counts = f"{len(self.rows)} cases, {passed} passed{failed}; {asked}"
        return f"<{type(self).__name__}: {counts}>"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __iter__(self) -> Iterator[CaseResult]:
        return iter(self.rows)

    @property
    def success(self) -> bool:
        """Whether there are cases and every one met every threshold."""
        return bool(self.rows) and all(row.success for row in self.rows)

    def save(self, folder: str | Path) -> None:
        """Write the folder of the run, as `evaluate(…, out=folder)` does while the run goes on.

        Raises InputError where it cannot be written, and for a result that no run has made.
        """
        if self.record is None:
            raise InputError("only what evaluate() returned can be saved: these rows have no run")
        self.record.save(folder, self.rows)

    def scores(self, metric: str) -> list[float | None]:
        """The scores of one metric in data set order; None where there is none.

        Raises InputError when the run had no metric of that name.
        """
        found = [
            result.score for row in self.rows for result in row.metrics if result.metric == metric
        ]
        if self.rows and not found:
            names = dict.fromkeys(result.metric for row in self.rows for result in row.metrics)
            hint = did_you_mean(metric, names) or f"it had {', '.join(map(repr, names)) or 'none'}"
            raise InputError(f"the run had no metric {metric!r:.80}; {hint}")
        return found


def _quoted(text: str, longest: int = 60) -> str:
    return repr(text if len(text) <= longest else f"{text[: longest - 1]}…")


def implied_output(step: Mapping[str, Any]) -> Any:
    """The output of a decision whose row has none: readers saw its verdict and its reason.

    Readers of code that decides saw the verdict alone.
    """
    if step["kind"] == "code":
        return step["verdict"]
    return {name: step[name] for name in ("verdict", "reason") if step.get(name) is not None}


def step_output(value: Any) -> Any:
    """A node's value as a step shows it; any object, and a step must not fail of it."""
    try:
        shown = as_data(value)
        if isinstance(shown, int):
            str(shown)  # Python writes no integer of more than 4,300 digits
        return shown
    except Exception:  # noqa: BLE001 - keys that are no text, circles, a broken __str__
        return f"<{type(value).__name__} without a text form>"
