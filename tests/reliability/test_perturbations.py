"""Rewritten metrics: copies that are changed, originals that are not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from graphs.contract import case_for, judge, make, metric_classes
from graphs.random_graphs import Script, build, drawings
from hypothesis import assume, given, settings

from dagengine import PromptTemplate, compile_metrics, evaluate
from dagengine.errors import GraphError, InputError
from dagengine.graph import Graph
from dagengine.graph.graph import Metric
from dagengine.graph.rewriting import Change, Rewriting, SpecMetric
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric, GEval
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    BinaryJudgementNode,
    CodeNode,
    MapNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictListNode,
    VerdictNode,
)
from dagengine.question import Question
from dagengine.reliability import Symmetry
from dagengine.reliability.perturbations import paraphrase, reverse_options
from dagengine.test_case import ArenaTestCase, LLMTestCase

CASE = LLMTestCase(input="in", actual_output="out", context=["one", "two"])


def pick(**then: Any) -> NonBinaryJudgementNode:
    return NonBinaryJudgementNode("Which?", name="pick", evaluation_params=["input"], then=then)


def rewritten(metric: Any, *changes: Change, model: Any = None) -> SpecMetric:
    return SpecMetric(Rewriting(changes, model).spec(metric.spec()))


def system_prompts(metric: Any, case: Any = CASE, answer: Any = "A") -> list[str]:
    """What nodes are told, in the order in which they ask."""
    seen: list[str] = []

    def script(question: Question[Any]) -> Any:
        seen.append(question.messages[-1]["content"])
        return answer

    evaluate([case], [metric], model=ScriptedJudge(script), show=False)
    return seen


def test_everything_is_copied_and_what_was_shared_stays_shared() -> None:
    task = TaskNode("Extract", "facts", evaluation_params=["input"])
    last = BinaryJudgementNode("Good?", inputs=[task], then={True: 10, False: 0})
    over = MapNode("Each", task, "each")
    count = CodeNode(len, inputs=[over], name="count")
    first = BinaryJudgementNode("Ok?", [VerdictNode(True, child=last), VerdictNode(False, score=0)])
    task.children = [first]
    graph = Graph(root_nodes=[task, count])

    copied = Rewriting().graph(graph)

    old, new = graph.nodes(), copied.nodes()
    assert [type(node) for node in new] == [type(node) for node in old]
    assert not set(old) & set(new)
    named = dict(zip(old, new, strict=True))
    assert named[last].inputs == (named[task],)
    copied_over = named[over]
    assert isinstance(copied_over, MapNode)
    assert copied_over.over is named[task]
    verdict = named[first].children[0]
    assert isinstance(verdict, VerdictNode)
    assert verdict is not first.children[0]
    assert verdict.child is named[last]


def test_a_graph_of_two_metrics_is_copied_once() -> None:
    rewriting, graph = Rewriting(), DAG(pick(A=10, B=0))
    assert rewriting.graph(graph) is rewriting.graph(graph)


def test_metrics_under_verdicts_are_rewritten_too_and_may_lose_their_judge() -> None:
    inner = DAGMetric("inner", DAG(pick(A=10, B=0)), model="their own")
    deeper = NonBinaryJudgementNode(
        "Deeper?", name="outer", evaluation_params=["input"], then={"yes": inner, "no": 0}
    )
    outer = DAGMetric("outer", DAG(deeper))
    everywhere = ScriptedJudge({"outer": "yes", "pick": "B"})

    made = rewritten(outer, reverse_options, model=everywhere)

    assert set(compile_metrics([made]).models[1:]) == {everywhere}
    assert evaluate([CASE], [made], show=False).rows[0].metrics[0].path == (
        ("outer", "yes"),
        ("inner > pick", "B"),
    )
    node = inner.dag.root_nodes[0]
    assert isinstance(node, NonBinaryJudgementNode)
    assert node.verdicts() == ("A", "B")
    assert inner.model == "their own"


def test_a_metric_that_stands_under_a_verdict_of_its_own_is_copied_and_still_a_finding() -> None:
    node = pick(A=10, B=0)
    metric = DAGMetric("m", DAG(node))
    node.then["A"] = metric
    with pytest.raises(GraphError, match="contains itself"):
        compile_metrics([rewritten(metric)])


def test_what_cannot_be_changed_under_a_verdict_is_told_before_the_metric_is_used() -> None:
    inner = GEval("g", evaluation_steps=["look"], evaluation_params=["input"])
    title = inner.spec().graph.nodes()[0].title
    outer = DAGMetric("outer", DAG(pick(A=inner, B=0)))
    with pytest.raises(InputError, match="cannot be changed from outside"):
        rewritten(outer, paraphrase({title: "other"}))


def test_a_chain_of_thousands_of_nodes_is_copied_without_recursion() -> None:
    node: BaseNode = BinaryJudgementNode("Last?", then={True: 10, False: 0})
    for number in range(3000):
        node = TaskNode("Do", f"step {number}", [node], ["input"])
    assert len(Rewriting().graph(Graph(node)).nodes()) == 3001


@settings(max_examples=30)
@given(drawings())
def test_a_copy_of_any_graph_asks_and_gives_what_the_graph_does(drawing: dict[str, Any]) -> None:
    script = Script()
    metric = DAGMetric("m", build(drawing, script), combine=drawing["combine"])
    try:
        compile_metrics([metric])
    except GraphError:
        assume(False)

    def outcome(one: Metric) -> Any:
        script.prompts, script.ran = {}, Counter()
        row = evaluate([CASE], [one], model=script.judge(), show=False).rows[0]
        return row.as_dict(), script.prompts, script.ran

    assert outcome(rewritten(metric)) == outcome(metric)


@pytest.mark.parametrize("kind", metric_classes(), ids=lambda kind: kind.__name__)
def test_a_copy_of_every_metric_asks_and_gives_what_the_metric_does(
    kind: type[PrebuiltMetric],
) -> None:
    metric = make(kind)

    def outcome(one: Metric) -> Any:
        asked: list[str] = []
        row = evaluate([case_for(metric)], [one], model=judge(1, asked), show=False).rows[0]
        return row.as_dict(), sorted(asked)

    assert outcome(rewritten(metric)) == outcome(metric)


@pytest.mark.parametrize(
    ("node", "first", "second"),
    [
        (pick(A=10, B=5, C=0), '- "A"', '- "C"'),
        (
            NonBinaryJudgementNode(
                "Which?",
                [VerdictNode("A", score=10), VerdictNode("C", score=0)],
                evaluation_params=["input"],
            ),
            '- "A"',
            '- "C"',
        ),
        (RatingNode("How?", ["input"], scale={"A": 1, "C": 2}), '- "A"', '- "C"'),
    ],
)
def test_reversed_options_stand_in_the_prompt_in_reverse(
    node: BaseNode, first: str, second: str
) -> None:
    metric = DAGMetric("m", DAG(node))
    (given,), (turned,) = system_prompts(metric), system_prompts(rewritten(metric, reverse_options))
    assert given.index(first) < given.index(second)
    assert turned.index(second) < turned.index(first)
    assert system_prompts(metric) == [given]


def test_options_of_lists_are_reversed() -> None:
    judged = VerdictListNode("Ok?", "context", "judged", verdicts=("yes", "no"))
    each = MapNode("Ok?", "context", "each", answer=("yes", "no"))
    for node in (judged, each):
        reverse_options(node)
    assert judged.verdicts == each.answer == ("no", "yes")


def test_reversed_options_lead_where_they_led() -> None:
    metric = DAGMetric("m", DAG(pick(A=10, B=3)))
    for verdict, score in (("A", 1.0), ("B", 0.3)):
        judge = ScriptedJudge({"pick": verdict})
        done = evaluate([CASE], [rewritten(metric, reverse_options)], model=judge, show=False)
        assert done.rows[0].metrics[0].score == score


# Swapped inputs.

ARENA = ArenaTestCase(
    contestants={
        "A": LLMTestCase(input="q", actual_output="good"),
        "B": LLMTestCase(input="q", actual_output="bad"),
    }
)
FIELDS = ["contestants.A.actual_output", "contestants.B.actual_output"]


def contest(**more: Any) -> DAGMetric:
    node = NonBinaryJudgementNode(
        "Who?", name="who", evaluation_params=FIELDS, then={"A": 10, "tie": 5, "B": 0}, **more
    )
    return DAGMetric("contest", DAG(node))


def who_is_good(question: Question[Any]) -> str:
    """Sees through every order."""
    shown = question.messages[-1]["content"]
    return "A" if shown.index("good") < shown.index("bad") else "B"


def winner(metric: Any, script: Any, case: Any = ARENA) -> tuple[float | None, Any]:
    result = evaluate([case], [metric], model=ScriptedJudge(script), show=False).rows[0].metrics[0]
    return result.score, result.steps[-1].verdict


@pytest.mark.parametrize("prompt", [None, PromptTemplate("{%s} or {%s}?" % tuple(FIELDS))])  # noqa: UP031
def test_swapped_contestants_stand_under_each_others_names_and_verdicts_are_told_back(
    prompt: PromptTemplate | None,
) -> None:
    metric = contest(prompt=prompt)
    swapped = rewritten(metric, Symmetry())
    assert winner(metric, who_is_good) == winner(swapped, who_is_good) == (1.0, "A")
    # A judge that always prefers the first place contradicts itself.
    assert winner(metric, {"who": "A"}) == (1.0, "A")
    assert winner(swapped, {"who": "A"}) == (0.0, "B")
    assert winner(swapped, {"who": "tie"}) == (0.5, "tie")


def test_verdicts_have_other_names_where_one_says_so_and_other_nodes_keep_theirs() -> None:
    last = BinaryJudgementNode("Is A better?", name="better", evaluation_params=FIELDS,
                               then={True: 10, False: 0})  # fmt: skip
    first = BinaryJudgementNode("Is it a contest?", name="contest", evaluation_params=FIELDS,
                                then={True: last, False: 0})  # fmt: skip
    metric = DAGMetric("m", DAG(first))
    turn = Symmetry(verdicts={True: False, False: True}, nodes=("better",))
    assert winner(rewritten(metric, turn), {"contest": True, "better": True}) == (0.0, False)


@pytest.mark.parametrize(
    ("first", "second", "swapped"),
    [
        ("context.0", "context.1", {"context": ["two", "one"]}),
        ("input", "actual_output", {"input": "out", "actual_output": "in"}),
    ],
)
def test_parts_of_lists_and_whole_fields_are_swapped(
    first: str, second: str, swapped: dict[str, Any]
) -> None:
    assert Symmetry(first, second).swap(CASE) == CASE.model_copy(update=swapped)


@pytest.mark.parametrize(
    "symmetry", [Symmetry(), Symmetry("context.0", "context.2"), Symmetry("inputs", "input")]
)
def test_what_cannot_be_swapped_is_an_input_error(symmetry: Symmetry) -> None:
    with pytest.raises(InputError):
        symmetry.swap(CASE)


# Paraphrases.


def test_a_paraphrase_changes_the_words_and_nothing_else() -> None:
    task = TaskNode("List the facts", "facts", evaluation_params=["input"])
    last = BinaryJudgementNode("Is it so?", inputs=[task], then={True: 10, False: 0})
    metric = DAGMetric("m", DAG(last))
    change = paraphrase({"facts": "Name the facts", "Is it so?": "So is it?"})
    first, second = system_prompts(rewritten(metric, change), answer="yes")
    assert "Name the facts" in first
    assert "So is it?" in second
    assert metric.dag.nodes()[1].text == "List the facts"
    copied = Rewriting([change]).graph(metric.dag).nodes()[0]
    assert (copied.text, copied.title) == ("So is it?", "Is it so?")


def test_a_paraphrase_may_be_a_prompt() -> None:
    metric = DAGMetric("m", DAG(pick(A=10, B=0)))
    change = paraphrase({"pick": PromptTemplate("A or B for {input}?")})
    assert system_prompts(rewritten(metric, change)) == ["A or B for in?"]


def test_words_that_a_node_does_not_use_cannot_be_changed() -> None:
    metric = GEval("g", evaluation_steps=["look"], evaluation_params=["input"])
    title = metric.spec().graph.nodes()[0].title
    with pytest.raises(InputError, match="cannot be changed from outside"):
        rewritten(metric, paraphrase({title: "other"}))
