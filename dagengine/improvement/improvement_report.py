"""What an improvement found out: the split, the node, every candidate, the gain; and in words."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from dagengine.improvement.experiment import Split
from dagengine.improvement.faulty_node import LEAST_WRONG, MOST_LABELS, NodeBlame
from dagengine.reliability.statistics.intervals import Interval, Unknown
from dagengine.reliability.statistics.paired_comparisons import Comparison, is_gain
from dagengine.results import Totals
from dagengine.system.terminal_text import counted, few

FORMAT = 1
Rung = Literal[
    "threshold", "scores", "votes", "examples", "criterion", "together", "merge", "split", "rival",
    "escalation",
]  # fmt: skip
"""The rungs of the ladder, cheapest first, and the threshold of an escalation."""
_MINUS = "\N{MINUS SIGN}"
_LABEL_MORE = "label more cases (`dagengine labels plan` says which)"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One change that was tried, or could not be.

    `before` and `after` are the shares of right results on the held-out cases, of the metric that
    was there before and with the change. `gain` compares them case by case; `p` is that of it,
    corrected for all tries. `refused` says why it was not accepted ("" if it was), `skipped` that
    nothing was asked. `detail` has its words as data, `definition` the hash of the metric with it.
    """

    rung: Rung
    what: str
    where: str
    before: float | None = None
    after: float | None = None
    gain: Comparison | Unknown | None = None
    p: float | None = None
    cases: int = 0
    calls: int = 0
    refused: str = ""
    skipped: bool = False
    detail: dict[str, Any] = field(default_factory=dict)
    definition: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it was shown to be better than what was accepted before."""
        return not self.refused


@dataclass(frozen=True, slots=True)
class Sealed:
    """The sealed part, opened once after the choice: before, after, and the gain on equal cases.

    `mended` and `broken` are cases that most repetitions judge right only after, or only before.
    """

    before: Interval | Unknown
    after: Interval | Unknown
    gain: Comparison | Unknown
    mended: tuple[str, ...]
    broken: tuple[str, ...]

    @property
    def proved(self) -> bool:
        """Whether the whole interval of the gain is above 0."""
        return is_gain(self.gain)


@dataclass(frozen=True, slots=True)
class Improvement:
    """What was tried, what was accepted, and what it gains.

    `metric` is the new one, as `evaluate` takes it, or the one that was given. `right` is the share
    of right results on the tried cases as the metric was. `contradictions` are cases on which
    people differ, of `several` with several labels; `ceiling` is how far any judge can agree with
    one of them. `looks` are the sealed part's earlier looks, `notes` what else is to be said.
    """

    name: str
    metric: Any
    split: Split
    times: int
    tries: int
    right: Interval | Unknown
    blame: NodeBlame | None
    candidates: tuple[Candidate, ...]
    sealed: Sealed | None
    needed: int | None
    several: int
    contradictions: tuple[str, ...]
    ceiling: Interval | Unknown | None
    totals: Totals
    looks: int = 0
    notes: tuple[str, ...] = ()

    @property
    def accepted(self) -> tuple[Candidate, ...]:
        """The changes in the new metric, in their order."""
        return tuple(candidate for candidate in self.candidates if candidate.accepted)

    @property
    def proved(self) -> bool:
        """Whether a change was accepted, and the sealed part shows its gain."""
        return self.sealed is not None and self.sealed.proved


# In words: one headline, what it rests on, what to do next.


def percent(share: Interval | Unknown | None) -> str:
    """A share with its interval: `88 % (78 to 93)`."""
    if isinstance(share, Interval):
        return f"{100 * share.value:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})"
    return "not known" if share is None else f"not known: {share.reason}"


def points(gain: Comparison | Unknown | None) -> str:
    """A gain in points with its interval: `+9 (1 to 16)`."""
    if not isinstance(gain, Comparison):
        return "not known"
    if not isinstance(gain.interval, Interval):
        return f"{_points_words(gain.value)} (no interval)"
    low, high = _points_words(gain.interval.low, ""), _points_words(gain.interval.high, "")
    return f"{_points_words(gain.value)} ({low} to {high})"


def _points_words(share: float, sign: str = "+") -> str:
    number = round(100 * share)
    return f"{number:{sign if number else ''}d}".replace("-", _MINUS)


def change(candidate: Candidate) -> str:
    """A change as the subject of a headline."""
    if candidate.rung == "criterion":
        return f"New wording for {candidate.where}"
    if candidate.rung == "rival":
        return "One question in the place of the tree"
    if candidate.rung in ("merge", "split"):
        return f"{candidate.where} {candidate.what}"
    return f"{candidate.what[0].upper()}{candidate.what[1:]} at {candidate.where}"


def headline(result: Improvement) -> str:
    """The first line."""
    if result.proved and result.sealed is not None:
        gain = result.sealed.gain
        assert isinstance(gain, Comparison)
        changes = " and ".join(map(change, result.accepted))
        points_gained = f"{abs(100 * gain.value):.0f} points"
        return f"✓ {changes}: agreement up {points_gained} on held-out cases"
    if result.accepted:
        return "○ Better on held-out cases, but the sealed part does not show it"
    if result.blame is not None and result.blame.node is None:
        return "○ Not known which node to change"
    return "✕ Nothing proved better"


def why(result: Improvement) -> str:
    """Grounds of the headline."""
    better = sum(
        not candidate.accepted and (candidate.after or 0) > (candidate.before or 0)
        for candidate in result.candidates
    )
    cases = counted(len(result.split.tried), "case")
    text = f"Agreement with people is {percent(result.right)} on {cases}."
    if (sealed := result.sealed) is not None:
        text = (
            f"Agreement with people was {percent(sealed.before)} and is {percent(sealed.after)} on "
            f"{counted(len(result.split.sealed), 'sealed case')}; gain {points(sealed.gain)}."
        )
    if better:
        changes = "One more change" if better == 1 else f"{better} more changes"
        text += f" {changes} looked better, but could be chance."
    return text


def step(result: Improvement, left: str | None) -> str:
    """The next step; `left` is the command that applies the change, or its file."""
    if result.proved and left:
        return f"{left}   (nothing was changed in place)"
    if result.accepted:
        return f"label more cases and seal them; the change is in {left}" if left else "label more"
    blame, needed = result.blame, result.needed
    if blame is None:
        return _LABEL_MORE
    if not blame.wrong:
        return "nothing to improve: no result on these cases is wrong"
    if blame.node is None:
        if not blame.shares and blame.wrong >= LEAST_WRONG:
            return (
                "ask in a tree of questions: labels cannot tell which part of this metric errs. "
                "Criteria of a rubric are not rewritten: dagengine benchmark with labels that have "
                "a column `criterion` says which of them err"
            )
        if blame.needed is None:
            return f"walk the tree, or choose a node: {MOST_LABELS} labels of this kind do not tell"
        return f"about {blame.needed:,} more labels would tell, or choose a node with --node"
    if not needed:
        return _LABEL_MORE
    if needed > MOST_LABELS:
        return f"more than {MOST_LABELS} labels at `{blame.node}` would be needed to show 5 points"
    return f"{needed:,} more labels at `{blame.node}` would show a gain of 5 points"


def cause(blame: NodeBlame | None) -> str:
    """The node that causes the wrong results."""
    if blame is None or (not blame.shares and blame.wrong < LEAST_WRONG):
        return "not known: too few wrong results"
    if not blame.shares:
        return (
            f"not known: no other answer of one node mends any of {blame.wrong:.0f} wrong results"
        )
    shares = [
        f"{share.node} {100 * share.share:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})"
        for share in blame.shares[:3]
    ]
    return f"{', '.join(shares)} of {blame.wrong:.0f} wrong results, by {blame.by}"


def facts(result: Improvement) -> Iterator[tuple[str, str]]:
    """Facts behind the figures, as names and texts."""
    tried, sealed = len(result.split.tried), len(result.split.sealed)
    opened = "opened once" if result.sealed is not None else "not opened"
    examples = len(result.split.folds[0])
    yield (
        "labels",
        f"{tried + sealed}: {tried} to try changes on ({examples} may serve as examples), "
        f"{sealed} sealed, {opened}",
    )
    if result.several:
        text = f"people differ on {len(result.contradictions)} of {counted(result.several, 'case')}"
        if isinstance(result.ceiling, Interval):
            text += f"; any judge can agree with one of them in {percent(result.ceiling)}"
        yield "ceiling", text
    yield "node", cause(result.blame)
    yield (
        "tries",
        f"{result.tries}, each case {counted(result.times, 'time')}; every p counts all of them",
    )
    spent, stored = result.totals, counted(result.totals.cached, "answer")
    money = "" if spent.cost is None or not spent.calls else f", ${spent.cost:.3g}"
    yield "cost", f"{counted(spent.calls, 'call')}{money}; {stored} from the store"


def warnings(result: Improvement) -> Iterator[str]:
    """Warnings about the figures."""
    if result.contradictions:
        yield (
            f"settle the labels first: people contradict each other on {few(result.contradictions)}"
        )
    if result.looks:
        times = counted(result.looks, "time")
        yield (
            f"the sealed part was opened {times} before, for other changes: its gain is no longer "
            "that of cases that nobody has seen; label new cases"
        )
    yield from result.notes


def decision(candidate: Candidate) -> str:
    """Decision on a candidate."""
    if candidate.skipped:
        return f"· not tried: {candidate.refused}"
    if candidate.accepted:
        return f"✓ accepted: p {candidate.p:.2g}"
    return f"✕ refused: {candidate.refused}"


def edit(candidate: Candidate) -> list[tuple[str, str]]:
    """The words of a criterion before and after, as `word_changes`; none of other candidates."""
    old, new = candidate.detail.get("before"), candidate.detail.get("criterion")
    return word_changes(old, new) if isinstance(old, str) and isinstance(new, str) else []


def word_changes(before: str, after: str) -> list[tuple[str, str]]:
    """The words of two texts: pairs of `kept`, `gone` or `new`, and the words."""
    old_words, new_words = before.split(), after.split()
    parts: list[tuple[str, str]] = []
    matcher = difflib.SequenceMatcher(None, old_words, new_words, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            parts.append(("kept", " ".join(old_words[a:b])))
            continue
        if a < b:
            parts.append(("gone", " ".join(old_words[a:b])))
        if c < d:
            parts.append(("new", " ".join(new_words[c:d])))
    return parts
