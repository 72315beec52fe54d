"""What a session must have reached: the least share of cases that pass, per metric and tag."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dagengine.errors import InputError, did_you_mean
from dagengine.testing.summary import Outcome, pass_rate

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
        try:
            least = float(match["least"]) / (100 if match["sign"] else 1) if match else -1.0
        except ValueError:
            least = -1.0
        if match is None or not 0 <= least <= 1:
            raise InputError(
                f"--evals-min {text!r} needs a metric and a share from 0 to 1, "
                f"for instance {_EXAMPLES}"
            )
        return cls(text, match["metric"].strip(), match["tag"], least)

    def check(self, outcomes: Sequence[Outcome]) -> tuple[bool, str]:
        """Whether the gate holds, and what to say about it; nothing judged does not hold."""
        mine = [outcome for outcome in outcomes if outcome.metric == self.metric]
        if self.tag is not None:
            mine = [outcome for outcome in mine if self.tag in outcome.tags]
        passed, cases = pass_rate(mine)
        if not cases:
            # What there is in place of the name: tags of the metric, or metrics
            metrics = {outcome.metric for outcome in outcomes}
            if self.metric in metrics:
                tags = sorted({tag for outcome in outcomes for tag in outcome.tags})
                listed = ", ".join(map(repr, tags)) or "none"
                hint = f" with the tag {self.tag!r}; tags are {listed}"
            else:
                near = did_you_mean(self.metric, sorted(metrics))
                listed = "metrics are " + ", ".join(map(repr, sorted(metrics)))
                hint = f" by this metric; {near or listed}"
            return False, f"--evals-min {self.text}: nothing was judged{hint}"
        holds = passed >= self.least * cases - 1e-9
        word = "holds" if holds else "does not hold"
        share = f"{passed} of {cases} passed ({passed / cases:.0%})"
        return holds, f"--evals-min {self.text}: {word}, {share}"
