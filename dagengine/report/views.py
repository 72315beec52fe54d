"""What a picture says about each node and edge, in three views of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagengine.compiler.slots import Slot
from dagengine.compiler.wiring import Wiring
from dagengine.graph.graph import MetricSpec
from dagengine.prompts.evidence import as_text
from dagengine.report.tally import MetricTally
from dagengine.results import MetricResult, Step

INK = "#1f2933"
LINES = 16
# Red over amber to green, each dark enough for no more than a background.
SCORES = ("#f6b0a8", "#f8c9a0", "#fae29c", "#dbe8a0", "#aedba6")


def score_colour(score: float | None) -> str:
    """The background of a score from 0 to 1; its number is always written beside it."""
    return SCORES[min(int((score or 0.0) * len(SCORES)), len(SCORES) - 1)]


def picture_names(wiring: Wiring) -> dict[Slot, str]:
    """A short identifier per slot; a nested metric of one node is drawn as that one."""
    names = {slot: f"n{index}" for index, slot in enumerate(wiring.slots)}
    for slot in wiring.slots:
        if slot.nested is not None and len(slot.nested.slots) == 1:
            (only,) = slot.nested.slots.values()
            names[only] = names[slot]
    return names


def hands_on_only(slots: Sequence[Slot]) -> bool:
    """Whether edges that make a node run are beside edges that hand on data only."""
    runs = any(slot.branches or slot.activates for slot in slots)
    return runs and any(s not in source.slot.activates for s in slots for source in s.sources)


class Design:
    """The tree as designed; other views say more about some nodes and edges."""

    sign = ""  # what marks a score that was reached
    legend: tuple[str, ...] = ()  # what the strokes of this view mean

    def title(self, spec: MetricSpec) -> str:
        threshold = "no threshold" if spec.threshold is None else f"passes at {spec.threshold:g}"
        return f"{spec.name} ({threshold})"

    def note(self, slot: Slot) -> str:
        """What happened at a node, in a few words."""
        return ""

    def weight(self, before: Slot, verdict: Any, after: Slot) -> float | None:
        """How much an edge was taken, from 0 to 1; None when the view does not say."""
        return None

    def verdict(self, slot: Slot, verdict: Any) -> str:
        """The words on a verdict's edge."""
        return str(verdict)

    def reached(self, slot: Slot) -> bool | None:
        """Whether a node ran; None when the view does not say."""
        return None


class OnePath(Design):
    """The path that one case took, and what each node answered."""

    sign = "✓ "
    legend: tuple[str, ...] = ("blue: the path of this case", "dotted: not taken")

    def __init__(self, result: MetricResult, case: str = "") -> None:
        if any(_chances(step) for step in result.steps):
            self.legend = (*self.legend, "%: probability of a verdict")
        self._result = result
        self._case = f" on {case!r}" if case else ""
        self._steps = {step.node: step for step in result.steps}
        self._chosen = dict(result.path)
        for step in result.steps:
            if step.verdict is not None:
                self._chosen[step.node] = step.verdict

    def title(self, spec: MetricSpec) -> str:
        failure = self._result.failure
        if failure is not None:
            return f"{spec.name}{self._case}: {failure.kind} at {failure.node}"
        outcome = {True: ", passed", False: ", failed", None: ""}[self._result.success]
        return f"{spec.name}{self._case}: score {self._result.score:.3g}{outcome}"

    def note(self, slot: Slot) -> str:
        step = self._steps.get(slot.name)
        failure = self._result.failure
        if step is None and failure is not None and failure.node == slot.name:
            return f"✗ {failure.kind}: {failure.message}"
        return "" if step is None else _answer(step)

    def weight(self, before: Slot, verdict: Any, after: Slot) -> float | None:
        if verdict is None:
            started = before.kind == "metric" or before.name in self._steps
            return float(started and after.name in self._steps)
        return float(before.name in self._chosen and self._chosen[before.name] == verdict)

    def verdict(self, slot: Slot, verdict: Any) -> str:
        taken = slot.name in self._chosen and self._chosen[slot.name] == verdict
        words = f"{self.sign}{verdict}" if taken else str(verdict)
        step = self._steps.get(slot.name)
        chance = None if step is None else _chances(step).get((type(verdict), verdict))
        return words if chance is None else f"{words}\n{_percent(chance)}"

    def reached(self, slot: Slot) -> bool | None:
        return slot.name in self._steps


def _chances(step: Step) -> dict[tuple[type, Any], float]:
    """The odds of a decision's verdicts; none if a panel voted on it."""
    if step.verdict is None or step.votes:
        return {}
    return {(type(verdict), verdict): chance for verdict, chance in step.odds or ()}


def _percent(chance: float) -> str:
    """A probability in whole percents; 0 % and 100 % are shown for exactly 0 and 1 only."""
    if 0 < chance < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= chance < 1 else f"{chance:.0%}"


def _answer(step: Step) -> str:
    if step.outcome != "ok":
        return f"✗ {step.outcome}: {step.reason or ''}"
    if step.verdict is not None:
        return f"→ {step.verdict}{_votes(step)}: {step.reason or ''}".rstrip(": ")
    if step.score is not None:
        return f"→ {step.score:.3g}{_votes(step)}"
    return f"→ {'' if step.output is None else as_text(step.output)}{_votes(step)}"


def _votes(step: Step) -> str:
    if not step.votes:
        return ""
    agreeing = f"{step.agreeing} of " if step.verdict is not None else ""
    return f" ({agreeing}{len(step.votes)} votes)"


class Counts(Design):
    """How often a data set took each edge."""

    legend = ("blue: taken, the wider the more often", "dotted: never taken")

    def __init__(self, tally: MetricTally) -> None:
        self._cases, self._failed = tally.cases, tally.unscored
        self._ran, self._broke, self._chose = tally.ran, tally.broke, tally.chose

    def title(self, spec: MetricSpec) -> str:
        failed = f", {self._failed} without a score" if self._failed else ""
        return f"{spec.name}: {self._cases} cases{failed}"

    def note(self, slot: Slot) -> str:
        ran, broke = self._ran[slot.name], self._broke[slot.name]
        failed = f", failed {broke}x" if broke else ""
        return f"ran {ran}x{failed}"

    def weight(self, before: Slot, verdict: Any, after: Slot) -> float | None:
        if not self._cases:
            return 0.0
        if verdict is None:
            ran = self._ran[after.name]
            return (
                ran if before.kind == "metric" else min(self._ran[before.name], ran)
            ) / self._cases
        return self._chose[before.name, verdict] / self._cases

    def verdict(self, slot: Slot, verdict: Any) -> str:
        count, ran = self._chose[slot.name, verdict], self._ran[slot.name]
        share = f" ({count / ran:.0%})" if ran else ""
        return f"{verdict}\n{count}x{share}"

    def reached(self, slot: Slot) -> bool | None:
        return bool(self._ran[slot.name] + self._broke[slot.name])


def legend_of(slots: Sequence[Slot], dashes: str, folded: bool) -> list[str]:
    """What arrows and stubs mean; `dashes` is how a form draws edges that only pass data."""
    lines = []
    if hands_on_only(slots):
        lines += ["solid arrow: makes it run", f"{dashes} arrow: passes data only"]
    if folded:
        lines.append("+7 nodes: a part that no case reached")
    return lines
