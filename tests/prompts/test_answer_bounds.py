"""How long answers may be, in schemas, in prompts and in tokens."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from dagengine.metrics.common.extraction import Statements
from dagengine.prompts.answer_bounds import backstop, bounds_in_words, bounds_of, schema_for
from dagengine.prompts.answer_types import judgement_type, list_type, output_type, rating_type
from dagengine.question import FirstMatch, Options, Question, schema_json


class Part(BaseModel):
    title: str
    lines: list[str]


class Own(BaseModel):
    """A type as callers write them."""

    summary: str
    code: Annotated[str, Field(max_length=9)]
    part: Part
    parts: list[Part]
    pairs: Annotated[list[str], Field(max_length=2)]
    kinds: dict[str, str] = {}


class Tree(BaseModel):
    """A type within itself."""

    text: str
    children: list[Tree]


SHAPES = (
    judgement_type(None),
    judgement_type(("good", "bad")),
    rating_type(1, 5),
    list_type(("yes", "no"), 3),
    output_type(str),
    output_type(list[str]),
    output_type(list[list[int]]),
    output_type(dict[str, float]),
    output_type(bool),
    Statements,
    Part,
)


def about(characters: int, shape: type[BaseModel], **options: Any) -> Question[Any]:
    """A question that shows a text of so many characters."""
    return Question(({"role": "user", "content": "x" * characters},), shape, Options(**options))


def limit_of(question: Question[Any]) -> int:
    return backstop(question, bounds_of(question))


def open_ends(part: Any, path: str = "$") -> list[str]:
    """Where a schema leaves a text or a list without an end."""
    if isinstance(part, list):
        return [end for inner in part for end in open_ends(inner, path)]
    if not isinstance(part, dict):
        return []
    inner = [end for key, value in part.items() for end in open_ends(value, f"{path}.{key}")]
    free_text = part.get("type") == "string" and not part.keys() & {"enum", "const", "maxLength"}
    free_list = part.get("type") == "array" and "maxItems" not in part
    return inner + [path] * (free_text or free_list)


def longest(part: Any, root: Any, depth: int = 0) -> Any:
    """The longest answer that a schema allows; a type within itself ends after one round."""
    if "$ref" in part:
        return longest(root["$defs"][part["$ref"].rpartition("/")[2]], root, depth)
    if "anyOf" in part:
        return None if depth else longest(part["anyOf"][0], root, depth + 1)
    if "enum" in part:
        return max(part["enum"], key=len)
    match part.get("type"):
        case "string":
            return "W" * part["maxLength"]
        case "array":
            return [longest(part["items"], root, depth)] * part["maxItems"]
        case "boolean":
            return False
        case "integer":
            return part.get("maximum", 10**15)
        case "number":
            return -1.234567890123456e-300
    fields = part.get("properties", {}).items()
    return {name: longest(inner, root, depth) for name, inner in fields}


@pytest.mark.parametrize("shape", [*SHAPES, Own, Tree])
def test_nothing_in_a_schema_is_without_an_end(shape: type[BaseModel]) -> None:
    assert open_ends(schema_for(about(100, shape))) == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("characters", [0, 2_000])
def test_the_token_limit_is_above_the_longest_answer_of_the_schema(
    shape: type[BaseModel], characters: int
) -> None:
    asked = about(characters, shape)
    schema = schema_for(asked)
    text = json.dumps(longest(schema, schema), indent=1)
    assert limit_of(asked) > len(" ".join(text.split()))


def test_a_type_without_an_end_has_a_token_limit_all_the_same() -> None:
    assert limit_of(about(0, Tree)) > 10_000
    assert limit_of(about(50_000, Own)) == 65_536


def test_a_bound_that_a_type_has_itself_stays() -> None:
    fields = schema_for(about(0, Own, max_characters=50, max_items=5))["properties"]
    assert fields["code"]["maxLength"] == 9
    assert fields["pairs"]["maxItems"] == 2
    assert fields["summary"]["maxLength"] == 50
    assert fields["parts"]["maxItems"] == 5


def test_a_text_may_be_as_long_as_what_is_read_and_a_list_has_room_for_what_it_states() -> None:
    (short, page) = (bounds_of(about(size, output_type(str))) for size in (300, 4_000))
    assert (short.text, short.items) == (600, 24)
    assert page.text >= 4_000
    assert page.items >= 100
    assert (short.reason, short.item) == (page.reason, page.item) == (400, 300)


def test_a_node_widens_and_narrows() -> None:
    bounds = bounds_of(about(9_000, output_type(str), max_characters=80, max_items=3))
    assert bounds == (80, 80, 80, 3)
    assert bounds_of(about(0, output_type(str), max_characters=9_000)).text == 9_000


def test_an_answer_longer_than_its_bounds_is_still_valid() -> None:
    shape = judgement_type(None)
    assert shape.model_validate({"reason": "x" * 5_000, "verdict": True})
    texts = output_type(list[str])
    assert len(texts.model_validate({"output": ["x"] * 500}).output) == 500  # type: ignore[attr-defined]


MORE = "or one for every 40 characters of the material if that is more"


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        (judgement_type(None), Options(), "Give a reason of at most 400 characters."),
        (list_type(("a", "b"), 2), Options(), "Give each reason in at most 300 characters."),
        (
            output_type(str),
            Options(),
            "Write at most 600 characters, or as many as the material has if it has more.",
        ),
        (output_type(str), Options(max_characters=2_000), "Write at most 2,000 characters."),
        (
            output_type(list[str]),
            Options(),
            f"List at most 24 items, {MORE}. Write each item in at most 300 characters.",
        ),
        (output_type(list[bool]), Options(max_items=3), "List at most 3 items."),
        (output_type(bool), Options(), ""),
    ],
)
def test_the_words_of_a_prompt_name_the_same_bounds(
    shape: type[BaseModel], options: Options, words: str
) -> None:
    assert bounds_in_words(shape, options) == words


def test_a_definition_is_bounded_by_where_it_is_used() -> None:
    class Both(BaseModel):
        first: Part
        rest: list[Part]

    class Listed(BaseModel):
        rest: list[Part]

    (both, listed) = (schema_for(about(0, shape))["$defs"]["Part"] for shape in (Both, Listed))
    assert both["properties"]["title"]["maxLength"] == 600
    assert listed["properties"]["title"]["maxLength"] == 300


def test_a_text_for_a_parser_has_room_for_prose() -> None:
    first = FirstMatch((("yes", True),))
    asked = about(10, judgement_type(None))
    prose = Question(asked.messages, asked.answer_type, parser=first)
    assert limit_of(prose) > 2_000


def test_bounds_change_the_key_of_no_question_that_does_not_name_them() -> None:
    assert repr(Options()) == (
        "Options(temperature=0.0, seed=None, top_logprobs=0, sample=0, max_tokens=None)"
    )
    named = repr(Options(max_characters=9, max_items=2))
    assert named.endswith("max_tokens=None, max_characters=9, max_items=2)")
    shape = judgement_type(None)
    assert '"maxLength":2000' in schema_json(shape)
    assert schema_json(shape).encode() in about(9, shape).canonical
    assert about(9, shape).with_notes(max_tokens=50).key == about(9, shape).key


@pytest.mark.parametrize("name", ["max_tokens", "max_characters", "max_items"])
def test_a_bound_is_a_number_from_one_on(name: str) -> None:
    for value in (0, -1, 2.5, "many"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number from 1 on"):
            Options(**{name: value})  # type: ignore[arg-type]
