"""Arena cases from a list of contestants, and how often each of them wins."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from dagengine import compare
from dagengine.judges import ScriptedJudge
from dagengine.metrics import ArenaGEval
from dagengine.test_case import ArenaTestCase, Contestant, LLMTestCase


def contestant(name: str, answer: str, input: str = "Say hello.") -> Contestant:
    case = LLMTestCase(input=input, actual_output=answer)
    return Contestant(name=name, test_case=case, hyperparameters={"temperature": 0})


def arena(first: str, second: str) -> ArenaTestCase:
    given: Any = [contestant("Version 1", first), contestant("Version 2", second)]
    return ArenaTestCase(contestants=given)


def longest(question: Any) -> str:
    """The contestant with the longer answer, or a tie."""
    text = question.messages[-1]["content"]
    lengths = {
        f"Contestant {n}": len(text.split(f"BEGIN Contestant {n}")[1].split("END")[0])
        for n in (1, 2)
    }
    one, two = lengths.values()
    return "tie" if one == two else max(lengths, key=lambda name: lengths[name])


def friendly() -> ArenaGEval:
    return ArenaGEval(
        "Friendly", evaluation_steps=["Longer is kinder."], evaluation_params=["actual_output"]
    )


def test_contestants_in_a_list_are_those_by_name() -> None:
    given = arena("Hi", "Hello")
    assert list(given.contestants) == ["Version 1", "Version 2"]
    assert given.contestants["Version 2"].actual_output == "Hello"


def test_contestants_need_names_of_their_own_and_one_input() -> None:
    twice: Any = [contestant("A", "x"), contestant("A", "y")]
    with pytest.raises(ValidationError, match="names must be unique"):
        ArenaTestCase(contestants=twice)
    apart: Any = [contestant("A", "x"), contestant("B", "y", input="Say bye.")]
    with pytest.raises(ValidationError, match="must have the same 'input'"):
        ArenaTestCase(contestants=apart)


def test_wins_are_counted_by_contestant_and_ties_as_ties() -> None:
    cases = [arena("Hi", "Hello there"), arena("Hi", "Hello, all"), arena("Same", "Same")]
    judge = ScriptedJudge(longest)
    assert compare(cases, friendly(), model=judge, show=False) == {"Version 2": 2, "tie": 1}


def test_a_tie_has_no_winner_and_is_told_as_one() -> None:
    metric = friendly()
    metric.model = ScriptedJudge(longest)
    metric.measure(arena("Same", "Same"))
    assert metric.winner is None
    assert (metric.reason or "").startswith("Tie: ")
