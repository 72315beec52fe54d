"""Whether the quotes of an answer stand where it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from dagengine.prompts.evidence import Evidence
from dagengine.prompts.quotes.answers import Quote, QuotedText, QuoteMode, has_support
from dagengine.prompts.quotes.matching import fold, nearly, quote_places

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
        pieces = pieces_for(verdict, self.pieces)
        problems = (quote_problem(quote, pieces) for quote in verdict.quotes)
        problem = next(filter(None, problems), None)
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


def quote_problem(quote: QuotedText, pieces: Sequence[Evidence]) -> str | None:
    """Why a quote does not count; None if it does."""
    words = f"{quote.text[:_SHOWN]!r}"
    candidates = _pieces_named(quote.piece, pieces)
    if quote.piece.strip() and not candidates:
        names = ", ".join(f"`{piece.label}`" for piece in pieces[:_NAMES])
        return f"no piece that may be quoted is called {quote.piece[:_SHOWN]!r}; there is {names}"
    if _locate(quote, candidates or pieces) is not None:
        return None
    elsewhere = _locate(quote, pieces)
    where = f"`{candidates[0].label}`" if candidates else "the material that may be quoted"
    if elsewhere is not None:
        return f"the quote {words} is not in {where}, but in `{elsewhere.piece}`"
    return f"the quote {words} is not in {where}, word for word"


def quotes_in(
    answer: BaseModel, pieces: Sequence[Sequence[Evidence]]
) -> tuple[tuple[Quote, ...], ...]:
    """The quotes of every verdict of an answer, with the places where they stand."""
    located: list[tuple[Quote, ...]] = []
    for verdict in judgements_in(answer):
        own, quotes = pieces_for(verdict, pieces), list[Quote]()
        for quote in verdict.quotes:
            # A quote that names no piece is looked for in all; one that names a wrong one in none.
            candidates = _pieces_named(quote.piece, own)
            stated = bool(quote.piece.strip())
            placed = _locate(quote, candidates if stated else own)
            label = candidates[0].label if candidates else quote.piece
            quotes.append(placed or Quote(quote.text, label))
        absent = getattr(verdict, "absent", "").strip()
        if absent and not verdict.quotes:
            quotes.append(Quote(absent, absent=True))
        located.append(tuple(quotes))
    return tuple(located)


def judgements_in(answer: BaseModel) -> list[Any]:
    """The verdicts of an answer, each with its quotes: those of a list, or the answer itself."""
    verdicts: list[Any] = getattr(answer, "verdicts", [answer])
    return verdicts


def pieces_for(verdict: Any, pieces: Sequence[Sequence[Evidence]]) -> Sequence[Evidence]:
    """Pieces that a verdict may quote: that of a list, the pieces at its number."""
    return pieces[getattr(verdict, "number", 1) - 1]


def _pieces_named(piece: str, pieces: Sequence[Evidence]) -> list[Evidence]:
    """The piece that a judge names; models leave out marks and case.

    Where only one may be quoted, no other is meant.
    """
    if len(pieces) == 1:
        return list(pieces)
    label = _plain(piece)
    return [candidate for candidate in pieces if _plain(candidate.label) == label][:1]


def _plain(label: str) -> str:
    return " ".join(label.removeprefix("BEGIN ").split()).strip("`\"'<>").casefold()


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
        own = pieces_for(verdict, pieces)
        for quote in verdict.quotes:
            if _locate(quote, own) is None:
                near = next(filter(None, (nearly(quote.text, piece.text) for piece in own)), None)
                return f"; nearest is {near[:_SHOWN]!r}" if near else ""
    return ""
