"""What goldens are made from and counted by: passages, seeds, quotas, yields. Plain data."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from dagengine.errors import InputError, did_you_mean
from dagengine.system.terminal_text import text_if
from dagengine.unknown import Answering

Difficulty = Literal["easy", "medium", "hard"]
Cause = Literal["empty", "scanned", "encrypted", "broken"]


class Evolution(StrEnum):
    """How a draft is made harder or more specific; also the kind of the golden."""

    REASONING = "reasoning"
    MULTICONTEXT = "multi-context"
    CONCRETIZING = "concretizing"
    CONSTRAINED = "constrained"
    COMPARATIVE = "comparative"
    HYPOTHETICAL = "hypothetical"
    IN_BREADTH = "in-breadth"


PLAIN = "plain"
"""The kind of a golden whose draft was not evolved."""


def whole(name: str, value: Any, least: int, most: float = math.inf) -> int:
    """The value; raises InputError when it is not a whole number in these bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        bounds = f"from {least} on" if most == math.inf else f"from {least} to {most}"
        raise InputError(f"{name} must be a whole number {bounds}, got {value!r:.60}")
    return value


@dataclass(frozen=True, slots=True)
class EvolutionConfig:
    """How often a draft is evolved (0 to 10), and the weight of each kind of evolution.

    `evolutions` are weights: with {"reasoning": 2, "comparative": 1}, two of three drafts are
    evolved by reasoning. Kinds that are not listed are not used. Raises InputError for an unknown
    kind, and for weights that are negative or all 0.
    """

    num_evolutions: int = 1
    evolutions: Mapping[Evolution, float] | Mapping[str, float] = field(
        default_factory=lambda: dict.fromkeys(Evolution, 1.0)
    )

    def __post_init__(self) -> None:
        whole("num_evolutions", self.num_evolutions, 0, 10)
        evolutions: Any = self.evolutions
        if not isinstance(evolutions, Mapping):
            raise InputError(f"evolutions are weights, {{'reasoning': 2}}, got {evolutions!r:.60}")
        weights: dict[Evolution, float] = {}
        for name, weight in evolutions.items():
            try:
                evolution = Evolution(name)
            except ValueError:
                near = (
                    did_you_mean(str(name), map(str, Evolution))
                    or f"there are {', '.join(Evolution)}"
                )
                raise InputError(f"unknown evolution {name!r:.60}; {near}") from None
            number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if not number or not 0 <= weight < 1e9:
                raise InputError(
                    f"the weight of {str(name)!r} must be a number from 0 on, got {weight!r}"
                )
            weights[evolution] = float(weight)
        if not any(weights.values()):
            raise InputError("evolutions: at least one weight must be above 0")
        object.__setattr__(self, "evolutions", weights)


@dataclass(frozen=True, slots=True)
class StylingConfig:
    """How inputs and expected outputs should look, in words for the judge.

    `scenario` says who asks and why, `task` what the application does, `input_format` and
    `expected_output_format` how both texts look. Raises InputError for something that is not a
    text.
    """

    scenario: str | None = None
    task: str | None = None
    input_format: str | None = None
    expected_output_format: str | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not isinstance(value, str):
                raise InputError(f"{name} must be a text, got {value!r:.60}")


@dataclass(frozen=True, slots=True)
class ContextConstructionConfig(Answering):
    """How documents become contexts: sizes in tokens (about four characters each).

    A chunk never goes beyond a heading or a page. It has at most `chunk_size` tokens (from 16
    on) and shares `chunk_overlap` (at most half of them) with the next.
    `max_contexts_per_document` limits how many chunks of a document are asked about (None:
    all). Raises InputError for sizes out of these bounds.
    """

    chunk_size: int = 512
    chunk_overlap: int = 32
    max_contexts_per_document: int | None = None

    def __post_init__(self) -> None:
        whole("chunk_size", self.chunk_size, 16)
        whole("chunk_overlap", self.chunk_overlap, 0)
        if self.max_contexts_per_document is not None:
            whole("max_contexts_per_document", self.max_contexts_per_document, 1)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document that no chunk goes beyond: `offset` counts characters before it."""

    text: str
    offset: int
    page: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a document, in parts; `name` is the file's, or what its owner calls it.

    `remark` says what of the document is not in its text, where that is known.
    """

    name: str
    sections: tuple[Section, ...]
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A document that gives no text, and why."""

    name: str
    cause: Cause
    message: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text to ask about, and where it stands (`offset` in characters, `page` from 1)."""

    text: str
    document: str | None = None
    page: int | None = None
    offset: int | None = None

    def provenance(self) -> dict[str, Any]:
        """Place of the passage, with the SHA-256 of its text."""
        where = asdict(self)
        content: str = where.pop("text")
        where["sha256"] = hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()
        return {name: value for name, value in where.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Quota:
    """The number of goldens of one kind; None allows any value.

    `document` is a document's name, or a topic if goldens are made from scratch. `kind` is an
    `Evolution` or "plain". `difficulty` needs judges that measure it. Raises InputError for a count
    below 1 and for an unknown kind or difficulty.
    """

    count: int
    document: str | None = None
    kind: str | None = None
    difficulty: Difficulty | None = None

    def __post_init__(self) -> None:
        whole("the count of a quota", self.count, 1)
        if not isinstance(self.document, str | None):
            raise InputError(f"the document of a quota is a name, got {self.document!r:.60}")
        kinds = [PLAIN, *map(str, Evolution)]
        if self.kind is not None and self.kind not in kinds:
            raise InputError(f"unknown kind {self.kind!r}; there are {', '.join(kinds)}")
        if self.difficulty not in (None, "easy", "medium", "hard"):
            raise InputError(f"difficulty is easy, medium or hard, not {self.difficulty!r}")

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.document, self.kind, self.difficulty))) or "any"


@dataclass(frozen=True, slots=True)
class Seed:
    """What one golden is made from: passages, and which draft of theirs is taken.

    `source` is the document or the topic. Equal seeds are one golden.
    """

    source: str | None
    kind: str
    evolutions: tuple[str, ...]
    passages: tuple[Passage, ...]
    draft: int


@dataclass(slots=True)
class QuotaYield:
    """What became of one quota; `ended` says why it was given up, where it was."""

    quota: Quota
    kept: int = 0
    tried: int = 0
    ended: str = ""


@dataclass(slots=True)
class Report:
    """What happened to every draft and every document.

    `fell` counts, per node, the drafts that it rejected. The keys "near duplicate" and "not needed"
    are not nodes; the latter were good, but more than a quota wanted. `unwritten` are drafts that
    the judge did not write, because its list was shorter. `failed` counts those that got no answer,
    by kind of outcome and node, and `messages` have the first message of each. Of the `nominated`
    pairs of inputs that look alike, the judge `confirmed` some as asking for the same;
    `unconfirmed` counts those that got no answer, so that both inputs stay. `passages` are those
    that were cut. The `poor` ones were left out, by their flaw. `unreadable` are documents without
    a text, `partial` says of others what is missing.
    """

    tried: int = 0
    kept: int = 0
    fell: dict[str, int] = field(default_factory=dict)
    unwritten: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    nominated: int = 0
    confirmed: int = 0
    unconfirmed: dict[str, int] = field(default_factory=dict)
    quotas: list[QuotaYield] = field(default_factory=list)
    passages: int = 0
    poor: dict[str, int] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Number of goldens short of the quotas."""
        return sum(max(0, tally.quota.count - tally.kept) for tally in self.quotas)

    def lines(self) -> list[str]:
        """The report in sentences: what there is, what is missing, where drafts fell."""
        goal = sum(tally.quota.count for tally in self.quotas)
        lines = [f"{self.kept} of {goal} goldens from {self.tried} drafts"]
        for tally in self.quotas:
            if tally.kept < tally.quota.count:
                tried = f"{tally.tried} drafts" + text_if(tally.ended, f", {tally.ended}")
                lines.append(f"{tally.quota}: {tally.kept} of {tally.quota.count} ({tried})")
        for cause, count in Counter(self.fell).most_common():
            lines.append(f"{count / self.tried:.0%} fell at {cause} ({count} of {self.tried})")
        if self.unwritten:
            lines.append(f"{self.unwritten} of {self.tried} were not written: the lists were short")
        for cause, count in Counter(self.failed).most_common():
            why = f" ({self.messages[cause]})" if cause in self.messages else ""
            lines.append(f"{count} of {self.tried} got no answer: {cause}{why}")
        if self.nominated:
            lines.append(
                f"{self.nominated} pairs of inputs look alike; {self.confirmed} of them ask for "
                "the same, says the judge"
            )
        for cause, count in Counter(self.unconfirmed).most_common():
            lines.append(
                f"{count} of {self.nominated} pairs got no answer, so both inputs stay: {cause} "
                f"({self.messages[cause]})"
            )
        for cause, count in self.poor.items():
            lines.append(f"{count} of {self.passages} passages were left out: {cause}")
        lines += [f"{document.name}: {document.message}" for document in self.unreadable]
        return lines + self.partial
