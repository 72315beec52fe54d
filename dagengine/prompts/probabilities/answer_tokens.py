"""Where the tokens of an answer are in its text, and which of them tell something."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Final

from pydantic import BaseModel

from dagengine.prompts.thinking import without_thoughts
from dagengine.question import Span, TokenChoice, schema_of

_BLANKS: Final = re.compile("[ \t\r\n]+")
_DECODER: Final = json.JSONDecoder()
_AFTER = 8  # tokens after an answer that servers cut off: fences, ends of turns


def token_over(offset: int, raw: str, tokens: Sequence[TokenChoice]) -> TokenChoice | None:
    """The token that the character at an offset of `raw` belongs to."""
    return next(iter(tokens_from(offset, raw, tokens)), None)


def tokens_from(offset: int, raw: str, tokens: Sequence[TokenChoice]) -> Sequence[TokenChoice]:
    """The token that the character at an offset of `raw` belongs to, and those after it."""
    texts = list(map(attrgetter("token"), tokens))
    for index, (start, end) in enumerate(_spans_of(texts, raw)):
        if start <= offset < end:
            return tokens[index:]
    return ()


def telling_tokens(raw: str, texts: Sequence[str], answer_type: type[BaseModel]) -> Collection[int]:
    """The numbers of the tokens whose alternatives say how sure the answer is.

    These are the tokens that state a number, a verdict or a label, not those of a reason. So is
    the token after a number that may have two digits: it says how likely a longer one was. All of
    them where the answer is not a JSON object, or not what the tokens spell.
    """
    fields = schema_of(answer_type).get("properties", {})
    values: list[Span] = []
    for name, (start, end) in value_spans(raw).items():
        shape = fields.get(name) or {}
        if shape.get("type") == "string" and not {"enum", "const"} & shape.keys():
            continue  # prose
        ends = shape.get("minimum", -10), shape.get("maximum", 10)
        goes_on = shape.get("type") == "integer" and max(map(abs, ends)) >= 10
        values.append((start, end + goes_on))
    spans = _spans_of(texts, raw)
    if not values or not spans:
        return range(len(texts))
    indices = set[int]()
    for start, end in values:
        parts = enumerate(spans)
        indices |= {index for index, (begin, stop) in parts if begin < end and start < stop}
    return indices


def value_span(raw: str, field: str) -> Span | None:
    """Span of the value of a top-level `field` in a JSON object's text, without quotes."""
    return value_spans(raw).get(field)


@lru_cache(maxsize=8)  # an answer is looked into several times, one answer after the other
def value_spans(raw: str) -> Mapping[str, Span]:
    """Span of the value of every top-level field of an object; nothing without an object.

    Thoughts, a fence or a sentence may be before it.
    """
    spans: dict[str, Span] = {}
    offset = (raw if raw.lstrip().startswith("{") else without_thoughts(raw)).find("{")
    if offset < 0:
        return {}
    try:
        offset = _after_blanks(raw, offset + 1)
        while not raw.startswith("}", offset):
            name, offset = _DECODER.raw_decode(raw, offset)
            offset = _after_blanks(raw, offset)
            start = _after_blanks(raw, offset + 1)
            _, offset = _DECODER.raw_decode(raw, start)
            quotes = int(raw.startswith('"', start))
            # Written twice, the last one counts, as for the parser.
            spans[name] = start + quotes, offset - quotes
            offset = _after_blanks(raw, offset)
            if not raw.startswith(",", offset):
                break
            offset = _after_blanks(raw, offset + 1)
    except json.JSONDecodeError:
        return {}
    return spans


def _spans_of(texts: Sequence[str], raw: str) -> list[Span]:
    """Span of every token in the answer; nothing if they do not spell it."""
    # Some servers trim the answer but not its tokens (blanks, a code fence, an end token).
    # The last such place: thinking that the server cut out may hold a draft of the answer.
    offset = "".join(texts).rfind(raw)
    if offset < 0:
        return _spans_from_the_end(texts, raw)
    return list(pairwise(accumulate(map(len, texts), initial=-offset)))


def _spans_from_the_end(texts: Sequence[str], raw: str) -> list[Span]:
    """The spans of the last tokens, as far as they spell the end of the answer; nothing for none.

    A character in the reason that two tokens share is shown as a sign in its place. The verdict
    comes after it. Before the first token that does not fit, tokens get the span of nothing.
    """
    count = len(texts)
    while count > max(0, len(texts) - _AFTER) and not (
        texts[count - 1] and raw.endswith(texts[count - 1])
    ):
        count -= 1
    end, spans = len(raw), [(0, 0)] * len(texts)
    for index in range(count - 1, -1, -1):
        text = texts[index]
        if not raw.endswith(text, 0, end):
            break
        spans[index] = (end - len(text), end)
        end -= len(text)
    return spans if end < len(raw) else []


def _after_blanks(text: str, offset: int) -> int:
    blanks = _BLANKS.match(text, offset)
    return offset if blanks is None else blanks.end()
