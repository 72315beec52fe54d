"""How a judge is asked for quotes, and how its answer has them: in JSON, or in lines of a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from dagengine.question import LocatingParser, Parser, Span

QuoteMode = Literal["required", "if_any"]
"""Whether every verdict needs a quote (or says what the material lacks), or may do without."""

MOST: Final = 3
"""Quotes of one verdict."""
_WORDS, _NAME = 300, 200  # characters of a quote, and of the name of its piece


@dataclass(frozen=True, slots=True)
class Quote:
    """Words that a verdict stands on.

    `piece` is what the prompt calls the text that they are from, for instance `actual_output` or
    `retrieval_context (2 of 3)`. `spans` are the first and the last position (excluded) of each
    part of the quote in that text, in characters. It is empty for words that the piece does not
    have. With `absent`, `text` says in the judge's words what the material does not say.
    """

    text: str
    piece: str = ""
    places: tuple[Span, ...] = ()
    absent: bool = False

    @property
    def is_supported(self) -> bool:
        """Return whether the words stand in the piece."""
        return bool(self.places)

    def __str__(self) -> str:
        """For people: the words, and where they are from or that they are not there."""
        if self.absent:
            return f"not said: {self.text}"
        where = f"({self.piece})" if self.is_supported else f"(NOT in {self.piece or 'the case'})"
        return f"“{self.text}” {where}"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form without the absent entries."""
        if self.absent:
            return {"text": self.text, "absent": True}
        spans = [list(span) for span in self.places]
        return {"text": self.text, "piece": self.piece, "places": spans}


def has_support(quotes: Iterable[Quote], mode: QuoteMode) -> bool:
    """Return whether a verdict with these quotes has support: one that is true, or a named absence.

    With `if_any`, one that quotes nothing has it, too.
    """
    own = tuple(quotes)
    stands = any(quote.absent or quote.is_supported for quote in own)
    return stands or (not own and mode == "if_any")


def _at_most(characters: int) -> Any:
    """A length for grammars that is not validated; the step says it in words of its own."""
    return Field(json_schema_extra={"maxLength": characters})


class QuotedText(BaseModel):
    """One quote in an answer."""

    model_config = ConfigDict(extra="ignore", frozen=True, title="Quote")
    piece: Annotated[str, _at_most(_NAME)]
    text: Annotated[str, _at_most(_WORDS)]


def _as_quotes(value: Any) -> Any:
    """A text, or one quote, where a list of quotes was asked for."""
    if value is None:
        return []
    quotes = list[Any]()
    for quote in value if isinstance(value, list) else [value]:
        fields = {"text": quote} if isinstance(quote, str) else quote
        quotes.append({"piece": "", **fields} if isinstance(fields, Mapping) else fields)
    return quotes


class Quoting(BaseModel):
    """What an answer with quotes has before its reason and its verdict.

    An answer without any is read, too: the check of the quotes says what it lacks.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)
    quotes: Annotated[list[QuotedText], Field(max_length=MOST), BeforeValidator(_as_quotes)]

    @model_validator(mode="before")
    @classmethod
    def _without_quotes(cls, answer: Any) -> Any:
        if not isinstance(answer, dict):
            return answer
        nothing = {"absent": ""} if "absent" in cls.model_fields else {}
        return {"quotes": [], **nothing, **answer}


class QuotingOrAbsent(Quoting):
    """Quotes, or what the material does not say."""

    absent: Annotated[str, BeforeValidator(lambda value: value or ""), _at_most(_NAME)]


@cache
def quoted_type(answer_type: type[BaseModel], mode: QuoteMode) -> type[BaseModel]:
    """An answer type with its quotes before everything else."""
    base = {"required": QuotingOrAbsent}.get(mode, Quoting)
    # Fields of the last base come first.
    return create_model(answer_type.__name__, __base__=(answer_type, base))


_HOW = (
    "Quote what {verdict} rests on before you give it: at most {most} passages of the material, "
    "each of at most {words} characters, word for word, with the name of its piece as the BEGIN "
    "line has it. Where you leave out words in the middle of a passage, write “…” there, once. "
    "Quote only from {sources}, and never from this step."
)
_NOTHING: Final[Mapping[QuoteMode, str]] = {
    "required": (
        " If the verdict rests on something that the material does not say, quote nothing and name "
        "in `absent` what it does not say."
    ),
    "if_any": " If no passage shows it, quote nothing.",
}
_LINES: Final[Mapping[QuoteMode, str]] = {
    "required": (
        " Write each passage on a line of its own, as `QUOTE name of the piece: words`, and what "
        "the material does not say as `ABSENT: what`."
    ),
    "if_any": " Write each passage on a line of its own, as `QUOTE name of the piece: words`.",
}


def quoting_words(mode: QuoteMode, sources: str, *, each: bool, as_lines: bool) -> str:
    """Words of a step about quotes of its verdict, or of `each`; `sources` may be quoted.

    `as_lines` is for answers in prose, which a parser reads.
    """
    how = _HOW.format(
        verdict="each verdict" if each else "the verdict", most=MOST, words=_WORDS, sources=sources
    )
    return how + _NOTHING[mode] + (_LINES[mode] if as_lines else "")


_LINE = re.compile(
    r"^[ \t>*_`-]*(?P<kind>QUOTE|ABSENT)\b[*_`]*[ \t]*"
    r"(?P<piece>[^:\n]*?)[*_`]*:[ \t]*(?P<text>.*)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class QuotingParser:
    """Reads the lines with quotes out of a text; the rest of it is for another parser.

    That one gets blanks in their place, so a quote is never taken for the verdict, and what it
    finds is where it was.
    """

    parser: Parser

    def __call__(self, text: str, /) -> Mapping[str, Any]:
        quotes, absent = list[Any](), list[str]()
        for line in _LINE.finditer(text):
            if line["kind"] == "ABSENT":
                absent.append(line["text"].strip())
            else:
                piece = line["piece"].strip(" \t\"'`()")
                quotes.append({"piece": piece, "text": line["text"].strip()})
        missing = {"absent": " ".join(absent)} if absent else {}
        return {"quotes": quotes[:MOST], **missing, **self.parser(_blank_out(text))}

    def span(self, text: str, /) -> Span | None:
        """Span in which the other parser found the value; None if it does not say."""
        inner = self.parser
        return inner.span(_blank_out(text)) if isinstance(inner, LocatingParser) else None


def _blank_out(text: str) -> str:
    return _LINE.sub(lambda line: " " * len(line.group()), text)
