"""Judged text: as evidence blocks between fences that it cannot close, and its sentences.

Judged text is untrusted. It goes between fences that it cannot contain, in the user message. A
single pass fills it in, so that nothing inside it is ever expanded. A piece has the same name and
the same place whoever asks, so that the questions about a case begin alike.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import BaseModel

from dagengine.test_case import SHOWN_OF_SPAN, LLMTestCase, Span, Turn

_SHORTEST, _RUN, _WIDEST, _DIGITS = "<<<", re.compile("<{3,}"), 32, 16
BETWEEN = "\n\n"


_TURN = re.compile(r"\w+ turn \d+\b")
_ITEM = re.compile(r" \((?:\d+ of \d+|empty list)\)$")
# The segmenter takes UTF-8, in which lone surrogates, as real text may hold them, have no form.
_SURROGATES = re.compile("[\ud800-\udfff]")
_LIST_NUMBER = re.compile(r"(?:\d{1,3}\.)+ ")
_PLAIN = (str, int, float, type(None))  # a union is put together again for every look
UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Characters of scripts that write no blanks between words, as a class of characters has them."""
WORD: Final = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
"""A word; in scripts without blanks between words each character counts as one."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One labelled piece of text that a question is about."""

    label: str
    text: str


def as_text(value: Any) -> str:
    """A value as a prompt shows it: text as it is, lists line by line, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(map(_item_text, value))
    return _json(value)


def _item_text(item: Any) -> str:
    return item if isinstance(item, str) else _json(item)


def as_data(value: Any) -> Any:
    """A value as plain data (text, numbers, lists and dicts), as its JSON would be read."""
    if isinstance(value, _PLAIN):
        return value
    return json.loads(_json(value))


def _jsonable(value: Any) -> Any:
    """Encode a value without a JSON form; never by anything that differs between processes.

    Of a turn or a whole case only what was said: the rest may hold labels and references,
    and is read by naming it (`turns.0.retrieval_context`).
    """
    if isinstance(value, Turn):
        return {"role": value.role, "content": value.content}
    if isinstance(value, LLMTestCase):
        return {"input": value.input, "actual_output": value.actual_output}
    if isinstance(value, Span):
        return value.model_dump(exclude_none=True, include=set(SHOWN_OF_SPAN))
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)


_JSON = json.JSONEncoder(ensure_ascii=False, default=_jsonable)
_json = _JSON.encode


# The fields of a case that are long and read by most questions come first: what questions share is
# then the beginning of their prompts. Other fields follow by name.
_ORDER = ("retrieval_context", "context", "turns", "actual_output", "expected_output", "input")
_INDICES: dict[str, int] = dict(zip(_ORDER, itertools.count()))


def canonical_place(path: str) -> tuple[int, str]:
    """Sort key of the fields of a case, the same for all readers."""
    return _INDICES.get(path.partition(".")[0], len(_ORDER)), path


def evidence_of(label: str, value: Any, names: Sequence[str] | None = None) -> tuple[Evidence, ...]:
    """A value as evidence blocks: a list becomes one block per item.

    Numbering inside a single block could be forged by an item that contains a number. Turns are
    called by their roles, or by `names` where they are part of a conversation.
    """
    if isinstance(value, list | tuple):
        count = len(value)
        if not count:
            return (Evidence(f"{label} (empty list)", ""),)
        if isinstance(value[0], Turn):
            # Only what was said: a turn's metadata may hold labels and references.
            turns = zip(names or turn_names(value), value, strict=True)
            return tuple(Evidence(name, turn.content) for name, turn in turns)
        names = [numbered_name(label, number, count) for number in range(1, count + 1)]
        return tuple(map(Evidence, names, map(_item_text, value)))
    return (Evidence(label, as_text(value)),)


def field_of(label: str) -> str:
    """The field of the case that a piece of evidence is of, if it is of one."""
    return "turns" if _TURN.match(label) else _ITEM.sub("", label)


def numbered_name(label: str, number: int, count: int) -> str:
    """Name of an item of a list in prompts, counted from 1."""
    return f"{label} ({number} of {count})"


def turn_names(turns: Iterable[Turn]) -> list[str]:
    """Names of the turns in prompts and reasons: "user turn 1", "assistant turn 1", …"""
    counts: Counter[str] = Counter()
    names: list[str] = []
    for turn in turns:
        counts[turn.role] += 1
        names.append(f"{turn.role} turn {counts[turn.role]}")
    return names


def names_in(whole: Iterable[Turn], turns: Sequence[Turn]) -> list[str]:
    """Names of turns within their whole conversation; of other turns, by themselves."""
    whole = list(whole)
    # By identity, not by equality: two turns may say the same words ("Thanks!").
    names = dict(zip(map(id, whole), turn_names(whole), strict=True))
    whole_names = [names[id(turn)] for turn in turns if id(turn) in names]
    return whole_names if len(whole_names) == len(turns) else turn_names(turns)


def fence(evidence: Sequence[Evidence], beside: str = "") -> str:
    """Evidence between fences long enough that no text contains or closes one.

    Where that would take very long fences they carry a digest of all the texts instead,
    which no text can contain. `beside` is what a prompt says outside of the fences.
    """
    texts = [text for piece in evidence for text in (piece.text, piece.label)]
    runs = (run for text in (*texts, beside) if _SHORTEST in text for run in _RUN.findall(text))
    longest = max(map(len, runs), default=0)
    width = min(max(3, longest + 1), _WIDEST)
    mark = ""
    if longest >= _WIDEST:
        every = "\0".join(texts).encode(errors="surrogatepass")
        mark = f" {hashlib.sha256(every).hexdigest()[:_DIGITS]}"
    opening, closing = "<" * width, f"{mark}{'>' * width}"
    blocks = (
        f"{opening}BEGIN {piece.label}{closing}\n{piece.text}\n{opening}END {piece.label}{closing}"
        for piece in evidence
    )
    return BETWEEN.join(blocks)


def unfence(text: str) -> list[Evidence]:
    """The evidence that `fence` made, before a step or alone; ValueError for any other text."""
    return split_evidence(text)[0]


def split_evidence(text: str) -> tuple[list[Evidence], str]:
    """The evidence that a text begins with, and the rest; ValueError if `fence` did not make it."""
    width = len(text) - len(text.lstrip("<"))
    readings: tuple[Callable[[str, int], list[Evidence]], ...] = (_by_width, _by_digest)
    for end in _ends(text, width) if width else ():
        step = text[end:].removeprefix(BETWEEN)
        for reading in readings:
            evidence = reading(text[:end], width)
            if fence(evidence, step) == text[:end]:
                return evidence, step
    if text:
        raise ValueError("the text is not evidence between fences")
    return [], ""


def _ends(text: str, width: int) -> Iterator[int]:
    """Offsets at which the last fence may end: no step has a run as long as its left mark."""
    if text.endswith(">" * width):
        yield len(text)
    offset = text.rfind(f"{'<' * width}END ")  # -1 leaves one character, where nothing matches
    for match in re.finditer(f">{{{width}}}(?={BETWEEN})", text[offset:]):
        yield offset + match.end()


def _by_width(text: str, width: int) -> list[Evidence]:
    """Between the left marks, which no label or text contains."""
    _, *parts = text.split("<" * width)
    evidence: list[Evidence] = []
    for begin, end in zip(parts[::2], parts[1::2], strict=False):
        label = end.removesuffix("\n\n")[len("END ") : -width]
        evidence.append(Evidence(label, begin[len("BEGIN ") + len(label) + width + 1 : -1]))
    return evidence


def _by_digest(text: str, width: int) -> list[Evidence]:
    """Between the right marks with the digest, which no label or text contains."""
    parts = text.split(text[-width - _DIGITS - 1 :])
    evidence: list[Evidence] = []
    for begin, end in zip(parts[::2], parts[1::2], strict=False):
        label = begin.removeprefix("\n\n")[width + len("BEGIN ") :]
        evidence.append(Evidence(label, end[1 : -len(f"\nEND {label}") - width]))
    return evidence


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, each on one line.

    A line ends a sentence unless the next one begins with a small letter, as a wrapped line
    does. Within lines `sentencex` decides (Wikimedia's segmenter; abbreviations, initials
    and numbers such as "No. 5" end none). What has no letter or digit is left out.
    """
    import sentencex

    segment: Any = cast(Any, sentencex).segment  # a compiled module without types
    lines: list[list[str]] = []
    for line in _SURROGATES.sub("\ufffd", text).splitlines():
        plain = " ".join(line.split())
        if lines and plain[:1].islower():
            lines[-1].append(plain)
        else:
            lines.append([plain])
    pieces: list[str] = []
    for line in map(" ".join, lines):
        # The number of a list item stays with the item: alone it would be a sentence.
        number = _LIST_NUMBER.match(line)
        start = number.end() if number else 0
        parts = list(map(str.strip, segment("en", line[start:])))
        pieces += [line[:start] + part for part in parts[:1]] + parts[1:]
    return list(filter(says_something, pieces))


def says_something(text: str) -> bool:
    """Return whether a text has a letter or a digit, and so at least one sentence."""
    return any(map(str.isalnum, text))
