"""Evaluators without criteria, by the names under which LangChain's programs load them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dagengine import load_evaluator, load_evaluators
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.question import Question


def score(kind: str, prediction: str, reference: str | None = None, **settings: Any) -> Any:
    found = load_evaluator(kind, **settings).evaluate_strings(
        prediction=prediction, reference=reference
    )
    return found["score"]


@pytest.mark.parametrize(
    ("left", "right", "settings", "expected"),
    [
        ("a", "a", {}, 1),
        ("a", "a ", {}, 0),
        ("A b", "a B", {"ignore_case": True}, 1),
        ("a, b!", "a b", {"ignore_punctuation": True}, 1),
        ("a1", "a2", {"ignore_numbers": True}, 1),
        ("a1", "b2", {"ignore_numbers": True}, 0),
    ],
)
def test_exact_match_ignores_what_it_is_told_to(
    left: str, right: str, settings: dict[str, Any], expected: int
) -> None:
    assert score("exact_match", left, right, **settings) == expected


@pytest.mark.parametrize(
    ("text", "pattern", "flags", "expected"),
    [
        ("2024-05-01", r"\d{4}", 0, 1.0),
        ("On 2024", r"\d{4}", 0, 0.0),  # the beginning has to match
        ("PARIS", "paris", 0, 0.0),
        ("PARIS", "paris", re.IGNORECASE, 1.0),
    ],
)
def test_regex_match_looks_at_the_beginning(
    text: str, pattern: str, flags: int, expected: float
) -> None:
    assert score("regex_match", text, pattern, flags=flags) == expected


@pytest.mark.parametrize(
    ("distance", "expected"),
    [
        ("levenshtein", 2 / 3),  # abc, acb: two substitutions
        ("damerau_levenshtein", 1 / 3),  # one swap
        ("hamming", 2 / 3),
        ("indel", 1 / 3),  # one deletion and one insertion of six letters
        ("jaro", 4 / 9),
    ],
)
def test_distances_are_those_computed_by_hand(distance: str, expected: float) -> None:
    found = score("string_distance", "abc", "acb", distance=distance)
    assert found == pytest.approx(expected)
    pair = load_evaluator("pairwise_string_distance", distance=distance)
    compared = pair.evaluate_string_pairs(prediction="abc", prediction_b="acb")
    assert compared == {"score": pytest.approx(expected)}


def test_a_distance_of_equal_texts_is_zero_and_of_nothing_alike_one() -> None:
    assert score("string_distance", "abc", "abc") == 0
    assert score("string_distance", "abc", "xyz") == 1
    assert score("string_distance", "", "abc") == 1


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("text", "valid"), [("[1]", 1), ('"a"', 1), ("{", 0), ("", 0), ("NaN", 0), (DEEP, 0)]
)
def test_json_validity_says_what_is_wrong(text: str, valid: int) -> None:
    found = load_evaluator("json_validity").evaluate_strings(prediction=text)
    assert found["score"] == valid
    assert ("reasoning" in found) is not bool(valid)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ('{"a": 1, "b": [2]}', '{"b":[2],"a":1.0}', True),
        ("[1, 2]", "[2, 1]", False),
        ("true", "1", False),
        ("null", "null", True),
    ],
)
def test_json_equality_is_one_of_values(left: str, right: str, same: bool) -> None:
    assert score("json_equality", left, right) is same
    assert score("json_equality", left, right, operator=lambda one, other: [one, other]) == [
        json.loads(left),
        json.loads(right),
    ]


def test_json_edit_distance_is_one_of_canonical_texts() -> None:
    assert score("json_edit_distance", '{"a": 1, "b": 2}', '{"b":2, "a":1}') == 0
    assert score("json_edit_distance", "[1]", "[2]") == pytest.approx(1 / 3)
    assert score("json_edit_distance", "[1]", "[2]", canonicalize=len) == 0
    with pytest.raises(InputError, match="prediction is not JSON"):
        score("json_edit_distance", "{", "[2]")


@pytest.mark.anyio
async def test_evaluators_have_coroutines_too() -> None:
    found = load_evaluator("exact_match")
    assert await found.aevaluate_strings(prediction="a", reference="a") == {"score": 1}
    assert await found.aevaluate_string_pairs(prediction="a", prediction_b="b") == {"score": 0}


def prefers(word: str) -> ScriptedJudge:
    """A judge that prefers the answer with a word in it, in every order."""

    def answer(question: Question[Any]) -> Any:
        prompt = question.messages[-1]["content"]
        places = [text.count(word) for text in prompt.split("BEGIN ") if "actual_output" in text]
        options = question.answer_type.model_json_schema()["properties"]["verdict"]["enum"]
        best = max(range(len(places)), key=places.__getitem__) if any(places) else -1
        return {"reason": "so", "verdict": options[best]}

    return ScriptedJudge(answer)


@pytest.mark.parametrize(
    ("first", "second", "value", "score"),
    [("good", "poor", "A", 1), ("poor", "good", "B", 0), ("poor", "poor indeed", None, 0.5)],
)
def test_a_judge_prefers_one_of_two_texts_or_none(
    first: str, second: str, value: str | None, score: float
) -> None:
    judge = prefers("good")
    found = load_evaluator("pairwise_string", llm=judge).evaluate_string_pairs(
        prediction=first, prediction_b=second, input="Say something."
    )
    assert (found["value"], found["score"]) == (value, score)
    assert found["reasoning"]


def test_a_labelled_pair_needs_and_shows_its_reference() -> None:
    asked: list[str] = []

    def answer(question: Question[Any]) -> Any:
        asked.append("\n".join(message["content"] for message in question.messages))
        options = question.answer_type.model_json_schema()["properties"]["verdict"]["enum"]
        return {"reason": "so", "verdict": options[-1]}

    judge = ScriptedJudge(answer)
    found = load_evaluator("labeled_pairwise_string", llm=judge, criteria={"fit": "Does it fit?"})
    texts = {"prediction": "one", "prediction_b": "two", "input": "Say."}
    with pytest.raises(InputError, match="needs reference="):
        found.evaluate_string_pairs(**texts)
    assert found.evaluate_string_pairs(**texts, reference="the right one")["value"] is None
    assert all("the right one" in text and "Does it fit?" in text for text in asked)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("kind", "settings", "error", "message"),
    [
        ("string_distance", {"distance": "lev"}, InputError, "no distance 'lev'; use one of"),
        ("string_distance", {"normalize_score": False}, InputError, "distances go from 0 to 1"),
        ("exact_match", {"ignore_cases": True}, TypeError, "did you mean 'ignore_case'"),
        ("exact_match", {"criteria": "correctness"}, TypeError, "has no setting 'criteria'"),
        ("pairwise_string", {"prompt": "x"}, TypeError, "has no setting 'prompt'"),
        ("criteria", {"distance": "jaro"}, TypeError, "has no setting 'distance'"),
        (
            "embedding_distance",
            {},
            InputError,
            "load_evaluator makes no 'embedding_distance'; here: no vectors",
        ),
    ],
)
def test_what_an_evaluator_does_not_have_is_refused(
    kind: str, settings: dict[str, Any], error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        load_evaluator(kind, **settings)


@pytest.mark.parametrize(
    ("kind", "texts", "message"),
    [
        ("exact_match", {"prediction": "a"}, "'exact_match' needs reference="),
        ("exact_match", {"prediction": 1, "reference": "a"}, "needs prediction="),
        ("regex_match", {"prediction": "a", "reference": "("}, "is no regular expression"),
    ],
)
def test_texts_that_are_missing_or_wrong_are_refused(
    kind: str, texts: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load_evaluator(kind).evaluate_strings(**texts)


def test_evaluators_of_several_kinds_are_loaded_together() -> None:
    found = load_evaluators(
        ["exact_match", "string_distance"], config={"string_distance": {"distance": "jaro"}}
    )
    assert [one.evaluation_name for one in found] == ["exact_match", "string_distance"]
