"""Decision trees over the turns of a conversation, whole or in windows."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import ConversationalDAGMetric, DAGMetric
from dagengine.metrics.conversational_dag import (
    ConversationalBinaryJudgementNode,
    ConversationalNonBinaryJudgementNode,
    ConversationalTaskNode,
    ConversationalVerdictNode,
    turn_windows,
)
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    MapNode,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)
from dagengine.prompts.evidence import split_evidence, turn_names
from dagengine.results import OutcomeKind
from dagengine.test_case import ConversationalTestCase, MultiTurnParams, ToolCall, Turn, TurnParams

CASE = ConversationalTestCase(
    scenario="A user asks for an order.",
    turns=[
        Turn(role="user", content="Where is my order?"),
        Turn(
            role="assistant",
            content="On its way.",
            retrieval_context=["Order 7 left on Monday."],
            tools_called=[ToolCall(name="find_order")],
        ),
        Turn(role="user", content="Thank you!"),
        Turn(role="assistant", content="My pleasure."),
    ],
)
SAID = [MultiTurnParams.ROLE, MultiTurnParams.CONTENT]


def shown(node: Any, case: ConversationalTestCase = CASE) -> str:
    """What the judge of a yes/no node is shown of a conversation."""
    prompts: list[str] = []

    def answer(question: Any) -> bool:
        prompts.append(question.messages[-1]["content"])
        return True

    node.add_verdict(True, score=10)
    node.add_verdict(False, score=0)
    metric = ConversationalDAGMetric("Tone", DAG(node))
    done = evaluate([case], [metric], model=ScriptedJudge(answer), show=False)
    assert done.scores("Tone") == [1.0]
    return prompts[0]


def test_there_is_one_family_of_nodes() -> None:
    assert ConversationalTaskNode is TaskNode
    assert ConversationalBinaryJudgementNode is BinaryJudgementNode
    assert ConversationalNonBinaryJudgementNode is NonBinaryJudgementNode
    assert ConversationalVerdictNode is VerdictNode
    assert ConversationalDAGMetric is DAGMetric
    assert TurnParams is MultiTurnParams


def test_role_and_content_are_the_whole_conversation() -> None:
    prompt = shown(ConversationalBinaryJudgementNode("Is it polite?", evaluation_params=SAID))
    pieces = [(piece.label, piece.text) for piece in split_evidence(prompt)[0]]
    names = ["user turn 1", "assistant turn 1", "user turn 2", "assistant turn 2"]
    assert pieces == list(zip(names, (turn.content for turn in CASE.turns), strict=True))
    assert "Order 7" not in prompt


def test_a_window_is_its_first_and_its_last_turn_and_those_between() -> None:
    criterion = "Does it end politely?"
    node = ConversationalBinaryJudgementNode(
        criterion, evaluation_params=["content"], turn_window=(2, 3)
    )
    prompt = shown(node)
    assert "Thank you!" in prompt
    assert "My pleasure." in prompt
    assert "Where is" not in prompt
    assert "On its way" not in prompt
    assert shown(ConversationalBinaryJudgementNode(criterion, turn_window=(2, 3))) == prompt


@pytest.mark.parametrize(
    ("window", "places"),
    [
        ((-2, -1), [2, 3]),
        ((-9, -1), [0, 1, 2, 3]),
        ((-9, -3), [0, 1]),
        ((1, -1), [1, 2, 3]),
        ((1, -3), [1]),
        ((2, -3), []),
        ((-9, -6), []),
        ((0, 4), []),
    ],
)
def test_a_window_may_count_from_the_end_and_its_turns_keep_their_numbers(
    window: tuple[int, int], places: list[int]
) -> None:
    node = ConversationalBinaryJudgementNode("Polite?", evaluation_params=SAID, turn_window=window)
    node.add_verdict(True, score=10)
    node.add_verdict(False, score=0)
    prompts: list[str] = []

    def answer(question: Any) -> bool:
        prompts.append(question.messages[-1]["content"])
        return True

    metric = ConversationalDAGMetric("Tone", DAG(node))
    done = evaluate([CASE], [metric], model=ScriptedJudge(answer), show=False)
    if not places:
        failure = done.rows[0].metrics[0].failure
        assert failure is not None
        assert failure.kind == OutcomeKind.MISSING_FIELD
        assert failure.message.endswith("but the conversation has 4 turns")
        return
    names = turn_names(CASE.turns)
    (prompt,) = prompts
    assert [n for n, name in enumerate(names) if f"BEGIN {name}" in prompt] == places
    assert [n for n, turn in enumerate(CASE.turns) if turn.content in prompt] == places


def test_other_fields_of_turns_come_with_their_place_and_those_of_the_case_too() -> None:
    params = [
        MultiTurnParams.RETRIEVAL_CONTEXT,
        MultiTurnParams.TOOLS_CALLED,
        MultiTurnParams.SCENARIO,
    ]
    prompt = shown(ConversationalBinaryJudgementNode("Grounded?", evaluation_params=params))
    assert '"place": 1' in prompt
    assert "Order 7 left on Monday." in prompt
    assert "find_order" in prompt
    assert "A user asks for an order." in prompt
    assert "Thank you!" not in prompt


def test_a_window_beyond_the_conversation_is_a_missing_field_and_no_call() -> None:
    node = ConversationalBinaryJudgementNode("Polite?", evaluation_params=SAID, turn_window=(2, 9))
    node.add_verdict(True, score=10)
    node.add_verdict(False, score=0)
    metric = ConversationalDAGMetric("Tone", DAG(node))
    done = evaluate([CASE], [metric], model=ScriptedJudge(lambda question: True), show=False)
    assert done.rows[0].metrics[0].outcome == OutcomeKind.MISSING_FIELD
    words = "this metric reads `turns.2:9`, but the conversation has 4 turns"
    assert words in str(done.rows[0].metrics[0].failure)
    assert done.totals.calls == 0


@pytest.mark.parametrize(
    "window", [(3, 1), (-1, 2), (-1, -3), (0,), (0, 1, 2), (0.5, 2), "01", (True, 2)]
)
def test_a_window_that_is_none_is_refused(window: Any) -> None:
    with pytest.raises(InputError, match="turn_window takes the first and the last turn"):
        ConversationalTaskNode("Read.", "words", turn_window=window)


def test_trees_over_windows_are_put_together_as_the_metric_says() -> None:
    opening, closing = (
        ConversationalBinaryJudgementNode(f"Polite from {window}?", turn_window=window, label=name)
        for name, window in (("opening", (0, 1)), ("closing", (2, 3)))
    )
    for node in (opening, closing):
        node.add_verdict(True, score=10)
        node.add_verdict(False, score=4)
    for combine, score in (("min", 0.4), ("mean", 0.7), ("max", 1.0)):
        how: Any = combine
        metric = ConversationalDAGMetric("Tone", DAG(root_nodes=[opening, closing]), combine=how)
        judge = ScriptedJudge({"opening": True, "closing": False})
        assert evaluate([CASE], [metric], model=judge, show=False).scores("Tone") == [score]


@pytest.mark.parametrize(
    ("size", "step", "seen"),
    [
        (2, 1, ["01", "12", "23"]),
        (2, 2, ["01", "23"]),
        (3, 2, ["012", "23"]),
        (4, 1, ["0123"]),
        (9, 9, ["0123"]),
    ],
)
def test_windows_slide_to_the_end_and_each_is_asked_about(
    size: int, step: int, seen: list[str]
) -> None:
    polite = MapNode("Polite?", turn_windows(size, step), "polite", answer=bool)
    mean = CodeNode(lambda found: fmean(one.verdict for one in found), inputs=[polite])
    marked = [
        turn.model_copy(update={"additional_metadata": {"label": "secret"}}) for turn in CASE.turns
    ]
    texts: list[str] = []

    def answer(question: Any) -> bool:
        texts.append(question.prompt)
        return "Thank you!" in question.prompt

    metric = ConversationalDAGMetric("Tone", DAG(root_node=mean))
    case = CASE.model_copy(update={"turns": marked})
    done = evaluate([case], [metric], model=ScriptedJudge(answer), show=False)
    assert "secret" not in "".join(texts)
    contents = [turn.content for turn in CASE.turns]
    found = ["".join(str(n) for n, said in enumerate(contents) if said in text) for text in texts]
    assert sorted(found) == seen
    assert done.scores("Tone") == [pytest.approx(sum("2" in one for one in seen) / len(seen))]


@pytest.mark.parametrize(("size", "step"), [(0, 1), (2, 3), (2, 0)])
def test_windows_that_leave_turns_out_are_refused(size: int, step: int) -> None:
    with pytest.raises(InputError, match="1 <= step <= size"):
        turn_windows(size, step)
