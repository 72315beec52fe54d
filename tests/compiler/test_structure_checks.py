"""Problems of a graph as it is written: a graph that has each, and its twin that has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from graphs.problems import (
    ACTUAL,
    LAWS,
    Example,
    Examples,
    codes_in,
    codes_of,
    metric,
    named,
    problems_of,
    task,
    yes_no,
)
from programs.hash_seeds import printed

import dagengine.compiler.structure_checks
from dagengine.compiler import compile_metrics
from dagengine.errors import GraphError
from dagengine.graph import Graph
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    BinaryJudgementNode,
    CodeNode,
    NonBinaryJudgementNode,
    RatingNode,
    VerdictNode,
)

EXAMPLES = Examples()


@EXAMPLES("cycle", "node 'first'")
def tasks_in_a_circle(broken: bool) -> DAGMetric:
    first = task("first")
    second = task("second", yes_no("good", reads=()), evaluation_params=())
    first.children.append(second)
    if broken:
        second.children.append(first)
    return metric(first)


@EXAMPLES("cycle", "node 'words'")
def a_verdict_that_leads_back_to_what_its_judgement_reads(broken: bool) -> DAGMetric:
    words = task("words", evaluation_params=ACTUAL)
    again = task("words again", yes_no("short", reads=()))
    decides = yes_no("long", reads=(), inputs=[words], no=words if broken else again)
    return metric(decides) if not broken else metric(words, decides)


@EXAMPLES("cycle", "node 'loop'")
def a_judgement_that_leads_to_itself(broken: bool) -> DAGMetric:
    loop = yes_no("loop")
    loop.then[False] = loop if broken else yes_no("other")
    return metric(loop)


@EXAMPLES("metric-cycle", "metric 'Self'")
def a_metric_under_its_own_verdict(broken: bool) -> DAGMetric:
    root = yes_no("long")
    whole = metric(root, name="Self")
    root.then[False] = whole if broken else metric(yes_no("short"), name="Other")
    return whole


@EXAMPLES("no-root", "metric 'Tested'")
def a_graph_that_starts_nowhere(broken: bool) -> DAGMetric:
    return DAGMetric("Tested", Graph() if broken else Graph(yes_no("good")))


@EXAMPLES("reads-nothing", "node 'good'")
def a_decision_about_nothing(broken: bool) -> DAGMetric:
    return metric(yes_no("good", reads=() if broken else ACTUAL))


@EXAMPLES("reads-nothing", "node 'how good'")
def a_rating_of_nothing(broken: bool) -> DAGMetric:
    reads = None if broken else ACTUAL
    return metric(RatingNode("How good?", reads, scale=(1, 5), name="how good"))


@EXAMPLES("root-reachable", "node 'good'")
def a_root_that_follows_another_root(broken: bool) -> DAGMetric:
    good = yes_no("good", reads=())
    words = task("words", good)
    return metric(words, good) if broken else metric(words)


@EXAMPLES("threshold-range", "metric 'Tested'")
def a_threshold_on_the_wrong_scale(broken: bool) -> DAGMetric:
    return metric(yes_no("good"), threshold=7 if broken else 0.7)


@EXAMPLES("threshold-range", "metric 'Tested'")
def a_threshold_that_is_not_a_number(broken: bool) -> DAGMetric:
    return metric(yes_no("good"), threshold=float("nan") if broken else 1)


@EXAMPLES("threshold-range", "metric 'Tested'")
def a_threshold_in_quotes(broken: bool) -> DAGMetric:
    wrong: Any = "0.5"
    return metric(yes_no("good"), threshold=wrong if broken else 0.5)


@EXAMPLES("combine", "metric 'Tested'")
def a_way_to_combine_that_does_not_exist(broken: bool) -> DAGMetric:
    return metric(yes_no("good"), combine="median" if broken else "mean")


@EXAMPLES("verdict-root", "node 'verdict True'")
def a_verdict_at_the_root(broken: bool) -> DAGMetric:
    return metric(VerdictNode(True, score=1) if broken else yes_no("good"))


@EXAMPLES("not-a-node", "metric 'Tested'")
def a_root_that_is_text(broken: bool) -> DAGMetric:
    return metric("a root" if broken else yes_no("good"))


@EXAMPLES("not-a-node", "metric 'Tested'")
def a_child_that_is_text(broken: bool) -> DAGMetric:
    child: Any = "a child" if broken else yes_no("good", reads=())
    words = task("words")
    words.children.append(child)
    return metric(words)


@EXAMPLES("not-a-node", "metric 'Tested'")
def a_judgement_with_a_child_that_is_text(broken: bool) -> DAGMetric:
    child: Any = "a child" if broken else VerdictNode(True, score=10)
    judgement = BinaryJudgementNode("Good?", evaluation_params=ACTUAL)
    judgement.children.append(child)
    if not broken:
        judgement.add_verdict(False, score=0)
    return metric(judgement)


@EXAMPLES("not-a-node", "metric 'Tested'")
def a_judgement_with_a_metric_among_its_children(broken: bool) -> DAGMetric:
    inner: Any = metric(yes_no("short"), name="Inner")
    verdicts = [VerdictNode("letter", score=10), VerdictNode("poem", score=0)]
    judgement = NonBinaryJudgementNode("Which kind?", verdicts, ACTUAL)
    judgement.children.append(inner if broken else VerdictNode("list", child=inner))
    return metric(judgement)


@EXAMPLES("not-a-node", "metric 'Tested'")
def an_input_that_is_text(broken: bool) -> DAGMetric:
    read: Any = "words" if broken else task("words")
    return metric(yes_no("good", inputs=[read]))


@EXAMPLES("verdict-misplaced", "node 'words'")
def a_verdict_under_a_task(broken: bool) -> DAGMetric:
    words = task("words")
    words.children.append(VerdictNode(True, score=10) if broken else yes_no("good", reads=()))
    return metric(words)


@EXAMPLES("verdict-misplaced", "node 'good'")
def a_verdict_among_the_inputs(broken: bool) -> DAGMetric:
    read = VerdictNode(True, score=10) if broken else task("words")
    return metric(yes_no("good", inputs=[read]))


@EXAMPLES("scale-range", "node 'rated'")
def a_scale_of_one_point(broken: bool) -> DAGMetric:
    return metric(RatingNode("How good?", ACTUAL, scale=(1, 1 if broken else 2), name="rated"))


@EXAMPLES("scale-range", "node 'rated'")
def a_scale_that_starts_with_the_best(broken: bool) -> DAGMetric:
    scale = (10, 1) if broken else (1, 10)
    return metric(RatingNode("How good?", ACTUAL, scale=scale, name="rated"))


@EXAMPLES("scale-range", "node 'rated'")
def a_scale_with_fractions(broken: bool) -> DAGMetric:
    scale: Any = (0.5, 1.5) if broken else (0, 1)
    return metric(RatingNode("How good?", ACTUAL, scale=scale, name="rated"))


@EXAMPLES("empty-text", "node 'silent'")
def a_judgement_without_a_criterion(broken: bool) -> DAGMetric:
    criteria = " \n " if broken else "Is it good?"
    judgement = BinaryJudgementNode(
        criteria, evaluation_params=ACTUAL, then={True: 10, False: 0}, name="silent"
    )
    return metric(judgement)


@EXAMPLES("field-unknown", "node 'good'")
def a_field_with_a_letter_missing(broken: bool) -> DAGMetric:
    return metric(yes_no("good", reads=("actual_ouput" if broken else "actual_output",)))


@EXAMPLES("field-unknown", "node 'good'")
def a_dotted_field_whose_first_part_is_unknown(broken: bool) -> DAGMetric:
    start = "metadata" if broken else "additional_metadata"
    return metric(yes_no("good", reads=(f"{start}.topic",)))


@EXAMPLES("bare-child", "node 'good'")
def a_bare_child_beside_two_declared_verdicts(broken: bool) -> DAGMetric:
    next_one = yes_no("short")
    declared = VerdictNode(True, score=10) if broken else VerdictNode(True, child=next_one)
    children: list[BaseNode] = [declared, VerdictNode(False, score=0)]
    if broken:
        children.append(next_one)
    return metric(BinaryJudgementNode("Good?", children, ACTUAL, name="good"))


@EXAMPLES("bare-child", "node 'good'")
def two_bare_children(broken: bool) -> DAGMetric:
    first: BaseNode = yes_no("short") if broken else VerdictNode(False, score=0)
    return metric(BinaryJudgementNode("Good?", [first, yes_no("calm")], ACTUAL, name="good"))


@EXAMPLES("bare-child", "node 'kind'")
def a_bare_child_under_a_judgement_with_many_verdicts(broken: bool) -> DAGMetric:
    children: list[BaseNode] = [VerdictNode("letter", score=10), VerdictNode("list", score=3)]
    last = yes_no("short")
    children.append(last if broken else VerdictNode("poem", child=last))
    return metric(NonBinaryJudgementNode("Which kind?", children, ACTUAL, name="kind"))


@EXAMPLES("verdict-duplicate", "node 'kind'")
def one_verdict_declared_twice(broken: bool) -> DAGMetric:
    verdicts = ["letter", "poem", "letter" if broken else "list"]
    judgement = NonBinaryJudgementNode("Which kind?", (), ACTUAL, name="kind")
    judgement.children += [VerdictNode(one, score=n * 4) for n, one in enumerate(verdicts)]
    return metric(judgement)


@EXAMPLES("verdict-duplicate", "node 'good'")
def one_verdict_as_a_child_and_in_then(broken: bool) -> DAGMetric:
    children = [VerdictNode(True, score=10)]
    then = {True: 9, False: 0} if broken else {False: 0}
    return metric(BinaryJudgementNode("Good?", children, ACTUAL, then=then, name="good"))


@EXAMPLES("verdict-type", "node 'good'")
def the_word_true_under_a_binary_judgement(broken: bool) -> DAGMetric:
    return metric(
        BinaryJudgementNode(
            "Good?",
            evaluation_params=ACTUAL,
            then={"True" if broken else True: 10, False: 0},
            name="good",
        )
    )


@EXAMPLES("verdict-type", "node 'good'")
def the_number_one_under_a_binary_judgement(broken: bool) -> DAGMetric:
    then = {1 if broken else True: 10, False: 0}
    return metric(BinaryJudgementNode("Good?", evaluation_params=ACTUAL, then=then, name="good"))


@EXAMPLES("verdict-type", "node 'kind'")
def a_bool_under_a_judgement_with_strings(broken: bool) -> DAGMetric:
    then: dict[Any, int] = {True if broken else "letter": 10, "poem": 0}
    return metric(
        NonBinaryJudgementNode("Which?", evaluation_params=ACTUAL, then=then, name="kind")
    )


@EXAMPLES("verdict-type", "node 'kind'")
def a_verdict_without_words(broken: bool) -> DAGMetric:
    then = {" " if broken else "letter": 10, "poem": 0}
    return metric(
        NonBinaryJudgementNode("Which?", evaluation_params=ACTUAL, then=then, name="kind")
    )


@EXAMPLES("verdict-type", "node 'counted'")
def a_number_as_the_verdict_of_a_function(broken: bool) -> DAGMetric:
    then: dict[Any, int] = {1 if broken else "one": 10, "many": 0}
    return metric(CodeNode(lambda text: "many", (), ACTUAL, then=then, name="counted"))


@EXAMPLES("verdict-type", "node 'kind'")
def a_list_as_a_verdict(broken: bool) -> DAGMetric:
    odd: Any = ["letter"] if broken else "letter"
    judgement = NonBinaryJudgementNode(
        "Which?", [VerdictNode("poem", score=0)], ACTUAL, name="kind"
    )
    judgement.children.append(VerdictNode(odd, score=10))
    return metric(judgement)


@EXAMPLES("verdict-missing", "node 'good'")
def half_a_binary_judgement(broken: bool) -> DAGMetric:
    judgement = BinaryJudgementNode("Good?", evaluation_params=ACTUAL, name="good")
    judgement.add_verdict(True, score=10)
    if not broken:
        judgement.add_verdict(False, score=0)
    return metric(judgement)


@EXAMPLES("verdict-missing", "node 'kind'")
def a_judgement_with_nothing_to_choose_from(broken: bool) -> DAGMetric:
    then = {"letter": 10} if broken else {"letter": 10, "poem": 0}
    return metric(
        NonBinaryJudgementNode("Which?", evaluation_params=ACTUAL, then=then, name="kind")
    )


def tells_the_kind(text: str) -> Literal["letter", "poem"]:
    return "letter" if text.startswith("Dear") else "poem"


def is_long(text: str) -> bool:
    return len(text) > 80


@EXAMPLES("verdict-missing", "node 'kind'")
def a_function_whose_second_verdict_leads_nowhere(broken: bool) -> DAGMetric:
    then = {"letter": 10} if broken else {"letter": 10, "poem": 0}
    return metric(CodeNode(tells_the_kind, (), ACTUAL, then=then, name="kind"))


@EXAMPLES("unreachable-verdict", "node 'kind'", "warning")
def a_verdict_that_the_function_never_returns(broken: bool) -> DAGMetric:
    then = {"letter": 10, "poem": 0, **({"list": 3} if broken else {})}
    return metric(CodeNode(tells_the_kind, (), ACTUAL, then=then, name="kind"))


@EXAMPLES("unreachable-verdict", "node 'long'", "warning")
def a_word_as_the_verdict_of_a_function_that_returns_a_bool(broken: bool) -> DAGMetric:
    then: dict[Any, int] = {True: 10, False: 0, **({"maybe": 3} if broken else {})}
    return metric(CodeNode(is_long, (), ACTUAL, then=then, name="long"))


@EXAMPLES("verdict-target", "node 'good'")
def a_verdict_that_leads_to_a_verdict(broken: bool) -> DAGMetric:
    return metric(yes_no("good", no=VerdictNode(False, score=0) if broken else 0))


@EXAMPLES("score-range", "node 'good'")
def a_score_above_ten(broken: bool) -> DAGMetric:
    return metric(yes_no("good", yes=11 if broken else 10))


@EXAMPLES("score-range", "node 'good'")
def a_score_below_zero(broken: bool) -> DAGMetric:
    return metric(yes_no("good", no=-1 if broken else 0))


@EXAMPLES("score-range", "node 'good'")
def a_score_with_a_fraction(broken: bool) -> DAGMetric:
    return metric(yes_no("good", yes=7.0 if broken else 7))


@EXAMPLES("score-range", "node 'good'")
def a_score_that_is_a_bool(broken: bool) -> DAGMetric:
    return metric(yes_no("good", yes=True if broken else 10))


@EXAMPLES("score-range", "node 'good'")
def a_verdict_that_leads_to_text(broken: bool) -> DAGMetric:
    return metric(yes_no("good", no="the next node" if broken else 0))


@EXAMPLES("nested-too-deep", "")
def a_metric_in_a_metric_in_a_metric(broken: bool) -> DAGMetric:
    inner = metric(yes_no("innermost"))
    for number in range(60 if broken else 6):
        inner = metric(yes_no(f"level {number}", yes=inner))
    return inner


@pytest.mark.parametrize("one", EXAMPLES, ids=named)
@pytest.mark.parametrize("holds", LAWS, ids=lambda law: law.__name__)
def test_the_broken_graph_has_its_problem_and_the_twin_has_none(
    one: Example, holds: Callable[[Example], None]
) -> None:
    holds(one)


def test_every_code_of_the_module_is_in_the_table_above() -> None:
    assert codes_in(dagengine.compiler.structure_checks) == {one.code for one in EXAMPLES}


def test_a_near_miss_of_a_field_gets_the_right_one_as_a_hint() -> None:
    (field,) = problems_of(a_field_with_a_letter_missing(True))
    assert "'actual_output'" in field.hint


def test_the_codes_that_stop_the_wiring_are_real_codes() -> None:
    assert {one.code for one in EXAMPLES} >= dagengine.compiler.structure_checks.UNWIRABLE


# -- messages ------------------------------------------------------------------------------


def circle() -> DAGMetric:
    first, second, third = task("first"), task("second"), task("third")
    for before, after in ((first, second), (second, third), (third, first)):
        before.children.append(after)
    third.children.append(yes_no("good", reads=()))
    return metric(first)


def test_a_cycle_is_drawn_in_the_message() -> None:
    (problem,) = [p for p in problems_of(circle()) if p.code == "cycle"]
    assert "first -> second -> third -> first" in problem.message


def test_a_root_on_a_cycle_is_one_problem() -> None:
    first, second = yes_no("first"), yes_no("second")
    first.then[True], second.then[True] = second, first
    with pytest.raises(GraphError) as raised:
        DAG(first)
    assert [problem.code for problem in raised.value.problems] == ["cycle"]


def five_mistakes() -> DAGMetric:
    last = NonBinaryJudgementNode(
        "Which kind?", evaluation_params=("contxt",), then={"letter": 12, "poem": 0}, name="kind"
    )
    first = BinaryJudgementNode(
        "Good?", evaluation_params=ACTUAL, then={True: last, "no": 0}, name="good"
    )
    return metric(first, threshold=50)


def test_five_mistakes_are_reported_at_once() -> None:
    wanted = {"threshold-range", "verdict-type", "verdict-missing", "field-unknown", "score-range"}
    assert wanted <= set(codes_of(five_mistakes()))
    with pytest.raises(GraphError) as caught:
        compile_metrics([five_mistakes()])
    text = str(caught.value)
    for code in wanted:
        assert code in text
    assert text.startswith("5 problems in the graph")
    assert text.count("hint: ") == 5
    place = text.splitlines()[-1].removeprefix("  more: dagengine help")
    assert set(place.split()) >= wanted


def test_a_threshold_out_of_range_is_not_called_unreachable_as_well() -> None:
    assert codes_of(a_threshold_on_the_wrong_scale(True)) == ["threshold-range"]


def test_two_broken_metrics_are_reported_together() -> None:
    one = metric(yes_no("good", yes=11), name="One")
    two = metric(yes_no("good", yes=12), name="Two")
    with pytest.raises(GraphError) as caught:
        compile_metrics([one, two])
    assert {problem.where for problem in caught.value.problems} == {
        "metric 'One', node 'good'",
        "metric 'Two', node 'good'",
    }


SEEDED = """
from typing import Literal
from dagengine.compiler import check
from dagengine.graph import Graph, MetricSpec
from dagengine.metrics.dag import BinaryJudgementNode, CodeNode, NonBinaryJudgementNode

def kind(text: str) -> Literal["letter", "poem"]:
    return "poem"

then = {"letter": 10, "poem": 0, "list": 1, "song": 2, "essay": 3, "note": 4}
root = CodeNode(kind, (), ["actual_ouput"], then=then)
root.then["letter"] = NonBinaryJudgementNode("Are `the wrds` in `input`?", name="asks")
root.then["poem"] = BinaryJudgementNode("?", then={"a": 1, "b": 2, "c": 99}, name="odd")
for problem in check(MetricSpec("m", Graph(root)))[0]:
    print(problem)
"""


def test_problems_come_in_the_same_order_with_every_hash_seed() -> None:
    (text,) = set(printed(SEEDED))
    assert text.count("unreachable-verdict") == 4


def test_one_metric_under_both_verdicts_is_reported_once() -> None:
    inner = metric(yes_no("good", yes=11), name="Inner")
    outer = metric(yes_no("long", yes=inner, no=inner), name="Outer")
    assert codes_of(outer) == ["score-range"]


def test_a_metric_that_contains_itself_two_levels_down_is_found() -> None:
    top = yes_no("top")
    outer = metric(top, name="Outer")
    middle = metric(yes_no("middle", no=outer), name="Middle")
    top.then[False] = metric(yes_no("upper", no=middle), name="Upper")
    (problem,) = problems_of(outer)
    assert problem.code == "metric-cycle"
    assert "'Outer'" in problem.where


@pytest.mark.parametrize(
    "make",
    [
        lambda: DAG([]),
        lambda: DAG(BinaryJudgementNode("Good?", name="good", then={True: 10})),
        lambda: DAG(task("Facts")).picture(),
        lambda: DAG(task("Facts")).to_json(),
    ],
)
def test_errors_of_a_tree_that_belongs_to_no_metric_name_none(make: Callable[[], object]) -> None:
    with pytest.raises(GraphError) as caught:
        make()
    for problem in caught.value.problems:
        assert problem.where.startswith(("node '", "the tree"))


def test_the_check_of_a_tree_names_the_metric_that_it_is_given() -> None:
    tree = DAG(task("Facts"))
    assert {problem.where.partition(" '")[0] for problem in tree.check()} == {"node", "the tree"}
    assert all(problem.where.startswith("metric 'mine'") for problem in tree.check("mine"))
