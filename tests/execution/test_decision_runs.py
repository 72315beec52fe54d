"""Whole runs with a decision judge: the catalogue, writers, stores, panels, what it is shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from graphs.contract import case_for, judge, make, metric_classes
from servers.decision_server import Asked, DecisionServer, always

from dagengine import Limits, a_evaluate, evaluate
from dagengine.errors import GraphError
from dagengine.judges import DecisionJudge, ScriptedJudge
from dagengine.metrics import ArenaGEval, DAGMetric, FaithfulnessMetric, GEval
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    MapNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictNode,
)
from dagengine.prompts.decisions import decision_state
from dagengine.prompts.instructions import PromptTemplate
from dagengine.record import load_run
from dagengine.results import MetricResult, OutcomeKind
from dagengine.store import Store
from dagengine.test_case import ArenaTestCase, LLMTestCase
from dagengine.voting import escalated

KINDS = metric_classes()
FIRST = Limits(attempts=1, reasks=0)
CASE = LLMTestCase(
    name="case 7", input="why?", actual_output="so", expected_output="thus", tags=["bad"],
    additional_metadata={"label": "bad", "style": "dry"}, retrieval_context=["one", "two"],
)  # fmt: skip


def result_of(metric: Any, model: Any, case: Any = CASE, **settings: Any) -> MetricResult:
    settings = {"limits": FIRST, **settings}
    done = evaluate([case], [metric], model=model, show=False, **settings)
    result: MetricResult = done.rows[0].metrics[0]
    return result


def writes(metric: PrebuiltMetric) -> bool:
    return any(node.asks and node.writes for node in metric.spec().graph.nodes())


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("form", ["decisions", "systemone"])
def test_every_metric_has_a_score_and_shows_one_state(
    kind: type[PrebuiltMetric], form: str
) -> None:
    metric = make(kind)
    case = case_for(metric)
    with DecisionServer() as server:
        model = DecisionJudge(form=form, base_url=server.base_url, writer=judge(0))
        result = result_of(metric, model, case)
    assert result.failure is None, result.failure
    assert result.score is not None
    states = [body["state"] if form == "systemone" else body["input"] for body in server.asked]
    if isinstance(case, ArenaTestCase):
        assert all("one" not in str(state) for state in states)  # the name of a contestant
    else:
        shown = decision_state(case)
        assert all(state in (shown, json.dumps(shown)) for state in states)
    assert not server.requests  # nobody chatted


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_without_a_writer_texts_are_refused_before_anything_is_asked(
    kind: type[PrebuiltMetric],
) -> None:
    metric = make(kind)
    with DecisionServer() as server:
        model = DecisionJudge(base_url=server.base_url)
        if not writes(metric):
            assert result_of(metric, model, case_for(metric)).failure is None
            return
        with pytest.raises(GraphError) as caught:
            result_of(metric, model, case_for(metric))
    assert not server.asked
    node = next(one for one in metric.spec().graph.nodes() if one.asks and one.writes)
    for word in (repr(metric.__name__), repr(node.title), "writer="):
        assert word in str(caught.value)


def test_a_reason_that_is_to_be_written_needs_a_writer_too() -> None:
    metric = GEval("Tone", evaluation_steps=["Look."], evaluation_params=["input"])
    written = GEval("Tone", evaluation_steps=["Look."], evaluation_params=["input"])
    written.judged_reason = True
    with DecisionServer() as server:
        model = DecisionJudge(base_url=server.base_url)
        said = result_of(metric, model).reason
        assert said is not None
        assert "the judge gives probabilities and no reason" in said
        with pytest.raises(GraphError, match=r"metric 'Tone'.*a written reason"):
            result_of(written, model)
        writer = ScriptedJudge(lambda question: "It is warm.")
        model = DecisionJudge(base_url=server.base_url, writer=writer)
        assert result_of(written, model).reason == "It is warm."


def tree() -> DAGMetric:
    tone = NonBinaryJudgementNode(
        "Which tone has `actual_output`?",
        evaluation_params=["actual_output"],
        children=[VerdictNode("warm", 10), VerdictNode("cold", 4), VerdictNode("rude", 0)],
        name="tone",
    )
    right = BinaryJudgementNode(
        "Is it right?",
        evaluation_params=["input", "actual_output"],
        then={True: tone, False: 0},
        name="right",
    )
    return DAGMetric("Tree", DAG(right))


def decide(state: Any, asked: Asked) -> Sequence[float]:
    """Right by 0.8; warm by 0.6."""
    return {2: (0.8, 0.2), 3: (0.6, 0.3, 0.1)}[len(asked.options)]


def test_steps_and_rows_have_the_odds_of_every_verdict() -> None:
    with DecisionServer(decide) as server:
        result = result_of(tree(), DecisionJudge(base_url=server.base_url))
    assert result.path == (("right", True), ("tone", "warm"))
    assert result.score == 1.0
    right, tone = result.steps
    assert (right.confidence, tone.confidence) == (0.8, 0.6)
    assert tone.odds == (("warm", 0.6), ("cold", 0.3), ("rude", 0.1))
    row = result.as_dict()["steps"][1]
    assert row["odds"] == [["warm", 0.6], ["cold", 0.3], ["rude", 0.1]]
    assert result.reason is not None
    assert "warm 0.6, cold 0.3, rude 0.1" in result.reason


def test_a_rating_is_the_expectation_and_a_strict_one_the_likeliest() -> None:
    words: Any = {"evaluation_steps": ["Look."], "evaluation_params": ["actual_output"]}
    chances = [0.0] * 8 + [0.25, 0.5, 0.25]
    with DecisionServer(always(*chances)) as server:
        result = result_of(GEval("Good", **words), DecisionJudge(base_url=server.base_url))
    assert result.score == pytest.approx(0.9)
    assert result.mode == "weighted"
    assert result.steps[0].odds == tuple(zip(map(float, range(11)), chances, strict=True))
    with DecisionServer(always(0.4, 0.6)) as server:
        strict = GEval("Good", **words, strict_mode=True)
        result = result_of(strict, DecisionJudge(base_url=server.base_url))
    assert result.score == 1.0
    labels = RatingNode("Good?", ["input"], scale={"bad": 1, "fair": 2, "good": 5})
    with DecisionServer(always(0.5, 0.25, 0.25)) as server:
        result = result_of(DAGMetric("L", DAG(labels)), DecisionJudge(base_url=server.base_url))
    assert result.steps[0].output == pytest.approx(2.25)
    assert result.steps[0].odds == ((1.0, 0.5), (2.0, 0.25), (5.0, 0.25))


def test_items_of_a_list_are_decided_one_by_one() -> None:
    claims = ["one claim", "another claim", "a third"]
    metric = FaithfulnessMetric()

    def script(question: Any) -> Any:
        if question.name.startswith("claims") or "statements" in str(question.answer_type):
            return {"statements": [{"text": text, "factual": True} for text in claims]}
        fields = question.answer_type.model_fields
        return {"statements": [{"text": text, "factual": True} for text in claims]} if (
            "statements" in fields
        ) else {"truths": ["a fact"]}  # fmt: skip

    with DecisionServer(always(0.1, 0.3, 0.6)) as server:
        model = DecisionJudge(base_url=server.base_url, writer=ScriptedJudge(script))
        result = result_of(metric, model)
    assert result.score == 0.0
    asked = [
        question["instructions"][1]["data"]
        for body in server.asked
        for question in body["questions"]
    ]
    assert sorted(one["claim"] for one in asked) == sorted(claims)
    assert all(one["truths"] == ["a fact"] for one in asked)
    (step,) = [one for one in result.steps if one.kind == "verdict list"]
    assert step.item_odds == ((("yes", 0.1), ("idk", 0.3), ("no", 0.6)),) * 3
    assert "odds" not in str(step.output)


def test_a_map_asks_predicates_and_choices() -> None:
    over = CodeNode(lambda: ["a", "b"], output_label="things", name="things")
    each = MapNode("Is it a vowel?", over, "vowels", answer=bool, item_label="thing")

    def share(vowels: list[Any]) -> float:
        return [one.verdict for one in vowels].count(True) / len(vowels)

    metric = DAGMetric("Vowels", DAG(CodeNode(share, inputs=[each], name="share")))

    def decide(state: Any, asked: Asked) -> Sequence[float]:
        return (0.9, 0.1) if '"thing": "a"' in asked.instructions else (0.2, 0.8)

    with DecisionServer(decide) as server:
        result = result_of(metric, DecisionJudge(base_url=server.base_url))
    assert result.score == 0.5
    odds = [dict(one or ())[True] for one in result.steps[1].item_odds]
    assert odds == [0.9, 0.2]


def test_what_may_be_a_label_is_shown_to_the_node_that_names_it_only() -> None:
    plain = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
    named = BinaryJudgementNode(
        "Dry?",
        evaluation_params=["actual_output", "additional_metadata.style"],
        then={True: 10, False: 0},
    )
    with DecisionServer() as server:
        model = DecisionJudge(form="systemone", base_url=server.base_url)
        for name, node in (("Plain", plain), ("Named", named)):
            result_of(DAGMetric(name, DAG(node)), model)
        one, other = server.asked
    assert one["state"] == other["state"] == decision_state(CASE)
    assert not {"bad", "dry", "case 7"} & set(json.dumps(one).replace('"', " ").split())
    assert other["questions"]["q0"]["instructions"]["material"] == {
        "additional_metadata.style": "dry"
    }


def test_a_judge_may_be_shown_what_a_node_reads_only() -> None:
    with DecisionServer(decide) as server:
        model = DecisionJudge(form="systemone", base_url=server.base_url, shows="reads")
        result_of(tree(), model)
    assert [body["state"] for body in server.asked] == [
        {"input": "why?", "actual_output": "so"}, {"actual_output": "so"},
    ]  # fmt: skip


def test_a_prompt_of_the_callers_own_is_all_that_is_shown() -> None:
    node = BinaryJudgementNode(
        "Good?",
        evaluation_params=["actual_output"],
        then={True: 10, False: 0},
        prompt=PromptTemplate("Is {actual_output} polite?", system="Be kind."),
    )
    with DecisionServer() as server:
        model = DecisionJudge(form="systemone", base_url=server.base_url)
        assert result_of(DAGMetric("Own", DAG(node)), model).failure is None
        (body,) = server.asked
    assert body["state"] == "Be kind.\n\nIs so polite?"
    assert "`actual_output`" not in json.dumps(body["questions"])


def test_contestants_are_masked() -> None:
    case = ArenaTestCase(
        contestants={
            "gpt-gold": LLMTestCase(input="Hi", actual_output="Hello!"),
            "gpt-tin": LLMTestCase(input="Hi", actual_output="What?"),
        }
    )
    metric = ArenaGEval("Arena", evaluation_steps=["Look."], evaluation_params=["actual_output"])
    with DecisionServer() as server:
        result_of(metric, DecisionJudge(base_url=server.base_url), case)
    assert len(server.asked) == 2
    assert "gpt" not in json.dumps([body["input"] for body in server.asked])


def test_a_store_gives_answers_back_with_their_odds(tmp_path: Path) -> None:
    store = tmp_path / "answers.db"
    with DecisionServer(decide) as server:
        model = DecisionJudge(base_url=server.base_url)
        first = result_of(tree(), model, store=store)
        asked = len(server.asked)
        again = result_of(tree(), model, store=store)
        replayed = result_of(tree(), model, store=Store(store, replay=True))
        assert len(server.asked) == asked == 1
    assert first.as_dict() == again.as_dict() == replayed.as_dict()
    assert first.steps[0].odds == replayed.steps[0].odds


def test_a_run_with_odds_is_recorded_and_read_back(tmp_path: Path) -> None:
    with DecisionServer(decide) as server:
        model = DecisionJudge(base_url=server.base_url)
        done = evaluate([CASE], [tree()], model=model, show=False, out=tmp_path / "run")
    (row,) = load_run(tmp_path / "run").rows()
    assert row.as_dict() == done.rows[0].as_dict()
    assert row.metrics[0].odds == done.rows[0].metrics[0].odds


def test_an_unsure_decision_escalates_to_a_chat_judge() -> None:
    chat = ScriptedJudge({"right": False, "tone": "rude"})
    sure = escalated(tree(), to=chat, below=0.7)
    with DecisionServer(decide) as server:
        result = result_of(sure, DecisionJudge(base_url=server.base_url))
    assert result.path == (("right", True), ("tone", "rude"))


def test_one_question_that_is_refused_is_a_failure_of_its_metric_alone() -> None:
    def refusing(state: Any, asked: Asked) -> Sequence[float] | None:
        return None if "right" in asked.instructions else decide(state, asked)

    tone = NonBinaryJudgementNode("Tone?", evaluation_params=["input"], then={"a": 1, "b": 2})
    with DecisionServer(refusing) as server:
        model = DecisionJudge(base_url=server.base_url)
        metrics = [tree(), DAGMetric("Tone", DAG(tone))]
        (row,) = evaluate([CASE], metrics, model=model, show=False, limits=FIRST).rows
    kinds = [result.outcome for result in row.metrics]
    assert kinds == [OutcomeKind.JUDGE_REFUSED, OutcomeKind.OK]


@pytest.mark.anyio
async def test_both_event_loops_give_one_and_the_same_rows() -> None:
    task = TaskNode("Sum up.", "summary", evaluation_params=["input"])
    node = BinaryJudgementNode("Good?", inputs=[task], then={True: 10, False: 0})
    with DecisionServer() as server:
        model = DecisionJudge(base_url=server.base_url, writer=judge(0))
        done = await a_evaluate([CASE], [DAGMetric("T", DAG(node))], model=model, show=False)
    (data,) = [body["questions"][0]["instructions"][1]["data"] for body in server.asked]
    assert data == {"summary": "words"}
    assert done.rows[0].metrics[0].failure is None


def test_what_is_asked_once_for_all_cases_is_shown_none_of_them() -> None:
    month = TaskNode("Name a month.", "month")
    late = BinaryJudgementNode("Is `month` late?", inputs=[month], then={True: 10, False: 0})
    metric = DAGMetric("Season", DAG(root_nodes=[month, late]))
    others = [CASE, CASE.model_copy(update={"input": "when?", "actual_output": "then"})]
    with DecisionServer() as server:
        model = DecisionJudge(base_url=server.base_url, writer=ScriptedJudge({"month": "May"}))
        done = evaluate(others, [metric], model=model, show=False, limits=FIRST)
    assert len(set(done.scores("Season"))) == 1
    assert [body["input"] for body in server.asked] == ["{}"]
