"""What goldens are made from and counted by: passages, seeds, quotas, yields. Plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagengine.errors import InputError

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


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EvolutionConfig(_Config):
    """How often a draft is evolved (0: not at all), and how often each way is taken.

    `evolutions` are weights: of {"reasoning": 2, "comparative": 1} two drafts of three are
    evolved by reasoning. What is left out is not taken.
    """

    num_evolutions: int = Field(default=1, ge=0, le=10)
    evolutions: Mapping[Evolution, float] = Field(
        default_factory=lambda: dict.fromkeys(Evolution, 1.0), min_length=1
    )


class StylingConfig(_Config):
    """What inputs and expected outputs are to be like, in words for the judge.

    `scenario` says who asks and why, `task` what the application does, `input_format` and
    `expected_output_format` how both texts look.
    """

    scenario: str | None = None
    task: str | None = None
    input_format: str | None = None
    expected_output_format: str | None = None


class ContextConstructionConfig(_Config):
    """How documents become contexts: sizes in tokens (about four characters each).

    A chunk never goes beyond a heading or a page. `max_contexts_per_document` limits how many
    chunks of a document are asked about (None: all).
    """

    chunk_size: int = Field(default=512, ge=16)
    chunk_overlap: int = Field(default=32, ge=0)
    max_contexts_per_document: int | None = Field(default=None, ge=1)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document that no chunk goes beyond: `offset` counts characters before it."""

    text: str
    offset: int
    page: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a document, in parts; `name` is the file's, or what its owner calls it."""

    name: str
    sections: tuple[Section, ...]


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
        """Where the passage stands, with the SHA-256 of its text."""
        content = self.text.encode(errors="surrogatepass")
        where = {"document": self.document, "page": self.page, "offset": self.offset}
        found = {name: value for name, value in where.items() if value is not None}
        return {**found, "sha256": hashlib.sha256(content).hexdigest()}


@dataclass(frozen=True, slots=True)
class Quota:
    """How many goldens there are to be of one sort; what is None may be anything.

    `document` is a document's name, or a topic where goldens are made from scratch; `kind` is
    an `Evolution` or "plain"; `difficulty` needs judges to measure it with. Raises InputError
    for a count below 1 and for an unknown kind or difficulty.
    """

    count: int
    document: str | None = None
    kind: str | None = None
    difficulty: Difficulty | None = None

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise InputError(f"the count of a quota must be from 1 on, got {self.count!r}")
        kinds = [PLAIN, *map(str, Evolution)]
        if self.kind is not None and self.kind not in kinds:
            raise InputError(f"unknown kind {self.kind!r}; there are {', '.join(kinds)}")
        if self.difficulty not in (None, "easy", "medium", "hard"):
            raise InputError(f"difficulty is easy, medium or hard, not {self.difficulty!r}")

    def __str__(self) -> str:
        parts = [part for part in (self.document, self.kind, self.difficulty) if part]
        return ", ".join(parts) or "any"


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
    """What became of every draft and every document.

    `fell` counts, per node, the drafts that it turned down ("near duplicate" and "not needed"
    are ours: the second were good and beyond what a quota wanted). `failed` counts those that got
    no answer, by kind of outcome and node.
    """

    tried: int = 0
    kept: int = 0
    fell: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    quotas: list[QuotaYield] = field(default_factory=list)
    passages: int = 0
    poor: dict[str, int] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """How many goldens short of the quotas."""
        return sum(max(0, one.quota.count - one.kept) for one in self.quotas)

    def lines(self) -> list[str]:
        """The report in sentences: what there is, what is missing, where drafts fell."""
        wanted = sum(one.quota.count for one in self.quotas)
        lines = [f"{self.kept} of {wanted} goldens from {self.tried} drafts"]
        for one in self.quotas:
            if one.kept < one.quota.count:
                why = f", {one.ended}" if one.ended else ""
                tried = f"{one.tried} drafts{why}"
                lines.append(f"{one.quota}: {one.kept} of {one.quota.count} ({tried})")
        for what, count in sorted(self.fell.items(), key=lambda item: -item[1]):
            lines.append(f"{count / self.tried:.0%} fell at {what} ({count} of {self.tried})")
        for what, count in sorted(self.failed.items(), key=lambda item: -item[1]):
            lines.append(f"{count} of {self.tried} got no answer: {what}")
        for what, count in self.poor.items():
            lines.append(f"{count} of {self.passages} passages were left out: {what}")
        lines += [f"{one.name}: {one.message}" for one in self.unreadable]
        return lines
