"""The results of one metric, and of all metrics, on one case, and the odds of paths: plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from dagengine.errors import InputError, did_you_mean
from dagengine.question import NO_USAGE, Usage
from dagengine.results.html_tables import cell, number, table, text
from dagengine.results.outcomes import Failure, OutcomeKind, Step, Verdict
from dagengine.results.pass_rules import SIGNS, End, Points, State, case_state, state_of
from dagengine.system.frozen import quick_init
from dagengine.system.terminal_text import clip, text_if
from dagengine.test_case import CASE_TYPES
from dagengine.unknown import absent_attributes

FORMAT = 1
"""The format of a run folder and of its rows; a reader refuses a greater one."""
_ROUNDING = 1e-9  # a probability that is no more than this comes from rounding
_REASON = 200  # characters of a failure in a `repr`
_LISTED = 5  # metrics in the `repr` of a row
_NAME = 60  # characters of a name in a `repr`
# What results of deepeval have, or a reader expects here, and where it is; a key has several names.
_OF_METRIC = "a row has the results of all metrics: row[METRIC].{}, or row.metrics"
_ELSEWHERE = {
    **{name: _OF_METRIC.format(name) for name in ("score", "reason", "path", "failure", "steps")},
    "metric": "row.metrics has one result per metric",
    "passed outcome status": "write success or state",
    "cost evaluation_cost": "what a run cost is result.cost",
    "evaluation_model": "a row has the results of all metrics: row[METRIC].evaluation_model",
    "strict_mode": "`raw_score` is the score before strict mode",
    "conversational": "it is the type of row.test_case",
    "additional_metadata context metadata multimodal retrieval_context turns": (
        "row.test_case has it"
    ),
}
# Keys of the metadata of a case that say where it was read from.
TRACE_IDS = ("trace_id", "span_id", "session_id")
# When the trace of a case began (ISO 8601, UTC).
STARTED = "trace.started"
# Keys with which a watch says why a trace was judged: its stratum, the probability of that (a
# weight is 1 divided by it), and the length of its input.
WATCHED = ("watch.stratum", "watch.probability", "watch.characters")
# A digest of what a trace has in common with others that count as one.
GROUPED = "watch.group"


@dataclass(frozen=True, slots=True)
class PathChance:
    """One path, as (node, verdict), with its score (0 to 1) and its probability (0 to 1).

    `passed` is False for a metric without a threshold. A node that rates has one path for every
    score.
    """

    path: tuple[tuple[str, Verdict], ...]
    score: float
    passed: bool
    probability: float


@dataclass(frozen=True, slots=True)
class ResultOdds:
    """The odds of all paths of one metric on one case, the most likely first.

    `unknown` is the probability (0 to 1) of paths that cannot be computed: those to nodes that were
    not asked, and those on which a list has other verdicts than it had, if what reads the list does
    not give odds. So the expected score and the probability to pass have bounds.
    """

    paths: tuple[PathChance, ...]
    unknown: float = 0.0

    @property
    def expected_bounds(self) -> tuple[float, float]:
        """The lower and the upper bound of the expected score (0 to 1)."""
        least = math.fsum(path.score * path.probability for path in self.paths)
        return least, min(1.0, least + self.unknown)

    @property
    def expected(self) -> float | None:
        """The expected score (0 to 1); None if something is unknown."""
        least = self.expected_bounds[0]
        return None if self.unknown > _ROUNDING else min(1.0, least)

    @property
    def pass_bounds(self) -> tuple[float, float]:
        """The lower and the upper bound of the probability to pass."""
        least = math.fsum(path.probability for path in self.paths if path.passed)
        return least, min(1.0, least + self.unknown)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        paths = [asdict(path) | {"path": [*map(list, path.path)]} for path in self.paths]
        bounds = {"expected": list(self.expected_bounds), "pass": list(self.pass_bounds)}
        return {"paths": paths, "unknown": self.unknown, **bounds}


@quick_init
@dataclass(frozen=True, slots=True)
class MetricResult:
    """The result of one metric on one case.

    `score` lies in [0, 1], or is None with `failure` saying why. `raw_score` is the score before
    strict mode. `success` is None when the metric has no threshold or no score. `path` lists (node,
    verdict) of every decision taken, in topological order. `ended` is the node that gave the score,
    and its verdict (None for a rating), if it is not the last decision. `odds` are the odds of all
    paths, if a judge gave probabilities. `judge` is the model, or the name, of the judge that the
    metric asks; None if it asks none, or several. `points` are those of a rubric.
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
    odds: ResultOdds | None = None
    ended: tuple[str, Verdict | None] | None = None
    judge: str | None = None
    points: Points | None = None

    # Type checkers take whoever has `__getattr__` to have every attribute.
    if not TYPE_CHECKING:
        __getattr__ = absent_attributes(_ELSEWHERE)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {clip(self.metric, _NAME)!r}: {self._summary_line()}>"

    @property
    def name(self) -> str:
        """The metric's name."""
        return self.metric

    @property
    def evaluation_model(self) -> str | None:
        """The judge, as other libraries call it."""
        return self.judge

    @property
    def error(self) -> str | None:
        """Why there is no score; None if there is one."""
        return None if self.failure is None else self.failure.message

    @property
    def outcome(self) -> OutcomeKind:
        """`ok`, or the kind of failure."""
        return self.failure.kind if self.failure else OutcomeKind.OK

    @property
    def state(self) -> State:
        """Its state: failed (below its threshold), without a score, passed, or only scored."""
        return state_of(self.score, self.success)

    @property
    def end(self) -> End:
        """End of the path.

        A path ends with the decision that gave the score, a failure at its node. If no decision
        gave the score, there is only its side of the threshold.
        """
        if self.failure is not None:
            return End(self.metric, self.failure.node, str(self.failure.kind), self.state)
        node, verdict = self.last
        if verdict is not None:
            return End(self.metric, node, str(verdict), self.state)
        # A leaf behind decisions has its own name; a graph without decisions is its metric.
        leaf = node if self.path else self.metric
        limit = f" {self.threshold:.4g}" if self.threshold is not None else ""
        side = {"failed": f" below{limit}", "passed": f" from{limit} on"}.get(self.state, "")
        return End(self.metric, f"{leaf}{side}", "", self.state)

    @property
    def last(self) -> tuple[str, Verdict | None]:
        """The node that gave the score, and its verdict (None: it graded); without one ""."""
        return self.ended or (self.path[-1] if self.path else ("", None))

    @property
    def why(self) -> str:
        """The reason at the end: of the failure or the node that gave the score, else the metric's.

        A rating stands before its reason, as it was given. A text that only repeats the end is
        left out.
        """
        if self.failure is not None:
            return self.failure.message
        last = next((step for step in self.steps if step.node == self.last[0]), None)
        reason = (last and last.reason) or self.reason or ""
        if last is not None and last.kind == "rating" and isinstance(last.output, int | float):
            return f"rated {last.output:.4g}{text_if(reason, ': ')}{reason}"
        # `composed_reason` has a line "node → verdict" for every decision.
        if last is not None and reason.rpartition("\n")[2].startswith(f"{last.node} → "):
            return text_if(last.kind == "code", "decided by code")
        # The first line of a rubric says what cost and brought most; others explain it.
        return reason if self.points is None else reason.partition("\n")[0]

    def by_node(self) -> dict[str, Step]:
        """The steps by the names of their nodes."""
        return {step.node: step for step in self.steps}

    @property
    def seconds(self) -> float | None:
        """The sum of the durations of its nodes, including parallel and shared ones."""
        durations = [step.seconds for step in self.steps if step.seconds is not None]
        return sum(durations) if durations else None

    @property
    def usage(self) -> Usage:
        """Tokens of the answers that the result rests on; shared ones count in full."""
        return sum((step.usage for step in self.steps), NO_USAGE)

    @property
    def verbose_logs(self) -> str:
        """The steps as text: what every node said, and why."""
        parts = (f"{step.node}: {_answer(step)}\n{step.reason or ''}" for step in self.steps)
        return "\n\n".join(map(str.rstrip, parts))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form; equal for equal answers, whatever the timing."""
        row: dict[str, Any] = {
            "metric": self.metric,
            "score": self.score,
            "success": self.success,
            "outcome": str(self.outcome),
            "reason": self.reason,
            "threshold": self.threshold,
            "raw_score": self.raw_score,
            "mode": self.mode,
            "failure": self.failure.as_dict() if self.failure else None,
            "path": list(map(list, self.path)),
            "steps": list(map(Step.as_dict, self.steps)),
        }
        if self.ended is not None:
            row["ended"] = list(self.ended)
        if self.judge is not None:
            row["judge"] = self.judge
        if self.points is not None:
            row["points"] = self.points.model_dump(mode="json")
        if self.odds is not None:
            row["odds"] = self.odds.as_dict()
        return row

    def cells(self) -> list[str]:
        """The cells of a line of a table in HTML: sign, metric, score, where it ended, why."""
        where = [cell(str(self.end)), text(self.why)]
        return [SIGNS[self.state], cell(self.metric), number(self.score), *where]

    def _repr_html_(self) -> str:
        """HTML for a notebook: the score, and what every node said."""
        steps = [
            [cell(step.node), cell(step.kind), cell(_answer(step)), text(step.reason or "")]
            for step in self.steps
        ]
        head = f"{SIGNS[self.state]} {cell(self.metric)}: {number(self.score)}"
        heads = ("node", "kind", "answer", "reason")
        return f"<p>{head} {text(self.why)}</p>{table(heads, steps)}"

    def _summary_line(self) -> str:
        """The score, and whether that passes; or why there is none."""
        if self.failure is not None:
            return repr(clip(str(self.failure), _REASON))
        passed = {True: ", passed", False: ", not passed", None: ""}[self.success]
        return "no score" if self.score is None else f"score {self.score:.4g}{passed}"


@quick_init
@dataclass(frozen=True, slots=True)
class CaseResult:
    """One row: the results of all metrics on one test case.

    `test_case` is the judged case, or the golden if the app failed. It is None for an invalid row
    of the data and for rows read from a file. `seconds` is the duration of the case, from its first
    node to its results.
    """

    index: int
    case: str
    metrics: tuple[MetricResult, ...]
    test_case: Any = field(default=None, compare=False, repr=False)
    recorded_hash: str | None = field(default=None, compare=False, repr=False)
    seconds: float | None = field(default=None, compare=False, repr=False)
    recorded_trace: dict[str, str] | None = field(default=None, compare=False, repr=False)

    if not TYPE_CHECKING:
        __getattr__ = absent_attributes(_ELSEWHERE)

    def __repr__(self) -> str:
        states = [f"{clip(m.metric, _NAME)!r} {m._summary_line()}" for m in self.metrics]
        if len(states) > _LISTED:
            states[_LISTED:] = [f"{len(states) - _LISTED} more"]
        shown = "; ".join(states) or "no metric"
        return f"<{type(self).__name__} {self.index} {clip(self.case, _NAME)!r}: {shown}>"

    def __getitem__(self, metric: str) -> MetricResult:
        """The result of one metric; raises InputError when there is none of this name."""
        for result in self.metrics:
            if result.metric == metric:
                return result
        raise unknown_metric(str(metric), self.by_metric())

    def by_metric(self) -> dict[str, MetricResult]:
        """The results by the names of their metrics."""
        return {result.metric: result for result in self.metrics}

    @property
    def name(self) -> str:
        """Name of the case in reports."""
        return self.case

    @property
    def input(self) -> str | None:
        """Input of a case with one answer."""
        return getattr(self.test_case, "input", None)

    @property
    def actual_output(self) -> str | None:
        """The answer that was judged."""
        return getattr(self.test_case, "actual_output", None)

    @property
    def expected_output(self) -> str | None:
        """A good answer, where the case has one."""
        return getattr(self.test_case, "expected_output", None)

    @property
    def metrics_data(self) -> list[MetricResult]:
        """The results of the metrics, as a list."""
        return list(self.metrics)

    @property
    def success(self) -> bool:
        """Whether no result is a failure or below its threshold; False without results."""
        good = (m.failure is None and m.success is not False for m in self.metrics)
        return bool(self.metrics) and all(good)

    @property
    def state(self) -> State:
        """Below some threshold, else without some score, else passed, else only scored."""
        return case_state(metric.state for metric in self.metrics)

    @property
    def hash(self) -> str | None:
        """SHA-256 (hex) of the case's content, equal in every run; None if there is none."""
        if self.recorded_hash is None and isinstance(self.test_case, CASE_TYPES):
            with suppress(TypeError, ValueError, RecursionError):  # metadata without a JSON form
                # It is wanted in several places, and takes longer than all else in a row.
                object.__setattr__(self, "recorded_hash", self.test_case.content_hash())
        return self.recorded_hash

    @property
    def trace(self) -> dict[str, str] | None:
        """The ids of the trace, span and session that the case was read from; None if it was not.

        They are `trace_id`, `span_id` and `session_id` of its `additional_metadata`, with the time
        when it began, and the stratum and the probability of a trace that a watch has sampled.
        """
        if self.recorded_trace is not None:
            return self.recorded_trace
        metadata = getattr(self.test_case, "additional_metadata", None)
        if not isinstance(metadata, dict):
            return None
        names = (*TRACE_IDS, STARTED, *WATCHED, GROUPED)
        ids = {name: metadata[name] for name in names if isinstance(metadata.get(name), str)}
        return ids or None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form, one line of `results.jsonl`."""
        metrics = list(map(MetricResult.as_dict, self.metrics))
        row = {"index": self.index, "case": self.case, "hash": self.hash, "metrics": metrics}
        return row if self.trace is None else {**row, "trace": self.trace}

    def _repr_html_(self) -> str:
        """HTML for a notebook: every metric with its score, where it came about, and why."""
        head = f"{SIGNS[self.state]} {self.index} {cell(self.case)}"
        heads = ("", "metric", "score", "ended at", "reason")
        return f"<p>{head}</p>{table(heads, map(MetricResult.cells, self.metrics))}"


def unknown_metric(name: str, names: Iterable[str]) -> InputError:
    """The error for the name of a metric that was not run."""
    metrics = dict.fromkeys(names)
    hint = did_you_mean(name, metrics) or f"it had {', '.join(map(repr, metrics)) or 'none'}"
    return InputError(f"the run had no metric {name!r:.80}; {hint}")


def _answer(step: Step) -> str:
    if step.outcome != OutcomeKind.OK:
        return str(step.outcome)
    answer = step.verdict if step.verdict is not None else step.score
    return str(step.output if answer is None else answer)
