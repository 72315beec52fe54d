"""When a count of tokens is looked into: a law over counts and sizes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dagengine.gateway.window.suspicious_counts import PromptCounts
from dagengine.prompts.lengths.token_counts import Size

SIZES = st.floats(64, 2_000)


def words(tokens: float) -> Size:
    return Size(tokens, round(4.5 * tokens), "words")


def learnt(ratio: float = 1.3, **known: Any) -> PromptCounts:
    """What is known after some short prompts of a server that reads them whole."""
    counts = PromptCounts(**known)
    for tokens in (90.0, 120.0, 150.0, 180.0):
        counts.accept(words(tokens), round(ratio * (tokens + 40)))
    return counts


@given(SIZES, st.floats(1.0, 5.0))
def test_a_half_of_what_is_usual_is_suspicious(tokens: float, ratio: float) -> None:
    usual = round(ratio * (tokens + 40))
    assert learnt(ratio).is_suspicious(words(tokens), usual // 2)


@given(SIZES)
def test_a_few_tokens_are_suspicious_before_anything_is_learnt(tokens: float) -> None:
    assert PromptCounts().is_suspicious(words(tokens), round(tokens * 0.5))


def test_a_usual_short_prompt_is_not() -> None:
    counts = learnt()
    assert not counts.is_suspicious(words(100), round(1.3 * 140))
    assert not PromptCounts().is_suspicious(words(80), 103)


def test_a_prompt_far_longer_than_all_before_is_to_be_proved_once() -> None:
    counts, long = learnt(), words(3_000)
    assert counts.is_suspicious(long, 3_952)
    counts.accept(long, 3_952, proved=7_000)
    assert not counts.is_suspicious(words(2_990), 3_939)


def test_equal_counts_of_prompts_of_different_lengths_are_suspicious() -> None:
    counts = PromptCounts()
    counts.accept(words(140), 187)
    assert counts.is_suspicious(words(160), 187)
    assert not counts.is_suspicious(words(141), 187)


def test_the_most_so_far_is_suspicious_where_it_is_a_round_number() -> None:
    for limit in (200, 512, 258, 1024, 2050):
        size = words(limit / 1.3 - 40)
        assert PromptCounts(_top=limit - 10).is_suspicious(size, limit)
    assert not PromptCounts().is_suspicious(words(110), 195)


def test_half_a_window_and_two_is_suspicious_at_any_size() -> None:
    counts = learnt(window=4096)
    assert counts.is_suspicious(words(1_540), 2_050)
    assert counts.is_suspicious(words(1_540), 2_049)


def test_what_fits_into_the_window_by_far_is_not() -> None:
    assert not learnt(window=100_000).is_suspicious(words(1_500), 2_000)


@given(SIZES, st.integers(0, 5_000))
def test_a_known_limit_decides_alone(tokens: float, read: int) -> None:
    counts = learnt(limit=2_050)
    assert counts.is_cut(words(tokens), read) == (read == 2_050)
    assert not counts.is_suspicious(words(tokens), read)


@given(st.lists(st.tuples(SIZES, st.floats(0.9, 5.0)), max_size=30), SIZES)
def test_a_server_without_counts_is_never_suspicious(
    prompts: list[tuple[float, float]], tokens: float
) -> None:
    counts = PromptCounts()
    for size, ratio in prompts:
        counts.accept(words(size), round(size * ratio))
    assert not counts.is_suspicious(words(tokens), 0)
    counts.mute = True
    assert not counts.is_suspicious(words(tokens), 7)
