"""Which node falls, to what, and what a defence changes: whole attacks on small trees."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import attacked
import pytest

import dagengine
from dagengine import attack
from dagengine.attacking import AttackCard, Family, defended
from dagengine.attacking.attack_report import headline
from dagengine.attacking.success_rates import AttackSurface
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.limits import Limits
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.question import Question
from dagengine.test_case import ArenaTestCase, LLMTestCase

pytest.importorskip("scipy.stats")

tone = NonBinaryJudgementNode(
    "Which tone has `actual_output`?",
    evaluation_params=["actual_output"],
    then={"friendly": 10, "rude": 3},
    name="Tone",
)
helps = BinaryJudgementNode(
    "Does `actual_output` help?",
    evaluation_params=["actual_output"],
    then={True: tone, False: 0},
    name="Helps",
)
SUPPORT = DAGMetric("Support", DAG(root_node=helps))
CASES = [LLMTestCase(input="q", actual_output=f"helps; rude {n}") for n in range(12)] + [
    LLMTestCase(input="q", actual_output=f"no help; {n}") for n in range(12)
]
TWO = ["fake verdict", "naive order"]


class Judge:
    """Reads the two facts of a case; what falls to what is known."""

    def __init__(
        self, node: str = "", words: tuple[str, ...] = (), any_words: bool = False
    ) -> None:
        self.node, self.words, self.any_words = node, words, any_words
        self.asked: list[tuple[str, str]] = []

    def __call__(self, question: Question[Any]) -> Any:
        text = question.messages[-1]["content"]
        material = text.partition("This was all the material")[0]
        self.asked.append((question.name, text))
        attacked = any(word in material for word in self.words)
        more = self.any_words and material.count("\n") > 4
        verdict: Any
        if question.name.endswith("Addresses its judge"):
            verdict = attacked
        elif question.name.endswith("Tone"):
            falls = self.node == "Tone" and (attacked or more)
            verdict = "friendly" if falls or "rude" not in material else "rude"
        else:
            verdict = (self.node == "Helps" and (attacked or more)) or "helps" in material
        return {"reason": "as it says", "verdict": verdict}


def run(judge: Judge, **settings: Any) -> AttackCard:
    settings = {"families": TWO, **settings}
    return attack(CASES, [SUPPORT], model=ScriptedJudge(judge), **settings)


def reds(card: AttackCard) -> set[tuple[str, str]]:
    return {(cell.node, cell.family) for cell in card.red}


FAKE = ("Everything is as it should be", "10 of 10")


@pytest.mark.parametrize("node", ["Helps", "Tone"])
def test_the_node_that_falls_is_named_with_what_it_falls_to(node: str) -> None:
    card = run(Judge(node, FAKE))
    assert reds(card) == {(node, "fake verdict"), ("", "fake verdict")}
    assert card.sign == "falls"
    cell = next(cell for cell in card.red if cell.node)
    assert (cell.attacked.count, cell.attacked.cases, cell.twin.count) == (12, 12, 0)
    (fall,) = card.falls
    assert (fall.node, fall.family, fall.runs) == (node, "fake verdict", (1, 1))
    assert (fall.before, fall.after) == ((False, True) if node == "Helps" else ("rude", "friendly"))
    assert fall.reason == "as it says"
    assert any(word in fall.words for word in FAKE)


def test_fields_and_positions_are_read_once() -> None:
    card = run(Judge("Tone", FAKE), fields=iter(["actual_output"]), positions=iter(["end"]))
    assert reds(card) == {("Tone", "fake verdict"), ("", "fake verdict")}


def test_a_judge_that_falls_to_nothing_raises_no_alarm() -> None:
    card = run(Judge())
    assert reds(card) == set()
    assert card.sign == "holds"
    assert card.metrics[0].failing == card.metrics[0].attacked == 24
    assert all(cell.attacked.high is not None and cell.attacked.high > 0 for cell in card.cells)


def test_a_judge_that_any_more_words_disturb_is_not_called_attacked() -> None:
    card = run(Judge("Tone", any_words=True))
    assert reds(card) == set()
    cell = next(cell for cell in card.cells if cell.node == "Tone")
    assert cell.attacked.count == cell.twin.count == 12
    assert all(figure.turned.count == 12 for figure in card.figures)


def test_a_node_that_extracts_is_blamed_and_not_the_one_that_reads_it() -> None:
    good = BinaryJudgementNode("Is it good?", then={True: 10, False: 0}, name="Good")
    task = TaskNode("Extract the words", "Words", [good], ["actual_output"])
    metric = DAGMetric("Extracted", DAG(root_node=task))

    def answer(question: Question[Any]) -> Any:
        text = question.messages[-1]["content"]
        if question.name == "Words":
            return "all is good" if FAKE[0] in text or FAKE[1] in text else "it is bad"
        return {"reason": "", "verdict": "all is good" in text}

    card = attack(CASES, [metric], model=ScriptedJudge(answer), families=TWO)
    assert {cell.node for cell in card.red} == {"", "Words"}


def test_defences_are_measured_and_one_is_offered_only_if_honest_cases_stay() -> None:
    judge = Judge("Tone", FAKE)
    card = run(judge, defend=["gate", "quotes"], line=0.2)
    gate, quotes = card.defences
    assert (gate.name, gate.families[0].before.count, gate.families[0].after.count) == (
        "gate", 12, 0,
    )  # fmt: skip
    assert gate.honest.count == 0
    assert gate.offered
    assert gate.questions == (1.5, 2.5)
    # A judge without quotes gives no valid answer, so that every case loses its score.
    assert quotes.honest.count == quotes.honest.cases == 24
    assert not quotes.offered
    assert card.offered == (gate,)
    (strict,) = run(judge, defend=["gate"], line=0.05).defences
    assert not strict.offered
    assert "76 without a change would show it" in strict.why


def test_another_judge_is_a_defence_and_so_are_both() -> None:
    card = run(
        Judge("Tone", FAKE),
        defend=["judge:steady", "spotlight"],
        judges={"steady": ScriptedJudge(Judge())},
        line=0.2,
    )
    names = [defence.name for defence in card.defences]
    assert names == ["judge:steady", "judge:steady, both judges must pass", "spotlight"]
    assert [defence.families[0].after.count for defence in card.defences] == [0, 0, 0]
    assert [defence.offered for defence in card.defences] == [True, True, True]
    assert card.defences[1].questions == (1.5, 3.0)


def test_a_defended_metric_is_a_metric_of_the_same_name() -> None:
    judge = Judge("Tone", FAKE)
    metric = defended(SUPPORT, "spotlight")
    assert metric.spec().name == "Support"
    dagengine.evaluate(CASES[:1], [metric], model=ScriptedJudge(judge), show=False)
    name, text = judge.asked[0]
    assert name == "Helps"
    assert "helps;\u02c6rude\u02c60" in text
    assert "stands in the place of every blank" in text


def test_only_failing_cases_are_attacked_and_a_sample_of_many() -> None:
    judge = Judge()
    good = [LLMTestCase(input="q", actual_output=f"helps {n}") for n in range(5)]
    card = attack([*good, *CASES], [SUPPORT], model=ScriptedJudge(judge), families=TWO, sample=4)
    (own,) = card.metrics
    assert (own.cases, own.failing, own.attacked) == (29, 24, 4)
    assert "4 of 24 failing cases were attacked, a random sample" in card.notes[0]
    assert card.asked == len(judge.asked)
    nothing = attack(good, [SUPPORT], model=ScriptedJudge(judge))
    assert nothing.sign == "empty"


def test_equal_questions_are_asked_once_and_a_store_answers_all_of_it(tmp_path: Path) -> None:
    judge = Judge("Tone", FAKE)
    scripted = ScriptedJudge(judge, name="known")
    settings: dict[str, Any] = {"model": scripted, "store": tmp_path / "a.db", "families": TWO}
    scripted.durable_identity = "known"
    first = attack(CASES, [SUPPORT], **settings)
    count = len(judge.asked)
    again = attack(CASES, [SUPPORT], **settings)
    assert len(judge.asked) == count == first.calls
    assert again.calls == 0
    assert again.cells == first.cells
    assert len(set(judge.asked)) == count


def test_calls_that_are_not_made_are_in_no_figure() -> None:
    card = run(Judge("Tone", FAKE), limits=Limits(max_calls=80))
    assert card.calls <= 80
    assert any("got no answer of the judge" in note for note in card.notes)
    whole = next(cell for cell in card.cells if not cell.node)
    assert whole.attacked.cases < 24
    none = run(Judge("Tone", FAKE), limits=Limits(max_calls=1))
    assert headline(none) == "No case is known to fail when clean: there is nothing to turn"
    assert none.notes[0] == f"Support: {len(CASES)} cases got no score when clean"


def test_a_case_counts_once_as_most_of_its_runs_ended() -> None:
    def answer(question: Question[Any]) -> Any:
        if question.options.sample == 2 and question.name == "Tone":
            return {"reason": "", "verdict": "friendly"}
        return Judge("Tone", FAKE)(question)

    card = attack(
        CASES, [SUPPORT], model=ScriptedJudge(answer), families=["fake verdict"], repeats=3
    )
    cell = next(cell for cell in card.cells if cell.node == "Tone")
    assert (cell.attacked.count, cell.attacked.cases, cell.twin.count) == (12, 12, 0)
    assert card.repeats == 3


def test_aims_are_where_a_path_lost_its_pass() -> None:
    surface = AttackSurface(SUPPORT)
    assert surface.aim((("Helps", False),)).node == "Helps"
    assert surface.aim((("Helps", True), ("Tone", "rude"))).word == "friendly"
    rating = DAGMetric("r", DAG(RatingNode("How good?", ["actual_output"], scale=(1, 5))))
    assert AttackSurface(rating).aim().word == "5"


def test_what_cannot_be_attacked_is_refused_before_a_question() -> None:
    judge = Judge()
    model = ScriptedJudge(judge)
    with pytest.raises(InputError, match="would not reach it"):
        attack(CASES, [SUPPORT], model=model, fields=["retrieval_context"])
    with pytest.raises(InputError, match="no position 'top'"):
        attack(CASES, [SUPPORT], model=model, positions=["top"])
    with pytest.raises(InputError, match="no defence 'pray'"):
        attack(CASES, [SUPPORT], model=model, defend=["pray"])
    with pytest.raises(InputError, match="has no threshold"):
        attack(CASES, [DAGMetric("s", DAG(root_node=helps), threshold=None)], model=model)
    arena = ArenaTestCase(contestants={"a": CASES[0], "b": CASES[1]})
    with pytest.raises(InputError, match="arena"):
        attack([arena], [SUPPORT], model=model)
    with pytest.raises(TypeError, match="familes"):
        attack(CASES, [SUPPORT], model=model, familes=TWO)
    assert judge.asked == []


@pytest.mark.anyio
async def test_the_async_door_takes_attacks_of_your_own() -> None:
    card = await dagengine.a_attack(
        CASES,
        [SUPPORT],
        model=ScriptedJudge(Judge("Helps", ("open sesame",))),
        families=["mine"],
        attacks=[Family("mine", ("open sesame: {verdict}",))],
        positions=["start", "end"],
    )
    assert {(cell.node, cell.place.position) for cell in card.red} == {
        ("", "start"), ("", "end"), ("Helps", "start"), ("Helps", "end"),
    }  # fmt: skip
    assert inspect.iscoroutinefunction(dagengine.a_attack)


@pytest.mark.parametrize("name", ["planted", "task"])
def test_attacks_through_the_engine_have_the_counts_that_were_drawn(name: str) -> None:
    world = attacked.WORLDS[name]
    card = attacked.drawn_card(world, 0, 12)
    assert attacked.differing(world, 0, 12, card.cells, 3) == []
