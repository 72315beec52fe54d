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
from dagengine.prompts.probabilities.answer_tokens import telling_tokens, value_span
from dagengine.prompts.probabilities.scales import Labels, WholeNumbers, scale_of
from dagengine.prompts.probabilities.weighted_scores import expected_score
from dagengine.question import Answer, FirstMatch, TokenChoice

Mass = dict[str, float]
ANY: Any = None  # the value of an answer, which is not looked at


def expected(answer: Answer[Any], stated: int, low: int, high: int) -> tuple[float, str]:
    """A rating on a scale of whole numbers, given as JSON."""
    place = value_span(answer.raw, "score")
    found = expected_score(answer, float(stated), WholeNumbers(low, high), place)
    assert found.rating is not None
    return found.rating, found.mode


def read(*args: Any) -> tuple[float | None, str]:
    """The rating and its mode."""
    found = expected_score(*args)
    return found.rating, found.mode


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
    score, mode = expected(rated("4", {"4": 0.6, "2": 0.2, "good": 0.2}), 4, 1, 5)
    assert (round(score, 12), mode) == (3.5, "weighted")  # (2.4 + 0.4) / 0.8


def test_below_half_of_the_mass_a_rating_counts_as_it_is_stated() -> None:
    found = expected_score(
        rated("4", {"4": 0.3, "2": 0.1, "good": 0.6}), 4.0, WholeNumbers(1, 5), (27, 28)
    )
    assert found.rating == 4.0
    assert found.mass == pytest.approx(0.4)
    assert found.mode == "raw (only 40 % of the probability is on numbers of the scale)"


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


@pytest.mark.parametrize("pieces", [("10}",), ("\t10}",)])
def test_a_score_that_is_not_made_of_tokens_alone_is_not_weighted(pieces: tuple[str, ...]) -> None:
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
    mass = {"4": 0.3, "5": 0.3, "9": 0.1, "good": 0.1, "-": 0.05, "4.5": 0.1, "²": 0.03, "٣": 0.02}
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


def test_a_share_of_ones_that_moves_the_score_little_is_taken_for_the_middle() -> None:
    """From 1 to 10 the average moves by 0.36, which is less than a twentieth of the scale."""
    score, mode = expected(rated("8", {"8": 0.96, "1": 0.04}), 8, 0, 10)
    assert (round(score, 12), mode) == (round(0.96 * 8 + 0.04 * 5.5, 12), "weighted")


def said(first: Mass, token: str, then: Mass | None, *more: str) -> Answer[Any]:
    """An answer whose rating is a digit and what came after it."""
    after = choice(more[0] if more else "}", then) if then else choice("}", {})
    texts = [choice('{"reason": "", "score": '), choice(token, first), after]
    return answer(*texts, *map(choice, more[1:]))


@pytest.mark.parametrize(
    ("then", "more", "ten"),
    [
        ({"0": 0.5, "}": 0.5}, ("}",), 0.5),
        ({"0": 0.3, "}": 0.2, "\n": 0.1, ",": 0.1, ".": 0.2, "5": 0.1}, ("\n", "}"), 3 / 7),
        ({"0": 0.8, "}": 0.2}, ("0", "}"), 0.8),
        ({"0}": 0.75, "}": 0.25}, ("0}",), 0.75),
        ({"0": 0.9, "1": 0.1}, ("0", "}"), 1.0),
    ],
)
def test_after_a_stated_one_the_next_token_says_how_likely_the_ten_is(
    then: Mass, more: tuple[str, ...], ten: float
) -> None:
    stated = 10 if more[0].startswith("0") else 1
    score, mode = expected(said({"1": 0.5, "8": 0.5}, "1", then, *more), stated, 0, 10)
    assert mode == "weighted"
    assert score == pytest.approx(4 + 0.5 * (10 * ten + 1 - ten))


def test_what_comes_after_a_one_says_nothing_where_it_is_mostly_no_number() -> None:
    then = {"0": 0.2, "}": 0.2, ".": 0.6}
    score, mode = expected(said({"1": 0.5, "8": 0.5}, "1", then), 1, 0, 10)
    assert (score, mode.partition(":")[0]) == (
        1,
        "raw (a token may be the start of a longer number",
    )


def test_digits_are_put_together_as_far_as_the_scale_goes() -> None:
    """85 of 100: what else the second digit might have been, and no third."""
    then = {"5": 0.5, "0": 0.25, "}": 0.25}
    given_ = said({"8": 1.0}, "8", then, "5", "}")
    assert expected(given_, 85, 0, 100) == (0.5 * 85 + 0.25 * 80 + 0.25 * 8, "weighted")
    unsure = said({"8": 0.5, "7": 0.5}, "8", then, "5", "}")
    assert expected(unsure, 85, 0, 100)[1] == (
        "raw (a token may be the start of a longer number: the average is between 35.8 and 71.8)"
    )


def test_a_ten_below_zero_is_read_on_too() -> None:
    minus = choice("-", {"-": 1.0})
    texts = [choice('{"reason": "", "score": '), minus, choice("1", {"1": 1.0})]
    found = answer(*texts, choice("0", {"0": 0.5, "}": 0.5}), choice("}"))
    assert expected(found, -10, -10, 0) == (-5.5, "weighted")


def test_ratings_that_a_server_does_not_tell_bound_the_average() -> None:
    few = rated("8", {"8": 0.6, "9": 0.3})
    why = "the server does not tell all ratings: the average is between 7.5 and 8.5"
    assert expected(few, 8, 0, 10) == (8.0, f"raw ({why})")
    many = {"8": 0.6, "9": 0.3, "7": 0.09, "6": 0.005}
    score, mode = expected(rated("8", many), 8, 0, 10)
    assert mode == "weighted"
    assert score == pytest.approx((4.8 + 2.7 + 0.63 + 0.03) / 0.995)


DIGITS = [str(digit) for digit in range(10)]
CHANCES = st.lists(st.floats(0.0, 1.0), min_size=14, max_size=14).filter(lambda one: sum(one) > 0.1)


@given(
    first=CHANCES,
    then=CHANCES,
    high=st.sampled_from([9, 10, 12]),
    stated=st.integers(0, 12),
    top=st.integers(1, 14),
    sharp=st.integers(1, 6),
)
def test_a_weighted_rating_is_as_near_to_the_expectation_as_it_says(
    first: list[float], then: list[float], high: int, stated: int, top: int, sharp: int
) -> None:
    """A judge of one digit per token, whose alternatives are cut after the most likely ones."""
    junk = [".", "x", "-", "}"]

    def shares(weights: list[float]) -> Mass:
        powers = [weight**sharp for weight in weights]
        total = sum(powers)
        return {
            text: power / total
            for text, power in zip([*DIGITS, *junk], powers, strict=True)
            if power / total > 1e-12
        }

    starts, ends = shares(first), shares(then)
    numbers = {float(digit): starts.get(digit, 0.0) for digit in DIGITS if int(digit) <= high}
    if not sum(numbers.values()):
        return
    on = {str(n): ends.get(str(n - 10), 0.0) for n in range(10, high + 1)} | {
        "1": ends.get("}", 0.0)
    }
    if not (whole := sum(on.values())) and high > 9:
        return
    if high > 9:
        one = numbers.pop(1.0)
        numbers |= {float(number): one * chance / whole for number, chance in on.items()}
    truth = sum(n * chance for n, chance in numbers.items()) / sum(numbers.values())

    def cut(mass: Mass) -> Mass:
        return dict(sorted(mass.items(), key=lambda one: -one[1])[:top])

    text = str(stated % (high + 1))
    end = text[1:] or "}"
    found = said(cut(starts), text[0], cut(ends), *([end, "}"] if end != "}" else [end]))
    rating, mode = expected(found, int(text), 0, high)
    assert mode != "weighted" or abs(rating - truth) <= 0.05 * high + 1e-9
    complete = top == 14 and high == 9 and sum(starts.get(digit, 0.0) for digit in DIGITS) >= 0.5
    assert not complete or mode == "weighted"


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


def test_tokens_that_do_not_spell_the_end_of_the_answer_are_not_used() -> None:
    tokens = (choice('{"reason": "", "score": '), choice("4", {"5": 1.0}), choice("}"))
    score, mode = expected(answer(*tokens, raw='{"reason":"","score":4 }'), 4, 1, 5)
    assert (score, mode.partition(" ")[0]) == (4.0, "raw")


@pytest.mark.parametrize("shared", ["\ufffd\ufffd", "bytes:\\xf0\\x9f", ""])
def test_tokens_that_share_a_character_of_the_reason_leave_the_score_where_it_is(
    shared: str,
) -> None:
    raw = '{"reason": "\U0001f60a, 5", "score": 4}'
    texts = ('{"reason": "', shared, shared, ', 5", "score": ')
    tokens = (*map(choice, texts), choice("4", {"4": 0.5, "2": 0.5}), choice("}"), choice("<end>"))
    assert expected(answer(*tokens, raw=raw), 4, 1, 5) == (3.0, "weighted")


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
    kept = telling_tokens(raw, texts, Judged)
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


def test_the_token_after_a_number_tells_how_likely_a_longer_one_was() -> None:
    parts = ('{"reason": "r", "score": ', "1", "}", "\n")
    raw = "".join(parts)
    assert telling_tokens(raw, parts, rating_type(0, 10)) == {1, 2}
    assert telling_tokens(raw, parts, rating_type(0, 9)) == {1}


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
    [(3, -0.014827896633477123), (5, -0.04796561118628465), (10, -0.14427278486072137)],
)
def test_rounding_does_not_push_a_unanimous_best_rating_off_the_scale(
    high: int, logprob: float
) -> None:
    opening = choice('{"reason": "", "score": ')
    token = TokenChoice(str(high), ((str(high), logprob), ("good", math.log1p(-math.exp(logprob)))))
    assert expected(answer(opening, token, choice("}")), high, 0, high) == (high, "weighted")


@given(mass=st.dictionaries(st.integers(0, 9), st.floats(0.02, 1.0), min_size=1))
def test_on_a_scale_of_single_digits_the_result_is_the_mean(mass: dict[int, float]) -> None:
    chosen = max(mass, key=lambda value: mass[value])
    total = sum(mass.values())
    found = rated(str(chosen), {str(value): weight / total for value, weight in mass.items()})
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
    return read(Answer(ANY, raw, tokens), stated, GRADES, value_span(raw, "score"))


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
    assert (score, mode.partition(":")[0]) == (4, "raw (a token may be a part of a label")
    assert labelled(choice("good", {"good": 0.999, other: 0.001})) == (4.0, "weighted")


@pytest.mark.parametrize("start", ["p", "fai"])
def test_a_token_that_may_be_the_start_of_a_label_stops_the_weighting(start: str) -> None:
    score, mode = labelled(choice("good", {"good": 0.6, start: 0.4}))
    assert (score, mode.partition(":")[0]) == (4, "raw (a token may be a part of a label")
    assert labelled(choice("good", {"good": 0.999, start: 0.001})) == (4.0, "weighted")


def test_a_label_that_is_seen_as_one_token_is_not_started_by_a_shorter_one() -> None:
    scale = Labels({"A": 0, "AB": 1})
    answer_ = Answer(ANY, "A", (choice("A", {"A": 0.5, "AB": 0.5}),))
    assert read(answer_, 0, scale, (0, 1)) == (0.5, "weighted")
    alone = Answer(ANY, "A", (choice("A", {"A": 1.0}),))
    assert read(alone, 0, scale, (0, 1))[1].startswith("raw (a token may be a part")


def test_a_label_of_several_tokens_is_not_weighted() -> None:
    raw = '{"score": "good"}'
    tokens = (choice('{"score": "'), choice("go"), choice("od"), choice('"}'))
    found = read(Answer(ANY, raw, tokens), 4, GRADES, value_span(raw, "score"))
    assert found == (4, "raw (the score is not exactly one token of the answer)")


def test_no_label_among_the_alternatives_leaves_the_rating_as_it_stands() -> None:
    assert labelled(choice("good", {"x": 1.0})) == (
        4,
        "raw (no alternative is a label of the scale)",
    )


def test_a_rating_that_is_none_has_no_number_unless_its_alternatives_have() -> None:
    other = Answer(ANY, "Hm", (choice("Hm", {"Hm": 0.4, "good": 0.3, "fair": 0.3}),))
    assert read(other, None, GRADES, (0, 2)) == (3.0, "weighted")
    assert read(Answer(ANY, "Hm"), None, GRADES, (0, 2))[0] is None


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
    assert read(Answer(ANY, raw, tokens), 8, WholeNumbers(0, 10), place) == (
        7.0,
        "weighted",
    )


def test_a_rating_at_an_unknown_place_is_not_weighted() -> None:
    found = read(Answer(ANY, "8", (choice("8"),)), 8, WholeNumbers(0, 10), None)
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
    score, mode = read(Answer(ANY, raw, tokens), 8, WholeNumbers(5, 9), place)
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
