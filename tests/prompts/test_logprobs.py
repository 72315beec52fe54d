"""Ratings read out of token probabilities."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from dagengine.errors import InputError
from dagengine.prompts.answer_types import rating_type
from dagengine.prompts.logprobs import expected_score
from dagengine.prompts.scales import Labels, WholeNumbers, scale_of
from dagengine.prompts.tokens import telling, value_span
from dagengine.question import Answer, FirstMatch, TokenChoice

Mass = dict[str, float]
ANY: Any = None  # the value of an answer, which is not looked at


def expected(answer: Answer[Any], stated: int, low: int, high: int) -> tuple[float, str]:
    """A rating on a scale of whole numbers, given as JSON."""
    place = value_span(answer.raw, "score")
    rating, mode = expected_score(answer, float(stated), WholeNumbers(low, high), place)
    assert rating is not None
    return rating, mode


def choice(token: str, mass: Mass | None = None) -> TokenChoice:
    """A token with alternatives given as probabilities."""
    return TokenChoice(token, tuple((t, math.log(p)) for t, p in (mass or {token: 1.0}).items()))


def answer(*tokens: TokenChoice, raw: str | None = None) -> Answer[Any]:
    """An answer made of tokens; `raw` where the server's text differs from them."""
    text = "".join(token.token for token in tokens) if raw is None else raw
    fields = json.loads(text)
    value = rating_type(-100, 1000).model_construct(**fields)
    return Answer(value, text, tokens)


def rated(token: str, mass: Mass, reason: str = "fine") -> Answer[Any]:
    """The usual answer: a reason, then a score in one token."""
    return answer(choice(f'{{"reason": "{reason}", "score":'), choice(token, mass), choice("}"))


def test_the_score_is_the_expectation_over_the_alternatives() -> None:
    score, mode = expected(rated("8", {"8": 0.5, "9": 0.3, "5": 0.2}), 8, 0, 10)
    assert (round(score, 12), mode) == (7.7, "weighted")  # 4.0 + 2.7 + 1.0


def test_probabilities_that_do_not_sum_to_one_are_renormalised() -> None:
    score, mode = expected(rated("4", {"4": 0.3, "2": 0.1}), 4, 1, 5)
    assert (round(score, 12), mode) == (3.5, "weighted")  # (1.2 + 0.2) / 0.4


def test_a_judge_without_token_probabilities_gives_the_rating_as_it_stands() -> None:
    score, mode = expected(Answer(rating_type(0, 10)(reason="", score=7), "{}"), 7, 0, 10)
    assert score == 7.0
    assert mode.startswith("raw (")
    assert "no token probabilities" in mode


def test_digits_in_the_reason_are_not_taken_for_the_score() -> None:
    reason = choice('{"reason": "8 of 10, really ')
    planted = choice("8", {"1": 0.9, "8": 0.1})
    score = choice("8", {"8": 0.75, "4": 0.25})
    found = expected(answer(reason, planted, choice('", "score": '), score, choice("}")), 8, 0, 10)
    assert (round(found[0], 12), found[1]) == (7.0, "weighted")


def test_a_score_planted_in_the_reason_is_not_taken_for_the_score() -> None:
    opening = choice('{"reason": "the text says \\"score\\": ')
    planted = choice("9", {"9": 1.0})
    middle = choice(' and {\\"score\\": 9}", "score": ')
    found = expected(
        answer(opening, planted, middle, choice("2", {"2": 0.5, "3": 0.5}), choice("}")), 2, 0, 10
    )
    assert (round(found[0], 12), found[1]) == (2.5, "weighted")


def test_a_score_inside_a_nested_value_is_not_taken_for_the_score() -> None:
    nested = choice('{"reason": "r", "parts": {"score": ')
    inner = choice("9", {"9": 1.0})
    found = expected(
        answer(nested, inner, choice('}, "score": '), choice("2", {"2": 1.0}), choice("}")),
        2, 0, 10,
    )  # fmt: skip
    assert found == (2.0, "weighted")


def test_a_score_written_twice_is_read_where_the_parser_reads_it() -> None:
    text = '{"score": 9, "reason": "", "score": 3}'
    parsed = rating_type(0, 10).model_validate_json(text)
    tokens = [choice('{"score": '), choice("9", {"9": 1.0}), choice(', "reason": "", "score": ')]
    found = expected(
        answer(*tokens, choice("3", {"3": 1.0}), choice("}")), getattr(parsed, "score", -1), 0, 10
    )
    assert found[0] == 3.0


def test_the_draft_in_a_think_block_is_not_taken_for_the_score() -> None:
    """Servers that cut the thinking out of the text leave its tokens in the list."""
    opening, closing = choice('{"reason": "r", "score": '), choice("}")
    draft, final = choice("8", {"8": 1.0}), choice("8", {"8": 0.5, "4": 0.5})
    raw = '{"reason": "r", "score": 8}'
    thinking = [choice("<think>"), opening, draft, closing, choice("</think>")]
    score, mode = expected(
        answer(*thinking, opening, final, closing, raw=raw), 8, 0, 10
    )  # fmt: skip
    assert (score, mode) == (6.0, "weighted") or mode.startswith("raw")


@pytest.mark.parametrize("pieces", [("1", "0"), ("10}",), (" 1", "0")])
def test_a_score_that_is_not_exactly_one_token_is_not_weighted(pieces: tuple[str, ...]) -> None:
    end = () if pieces[-1].endswith("}") else (choice("}"),)
    given_ = answer(choice('{"reason": "", "score":'), *map(choice, pieces), *end)
    score, mode = expected(given_, 10, 0, 10)
    assert score == 10.0
    assert "not exactly one token" in mode


def test_a_score_glued_to_the_text_before_it_is_not_weighted() -> None:
    given_ = answer(choice('{"reason": "", "score'), choice('":7', {'":7': 1.0}), choice("}"))
    score, mode = expected(given_, 7, 0, 10)
    assert (score, mode.partition(" ")[0]) == (7.0, "raw")


def test_alternatives_outside_the_scale_or_not_numbers_do_not_count() -> None:
    mass = {"4": 0.2, "5": 0.2, "9": 0.2, "good": 0.1, "-": 0.1, "4.5": 0.1, "²": 0.05, "٣": 0.05}
    score, mode = expected(rated("4", mass), 4, 1, 5)
    assert (round(score, 12), mode) == (4.5, "weighted")


def test_no_alternative_inside_the_scale_leaves_the_rating_as_it_stands() -> None:
    score, mode = expected(rated("4", {"7": 0.5, "x": 0.5}), 4, 1, 5)
    assert score == 4.0
    assert "no alternative is a number of the scale" in mode


def test_alternatives_of_no_probability_at_all_leave_the_rating_as_it_stands() -> None:
    token = TokenChoice("4", (("4", -9999.0), ("5", -math.inf)))
    score, mode = expected(answer(choice('{"reason": "", "score": '), token, choice("}")), 4, 1, 5)
    assert (score, mode.partition(" ")[0]) == (4.0, "raw")


def test_a_one_that_may_be_the_start_of_a_ten_is_not_weighted() -> None:
    score, mode = expected(rated("7", {"7": 0.6, "1": 0.4}), 7, 0, 10)
    assert score == 7.0
    assert "start of a longer number" in mode


def test_a_start_of_a_longer_number_counts_even_when_it_is_below_the_scale() -> None:
    """On a scale from 5 to 10 a `1` can be nothing but the start of `10`."""
    score, mode = expected(rated("9", {"9": 0.5, "1": 0.5}), 9, 5, 10)
    assert score == 9.0
    assert "start of a longer number" in mode


def test_a_minus_that_may_be_the_start_of_a_negative_number_is_not_weighted() -> None:
    score, mode = expected(rated("1", {"1": 0.5, "-": 0.5}), 1, -3, 3)
    assert score == 1.0
    assert mode.startswith("raw")


def test_a_negligible_one_does_not_stop_the_weighting() -> None:
    score, mode = expected(rated("7", {"7": 0.999, "1": 0.001}), 7, 0, 10)
    assert (round(score, 3), mode) == (6.994, "weighted")


def test_a_tokenizer_with_ten_as_one_token_leaves_no_doubt_about_the_one() -> None:
    score, mode = expected(rated("10", {"10": 0.5, "1": 0.5}), 10, 0, 10)
    assert (round(score, 12), mode) == (5.5, "weighted")


def test_a_one_is_no_start_of_anything_on_a_scale_below_ten() -> None:
    score, mode = expected(rated("1", {"1": 0.5, "2": 0.5}), 1, 1, 5)
    assert (round(score, 12), mode) == (1.5, "weighted")


def test_a_zero_is_no_start_of_a_longer_number() -> None:
    score, mode = expected(rated("0", {"0": 0.5, "4": 0.5}), 0, 0, 10)
    assert (round(score, 12), mode) == (2.0, "weighted")


def test_blanks_around_a_token_do_not_matter_and_equal_numbers_add_up() -> None:
    leading = answer(
        choice('{"reason": "", "score":'),
        choice(" 4", {" 4": 0.25, "4": 0.25, " 2": 0.5}),
        choice("}"),
    )
    opening = choice('{"reason": "", "score": ')
    trailing = answer(opening, choice("4\n", {"4\n": 0.5, "2": 0.5}), choice("}"))
    for given_ in (leading, trailing):
        # Whichever place the token is said to have, blanks are no part of the number.
        score, mode = expected(given_, 4, 1, 5)
        assert (round(score, 12), mode) == (3.0, "weighted")


def test_tokens_that_do_not_spell_the_answer_are_not_used() -> None:
    tokens = (choice('{"reason": "", "score": '), choice("4", {"5": 1.0}), choice("}"))
    score, mode = expected(answer(*tokens, raw='{"reason":"","score":4}'), 4, 1, 5)
    assert (score, mode.partition(" ")[0]) == (4.0, "raw")


def test_tokens_around_a_trimmed_answer_do_not_shift_the_position() -> None:
    raw = '{"reason": "5", "score": 4}'
    tokens = (
        choice("\n\n"),
        choice('{"reason": "5", "score": '),
        choice("4", {"4": 0.5, "2": 0.5}),
        choice("}"),
        choice("\n"),
        choice("<end>"),
    )
    assert expected(answer(*tokens, raw=raw), 4, 1, 5) == (3.0, "weighted")


def test_empty_tokens_do_not_shift_the_position() -> None:
    opening = choice('{"reason": "", "score": ')
    tokens = (opening, choice("", {"5": 1.0}), choice("4", {"4": 1.0}), choice("}"), choice(""))
    assert expected(answer(*tokens), 4, 1, 5) == (4.0, "weighted")


def test_the_place_of_a_value_is_the_top_level_one() -> None:
    raw = ' { "reason" : "\\"score\\": 1 é\\u00e9" ,\n "x" : [{"score": 2}] , "score" : 34 } '
    span = value_span(raw, "score")
    assert span is not None
    assert raw[span[0] : span[1]] == "34"


@pytest.mark.parametrize("raw", ["", "{", "[1]", '{"score"', '{"score": ', '{"other": 1}', "prose"])
def test_text_without_the_field_has_no_place_for_it(raw: str) -> None:
    assert value_span(raw, "score") is None


def told(raw: str, *texts: str) -> list[str]:
    """The tokens whose alternatives are kept."""
    kept = telling(raw, texts, Judged)
    return [text for index, text in enumerate(texts) if index in kept]


class Judged(BaseModel):
    reason: str
    score: int | None
    verdict: Literal["Yes", "No"]


def test_the_tokens_that_tell_something_are_those_of_what_has_a_fixed_form() -> None:
    parts = ('{"reason": "no', 'ne", ', '"score": ', "null", ', "verdict', '": "N', 'o"', "}")
    assert told("".join(parts), *parts) == ["null", '": "N', 'o"']
    # A field that nobody asked for may be of any form.
    assert told('{"extra": "a b"}', '{"extra": "', "a", " b", '"}') == ["a", " b"]


@pytest.mark.parametrize("raw", ["No.", '{"reason": "r"}', "other"])
def test_all_tokens_tell_something_where_that_is_not_known(raw: str) -> None:
    spelled = raw if raw != "other" else '{"score": 1}'
    assert told(raw, spelled[:3], spelled[3:]) == [spelled[:3], spelled[3:]]


_TOKENS = st.one_of(
    st.integers(-3, 120).map(str),
    st.sampled_from([" 3", "3 ", "", "-", "x", "²", "٣", "1.5", "1e1", "0x1", "007"]),
    st.text(max_size=3),
)
_ALTERNATIVES = st.lists(
    st.tuples(_TOKENS, st.floats(min_value=-1e4, max_value=0.0) | st.just(-math.inf)), max_size=20
)


@given(
    low=st.integers(0, 50),
    width=st.integers(1, 100),
    place=st.integers(0, 100),
    alternatives=_ALTERNATIVES,
    reason=st.text(max_size=20),
    data=st.data(),
)
def test_the_result_never_leaves_the_scale(
    low: int, width: int, place: int, alternatives: Any, reason: str, data: st.DataObject
) -> None:
    high, chosen = low + width, low + place % (width + 1)
    text = json.dumps({"reason": reason, "score": chosen}, ensure_ascii=data.draw(st.booleans()))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)) | {len(text)})
    starts = [0, *cuts]
    tokens = tuple(
        TokenChoice(text[start:end], tuple(alternatives))
        for start, end in zip(starts, cuts, strict=False)
    )
    score, mode = expected(answer(*tokens, raw=text), chosen, low, high)
    assert low <= score <= high
    assert mode == "weighted" or (mode.startswith("raw (") and score == chosen)


@pytest.mark.parametrize(
    ("high", "logprob"),
    [(3, -2.8157961418642428), (5, -2.907166482956536), (10, -0.7567969837188914)],
)
def test_rounding_does_not_push_a_unanimous_best_rating_off_the_scale(
    high: int, logprob: float
) -> None:
    opening = choice('{"reason": "", "score": ')
    token = TokenChoice(str(high), ((str(high), logprob),))
    assert expected(answer(opening, token, choice("}")), high, 0, high) == (high, "weighted")


@given(mass=st.dictionaries(st.integers(0, 9), st.floats(0.02, 1.0), min_size=1))
def test_on_a_scale_of_single_digits_the_result_is_the_mean(mass: dict[int, float]) -> None:
    chosen = max(mass, key=lambda value: mass[value])
    found = rated(str(chosen), {str(value): weight for value, weight in mass.items()})
    score, mode = expected(found, chosen, 0, 9)
    mean = sum(value * weight for value, weight in mass.items()) / sum(mass.values())
    assert mode == "weighted"
    assert math.isclose(score, mean, abs_tol=1e-9)


# Scales of labels, and answers in prose.

GRADES = Labels({"poor": 1, "fair": 2, "good": 4})


def labelled(
    token: TokenChoice, before: str = '{"reason": "r", "score": "', after: str = '"}'
) -> Any:
    """A rating by labels given as JSON, its number and its mode."""
    tokens = (choice(before), token, choice(after))
    raw = "".join(token.token for token in tokens)
    stated = GRADES.number(json.loads(raw)["score"])
    return expected_score(Answer(ANY, raw, tokens), stated, GRADES, value_span(raw, "score"))


def test_labels_are_weighted_by_what_they_stand_for() -> None:
    mass = {"good": 0.5, "fair": 0.25, "poor": 0.25}
    assert labelled(choice("good", mass)) == (2.75, "weighted")  # 2.0 + 0.5 + 0.25


def test_a_quotation_mark_in_the_token_of_a_label_belongs_to_its_alternatives_too() -> None:
    mass = {'"good': 0.5, '"fair': 0.5, "poor": 0.001}
    opening = '{"reason": "r", "score": '
    assert labelled(choice('"good', mass), before=opening) == (3.0, "weighted")
    closing = {'good"': 0.5, 'fair"': 0.5, "poor": 0.001}
    assert labelled(choice('good"', closing), after="}") == (3.0, "weighted")


def test_labels_are_read_letter_for_letter() -> None:
    mass = {"good": 0.5, "Poor": 0.3, "poorly": 0.2}
    assert labelled(choice("good", mass)) == (4.0, "weighted")


@pytest.mark.parametrize("other", [" poor", 'poor"', '"poor'])
def test_a_label_with_other_blanks_or_quotes_stops_the_weighting(other: str) -> None:
    score, mode = labelled(choice("good", {"good": 0.6, other: 0.4}))
    assert (score, mode) == (4, "raw (a token may be a part of a label)")
    assert labelled(choice("good", {"good": 0.999, other: 0.001})) == (4.0, "weighted")


@pytest.mark.parametrize("start", ["p", "fai"])
def test_a_token_that_may_be_the_start_of_a_label_stops_the_weighting(start: str) -> None:
    score, mode = labelled(choice("good", {"good": 0.6, start: 0.4}))
    assert (score, mode) == (4, "raw (a token may be a part of a label)")
    assert labelled(choice("good", {"good": 0.999, start: 0.001})) == (4.0, "weighted")


def test_a_label_that_is_seen_as_one_token_is_not_started_by_a_shorter_one() -> None:
    scale = Labels({"A": 0, "AB": 1})
    answer_ = Answer(ANY, "A", (choice("A", {"A": 0.5, "AB": 0.5}),))
    assert expected_score(answer_, 0, scale, (0, 1)) == (0.5, "weighted")
    alone = Answer(ANY, "A", (choice("A", {"A": 1.0}),))
    assert expected_score(alone, 0, scale, (0, 1))[1].startswith("raw (a token may be a part")


def test_a_label_of_several_tokens_is_not_weighted() -> None:
    raw = '{"score": "good"}'
    tokens = (choice('{"score": "'), choice("go"), choice("od"), choice('"}'))
    found = expected_score(Answer(ANY, raw, tokens), 4, GRADES, value_span(raw, "score"))
    assert found == (4, "raw (the score is not exactly one token of the answer)")


def test_no_label_among_the_alternatives_leaves_the_rating_as_it_stands() -> None:
    assert labelled(choice("good", {"x": 1.0})) == (
        4,
        "raw (no alternative is a label of the scale)",
    )


def test_a_rating_that_is_none_has_no_number_unless_its_alternatives_have() -> None:
    other = Answer(ANY, "Hm", (choice("Hm", {"Hm": 0.8, "good": 0.1, "fair": 0.1}),))
    assert expected_score(other, None, GRADES, (0, 2)) == (3.0, "weighted")
    assert expected_score(Answer(ANY, "Hm"), None, GRADES, (0, 2))[0] is None


@pytest.mark.parametrize(
    "values",
    [{}, {"one": 1}, {"one": 1, "uno": 1}, {"": 0, "x": 1}, {"a": True, "b": 2},
     {"a": "1", "b": 2}, {"a": math.nan, "b": 2}, {"a": math.inf, "b": 2}, {1: 0, 2: 1}],
)  # fmt: skip
def test_labels_of_one_point_or_without_numbers_make_no_scale(values: Any) -> None:
    with pytest.raises(InputError, match="scale"):
        scale_of(values)


def test_a_rating_in_prose_is_weighted_where_the_parser_found_it() -> None:
    raw = "I would say 8, but then 3.\nScore: 8 of 10"
    tokens = tuple(choice(part) for part in ("I would say ", "8", ", but then 3.\nScore: "))
    tokens += (choice("8", {"8": 0.5, "6": 0.5}), choice(" of 10"))
    place = FirstMatch(((r"Score: (\d+)", None),), field="score").span(raw)
    assert expected_score(Answer(ANY, raw, tokens), 8, WholeNumbers(0, 10), place) == (
        7.0,
        "weighted",
    )


def test_a_rating_at_an_unknown_place_is_not_weighted() -> None:
    found = expected_score(Answer(ANY, "8", (choice("8"),)), 8, WholeNumbers(0, 10), None)
    assert found == (8, "raw (it is not known where the answer states the score)")


@given(before=st.text(max_size=12), after=st.text(max_size=12), mass=_ALTERNATIVES, data=st.data())
def test_prose_is_never_weighted_by_another_token_than_the_one_found(
    before: str, after: str, mass: Any, data: st.DataObject
) -> None:
    raw = f"{before}<8>{after}"
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=8)) | {len(raw)})
    starts = [0, *cuts]
    planted = TokenChoice("8", (("2", 0.0),))
    tokens = tuple(
        TokenChoice(
            raw[start:end], tuple(mass) if start == len(before) + 1 else planted.alternatives
        )
        for start, end in zip(starts, cuts, strict=False)
    )
    place = len(before) + 1, len(before) + 2
    score, mode = expected_score(Answer(ANY, raw, tokens), 8, WholeNumbers(5, 9), place)
    assert score is not None
    assert 5 <= score <= 9
    assert (mode == "weighted") <= any(token.token == "8" for token in tokens)
    assert mode == "weighted" or score == 8


@pytest.mark.parametrize(
    ("patterns", "text", "span"),
    [
        (((r"(\d)", None),), "a 7", (2, 3)),
        (((r"b+", "B"),), "abbc", (1, 3)),
        (((r"x", "X"), (r"is (\w+)", "A")), "it is A", (6, 7)),
        (((r"a(x)?", None),), "a", None),
        (((r"", "tie"),), "a", None),
        (((r"x", "X"),), "a", None),
    ],
)
def test_the_first_match_says_where_it_is(
    patterns: Any, text: str, span: tuple[int, int] | None
) -> None:
    assert FirstMatch(patterns).span(text) == span
