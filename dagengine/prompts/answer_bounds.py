"""How long an answer may be: the law that a server's grammar, its token limit and the prompt share.

A model under a grammar without an end may write until its window is full. So every text has a
length and every list a number of items, and the grammar closes both: a reason that is cut there
still has its verdict after it. These bounds are for grammars and prompts. They are not validated:
a judge without a grammar that writes more is taken at its word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from dagengine.question import Options, Question, schema_of

REASON: Final = 400
"""Characters of a reason."""
ITEM: Final = 300
"""Characters of a text in a list, reasons among them."""
TEXT: Final = 600
"""Characters of any other text, or as many as the question shows, whichever is more."""
ITEMS: Final = 24
"""Items of a list, or one for every 40 characters that the question shows."""
LONGEST_TEXT: Final = 20_000
"""Characters that no text has beyond."""
_PER_ITEM = 40  # characters of prose that make a statement
_PROSE = 2_000  # tokens of a text for a parser, which has no grammar
_MOST = 65_536  # tokens that no call has the time for
_MARGIN = 64  # tokens that a server may add around an answer
_NUMBER = 24  # characters of a number without limits, of a date, of an identifier
_PLAIN: dict[str, int] = dict.fromkeys(("integer", "number", "boolean", "null"), _NUMBER)
_AROUND = 12  # characters around a value: quotes, a comma, a line and its indentation


class Bounds(NamedTuple):
    """The most characters of a reason, of a text in a list and of any other text; items of a list.

    One value serves many questions, so that what is made of it is made once.
    """

    reason: int
    item: int
    text: int
    items: int


class UsualLength(int):
    """A `maxLength` in the schema of a type that the bound of a node takes the place of."""


@dataclass(frozen=True, slots=True)
class Usually:
    """Annotates a text of an answer type with a length that is not validated."""

    characters: int

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(core), "maxLength": UsualLength(self.characters)}


def bounds_of(question: Question[Any]) -> Bounds:
    """The bounds of a question's answer.

    They follow from what it shows: the list of the claims of a page is longer than that of a line.
    """
    options = question.options
    material = 0
    for message in question.messages:
        if message["role"] == "user":
            material = min(len(message["content"]), LONGEST_TEXT)
            break  # what is said later, after an invalid answer, shows nothing more to judge
    size = TEXT  # doubled, so that few questions differ in their bounds
    while size < material:
        size *= 2
    return _bounds(options.max_characters, options.max_items, size)


@cache
def _bounds(characters: int | None, items: int | None, size: int) -> Bounds:
    own = items or max(ITEMS, size // _PER_ITEM)
    if characters is not None:
        return Bounds(characters, characters, characters, own)
    return Bounds(REASON, ITEM, min(size, LONGEST_TEXT), own)


def schema_for(question: Question[Any]) -> Mapping[str, Any]:
    """The JSON schema of the answer, with its bounds; do not change it."""
    answer_type: type[BaseModel] = question.answer_type
    return bounded_schema(answer_type, bounds_of(question))


def backstop(question: Question[Any], bounds: Bounds) -> int:
    """Tokens above everything that the bounds allow: no good answer is cut off there.

    A token has one character at least, except for rare signs of several bytes. Of lists that allow
    more than 65,536 tokens, which no call has the time for, that is the limit.
    """
    answer_type: type[BaseModel] = question.answer_type
    if question.parser is None:
        return _tokens(answer_type, bounds)
    return _MARGIN + (question.options.max_characters or _PROSE)


@cache
def bounded_schema(answer_type: type[BaseModel], bounds: Bounds) -> Mapping[str, Any]:
    """The JSON schema of a type, with bounds for everything that it leaves open."""
    return _Bounding(schema_of(answer_type), bounds).bounded


def bounds_in_words(answer_type: type[BaseModel], options: Options) -> str:
    """The same bounds as a sentence or two for the prompt; empty if a type leaves nothing open.

    The words depend on no case: judged text cannot change what a judge is told, and prompts of one
    node begin alike. So what follows from the material is said in this way.
    """
    return _in_words(answer_type, options.max_characters, options.max_items)


@cache
def _in_words(answer_type: type[BaseModel], characters: int | None, most_items: int | None) -> str:
    bounds = _bounds(characters, most_items, TEXT)
    kinds = _Bounding(schema_of(answer_type), bounds).kinds
    text, items = f"{bounds.text:,} characters", f"{bounds.items:,} items"
    if characters is None:
        text += ", or as many as the material has if it has more"
    if most_items is None:
        items += f", or one for every {_PER_ITEM} characters of the material if that is more"
    words = {
        "text": f"Write at most {text}.",
        "items": f"List at most {items}.",
        "item": f"Write each item in at most {bounds.item:,} characters.",
        "reason": f"Give a reason of at most {bounds.reason:,} characters.",
        "reason of an item": f"Give each reason in at most {bounds.item:,} characters.",
    }
    return " ".join(map(words.__getitem__, filter(kinds.__contains__, words)))


def without_bounds(schema: Any) -> Any:
    """A JSON schema without lengths of texts and lists, so that two can be compared."""
    if isinstance(schema, list):
        return list(map(without_bounds, schema))
    if not isinstance(schema, Mapping):
        return schema
    bounds = ("maxLength", "maxItems")
    return {key: without_bounds(part) for key, part in schema.items() if key not in bounds}


@cache
def _tokens(answer_type: type[BaseModel], bounds: Bounds) -> int:
    schema = bounded_schema(answer_type, bounds)
    return min(_MARGIN + _characters(schema, schema.get("$defs", {}), bounds, ()), _MOST)


class _Bounding:
    """A schema on its way to one with bounds.

    `kinds` says what was left open: the text of a reason, of an item, or any other; the items.
    """

    def __init__(self, schema: Mapping[str, Any], bounds: Bounds) -> None:
        self._bounds = bounds
        self.kinds: set[str] = set()
        defs: Mapping[str, Any] = schema.get("$defs", {})
        plain = {key: part for key, part in schema.items() if key != "$defs"}
        self.bounded: dict[str, Any] = self._part(plain, "", False)
        if defs:
            outside = set(_references(schema, defs))  # only items of lists refer to the others
            definitions = {}
            for name, part in defs.items():
                definitions[name] = self._part(part, "", name not in outside)
            self.bounded = {"$defs": definitions, **self.bounded}

    def _part(self, part: Any, name: str, listed: bool) -> Any:
        """A part of the schema; `name` is that of its field, `listed` whether it is in a list."""
        if not isinstance(part, dict):
            return part
        bounded = dict(part)
        for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            if key in part:
                bounded[key] = [self._part(choice, name, listed) for choice in part[key]]
        if "properties" in part:
            in_list = listed or _is_numbered(part)
            fields = part["properties"].items()
            bounded["properties"] = {key: self._part(inner, key, in_list) for key, inner in fields}
        for key, inner_name in (("items", name), ("additionalProperties", "")):
            if key in part:
                bounded[key] = self._part(part[key], inner_name, True)
        if part.get("type") == "string":
            self._close_text(bounded, name, listed)
        elif part.get("type") == "array" and "maxItems" not in part:
            self.kinds.add("items")
            bounded["maxItems"] = max(self._bounds.items, part.get("minItems", 0))
        return bounded

    def _close_text(self, text: dict[str, Any], name: str, listed: bool) -> None:
        own = text.get("maxLength")
        if text.keys() & {"enum", "const", "pattern", "format"}:
            return
        if own is not None and not isinstance(own, UsualLength):
            return
        kind, most = {
            (False, False): ("text", self._bounds.text),
            (False, True): ("reason", self._bounds.reason),
            (True, False): ("item", self._bounds.item),
            (True, True): ("reason of an item", self._bounds.item),
        }[listed, name == "reason"]
        self.kinds.add(kind)
        text["maxLength"] = max(most, text.get("minLength", 0))


def _references(
    part: Any, defs: Mapping[str, Any], seen: frozenset[str] = frozenset()
) -> Iterator[str]:
    """The definitions that a part of a schema refers to outside of lists."""
    if isinstance(part, list):
        for choice in part:
            yield from _references(choice, defs, seen)
    if not isinstance(part, dict):
        return
    name = _definition_name(part)
    if name in defs and name not in seen:
        yield name
        yield from _references(defs[name], defs, seen | {name})
    for key, inner in part.items():
        if key == "properties" and not _is_numbered(part):
            for field in inner.values():
                yield from _references(field, defs, seen)
        elif key in ("anyOf", "oneOf", "allOf"):
            yield from _references(inner, defs, seen)


def _is_numbered(part: Mapping[str, Any]) -> bool:
    """Return whether numbers stand for items: such an object is asked for instead of a list."""
    return all(map(str.isdecimal, part["properties"]))


def _definition_name(part: Mapping[str, Any]) -> str:
    """The name of the definition that a part of a schema stands for; empty for any other part."""
    return str(part.get("$ref", "")).rpartition("/")[2]


def _characters(part: Any, defs: Mapping[str, Any], bounds: Bounds, inside: tuple[str, ...]) -> int:
    """The most characters of JSON that a part of a bounded schema allows.

    What may be anything, and a type within itself, counts as one text.
    """
    if not isinstance(part, dict):
        return bounds.text

    def longest(inner: Any) -> int:
        return _characters(inner, defs, bounds, inside)

    name = _definition_name(part)
    if name:
        if name in inside or name not in defs:
            return bounds.text
        return _characters(defs[name], defs, bounds, (*inside, name))
    if "enum" in part or "const" in part:
        choices = part.get("enum", [part.get("const")])
        return _AROUND + max(map(len, map(str, choices)), default=0)
    alternatives = part.get("anyOf", part.get("oneOf"))
    if alternatives is not None:
        return max(map(longest, alternatives))
    if "allOf" in part:
        return sum(map(longest, part["allOf"]))
    return _characters_of_type(part, bounds, longest)


def _characters_of_type(
    part: Mapping[str, Any], bounds: Bounds, longest: Callable[[Any], int]
) -> int:
    """The most characters that a part allows by its type; `longest` counts those of inner parts."""
    kind = part.get("type")
    if kind == "object" or "properties" in part:
        # Its fields with their names, and what it may have besides.
        values = part.get("additionalProperties", False)
        extra = bounds.items * (bounds.item + longest(values)) if isinstance(values, dict) else 0
        fields = part.get("properties", {}).items()
        return extra + sum(2 * _AROUND + len(field) + longest(inner) for field, inner in fields)
    if kind == "array":
        # The first items by their own schemas, the others by that of all.
        leading = list(map(longest, part.get("prefixItems", ())))
        count = int(part.get("maxItems", bounds.items)) - len(leading)
        return _AROUND + sum(leading) + max(count, 0) * (_AROUND + longest(part.get("items")))
    if kind == "string":
        return _AROUND + int(part.get("maxLength", _NUMBER if "format" in part else bounds.text))
    return _PLAIN.get(str(kind), bounds.text)
