"""Cases as a record may show them: fields are hidden where they stand, and where they are quoted.

A judge quotes what it reads. So a field that is hidden in the case may occur again in reasons,
outputs of nodes, other fields and messages of failures. There every run of four words of a hidden
text is hidden, too (all of it, if it has fewer words). The case of the letters and what is between
the words do not matter. What a judge says in its own words stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from dagengine.compiler.metric_hashes import digest
from dagengine.errors import InputError
from dagengine.prompts.evidence import WORD
from dagengine.prompts.quotes import Quote
from dagengine.results import CaseResult, Failure, JudgeCall, MetricResult, Step, step_output
from dagengine.test_case import is_known_field

_OWN = ("index", "hash", "type")
_RUN = 4  # words in a row that are a quotation
_SHORT = 4  # characters from which on a text is also hidden inside of longer words


# What is text in the parts of a result: what a judge said, and what may quote a case.
_TEXTS: dict[type, tuple[str, ...]] = {
    MetricResult: ("reason", "failure", "steps"),
    Failure: ("message", "raw"),
    Step: ("output", "reason", "mode", "answers", "calls", "quotes", "item_quotes", "spans"),
    JudgeCall: ("message",),
    Quote: ("text",),
}


def case_line(row: CaseResult) -> dict[str, Any]:
    """Index, hash and type of a row's case, then its fields; absent ones are left out.

    Fields are plain data; the caller's own objects stand there as their text.
    """
    case = row.test_case
    if case is None:
        return {"index": row.index, "hash": row.hash, "type": None}
    try:
        fields = case.model_dump(exclude_none=True)
        json.dumps(fields.get("additional_metadata"), default=str)
    except (TypeError, ValueError, RecursionError):  # circles, keys that are not text
        fields = {name: step_output(value) for name, value in case if value is not None}
    return {"index": row.index, "hash": row.hash, "type": type(case).__name__, **fields}


def fields_in(line: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a case, as a line of a data set has them, from its line in a record."""
    return {name: value for name, value in line.items() if name not in _OWN}


def marker(field: str) -> str:
    """Marker in the place of a hidden field, and of its words elsewhere."""
    return f"[hidden by --redact {field}]"


@dataclass(frozen=True, slots=True)
class Hiding:
    """Hides fields, given by their paths: `input`, `additional_metadata.email`, `turns.content`.

    A path goes through lists: `turns.content` is the content of every turn. Raises InputError
    for a path to no field of a case.
    """

    fields: tuple[str, ...]

    def __post_init__(self) -> None:
        for field in self.fields:
            if not is_known_field(field):
                raise InputError(
                    f"redact {field!r}: unknown field; fields are input, actual_output, …, and a "
                    "key of an object is additional_metadata.KEY"
                )

    def hide(self, row: CaseResult) -> tuple[CaseResult, dict[str, Any]]:
        """A row and the line of its case as they may be recorded.

        The hash is that of what is shown: a hash of hidden content could be guessed. Of a row
        that was not a test case nothing is known, so its message is hidden.
        """
        line = case_line(row)
        if not self.fields:
            return row, line
        hide: Callable[[str], str] = self._all
        if row.test_case is not None:
            hidden = list[tuple[str, str]]()
            for field in self.fields:
                texts = _texts(_values_at(line, field.split(".")))
                hidden += zip(texts, repeat(marker(field)), strict=False)
            # The longest first: a short one inside it would cut it in two, and its rest would stay.
            hide = _Hider(sorted(hidden, key=lambda pair: -len(pair[0])))
        fields = fields_in(line)
        for field in self.fields:
            fields = _cover(fields, field.split("."), marker(field))
        if "tags" in self.fields and "tags" in fields:
            fields["tags"] = [fields["tags"]]  # readers and sums by tag want a list of texts
        fields = dict(zip(fields, _each(list(fields.values()), hide), strict=True))
        # Not validated again: with markers in the place of numbers it would be refused.
        hashed = line["hash"] and digest(fields)
        name, case = row.case, None
        if row.test_case is not None:
            name, case = hide(row.case), type(row.test_case).model_construct(**fields)
        metrics = tuple(_metric(metric, hide) for metric in row.metrics)
        shown = CaseResult(row.index, name, metrics, case, hashed, row.seconds)
        return shown, {**line, "hash": hashed, **fields}

    def _all(self, text: str) -> str:
        return marker(", ".join(self.fields))


class _Hider:
    """Replaces texts, and runs of their words, by their markers; the longest go first."""

    def __init__(self, hidden: Sequence[tuple[str, str]]) -> None:
        self._exact = [(text, mark) for text, mark in hidden if len(text) >= _SHORT]
        self._runs: dict[tuple[str, ...], str] = {}
        for text, mark in hidden:
            words = list(map(str.casefold, WORD.findall(text)))
            size = min(_RUN, len(words))
            for index in range(len(words) - size + 1 if size else 0):
                self._runs.setdefault(tuple(words[index : index + size]), mark)
        self._sizes = sorted(set(map(len, self._runs)), reverse=True)

    def __call__(self, text: str) -> str:
        for value, mark in self._exact:
            text = text.replace(value, mark)
        matches = list(WORD.finditer(text))
        words = [word[0].casefold() for word in matches]
        spans: list[tuple[int, int, str]] = []
        for size in self._sizes:
            for index in range(len(words) - size + 1):
                if mark := self._runs.get(tuple(words[index : index + size]), ""):
                    end = matches[index + size - 1].end()
                    spans.append((matches[index].start(), end, mark))
        # Runs of four words overlap where a longer text was quoted: together they get one mark.
        parts, end = list[str](), 0
        for start, stop, mark in sorted(spans):
            if start >= end:
                parts += [text[end:start], mark]
            end = max(end, stop)
        return "".join([*parts, text[end:]])


def _values_at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """The value at a path, in every item of the lists on the way."""
    if isinstance(value, list):
        for item in value:
            yield from _values_at(item, path)
    elif not path:
        yield value
    elif isinstance(value, dict):
        for size in range(1, len(path) + 1):  # keys may contain dots
            if (key := ".".join(path[:size])) in value:
                yield from _values_at(value[key], path[size:])


def _cover(value: Any, path: Sequence[str], mark: str) -> Any:
    """The value with a mark in the place of what is at a path."""
    if not path:
        return mark
    if isinstance(value, list):
        return [_cover(item, path, mark) for item in value]
    if not isinstance(value, dict):
        return value
    keys = {".".join(path[:size]): path[size:] for size in range(1, len(path) + 1)}
    return {k: _cover(v, keys[k], mark) if k in keys else v for k, v in value.items()}


def _texts(values: Any) -> Iterator[str]:
    """Every text in plain data, and every number as its text."""
    if isinstance(values, dict):
        for value in values.values():
            yield from _texts(value)
    elif isinstance(values, str):
        yield values
    elif isinstance(values, int | float) and not isinstance(values, bool):
        yield str(values)
    elif isinstance(values, list | Iterator):
        for value in values:
            yield from _texts(value)


def _each(value: Any, hide: Callable[[str], str]) -> Any:
    """Plain data, or a part of a result, with `hide` done to every text in it."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, tuple):
        return tuple(_each(item, hide) for item in value)
    if isinstance(value, list):
        return [_each(item, hide) for item in value]
    if names := _TEXTS.get(type(value), ()):
        return replace(value, **{name: _each(getattr(value, name), hide) for name in names})
    if isinstance(value, dict):
        return {_each(key, hide): _each(item, hide) for key, item in value.items()}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if hide(str(value)) == str(value) else hide(str(value))
    return value


def _metric(result: MetricResult, hide: Callable[[str], str]) -> MetricResult:
    shown: MetricResult = _each(result, hide)
    if shown.points is None:
        return shown
    tags = {hide(tag): pair for tag, pair in shown.points.tags.items()}
    return replace(shown, points=shown.points.model_copy(update={"tags": tags}))
