"""What a session must have reached: shares of cases that pass, and no worse than an earlier run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dagengine.errors import InputError, did_you_mean
from dagengine.record.run import load_run
from dagengine.reliability.statistics.comparisons import Comparison, compare_shares
from dagengine.reliability.statistics.intervals import Interval
from dagengine.system.terminal import few
from dagengine.testing.session_run import label_of
from dagengine.testing.session_summary import Outcome, case_tags, has_not_passed
from dagengine.testing.verdicts import Verdict

_FORM = re.compile(
    r"(?P<metric>.+?)(?:\[(?P<tag>[^\[\]]+)\])?\s*>=\s*(?P<least>[\d.]+)(?P<sign>%?)"
)
_EXAMPLES = "'Faithfulness>=0.9', or 'Faithfulness[billing]>=0.9' for the cases with that tag"


@dataclass(frozen=True, slots=True)
class Gate:
    """The share of cases (0 to 1) that must pass by a metric, of all or of those with a tag."""

    text: str
    metric: str
    tag: str | None
    least: float

    @classmethod
    def read(cls, text: str) -> Gate:
        """From what the user typed; raises InputError."""
        match = _FORM.fullmatch(text.strip())
        least = -1.0
        with suppress(ValueError):
            if match is not None:
                least = float(match["least"]) / (1, 100)[bool(match["sign"])]
        if match is None or not 0 <= least <= 1:
            raise InputError(
                f"--evals-min {text!r} needs a metric and a share from 0 to 1, "
                f"for instance {_EXAMPLES}"
            )
        return cls(text, match["metric"].strip(), match["tag"], least)

    def covers(self, metric: str, tags: Collection[str]) -> bool:
        """Return whether a metric counts for this gate on a case with these tags."""
        return metric == self.metric and (self.tag is None or self.tag in tags)

    def check(self, outcomes: Sequence[Outcome]) -> tuple[bool, str]:
        """Return whether the gate holds, and what to say about it; nothing judged does not hold."""
        mine = [outcome for outcome in outcomes if self.covers(outcome.metric, outcome.tags)]
        passed = sum(outcome.success is True for outcome in mine)
        failed = [label_of(o.test, o.number) for o in mine if has_not_passed(o)]
        cases = passed + len(failed)
        if not cases:
            return False, f"--evals-min {self.text}: nothing was judged{self._hint(outcomes)}"
        holds = passed >= self.least * cases - 1e-9
        word = "holds" if holds else "does not hold"
        share = f"{passed} of {cases} passed ({passed / cases:.0%})"
        lost = sum(outcome.success is None for outcome in mine if has_not_passed(outcome))
        share += f", {lost} without a score among them" * bool(lost)
        listed = f"; not passed: {few(failed)}" * (not holds)
        return holds, f"--evals-min {self.text}: {word}, {share}{listed}"

    def _hint(self, outcomes: Sequence[Outcome]) -> str:
        """Name what there is in place of the name: tags of the metric, or metrics."""
        metrics = sorted({outcome.metric for outcome in outcomes})
        if self.metric in metrics:
            tags = sorted({tag for outcome in outcomes for tag in outcome.tags})
            listed = ", ".join(map(repr, tags)) or "none"
            return f" with the tag {self.tag!r}; tags are {listed}"
        listed = "metrics are " + ", ".join(map(repr, metrics))
        return f" by this metric; {did_you_mean(self.metric, metrics) or listed}"


def excuse(gates: Sequence[Gate], verdict: Verdict) -> str:
    """The gates that decide in place of a test which failed by metrics of theirs alone, or ""."""
    tags = case_tags(verdict)
    deciding: list[Gate] = []
    for result in verdict.row.metrics:
        mine = [gate for gate in gates if gate.covers(result.metric, tags)]
        if result.failure is not None or (result.success is False and not mine):
            return ""
        if result.success is False:
            deciding += mine
    return " and ".join(f"--evals-min {gate.text}" for gate in dict.fromkeys(deciding))


def require_run(folder: Path) -> None:
    """Raise what keeps `against` from comparing: no run folder, or no statistics installed."""
    load_run(folder)
    compare_shares([(True, False)])


def against(folder: Path, outcomes: Sequence[Outcome]) -> Iterator[tuple[bool, str]]:
    """Each metric against an earlier run, pair by pair: whether it holds, and what to say.

    A metric does not hold if its pass rate is worse on the same cases by more than chance. The
    whole 95 % interval of the difference is then below 0. Cases are paired by their tests, or by
    their names; where none of them was judged before, nothing holds. Raises InputError for what is
    not a run folder.
    """
    before: dict[tuple[str, str], bool | None] = {}
    for row in load_run(folder).rows():
        before |= {(row.case, result.metric): result.success for result in row.metrics}
    common = [outcome for outcome in outcomes if _earlier(before, outcome) is not None]
    if not common:
        yield False, f"against {folder}: none of its cases was judged"
    for metric in dict.fromkeys(outcome.metric for outcome in outcomes if common):
        mine = [outcome for outcome in outcomes if outcome.metric == metric]
        pairs = [(_earlier(before, outcome), outcome.success) for outcome in mine]
        label, result = f"against {folder}: {metric}", compare_shares(pairs)
        if not isinstance(result, Comparison) or not isinstance(result.interval, Interval):
            yield True, f"{label}: no case was judged in both"
            continue
        low, high = result.interval.low, result.interval.high
        holds = high >= 0
        word = ": worse by more than chance" * (not holds)
        yield (
            holds,
            f"{label}: pass rate {result.value:+.0%} on {result.cases} cases (95 % interval "
            f"{low:+.0%} to {high:+.0%}, {result.differing} differ, p = {result.p:.2g}){word}",
        )


def _earlier(before: Mapping[tuple[str, str], bool | None], outcome: Outcome) -> bool | None:
    label = (label_of(outcome.test, outcome.number), outcome.metric)
    return before.get(label, before.get((outcome.case, outcome.metric)))
