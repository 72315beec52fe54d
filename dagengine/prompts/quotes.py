"""Quotes that a verdict stands on: how a judge is asked for them, and whether they are true.

Quote and text are compared in the form NFKD, without invisible characters. Any run of white space
is one blank, any run of quotation marks one mark, any run of dashes one dash. Upper and lower case
count. One ellipsis in a quote stands for words that were left out: both parts are looked for, in
their order. A short quote has to begin and end where words do.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from dagengine.prompts.evidence import UNSPACED, Evidence
from dagengine.question import LocatingParser, Parser, Span
from dagengine.system.terminal_text import text_if

QuoteMode = Literal["required", "if_any"]
"""Whether every verdict needs a quote (or says what the material lacks), or may do without."""

MOST: Final = 3
"""Quotes of one verdict."""
_WORDS, _NAME = 300, 200  # characters of a quote, and of the name of its piece


@dataclass(frozen=True, slots=True)
class Quote:
    """Words that a verdict stands on.

    `piece` is what the prompt calls the text that they are from, for instance `actual_output` or
    `retrieval_context (2 of 3)`. `places` are the first and the last position (excluded) of each
    part of the quote in that text, in characters; empty for words that the piece does not have.
    With `absent`, `text` says in the judge's words what the material does not say.
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
        return {"text": self.text, "piece": self.piece, "places": list(map(list, self.places))}


def has_support(quotes: Sequence[Quote], mode: QuoteMode) -> bool:
    """Return whether a verdict has a true quote, a named absence or, with `if_any`, no quotes."""
    stands = any(quote.absent or quote.is_supported for quote in quotes)
    return stands or (not quotes and mode == "if_any")


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
    quotes = list[Any]()
    for quote in value if isinstance(value, list) else [value]:
        match quote:
            case str():
                quotes.append({"piece": "", "text": quote})
            case Mapping():
                quotes.append({"piece": "", **quote})
            case _ if value is not None:
                quotes.append(quote)
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
    """Words of a step about quotes from `sources`, for `each` verdict, in prose `as_lines`."""
    how = _HOW.format(
        verdict="each verdict" if each else "the verdict", most=MOST, words=_WORDS, sources=sources
    )
    return how + _NOTHING[mode] + text_if(as_lines, _LINES[mode])


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


_SHOWN, _NAMES = 120, 12


@dataclass(frozen=True, slots=True)
class QuoteCheck:
    """Whether an answer may stand: what its quotes lack, in words for the judge.

    `pieces` may be quoted; of a list of verdicts each has its own.
    """

    mode: QuoteMode
    pieces: tuple[tuple[Evidence, ...], ...]

    def __call__(self, answer: BaseModel) -> str | None:
        """Message about the first faulty quotes of an answer; None if all are true."""
        return next(filter(None, map(self._problem, judgements_in(answer))), None)

    def _problem(self, verdict: Any) -> str | None:
        """Message about the quotes of one verdict; of several, with its number."""
        find_problem = partial(_problem_of, pieces=_pieces_for(verdict, self.pieces))
        problem = next(filter(None, map(find_problem, verdict.quotes)), None)
        if not verdict.quotes and self.mode == "required" and not verdict.absent.strip():
            problem = "it quotes nothing, and does not name what the material does not say"
        if problem is not None and len(self.pieces) > 1:
            return f"verdict {verdict.number}: {problem}"
        return problem

    def support_problem(self, answer: BaseModel, quotes: Sequence[Sequence[Quote]]) -> str | None:
        """Why a verdict of an answer has no support at all; None if each has some."""
        for verdict, own in zip(judgements_in(answer), quotes, strict=True):
            if not has_support(own, self.mode):
                return self._problem(verdict)
        return None


def _problem_of(quote: QuotedText, pieces: Sequence[Evidence]) -> str | None:
    """Why a quote does not count; None if it does."""
    located = _locate_as_named(quote, pieces)
    if located.is_supported:
        return None
    labels = list(map(attrgetter("label"), pieces))
    where = "the material that may be quoted"
    if located.piece in labels:
        where = f"`{located.piece}`"
    elif quote.piece.strip():
        names = "`, `".join(labels[:_NAMES])
        return f"no piece that may be quoted is called {quote.piece[:_SHOWN]!r}; there is `{names}`"
    elsewhere = _locate(quote, pieces)
    truth = "word for word" if elsewhere is None else f"but in `{elsewhere.piece}`"
    return f"the quote {quote.text[:_SHOWN]!r} is not in {where}, {truth}"


def quotes_in(
    answer: BaseModel, pieces: Sequence[Sequence[Evidence]]
) -> tuple[tuple[Quote, ...], ...]:
    """The quotes of every verdict of an answer, with the places where they stand."""
    located: list[tuple[Quote, ...]] = []
    for verdict in judgements_in(answer):
        find = partial(_locate_as_named, pieces=_pieces_for(verdict, pieces))
        quotes = tuple(map(find, verdict.quotes))
        absent = getattr(verdict, "absent", "").strip()
        if absent and not quotes:
            quotes = (Quote(absent, absent=True),)
        located.append(quotes)
    return tuple(located)


def judgements_in(answer: BaseModel) -> list[Any]:
    """The verdicts of an answer, each with its quotes: those of a list, or the answer itself."""
    verdicts: list[Any] = getattr(answer, "verdicts", [answer])
    return verdicts


def _pieces_for(verdict: Any, pieces: Sequence[Sequence[Evidence]]) -> Sequence[Evidence]:
    """Pieces that a verdict may quote: that of a list, the pieces at its number."""
    return pieces[getattr(verdict, "number", 1) - 1]


def _plain_label(label: str) -> str:
    return " ".join(label.removeprefix("BEGIN ").split()).strip("`\"'<>").casefold()


def _locate_as_named(quote: QuotedText, pieces: Sequence[Evidence]) -> Quote:
    """The quote with its places in the piece that it names; in any piece if it names none.

    Models leave out marks and case. Where only one piece may be quoted, no other is meant.
    """
    label = quote.piece
    if len(pieces) == 1:
        label = pieces[0].label
    elif label.strip():
        plain = _plain_label(label)
        pieces = [piece for piece in pieces if _plain_label(piece.label) == plain][:1]
        label = next(map(attrgetter("label"), pieces), label)
    return _locate(quote, pieces) or Quote(quote.text, label)


def _locate(quote: QuotedText, pieces: Sequence[Evidence]) -> Quote | None:
    """The quote with its places in the first of the pieces that has it."""
    for piece in pieces:
        spans = quote_places(quote.text, fold(piece.text))
        if spans:
            return Quote(quote.text, piece.label, spans)
    return None


def hint(answer: BaseModel, pieces: Sequence[Sequence[Evidence]]) -> str:
    """Text nearest to the first untrue quote, for people; empty if nothing is near."""
    for verdict in judgements_in(answer):
        own = _pieces_for(verdict, pieces)
        for quote in verdict.quotes:
            if _locate(quote, own) is None:
                nearest = map(partial(nearly, quote.text), map(attrgetter("text"), own))
                near = next(filter(None, nearest), "")
                return near and f"; nearest is {near[:_SHOWN]!r}"
    return ""


# What is its own normal form, and part of no run: most of ASCII, with single blanks in between,
# and Chinese characters.
_SELF: Final = r"[!#-&(-,./0-_a-~\u4e00-\u9fff]+"
_PLAIN: Final = re.compile(rf"{_SELF}(?: {_SELF})*")
_ELLIPSIS: Final = re.compile(r"[\[(]\s*(?:…|\.{3,})\s*[\])]|…|\.{3,}|(?:\. ){2,}\.")
_MARKS: Final = frozenset("\"'`´‘’‚‛“”„‟«»‹›′″‴‵‶「」『』＂＇")  # noqa: RUF001
_MARK, _DASH, _BLANK = "'", "-", " "
_RUNS: Final = frozenset((_MARK, _DASH, _BLANK))
_EDGE: Final = f"{_MARK}{_BLANK}"
_PARTS: Final = 2
_SHORT: Final = 20
"""Characters below which a quote has to begin and end where words do."""
_HINTED: Final = 1_000
"""Characters up to which a quote that stands nowhere is compared with all of the material."""
_LEAST: Final = 2
"""Letters and digits that each of two parts has at least."""
_TRIES: Final = 100_000
"""Places that are tried for a part: there may be a million in a text made for it."""
_UNSPACED: Final = re.compile(f"[{UNSPACED}]")


@dataclass(frozen=True, slots=True)
class Folded:
    """A text as quotes are compared with it.

    `starts` and `ends` say for every character of `plain` which part of the text it is made of.
    """

    plain: str
    starts: array[int]
    ends: array[int]


@lru_cache(maxsize=8)
def fold(text: str) -> Folded:
    """A text in the form in which quotes are looked for; takes time in proportion to its length."""
    plain: list[str] = []
    starts, ends = array("I"), array("I")
    previous = ""
    for start, end, form in _pieces(text):
        if form is None:  # plain characters, each of them one
            plain.append(text[start:end])
            starts.extend(range(start, end))
            ends.extend(range(start + 1, end + 1))
            previous = ""
            continue
        for character in form:
            if character == previous and character in _RUNS:
                ends[-1] = end
                continue
            plain.append(character)
            starts.append(start)
            ends.append(end)
            previous = character
    return Folded("".join(plain), starts, ends)


def _pieces(text: str) -> Iterator[tuple[int, int, str | None]]:
    """The parts of a text that are normalised by themselves: a character and what combines with it.

    The form is None for a run of plain characters.
    """
    position, size = 0, len(text)
    while position < size:
        match = _PLAIN.match(text, position)
        end = match.end() if match else position
        if end < size and _combines(text[end]):
            end = max(end - 1, position)  # the last one is not plain
        if end > position:
            yield position, end, None
        if end == size:
            return
        position = end + 1
        while position < size and _combines(text[position]):
            position += 1
        yield end, position, _form(text[end:position])


@lru_cache(maxsize=4096)
def _combines(character: str) -> bool:
    """Return whether a character belongs to the one before it."""
    if character < "\u0300":
        return False
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0


@lru_cache(maxsize=4096)
def _form(cluster: str) -> str:
    """The form of one character with what combines with it; empty if it cannot be seen."""
    if cluster[0] in _MARKS:  # some of them decompose into a blank and an accent
        cluster = _MARK + cluster[1:]
    return "".join(map(_single, unicodedata.normalize("NFKD", cluster)))


def _single(character: str) -> str:
    """The form of one decomposed character."""
    kind = unicodedata.category(character)
    if character.isspace() or kind == "Cc":
        return _BLANK
    if kind == "Cf" or "\ufe00" <= character <= "\ufe0f" or character >= "\U000e0100":
        return ""
    if character in _MARKS:
        return _MARK
    return _DASH if kind == "Pd" or character == "−" else character  # noqa: RUF001


def quote_parts(quote: str) -> tuple[str, ...]:
    """The parts of a quote in the form in which they are looked for; empty if it quotes nothing."""
    parts = [fold(part).plain.strip(_EDGE) for part in _ELLIPSIS.split(quote)]
    nonempty = tuple(filter(None, parts))
    least = min(len(nonempty), _LEAST)
    sizes = (sum(map(str.isalnum, part)) for part in nonempty)
    return nonempty if len(nonempty) <= _PARTS and min(sizes, default=0) >= least else ()


def quote_places(quote: str, text: Folded) -> tuple[Span, ...]:
    """Spans of the first places in the folded text that fit the parts of a quote; or none."""
    spans: list[Span] = []
    position = 0
    for part in quote_parts(quote):
        offset = next(_occurrences(part, text, position), None)
        if offset is None:
            return ()
        position = offset + len(part)
        spans.append((text.starts[offset], text.ends[position - 1]))
    return tuple(spans)


def _occurrences(part: str, text: Folded, position: int) -> Iterator[int]:
    """Offsets of a part that is not cut out of a character, nor a short one out of a word."""
    plain, starts, size = text.plain, text.starts, len(part)
    offset = plain.find(part, position)
    for _ in range(_TRIES):
        if offset < 0:
            return
        end = offset + size
        cut = (offset > 0 and starts[offset - 1] == starts[offset]) or (
            end < len(plain) and starts[end] == starts[end - 1]
        )
        # A short quote ("is") stands inside of many words ("this") that it was not taken from.
        inside = size < _SHORT and (
            (offset > 0 and _in_one_word(plain[offset - 1], plain[offset]))
            or (end < len(plain) and _in_one_word(plain[end - 1], plain[end]))
        )
        if not cut and not inside:
            yield offset
        offset = plain.find(part, offset + 1)


def _in_one_word(first: str, second: str) -> bool:
    """Return whether two characters next to each other are of one word."""
    if not (first.isalnum() and second.isalnum()):
        return False
    return not (_UNSPACED.match(first) or _UNSPACED.match(second))


def nearly(quote: str, text: str) -> str | None:
    """The words of a text that a quote is nearest to; None if nothing is near.

    Only a hint for people, so it needs the optional package `rapidfuzz`; None without it. Its time
    grows with the product of both lengths, so that a long quote gets none.
    """
    if len(quote) > _HINTED:
        return None
    try:
        from rapidfuzz import fuzz
    except ImportError:
        return None
    # Above 80 of 100 a quote differs in about one character of five.
    match = fuzz.partial_ratio_alignment(quote, text, score_cutoff=80)
    if match is None or match.dest_start == match.dest_end:
        return None
    return text[match.dest_start : match.dest_end]
