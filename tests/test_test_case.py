"""Test cases: what they take, what they refuse, and how nodes read them."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest
from pydantic import ValidationError, field_validator

from dagengine.dataset import Golden
from dagengine.errors import InputError
from dagengine.test_case import (
    ArenaTestCase,
    CaseError,
    ConversationalTestCase,
    LLMTestCase,
    LLMTestCaseParams,
    TestCase,
    ToolCall,
    Turn,
    case_label,
    field_name,
    is_known_field,
    known_fields,
    read_field,
)

CASE = LLMTestCase(
    input="What is the capital of France?",
    actual_output="Paris",
    context=["France is a country.", "Paris is its capital."],
    tools_called=[
        ToolCall(name="search", input_parameters={"query": "capital", "v1.2": {"top": 3}}),
        ToolCall(name="answer", output=["Paris"]),
    ],
    additional_metadata={"labels": {"topic": "geography", "topic.fine": "capitals"}, "empty": None},
)
TALK = ConversationalTestCase(
    turns=[Turn(role="user", content="Hello"), Turn(role="assistant", content="Good day")],
    chatbot_role="a doorman",
)
ARENA = ArenaTestCase(
    contestants={
        "GPT-4.1": LLMTestCase(input="Capital?", actual_output="Paris"),
        "GPT-4": LLMTestCase(input="Capital?", actual_output="Rome"),
        "1.actual_output": LLMTestCase(input="Capital?", actual_output="Bonn"),
    }
)


def test_a_case_cannot_be_changed() -> None:
    for case, field in ((CASE, "input"), (TALK, "turns"), (ARENA, "contestants")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(case, field, "something else")
    with pytest.raises(ValidationError, match="frozen"):
        setattr(TALK.turns[0], "content", "Bye")  # noqa: B010 - the point is to try
    assert CASE.input == "What is the capital of France?"


def test_a_conversation_without_turns_is_refused_when_it_is_made() -> None:
    with pytest.raises(ValidationError, match="'turns' must not be empty"):
        ConversationalTestCase(turns=[])


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (LLMTestCase, {"input": "a"}),
        (ConversationalTestCase, {"turns": [{"role": "user", "content": "a"}]}),
        (ArenaTestCase, {"contestants": {}}),
        (Turn, {"role": "user", "content": "a"}),
        (ToolCall, {"name": "a"}),
    ],
)
def test_an_unknown_field_is_an_error(kind: Any, fields: dict[str, Any]) -> None:
    kind.model_validate(fields)
    with pytest.raises(ValidationError, match="actual_ouput"):
        kind.model_validate({**fields, "actual_ouput": "Paris"})


def test_a_field_of_the_wrong_type_is_an_error_and_not_converted() -> None:
    with pytest.raises(ValidationError, match="input"):
        LLMTestCase.model_validate({"input": 7})
    with pytest.raises(ValidationError, match="role"):
        Turn.model_validate({"role": "robot", "content": "a"})


def test_only_the_input_of_a_case_must_be_given() -> None:
    case = LLMTestCase(input="a")
    assert case.actual_output is None
    with pytest.raises(ValidationError, match="input"):
        LLMTestCase.model_validate({"actual_output": "a"})


class Own(LLMTestCase):
    score: int = 1
    when: datetime | None = None

    @field_validator("score")
    @classmethod
    def _positive(cls, score: int) -> int:
        if score < 1:
            raise ValueError(f"{score} is {{no}} score")
        return score


def test_a_constructor_says_what_every_field_must_be() -> None:
    wrong: dict[str, Any] = {
        "input": 7,
        "actual_output": ["a"],
        "context": "a",
        "retrieval_context": ["a", 7],
        "tools_called": ["search"],
        "expected_tools": [{"nam": "search"}],
        "token_cost": "much",
        "metadata": 7,
        "actual_ouput": "a",
    }
    with pytest.raises(CaseError) as caught:
        LLMTestCase(**wrong)
    assert str(caught.value) == (
        "LLMTestCase: 'metadata' must be None or a mapping, got 7; "
        "'input' must be a string, got 7; "
        "'actual_output' must be None or a string, got ['a']; "
        "'context' must be None or a list of strings, got 'a'; "
        "'retrieval_context' must be None or a list of strings; retrieval_context.1 is 7; "
        "'tools_called' must be None or a list of `ToolCall`; tools_called.0 is 'search'; "
        "the field 'expected_tools.0.name' is missing; unknown field 'expected_tools.0.nam'; "
        "'token_cost' must be None or a number, got 'much'; "
        "unknown field 'actual_ouput' (did you mean 'actual_output'?)"
    )


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("question", "input"),
        ("response", "actual_output"),  # and not `spans`, which is written more alike
        ("ground_truth", "expected_output"),
        ("contexts", "retrieval_context"),
    ],
)
def test_a_field_of_ragas_is_told_its_name_here(name: str, field: str) -> None:
    with pytest.raises(CaseError, match=rf"unknown field '{name}' \(did you mean '{field}'\?\)"):
        LLMTestCase(**{"input": "a", name: "b"})


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (Turn, {"role": "robot", "content": "a"}, "'role' must be 'user' or 'assistant'"),
        (ConversationalTestCase, {"turns": ["a"]}, "must be a list of `Turn`; turns.0 is 'a'"),
        (ArenaTestCase, {"contestants": []}, "must have at least two contestants"),
        (ArenaTestCase, {"contestants": {"A": 7}}, "contestants.A: Input should be"),
        (ToolCall, {}, "the field 'name' is missing"),
        (Golden, {"input": 7}, "'input' must be a string, got 7"),
        (Own, {"input": "a", "score": 0}, "Own: score: 0 is {no} score, got 0"),
        (Own, {"input": "a", "score": "b"}, "Own: 'score' must be a whole number, got 'b'"),
        (Own, {"input": "a", "when": []}, "Own: when: Input should be"),
    ],
)
def test_an_error_of_a_constructor_is_of_every_kind_that_people_catch(
    kind: Any, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(CaseError) as caught:
        kind(**fields)
    error = caught.value
    assert said in str(error)
    assert all(isinstance(error, one) for one in (TypeError, InputError, ValidationError))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (CaseError, str(error))
    assert again.errors()[0]["loc"] == error.errors()[0]["loc"]
    with pytest.raises(ValidationError) as plain:  # files are read without the constructor
        kind.model_validate(fields)
    assert type(plain.value) is ValidationError


def test_a_call_of_a_tool_shows_what_is_known_of_it() -> None:
    assert repr(ToolCall(name='a "b"')) == 'ToolCall(name="a \\"b\\"")'
    shown = repr(ToolCall(name="a", input_parameters={"b": 1}))
    assert shown == "ToolCall(name=\"a\", input_parameters={'b': 1})"


# -- hashes --------------------------------------------------------------------------------

HASHED = """
from dagengine.test_case import LLMTestCase, ToolCall
case = LLMTestCase(
    input="\u00fc\u6f22 \U0001f600",
    actual_output="Paris",
    tags=["b", "a"],
    tools_called=[ToolCall(name="search", input_parameters={"zeta": 1, "alpha": [2, 3]})],
    additional_metadata={"topic": "geography", "source": {"page": 7}},
)
print(case.content_hash())
"""


def hash_in_process(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", HASHED], env=environment, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def test_the_content_hash_is_the_same_in_every_process() -> None:
    first, second = hash_in_process("1"), hash_in_process("2")
    assert first == second
    assert len(bytes.fromhex(first)) == 32


def test_equal_cases_have_equal_hashes_and_others_do_not() -> None:
    case = LLMTestCase(input="a", actual_output="b")
    assert case.content_hash() == LLMTestCase(actual_output="b", input="a").content_hash()
    others = [
        LLMTestCase(input="a"),
        LLMTestCase(input="a", actual_output=""),
        LLMTestCase(input="b", actual_output="a"),
        LLMTestCase(input="a", expected_output="b"),
        LLMTestCase(input="a", actual_output="b", tags=[]),
        LLMTestCase(input="a", actual_output="b", context=["c", "d"]),
        LLMTestCase(input="a", actual_output="b", context=["d", "c"]),
        LLMTestCase(input="a", actual_output="b", context=["cd"]),
    ]
    assert len({one.content_hash() for one in (case, *others)}) == len(others) + 1


def test_the_order_of_keys_in_metadata_does_not_change_the_hash() -> None:
    first = LLMTestCase(input="a", additional_metadata={"x": 1, "y": {"p": 2, "q": 3}})
    second = LLMTestCase(input="a", additional_metadata={"y": {"q": 3, "p": 2}, "x": 1})
    assert first == second
    assert first.content_hash() == second.content_hash()


def test_a_none_inside_metadata_is_content() -> None:
    first = LLMTestCase(input="a", additional_metadata={"x": None})
    second = LLMTestCase(input="a", additional_metadata={})
    assert first != second
    assert first.content_hash() != second.content_hash()


def test_a_lone_surrogate_in_metadata_has_a_hash() -> None:
    first = LLMTestCase(input="a", additional_metadata={"x": "\ud83d"})
    second = LLMTestCase(input="a", additional_metadata={"x": "\ud83e"})
    assert first.content_hash() != second.content_hash()


# -- reading fields ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "path", "value"),
    [
        (CASE, "input", "What is the capital of France?"),
        (CASE, "context", ["France is a country.", "Paris is its capital."]),
        (CASE, "context.1", "Paris is its capital."),
        (CASE, "tools_called.1.name", "answer"),
        (CASE, "tools_called.1.output.0", "Paris"),
        (CASE, "tools_called.0.input_parameters.query", "capital"),
        (CASE, "tools_called.0.input_parameters.v1.2.top", 3),
        (CASE, "additional_metadata.labels.topic", "geography"),
        (CASE, "additional_metadata.labels.topic.fine", "capitals"),
        (TALK, "turns.1.content", "Good day"),
        (TALK, "turns.-1:-1.content", [{"place": 1, "content": "Good day"}]),
        (TALK, "turns.-9:-2", [TALK.turns[0]]),
        (CASE, "context.1:-1", ["Paris is its capital."]),
        (CASE, "tools_called.1:1.name", [{"place": 1, "name": "answer"}]),
        (TALK, "chatbot_role", "a doorman"),
        (ARENA, "contestants.GPT-4.1.actual_output", "Paris"),
        (ARENA, "contestants.GPT-4.actual_output", "Rome"),
        (ARENA, "contestants.1.actual_output.actual_output", "Bonn"),
    ],
)
def test_a_path_leads_through_fields_keys_and_indices(
    case: TestCase, path: str, value: object
) -> None:
    assert read_field(case, path) == value


@pytest.mark.parametrize(
    ("case", "path"),
    [
        (CASE, "expected_output"),
        (CASE, "expected_output.0"),
        (CASE, "context.2"),
        (CASE, "context.-1"),
        (CASE, "context.0:2"),
        (CASE, "context.-3:-3"),
        (CASE, "context.first"),
        (CASE, "context.²"),
        (CASE, "input.0"),
        (CASE, "tools_called.0.output"),
        (CASE, "tools_called.0.colour"),
        (CASE, "additional_metadata.labels.colour"),
        (CASE, "additional_metadata.empty"),
        (CASE, "additional_metadata.empty.more"),
        (CASE, "turns.0.content"),
        (CASE, "content_hash"),
        (CASE, "model_fields"),
        (TALK, "turns.2.content"),
        (ARENA, "contestants.GPT-5.actual_output"),
        (ARENA, "contestants.GPT-4.1.expected_output"),
        (ARENA, "contestants.GPT"),
    ],
)
def test_a_path_with_a_missing_part_gives_nothing(case: TestCase, path: str) -> None:
    assert read_field(case, path) is None


def test_numbers_as_keys_of_metadata_do_not_break_reading() -> None:
    case = LLMTestCase(input="a", additional_metadata={"years": {2024: {"sum": 3}}})
    assert read_field(case, "additional_metadata.years.2023.sum") is None
    assert read_field(case, "additional_metadata.years.2024.sum") == 3


def test_values_that_are_false_are_read_as_they_are() -> None:
    case = LLMTestCase(input="", context=[], additional_metadata={"done": False, "count": 0})
    assert read_field(case, "input") == ""
    assert read_field(case, "context") == []
    assert read_field(case, "additional_metadata.done") is False
    assert read_field(case, "additional_metadata.count") == 0


def test_fields_are_known_by_the_first_part_of_their_path() -> None:
    for path in ("input", "turns.0.content", "contestants.GPT-4.1.input", "scenario"):
        assert is_known_field(path)
    for path in ("inputs", "", ".input", "content", "metadata.input"):
        assert not is_known_field(path)
    assert "retrieval_context" in known_fields()
    assert list(known_fields()) == sorted(known_fields())


def test_the_enum_and_the_plain_name_mean_the_same_field() -> None:
    for param in LLMTestCaseParams:
        assert field_name(param) == param.value
        assert type(field_name(param)) is str
        assert is_known_field(field_name(param))
    assert field_name("contestants.A.input") == "contestants.A.input"


def test_a_case_is_called_by_its_name_or_by_its_place() -> None:
    assert case_label(LLMTestCase(input="a", name="greeting"), 3) == "greeting"
    assert case_label(LLMTestCase(input="a"), 3) == "case 3"


# -- contestants ---------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["input", "expected_output"])
def test_contestants_must_have_had_the_same_task(field: str) -> None:
    one = LLMTestCase(input="Capital?", expected_output="Paris")
    other = one.model_copy(update={field: f"{getattr(one, field)} "})
    with pytest.raises(ValidationError, match=f"must have the same '{field}'"):
        ArenaTestCase(contestants={"A": one, "B": other})


def test_contestants_may_differ_in_everything_else() -> None:
    case = ArenaTestCase(
        contestants={
            "A": LLMTestCase(input="Capital?", actual_output="Paris", context=["France"]),
            "B": LLMTestCase(input="Capital?", token_cost=1),
        }
    )
    assert list(case.contestants) == ["A", "B"]


# -- names of elsewhere --------------------------------------------------------------------


def test_fields_are_read_and_dumped_in_camel_case_too() -> None:
    case = LLMTestCase.model_validate({"input": "a", "actualOutput": "b", "toolsCalled": []})
    assert (case.actual_output, case.tools_called) == ("b", [])
    assert case.model_dump(by_alias=True, exclude_none=True) == {
        "input": "a",
        "actualOutput": "b",
        "toolsCalled": [],
    }
    assert "actual_output" in LLMTestCase.model_json_schema()["properties"]


@pytest.mark.parametrize("name", ["metadata", "additionalMetadata", "custom_column_key_values"])
def test_metadata_has_several_names(name: str) -> None:
    assert LLMTestCase.model_validate({"input": "a", name: {"b": "c"}}).metadata == {"b": "c"}


def test_calls_of_tools_can_be_counted_in_a_set() -> None:
    found = {ToolCall(name="a", output={1: [2]}), ToolCall(name="a", output={1: [2]})}
    assert len(found | {ToolCall(name="a")}) == 2


def test_a_notebook_shows_what_a_case_takes() -> None:
    for kind in (LLMTestCase, ConversationalTestCase, ToolCall):
        assert "name" in inspect.signature(kind).parameters


@pytest.mark.parametrize(
    ("kind", "words"),
    [(Turn, r"Turn\(role=…, content=…\)"), (ToolCall, r"ToolCall\(name=…\)"),
     (LLMTestCase, r"LLMTestCase\(input=…\)")],
)  # fmt: skip
def test_a_field_without_its_name_is_refused_with_the_names(kind: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"takes its fields by name: {words}"):
        kind("hi")
