"""Where the tokens of an answer are in its text, and which of them tell something."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final

from pydantic import BaseModel

from dagengine.prompts.thoughts import without_thoughts
from dagengine.question import Span, TokenChoice, schema_of

_BLANKS: Final = re.compile("[ \t\r\n]+")
_DECODER: Final = json.JSONDecoder()
_AFTER = 8  # tokens after an answer that servers cut off: fences, ends of turns


def token_over(place: int, raw: str, tokens: Sequence[TokenChoice]) -> TokenChoice | None:
    """The token that the character at a place of `raw` belongs to."""
    path = tokens_from(place, raw, tokens)
    return path[0] if path else None


def tokens_from(place: int, raw: str, tokens: Sequence[TokenChoice]) -> Sequence[TokenChoice]:
    """The token that the character at a place of `raw` belongs to, and those after it."""
    texts = [choice.token for choice in tokens]
    for index, (start, end) in enumerate(_spans_of(texts, raw)):
        if start <= place < end:
            return tokens[index:]
    return ()


def telling(raw: str, texts: Sequence[str], answer_type: type[BaseModel]) -> Collection[int]:
    """The numbers of the tokens whose alternatives say how sure the answer is.

    These are the tokens that state a number, a verdict or a label, not those of a reason. So is
    the token after a number that may have two digits: it says how likely a longer one was. All of
    them where the answer is not a JSON object, or not what the tokens spell.
    """
    fields = schema_of(answer_type).get("properties", {})
    places: list[Span] = []
    for name, (first, last) in value_spans(raw).items():
        shape = fields.get(name) or {}
        if shape.get("type") == "string" and not {"enum", "const"} & shape.keys():
            continue  # prose
        ends = shape.get("minimum", -10), shape.get("maximum", 10)
        goes_on = shape.get("type") == "integer" and max(map(abs, ends)) >= 10
        places.append((first, last + goes_on))
    spans = _spans_of(texts, raw)
    if not places or not spans:
        return range(len(texts))
    return {
        index
        for first, last in places
        for index, (start, end) in enumerate(spans)
        if start < last and first < end
    }


def value_span(raw: str, field: str) -> Span | None:
    """Where the value of a top-level `field` is in a JSON object's text, without quotes."""
    return value_spans(raw).get(field)


@lru_cache(maxsize=8)  # an answer is looked into several times, one answer after the other
def value_spans(raw: str) -> Mapping[str, Span]:
    """Where the value of every top-level field of an object stands; nothing without an object.

    Thoughts, a fence or a sentence may be before it.
    """
    spans: dict[str, Span] = {}
    place = (raw if raw.lstrip().startswith("{") else without_thoughts(raw)).find("{")
    if place < 0:
        return {}
    try:
        place = _after_blanks(raw, place + 1)
        while not raw.startswith("}", place):
            name, place = _DECODER.raw_decode(raw, place)
            place = _after_blanks(raw, place)
            start = _after_blanks(raw, place + 1)
            _, place = _DECODER.raw_decode(raw, start)
            quotes = int(raw.startswith('"', start))
            # Written twice, the last one counts, as for the parser.
            spans[name] = start + quotes, place - quotes
            place = _after_blanks(raw, place)
            if not raw.startswith(",", place):
                break
            place = _after_blanks(raw, place + 1)
    except json.JSONDecodeError:
        return {}
    return spans


def _spans_of(texts: Sequence[str], raw: str) -> list[Span]:
    """Where every token starts and ends in the answer; nothing if they do not spell it."""
    # Some servers trim the answer but not its tokens (blanks, a code fence, an end token).
    # The last such place: thinking that the server cut out may hold a draft of the answer.
    before = "".join(texts).rfind(raw)
    if before < 0:
        return _spans_from_the_end(texts, raw)
    return list(pairwise(accumulate(map(len, texts), initial=-before)))


def _spans_from_the_end(texts: Sequence[str], raw: str) -> list[Span]:
    """The spans of the last tokens, as far as they spell the end of the answer; nothing for none.

    A character in the reason that two tokens share is shown as a sign in its place. The verdict
    comes after it. Before the first token that does not fit, tokens get the span of nothing.
    """
    last = len(texts)
    while last > max(0, len(texts) - _AFTER) and not (
        texts[last - 1] and raw.endswith(texts[last - 1])
    ):
        last -= 1
    end, spans = len(raw), [(0, 0)] * len(texts)
    for index in range(last - 1, -1, -1):
        text = texts[index]
        if not raw.endswith(text, 0, end):
            break
        spans[index] = (end - len(text), end)
        end -= len(text)
    return spans if end < len(raw) else []


def _after_blanks(text: str, place: int) -> int:
    blanks = _BLANKS.match(text, place)
    return place if blanks is None else blanks.end()
