"""Which node made a flip, and why: the law on results written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dagengine.record.changes.flip_causes import CaseChange, CasePair, compare_results
from dagengine.record.changes.tree_changes import Trees
from dagengine.record.run_json_types import EdgeRecord, MetricRecord, NodeRecord
from dagengine.results import Failure, MetricResult, OutcomeKind, Step

STEPS = NodeRecord(name="Steps", kind="task", question="List the steps.", judges=(0,), hash="s1")
KIND = NodeRecord(
    name="Kind", kind="judgement", question="Which kind?", reads=("input",), judges=(0,), hash="k1"
)
NEXT = NodeRecord(
    name="Next step", kind="binary judgement", question="Is there one?", inputs=("Steps",),
    judges=(0,), hash="n1",
)  # fmt: skip
TONE = NodeRecord(
    name="Tone", kind="rating", question="How kind?", reads=("actual_output",), judges=(0,),
    grades=True, hash="t1",
)  # fmt: skip
EDGES = (
    EdgeRecord(source="Kind", verdict="help", target="Next step"),
    EdgeRecord(source="Kind", verdict="other", score=1.0),
    EdgeRecord(source="Next step", verdict=True, target="Tone"),
    EdgeRecord(source="Next step", verdict=False, score=0.3),
    EdgeRecord(source="Steps", target="Next step"),
)


def tree(**changed: Any) -> MetricRecord:
    nodes = (STEPS, KIND, NEXT, TONE)
    given: dict[str, Any] = {
        "name": "quality", "threshold": 0.5, "strict": False, "combine": "last", "hash": "m",
        "nodes": nodes, "edges": EDGES,
    }  # fmt: skip
    return MetricRecord(**{**given, **changed})


def renewed(node: NodeRecord, **changed: Any) -> tuple[NodeRecord, ...]:
    """All nodes, one of them changed."""
    new = node.model_copy(update={"hash": "other", **changed})
    return tuple(new if one is node else one for one in (STEPS, KIND, NEXT, TONE))


def trees(new: MetricRecord | None = None, judges: tuple[str, str] = ("one", "one")) -> Trees:
    return Trees(tree(), new or tree(), [judges[0]], [judges[1]])


def walked(
    kind: str = "help", step: bool | None = True, tone: float | None = 0.7, steps: str = "1. Ask",
    **more: Any,
) -> MetricResult:  # fmt: skip
    """The result of a case that went this way."""
    found = [
        Step("Steps", "task", OutcomeKind.OK, steps),
        Step("Kind", "judgement", OutcomeKind.OK, {"verdict": kind}, kind),
    ]
    if kind == "help" and step is not None:
        found.append(Step("Next step", "binary judgement", OutcomeKind.OK, step, step, **more))
    score = 1.0 if kind == "other" else 0.3 if step is False else tone
    if kind == "help" and step:
        found.append(Step("Tone", "rating", OutcomeKind.OK, tone, score=tone))
    assert score is not None
    return MetricResult("quality", score, score >= 0.5, None, 0.5, score, steps=tuple(found))


def change(
    old: MetricResult, new: MetricResult, of: Trees | None = None, case: CasePair | None = None
) -> CaseChange | None:
    return compare_results(of or trees(), old, new, case or CasePair(name="a"))


def first(*given: Any, **named: Any) -> tuple[str, str, str, str, str]:
    found = change(*given, **named)
    assert found is not None
    one = found.first
    return found.kind, one.node, *one.answer, one.cause


def test_equal_answers_are_no_change() -> None:
    assert change(walked(), walked()) is None


def test_a_flip_is_named_by_the_first_node_whose_answer_differs() -> None:
    found = first(walked(), walked(step=False))
    assert found == ("worse", "Next step", "True", "False", "same")
    found = first(walked(step=False), walked("other"))
    assert found == ("better", "Kind", "help", "other", "same")


def test_a_rating_answers_with_its_score() -> None:
    assert first(walked(), walked(tone=0.4)) == ("worse", "Tone", "0.7", "0.4", "same")
    assert first(walked(), walked(tone=0.6)) == ("score", "Tone", "0.7", "0.6", "same")


def test_another_text_of_a_task_is_evidence_and_no_answer() -> None:
    assert change(walked(), walked(steps="1. Wait")) is None
    found = change(walked(), walked(step=False, steps="1. Wait"))
    assert found is not None
    assert (found.first.node, found.first.cause) == ("Next step", "evidence")
    assert found.first.detail == "Steps gave something else"


def test_a_changed_definition_comes_before_every_other_cause() -> None:
    new = tree(nodes=renewed(NEXT, question="Is there a concrete one?"))
    found = change(walked(), walked(step=False, steps="1. Wait"), trees(new, ("one", "two")))
    assert found is not None
    assert found.first.cause == "definition"
    assert found.first.detail == "its question changed"


def test_another_judge_is_the_cause_only_where_question_and_evidence_are_the_same() -> None:
    of = trees(judges=("one", "two"))
    assert first(walked(), walked(step=False), of)[-1] == "judge"
    assert first(walked(), walked(step=False, steps="1. Wait"), of)[-1] == "evidence"


def test_a_changed_field_is_evidence_only_for_nodes_that_read_it() -> None:
    texts = CasePair(False, {"input": "a", "actual_output": "b"}, {"input": "a"})
    assert first(walked(), walked(tone=0.4), None, texts)[-1] == "evidence"
    assert first(walked(), walked("other"), None, texts)[-1] == "same"
    unknown = CasePair(same=False)
    assert first(walked(), walked("other"), None, unknown)[-1] == "evidence"


def test_the_same_answer_that_leads_elsewhere_is_a_changed_definition() -> None:
    edges = tuple(
        EdgeRecord(source="Next step", verdict=True, score=0.0) if edge.verdict is True else edge
        for edge in EDGES
    )
    of = trees(tree(edges=edges, nodes=renewed(NEXT)))
    ended = walked()
    new = MetricResult("quality", 0.0, False, None, 0.5, 0.0, steps=ended.steps[:-1])
    found = change(ended, new, of)
    assert found is not None
    assert (found.kind, found.first.node, found.first.cause) == ("worse", "Next step", "definition")
    assert found.first.detail == "its answers lead elsewhere"


def test_another_score_behind_the_same_answer_is_a_changed_definition() -> None:
    edges = tuple(
        EdgeRecord(source="Next step", verdict=False, score=0.6) if edge.score == 0.3 else edge
        for edge in EDGES
    )
    of = trees(tree(edges=edges, nodes=renewed(NEXT)))
    old = walked(step=False)
    new = MetricResult("quality", 0.6, True, None, 0.5, 0.6, steps=old.steps)
    assert first(old, new, of) == ("better", "Next step", "False", "False", "definition")


def test_a_threshold_that_moved_is_the_cause_of_flips_that_it_makes() -> None:
    of = trees(tree(threshold=0.8))
    old = walked()
    new = MetricResult("quality", 0.7, False, None, 0.8, 0.7, steps=old.steps)
    found = change(old, new, of)
    assert found is not None
    assert (found.kind, found.first.node) == ("worse", "")
    assert found.first.detail == "threshold 0.5 → 0.8"
    answered = walked(step=False)
    low = MetricResult("quality", 0.3, False, None, 0.8, 0.3, steps=answered.steps)
    assert first(old, low, of)[1] == "Next step"


def test_a_score_that_is_lost_is_named_by_the_node_that_failed() -> None:
    failure = Failure(OutcomeKind.TIMEOUT, "Next step", "no answer within 60 s")
    old = walked()
    broken = Step("Next step", "binary judgement", OutcomeKind.TIMEOUT, reason="no answer")
    new = MetricResult(
        "quality", None, None, None, 0.5, failure=failure, steps=(*old.steps[:2], broken)
    )
    assert first(old, new) == ("lost", "Next step", "True", "timeout", "same")
    assert first(new, old) == ("gained", "Next step", "timeout", "True", "same")
    bare = MetricResult("quality", None, None, None, 0.5, failure=failure)
    assert first(old, bare)[1] == "Next step"


def test_another_path_to_the_same_result_is_no_flip() -> None:
    old = walked(tone=1.0)
    assert first(old, walked("other")) == ("path", "Kind", "help", "other", "same")


def test_the_verdicts_of_a_list_are_one_answer() -> None:
    def listed(*verdicts: str) -> MetricResult:
        output = [{"verdict": verdict, "reason": "so"} for verdict in verdicts]
        step = Step("support", "verdict list", OutcomeKind.OK, output)
        share = verdicts.count("yes") / len(verdicts)
        return MetricResult("quality", share, share >= 0.5, None, 0.5, share, steps=(step,))

    found = first(listed("yes", "yes"), listed("yes", "no", "no"))
    assert found == ("worse", "support", "yes, yes", "yes, no, no", "same")


def test_votes_say_how_sure_a_panel_was() -> None:
    votes: dict[str, Any] = {"voters": (0, 0, 0)}
    old = walked(votes=(True, True, False), **votes)
    for new, said in (
        (walked(step=False, votes=(False, True, False), **votes), "votes 2 of 3, both times"),
        (walked(step=False, votes=(False,) * 3, **votes), "votes 2 of 3, then 3 of 3"),
    ):
        found = change(old, new)
        assert found is not None
        assert found.first.detail == said


def test_a_renamed_node_is_held_against_itself() -> None:
    new = tree(
        nodes=renewed(NEXT, name="Step"),
        edges=tuple(
            edge.model_copy(update={"source": "Step"}) if edge.source == "Next step"
            else edge.model_copy(update={"target": "Step"}) if edge.target == "Next step"
            else edge
            for edge in EDGES
        ),
    )  # fmt: skip
    of = trees(new)
    said = {(one.kind, one.node): one.what for one in of.changes()}
    assert said[("renamed", "Step")] == "it was called Next step"
    assert of.order == ("Steps", "Kind", "Step", "Tone")


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (tree(), []),
        (tree(threshold=None), ["threshold 0.5 → none"]),
        (tree(strict=True), ["strict mode off → on"]),
        (tree(nodes=renewed(KIND)), ["its settings changed"]),
        (tree(nodes=(STEPS, KIND, NEXT)), ["it is gone"]),
        (tree(nodes=(STEPS, KIND, NEXT, TONE, TONE.model_copy(update={"name": "T2"}))),
         ["it is new"]),
    ],
)  # fmt: skip
def test_what_changed_in_a_tree_is_said(new: MetricRecord, said: list[str]) -> None:
    assert [one.what for one in trees(new).changes()] == said
