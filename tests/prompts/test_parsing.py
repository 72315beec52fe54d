"""From a text to an answer: near misses, lists with gaps, damage of every kind and size."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import json_repair
import pytest
from pydantic import BaseModel

from dagengine.errors import DoubtfulAnswerError, UnparseableError
from dagengine.prompts import Evidence, json_in_text, messages_for, parsing, read_answer
from dagengine.prompts.answer_bounds import schema_for
from dagengine.prompts.answer_types import judgement_type, list_type, output_type, rating_type
from dagengine.prompts.parsing import readable_items, require_last_word
from dagengine.question import Answer, Question, schema_of

BINARY = judgement_type(None)
LISTED = output_type(list[str])
THREE = list_type(("yes", "no"), 3)


def about(shape: type[BaseModel]) -> Question[Any]:
    return Question(messages_for("s", [Evidence("a", "t")]), shape, name="q")


def refusal(text: str, shape: type[BaseModel] = BINARY) -> UnparseableError:
    """Why a text holds no answer."""
    with pytest.raises(UnparseableError) as caught:
        read_answer(about(shape), text)
    return caught.value


def item(verdict: str, number: object = None) -> dict[str, Any]:
    return {"reason": "r", "verdict": verdict} | ({} if number is None else {"number": number})


def text_of(*items: Any) -> str:
    return json.dumps({"verdicts": items})


def test_verdicts_without_numbers_are_taken_in_order_when_their_count_fits() -> None:
    found = read_answer(about(THREE), text_of(item("yes"), item("no"), item("yes")))
    assert [(one.number, one.verdict) for one in found.verdicts] == [
        (1, "yes"), (2, "no"), (3, "yes"),
    ]  # fmt: skip


def keyed(**items: Any) -> str:
    return json.dumps({"verdicts": {key.strip("_"): found for key, found in items.items()}})


YES, NO = item("yes"), item("no")


def test_the_schema_of_a_list_of_verdicts_needs_every_number_once() -> None:
    numbers = schema_of(THREE)["properties"]["verdicts"]
    assert numbers["required"] == list(numbers["properties"]) == ["1", "2", "3"]
    assert set(schema_of(THREE)["$defs"]["Item"]["properties"]) == {"reason", "verdict"}


@pytest.mark.parametrize(
    "text",
    [
        keyed(_1=YES, _2=NO, _3=YES),
        keyed(_3=YES, _1=YES, _2=NO),
        json.dumps({"verdicts": {"claim 1": YES, "claim 2": NO, "3.": YES}}),
        "So:\n```json\n" + keyed(_1=YES, _2=NO, _3=YES) + "\n```",
        text_of(item("yes", 1), item("yes", 3), item("no", 2)),
    ],
    ids=["keys", "another order", "named keys", "prose around", "a list"],
)
def test_verdicts_are_read_under_their_numbers(text: str) -> None:
    found = read_answer(about(THREE), text)
    assert {one.number: one.verdict for one in found.verdicts} == {1: "yes", 2: "no", 3: "yes"}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (keyed(_1=YES, _2=NO), "'1', '2'"),
        (keyed(_1=YES, _2=NO, _4=NO), "'1', '2', '4'"),
        (keyed(_1=YES, _2=NO, _3=NO, _4=NO), "'1', '2', '3', '4'"),
        (keyed(_1=YES, _2=NO, a=NO), "'1', '2', 'a'"),
        (keyed(), "none"),
    ],
)
def test_keys_that_are_not_the_numbers_of_the_items_are_told(text: str, keys: str) -> None:
    assert str(refusal(text, THREE)).startswith(
        f"verdicts: Value error, every key from '1' to '3' is needed once, got {keys}"
    )


@pytest.mark.parametrize(
    "items",
    [
        (item("yes"), item("no")),
        (item("yes"), item("no"), item("yes"), item("no")),
        (item("yes", 1), item("no"), item("yes")),
    ],
)
def test_verdicts_are_not_taken_in_order_when_some_are_missing_or_numbered(items: Any) -> None:
    assert "verdicts" in str(refusal(text_of(*items), THREE))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (text_of(item("yes", 1), item("no", 3)), [1, 3]),
        (text_of(item("yes", 1), item("no", 2), item("yes", 2)), [1]),
        (text_of(item("yes", 1), item("maybe", 2), item("no", 3)), [1, 3]),
        (text_of(item("yes", 1), item("no", 4), "no", None, {}), [1]),
        (text_of(item("yes"), item("no")), []),
        (text_of(*(item("yes", number) for number in range(1, 5))), [1, 2, 3]),
        (text_of(item("yes", 0), item("no", 1), item("no", 2)), []),
        (keyed(_0=YES, _1=NO, _2=YES), []),
        (json.dumps({"verdicts": {"1": YES, "2": NO, "3": NO, "all": YES}}), [1, 2, 3]),
        (text_of(item("yes", 1), item("no", 2), item("no", 3))[:-20], [1, 2]),
        (f"First:\n{text_of(item('yes', 1))}\nNo:\n{text_of(item('no', 1))}", []),
        (keyed(_1=YES, _3=NO), [1, 3]),
        (keyed(_1=YES, _2=item("maybe"), _3=NO), [1, 3]),
        (keyed(_1=YES, _2=YES, _3=NO)[:-20], [1, 2]),
        (json.dumps({"1": YES, "2": NO})[:-5], [1]),
        (keyed(_1=YES, _2=NO, _3=YES)[:-1], [1, 2, 3]),
        ('{"verdicts": {"1": ' + json.dumps(YES) + ', "1": ' + json.dumps(NO), []),
        ('{"verdicts": 5}', []),
        ("I cannot tell.", []),
        ("{" * 2_000_000, []),
    ],
)
def test_what_can_be_used_of_a_list_is_told_by_number(text: str, numbers: list[int]) -> None:
    with pytest.raises(UnparseableError):
        read_answer(about(THREE), text)
    found: Any = readable_items(THREE, text)
    assert sorted(found) == numbers
    assert all(found[number].number == number for number in numbers)


def test_a_key_with_two_values_is_told_wherever_it_stands() -> None:
    for around in ("{}", "So: {} That is all."):
        said = refusal(around.replace("{}", '{"reason": "r", "verdict": true, "verdict": false}'))
        assert "'verdict' stands there twice" in str(said)
    same = '{"reason": "r", "verdict": true, "verdict": true}'
    assert read_answer(about(BINARY), same).verdict is True


@pytest.mark.parametrize("shape", [BINARY, rating_type(0, 10), output_type(int), LISTED, THREE])
@pytest.mark.parametrize("around", ["{}", "So:\n{} That is all.", '{"extra": {}}'])
def test_a_number_of_five_thousand_digits_does_not_fit(shape: Any, around: str) -> None:
    name = next(reversed(shape.model_fields))
    digits = "1" * 5_000
    broken = f'{{"reason": "r", "{name}": {digits}}}'
    assert digits[:4_000] not in str(refusal(around.replace("{}", broken), shape))
    refusal(around.replace("{}", f"[{digits}]"), shape)


def test_lone_surrogates_in_an_answer_become_the_sign_for_what_cannot_be_shown() -> None:
    text = '{"reason": "a \\ud800 b \\ud83d\\ude00", "verdict": true}'
    assert read_answer(about(BINARY), text).reason == "a \ufffd b 😀"
    assert read_answer(about(LISTED), 'So:\n["\\udfff"]').output == ["\ufffd"]


@pytest.mark.parametrize("schema_sent", [schema_of(BINARY), schema_for(about(BINARY))])
def test_the_schema_in_an_echoed_prompt_is_no_answer(schema_sent: Any) -> None:
    schema = json.dumps(schema_sent)
    said = '{"reason": "r", "verdict": true}'
    assert read_answer(about(BINARY), f"Follow this:\n{schema}\n\n{said}").verdict is True
    refusal(f"Follow this:\n{schema}")


N = 50_000  # a dozen windows
PIECES = [
    "{", "[", '"', "\\", "```", "<think>", '{"', '{"a":', '{"a":[', '{"a":"x" ', ":[", "\n[",
    '{"a":1}', '{"a":"{\\"', "{}", '{"verdict": true,', "\ud800", "}", '{"a":"b', "[[1],",
]  # fmt: skip


class CountingDecoder:
    """Counts the characters that the JSON decoder is shown."""

    def __init__(self) -> None:
        self._decoder, self.shown, self.far = json_in_text._DECODER, 0, 0

    def raw_decode(self, text: str) -> Any:
        self.shown += len(text)
        self.far += len(text) > json_in_text.WINDOW
        return self._decoder.raw_decode(text)


@pytest.mark.parametrize("shape", [BINARY, LISTED, THREE])
@pytest.mark.parametrize("piece", PIECES)
def test_a_long_broken_answer_is_looked_at_through_a_window(
    piece: str, shape: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = CountingDecoder()
    monkeypatch.setattr(json_in_text, "_DECODER", decoder)
    monkeypatch.setattr(json_repair, "loads", lambda *_, **__: pytest.fail("repaired"))
    text = (piece * (N // len(piece) + 1))[:N]
    said = refusal(text, shape)
    assert len(str(said)) < 1_000
    assert decoder.far <= 2 * json_in_text.FAR
    assert decoder.shown <= 2 * (json_in_text.WINDOW + json_in_text.FAR) * N


def test_an_answer_behind_many_braces_and_quotes_is_found() -> None:
    text = "\\frac{a}{b} {x: 1} {'y'} " * 2_000 + '{"reason": "r", "verdict": true}'
    assert read_answer(about(BINARY), text).verdict is True


def test_an_answer_longer_than_the_window_is_found() -> None:
    said = json.dumps({"reason": "r" * 3 * json_in_text.WINDOW, "verdict": True})
    assert read_answer(about(BINARY), f"So:\n{said}\nThat is all.").verdict is True


def test_a_text_that_is_too_long_is_not_read_and_not_kept() -> None:
    said = refusal('{"reason": "r", "verdict": true}' + " " * parsing.LONGEST)
    assert "1,000,032 characters, and at most 1,000,000" in str(said)
    assert len(said.raw) < 10_000


def test_a_complaint_names_the_first_of_many_mistakes() -> None:
    said = refusal(json.dumps({"output": [1] * 5_000}), LISTED)
    assert "and 4990 more" in str(said)
    assert len(str(said)) < 2_000


@pytest.mark.parametrize(
    ("verdicts", "after", "doubtful"),
    [
        (("good", "bad"), " Wait: bad.", True),
        (("good", "bad"), " That is all.", False),
        (("+", "-"), "\n", False),
        (("+", "-"), " That is all.", False),
        (("+", "-"), " Wait: - is right.", True),
    ],
)
def test_a_verdict_behind_the_json_is_doubtful_and_an_end_without_one_is_not(
    verdicts: tuple[str, ...], after: str, doubtful: bool
) -> None:
    asked = about(judgement_type(verdicts))
    raw = json.dumps({"reason": "ok", "verdict": verdicts[0]}) + after
    answer = Answer(read_answer(asked, raw), raw)
    with pytest.raises(DoubtfulAnswerError) if doubtful else nullcontext():
        require_last_word(asked, answer)
