"""What nodes that judge take besides: solved examples in their prompts, verdicts that quote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, starmap
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel

from dagengine.errors import InputError, did_you_mean
from dagengine.graph.argument_checks import of_kind, text_or_none
from dagengine.prompts.evidence import Evidence, as_data, canonical_place, evidence_of, field_of
from dagengine.prompts.instructions import solved_name
from dagengine.prompts.quotes import (
    Quote,
    QuoteCheck,
    QuoteMode,
    Quoting,
    QuotingOrAbsent,
    hint,
    judgements_in,
    quotes_in,
)
from dagengine.question import Answer, misquoting
from dagengine.test_case import LLMTestCase, TestCase, read_field

_TEXT = "text"


@dataclass(frozen=True, slots=True)
class Example:
    """A solved example (few-shot) for a node that judges: what was judged, and the right answer.

    `reads` is what the node reads: a mapping of names (fields of the case, labels of other nodes)
    to values, a test case, of which only the fields that the node reads are shown, or the one text
    that it reads. `answer` is one of the node's verdicts, or a rating of its scale. `reason` is
    shown before the answer. Raises InputError for anything else.
    """

    reads: Mapping[str, Any] | TestCase | str
    answer: bool | int | str
    reason: str | None = None

    def __post_init__(self) -> None:
        kinds = "a mapping of what the node reads, a test case, or a text"
        of_kind("reads", self.reads, Mapping | TestCase | str, kinds)
        of_kind("answer", self.answer, bool | int | str, "a verdict, or a rating of the scale")
        text_or_none("reason", self.reason)
        if isinstance(self.reads, Mapping):
            object.__setattr__(self, "reads", dict(self.reads))

    def values(self, fields: Sequence[str], only: str | None = None) -> list[tuple[str, Any]]:
        """The values that it shows to a node that reads these `fields`, in the order of prompts.

        `only` is the name of a text, where the node reads one thing.
        """
        if isinstance(self.reads, str):
            return [(only or _TEXT, self.reads)]
        values = self.reads
        if not isinstance(values, Mapping):
            values = {path: read_field(values, path) for path in fields}
        shown = [(str(name), value) for name, value in values.items() if value is not None]
        return sorted(shown, key=lambda pair: canonical_place(pair[0]))


def examples_given(given: Any) -> tuple[Example, ...]:
    """The `examples` of a constructor; raises InputError for anything but a list of examples."""
    if isinstance(given, Example | str | Mapping | LLMTestCase) or not isinstance(given, Iterable):
        raise InputError(f"examples= takes a list: [Example(…, True), …]; got {given!r:.80}")
    examples = tuple(given)
    for number, example in enumerate(examples, 1):
        if not isinstance(example, Example):
            raise InputError(
                f"examples= takes Example(what the node reads, answer); number {number} is "
                f"{example!r:.80}"
            )
    return examples


@dataclass(frozen=True, slots=True)
class SolvedExamples:
    """The examples of a node that reads these `fields`, or `only` one thing of that name.

    `answer` is what it answers with: a verdict or a rating.
    """

    examples: tuple[Example, ...]
    fields: tuple[str, ...]
    only: str | None
    answer: str

    def evidence(self) -> list[Evidence]:
        """The examples as pieces of a prompt, in the order in which they were given."""
        pieces: list[Evidence] = []
        for name, parts in self._parts():
            for piece in chain.from_iterable(starmap(evidence_of, parts)):
                pieces.append(Evidence(f"{name}, {piece.label}", piece.text))
        return pieces

    def material(self) -> tuple[tuple[str, Any], ...]:
        """The examples as material of a decision."""
        named = self._parts()
        return tuple((name, {k: as_data(v) for k, v in parts}) for name, parts in named)

    def _parts(self) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
        """Each example by its name: what was read, the reason, and last the answer."""
        for number, example in enumerate(self.examples, 1):
            parts = example.values(self.fields, self.only)
            if example.reason:
                parts.append(("its reason", example.reason))
            parts.append((f"its {self.answer}", example.answer))
            yield solved_name(number, len(self.examples)), parts


Unsupported = Literal["fail", "keep"]
"""What becomes of a verdict whose quotes are not in the material, also when asked again."""

DECIDED_STEP: Final = (
    "A judge examined the material by this criterion: {}\n\nIts verdict is `{}`. Give the passages "
    "that this verdict rests on."
)
"""The step that asks a judge that writes for the quotes of one that only decides."""


@dataclass(frozen=True, slots=True)
class Quotes:
    """How the verdicts of a node quote: the `quote` and `unsupported` of its constructor."""

    mode: QuoteMode
    unsupported: Unsupported = "fail"

    @classmethod
    def of(
        cls,
        quote: Any,
        unsupported: Any = "fail",
        names: tuple[str, str] = ("quote", "unsupported"),
    ) -> Quotes | None:
        """The settings as given; None without quotes. Raises InputError for any others.

        `names` are what the settings are called where they were given.
        """
        if quote is None:
            if unsupported != "fail":
                raise InputError(f"{names[1]} {unsupported!r} is for verdicts with {names[0]}")
            return None
        kinds = get_args(QuoteMode), get_args(Unsupported)
        for name, value, words in zip(names, (quote, unsupported), kinds, strict=True):
            if value not in words:
                near = did_you_mean(str(value), words)
                allowed = " or ".join(map(repr, words))
                raise InputError(f"{name} takes {allowed}, got {value!r:.60}{near and f'; {near}'}")
        return cls(quote, unsupported)

    def check(self, pieces: Iterable[Sequence[Evidence]]) -> QuoteCheck:
        """Check of an answer beside its type; of a list each verdict has its own pieces."""
        return QuoteCheck(self.mode, tuple(map(tuple, pieces)))

    @property
    def alone(self) -> type[BaseModel]:
        """The answer type of a question that asks for nothing else."""
        return QuotingOrAbsent if self.mode == "required" else Quoting

    def in_answer(
        self, answer: Answer[Any], pieces: Sequence[Sequence[Evidence]]
    ) -> tuple[tuple[Quote, ...], ...]:
        """The quotes of every verdict; raises UnsupportedQuoteError unless such verdicts are kept.

        A verdict has support if one of its quotes is in its pieces, if it says what they do not
        say, or, with `if_any`, if it quotes nothing.
        """
        quotes = quotes_in(answer.value, pieces)
        problem = self.check(pieces).support_problem(answer.value, quotes)
        if problem is not None and self.unsupported == "fail":
            raise misquoting(f"{problem}{hint(answer.value, pieces)}", answer)
        return quotes


def verdict_in(answer: BaseModel) -> Any:
    """The one verdict, or the rating, of an answer, which may be a list of one."""
    (judged,) = judgements_in(answer)
    return judged.verdict if hasattr(judged, "verdict") else judged.score


def sources_in_words(pieces: Iterable[Evidence], whole: bool) -> str:
    """Sources of quotes in the words of the step: the same for every case."""
    if whole:
        return "the material"
    fields = dict.fromkeys(field_of(piece.label) for piece in pieces)
    return " and ".join("the turns" if name == "turns" else f"`{name}`" for name in fields)
