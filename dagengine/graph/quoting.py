"""Nodes whose verdicts quote the material, and what becomes of verdicts without support."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel

from dagengine.errors import InputError, did_you_mean
from dagengine.prompts.evidence import Evidence, field_of
from dagengine.prompts.quotes.answers import Quote, QuoteMode, Quoting, QuotingOrAbsent
from dagengine.prompts.quotes.checking import QuoteCheck, hint, judgements_in, quotes_in
from dagengine.question import Answer, misquoting

Unsupported = Literal["fail", "keep"]
"""What becomes of a verdict whose quotes are not in the material, also when asked again."""

_DECIDED: Final = (
    "A judge examined the material by this criterion: {criteria}\n\nIts verdict is {verdict}. Give "
    "the passages that this verdict rests on."
)


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
        for name, value, kind in zip(
            names, (quote, unsupported), (QuoteMode, Unsupported), strict=True
        ):
            words = get_args(kind)
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


def decided_step(criteria: str, verdict: Any) -> str:
    """The step that asks a judge that writes for the quotes of one that only decides."""
    return _DECIDED.format(criteria=criteria, verdict=f"`{verdict}`")


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
