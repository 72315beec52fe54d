"""Problems that show when a graph is wired: a graph that has each, and its twin that has not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

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
    under_a_verdict,
    yes_no,
)

import dagengine.compiler.checks
from dagengine.compiler import check
from dagengine.graph import MetricSpec, examples_and_quotes
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    BinaryJudgementNode,
    CodeNode,
    MapNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictNode,
)
from dagengine.prompts import PromptTemplate
from dagengine.test_case import LLMTestCase, LLMTestCaseParams

EXAMPLES = Examples()
DEEP = sys.getrecursionlimit() + 100


@EXAMPLES("label-clash", "node 'good'")
def two_inputs_of_one_name(broken: bool) -> DAGMetric:
    first, second = task("words"), task("words" if broken else "lines")
    return metric(yes_no("good", reads=(), inputs=[first, second]))


@EXAMPLES("label-clash", "node 'good'")
def an_input_named_like_a_field(broken: bool) -> DAGMetric:
    words = task("actual_output" if broken else "words")
    return metric(yes_no("good", inputs=[words]))


def alternatives(last: BaseNode, first_label: str) -> DAGMetric:
    """A decision whose two verdicts lead to a task each; both hand on to `last`."""
    one, two = task(first_label, last), task("long form", last)
    return metric(yes_no("short", yes=one, no=two))


@EXAMPLES("label-uncertain", "node 'good'")
def a_label_that_only_one_verdict_produces(broken: bool) -> DAGMetric:
    # On both sides an ancestor carries the label; only with two of that name is it certain.
    last = BinaryJudgementNode(
        "Is the `short form` good?" if broken else "Is it good?",
        then={True: 10, False: 0},
        name="good",
    )
    return alternatives(last, "short form")


@EXAMPLES("label-uncertain", "node 'good'")
def a_label_that_is_produced_but_not_read(broken: bool) -> DAGMetric:
    words = task("words")
    last = BinaryJudgementNode(
        "Are the `words` good?",
        evaluation_params=ACTUAL,
        inputs=[] if broken else [words],
        then={True: 10, False: 0},
        name="good",
    )
    return metric(words, last, yes_no("many", reads=(), inputs=[words]), combine="min")


@EXAMPLES("label-uncertain", "node 'measured'")
def an_argument_that_may_not_be_there(broken: bool) -> DAGMetric:
    last = CodeNode(lambda first, second: 0.5, name="measured")
    one = task("one", last)
    two = task("two", last)
    return metric(yes_no("short", yes=one, no=two)) if broken else metric(one, two)


@EXAMPLES("label-uncertain", "node 'good'")
def a_placeholder_that_only_one_verdict_fills(broken: bool) -> DAGMetric:
    last = BinaryJudgementNode(
        "Is it good?",
        prompt=PromptTemplate("Good? {one} {two}"),
        then={True: 10, False: 0},
        name="good",
    )
    one, two = task("one", last), task("two", last)
    return metric(yes_no("short", yes=one, no=two)) if broken else metric(one, two)


@EXAMPLES("code-arity", "node 'measured'")
def a_function_with_an_argument_too_many(broken: bool) -> DAGMetric:
    function: Any = (lambda text, more: 0.5) if broken else (lambda text, more=1: 0.5)
    return metric(CodeNode(function, (), ACTUAL, name="measured"))


@EXAMPLES("code-arity", "node 'measured'")
def a_function_with_an_argument_missing(broken: bool) -> DAGMetric:
    reads = ("actual_output", "input") if broken else ACTUAL
    return metric(CodeNode(lambda text: 0.5, (), reads, name="measured"))


@EXAMPLES("field-not-read", "node 'good'", "warning")
def a_field_in_backticks_that_is_not_read(broken: bool) -> DAGMetric:
    judgement = BinaryJudgementNode(
        "Does it match `expected_output`?",
        evaluation_params=ACTUAL if broken else ("actual_output", "expected_output"),
        then={True: 10, False: 0},
        name="good",
    )
    return metric(judgement)


def shown(*solved: examples_and_quotes.Example, reads: Iterable[str] = ACTUAL) -> DAGMetric:
    """A judgement with solved examples."""
    judgement = BinaryJudgementNode(
        "Is it good?", (), reads, then={True: 10, False: 0}, name="good", examples=solved
    )
    return metric(judgement)


@EXAMPLES("example-answer", "node 'good'")
def an_example_with_the_word_for_a_verdict(broken: bool) -> DAGMetric:
    return shown(examples_and_quotes.Example("Thanks.", "True" if broken else True))


@EXAMPLES("example-answer", "node 'scale'")
def an_example_beyond_the_scale(broken: bool) -> DAGMetric:
    solved = examples_and_quotes.Example("Thanks.", 6 if broken else 5)
    return metric(RatingNode("How good?", ACTUAL, scale=(1, 5), examples=[solved], name="scale"))


@EXAMPLES("example-field", "node 'good'")
def an_example_of_a_field_that_is_not_read(broken: bool) -> DAGMetric:
    more = {"input": "Hello?"} if broken else {}
    return shown(examples_and_quotes.Example({"actual_output": "Thanks.", **more}, True))


@EXAMPLES("example-field", "node 'kind'")
def an_example_of_a_whole_list(broken: bool) -> DAGMetric:
    name = "retrieval_context" if broken else "item"
    solved = examples_and_quotes.Example(
        {name: "Thanks.", **({"item": "x"} if broken else {})}, True
    )
    each = MapNode("Kind?", "retrieval_context", "kind", answer=bool, examples=[solved])
    return metric(each, CodeNode(lambda items: 1.0, inputs=[each]))


@EXAMPLES("example-empty", "node 'good'")
def an_example_without_a_text(broken: bool) -> DAGMetric:
    return shown(examples_and_quotes.Example(" " if broken else "Thanks.", True))


@EXAMPLES("example-incomplete", "node 'good'", "warning")
def an_example_with_less_than_a_case(broken: bool) -> DAGMetric:
    case = LLMTestCase(input="Hello?", actual_output=None if broken else "Hello.")
    return shown(examples_and_quotes.Example(case, True), reads=("input", "actual_output"))


@EXAMPLES("label-unknown", "node 'good'", "warning")
def a_label_with_a_letter_missing(broken: bool) -> DAGMetric:
    headings = task("Summary headings")
    word = "Sumary headings" if broken else "Summary headings"
    judgement = BinaryJudgementNode(
        f"Are the `{word}` in order?", inputs=[headings], then={True: 10, False: 0}, name="good"
    )
    return metric(judgement)


@EXAMPLES("label-unknown", "node 'good'")
def a_placeholder_that_stands_for_nothing(broken: bool) -> DAGMetric:
    judgement = BinaryJudgementNode(
        "Good?",
        evaluation_params=ACTUAL,
        prompt=PromptTemplate("Good? {output}" if broken else "Good? {actual_output}"),
        then={True: 10, False: 0},
        name="good",
    )
    return metric(judgement)


@EXAMPLES("template", "node 'good'")
def a_prompt_with_an_open_brace(broken: bool) -> DAGMetric:
    brace = "{" if broken else "{{"
    judgement = BinaryJudgementNode(
        "Good?",
        evaluation_params=ACTUAL,
        prompt=PromptTemplate(f"Good? {{actual_output}} {brace}"),
        then={True: 10, False: 0},
        name="good",
    )
    return metric(judgement)


@EXAMPLES("unused-output", "node 'good'", "warning")
def a_field_that_the_prompt_leaves_out(broken: bool) -> DAGMetric:
    judgement = BinaryJudgementNode(
        "Good?",
        evaluation_params=("input", "actual_output") if broken else ACTUAL,
        prompt=PromptTemplate("Good? {actual_output}"),
        then={True: 10, False: 0},
        name="good",
    )
    return metric(judgement)


@EXAMPLES("leaf-without-score", "node 'words'")
def a_task_at_the_end_of_a_path(broken: bool) -> DAGMetric:
    words = task("words") if broken else task("words", yes_no("short", reads=()))
    return metric(yes_no("good", no=words))


@EXAMPLES("leaf-without-score", "node 'good'")
def a_verdict_that_leads_nowhere(broken: bool) -> DAGMetric:
    return metric(yes_no("good", no=None if broken else 0))


@EXAMPLES("no-score", "metric 'Tested'")
def a_tree_that_never_scores(broken: bool) -> DAGMetric:
    words = task("words")
    return metric(words if broken else task("lines", yes_no("good", reads=())))


@EXAMPLES("no-score", "good")
def a_tree_of_which_one_verdict_never_scores(broken: bool) -> DAGMetric:
    words = task("words")
    return metric(yes_no("good", no=words if broken else 0))


@EXAMPLES("several-terminals", "metric 'Tested'", "warning")
def two_independent_decisions(broken: bool) -> DAGMetric:
    return metric(yes_no("good"), yes_no("short"), combine="last" if broken else "min")


@EXAMPLES("several-terminals", "metric 'Tested'", "warning")
def two_decisions_that_read_one_task(broken: bool) -> DAGMetric:
    good, short = yes_no("good", reads=()), yes_no("short", reads=())
    if not broken:
        good.then[False] = short
    return metric(task("words", good, short))


@EXAMPLES("threshold-unreachable", "metric 'Tested'", "warning")
def no_verdict_is_good_enough(broken: bool) -> DAGMetric:
    return metric(yes_no("good", yes=7 if broken else 8), threshold=0.8)


@EXAMPLES("threshold-unreachable", "metric 'Tested'", "warning")
def strict_and_no_verdict_is_perfect(broken: bool) -> DAGMetric:
    return metric(yes_no("good", yes=9 if broken else 10), strict_mode=True)


@EXAMPLES("threshold-trivial", "metric 'Tested'", "warning")
def every_verdict_is_good_enough(broken: bool) -> DAGMetric:
    return metric(yes_no("good", no=5 if broken else 4), threshold=0.5)


@EXAMPLES("circular-liveness", "'second'")
def a_decision_that_would_have_to_know_what_follows_it(broken: bool) -> DAGMetric:
    # `second` is reached directly or through `detour`, whose output it reads when there is one;
    # whether there is one also depends on `last`, which `second` decides on.
    detour = task("detour")
    last = yes_no("last", inputs=[detour] if broken else [])
    second = yes_no("second", yes=last)
    detour.children.append(second if broken else yes_no("other"))
    first = yes_no("first", yes=second, no=detour)
    return metric(first)


@EXAMPLES("gate-bypassed", "node 'last'", "warning")
def a_branch_that_also_runs_after_a_detour(broken: bool) -> DAGMetric:
    last = yes_no("last")
    detour = task("detour", last if broken else yes_no("other"))
    return metric(yes_no("first", yes=last, no=detour))


@EXAMPLES("never-runs", "'gate'")
def a_decision_that_only_its_own_branch_reads(broken: bool) -> DAGMetric:
    words = task("words")
    gate = BinaryJudgementNode("Are there many?", inputs=[words], name="gate")
    last = yes_no("last", reads=(), inputs=[gate])
    gate.then = {True: last, False: 0}
    words.children += [last] if broken else [gate, last]
    return metric(words)


@pytest.mark.parametrize("one", EXAMPLES, ids=named)
@pytest.mark.parametrize("holds", LAWS, ids=lambda law: law.__name__)
def test_the_broken_graph_has_its_problem_and_the_twin_has_none(
    one: Example, holds: Callable[[Example], None]
) -> None:
    holds(one)


def test_every_code_of_the_module_is_in_the_table_above() -> None:
    assert codes_in(dagengine.compiler.checks) == {one.code for one in EXAMPLES}


def test_a_near_miss_of_a_label_gets_the_right_one_as_a_hint() -> None:
    (label,) = problems_of(a_label_with_a_letter_missing(True))
    assert "'Summary headings'" in label.hint


# -- labels and liveness -------------------------------------------------------------------


def asks_about(label: str, **more: Any) -> BinaryJudgementNode:
    return BinaryJudgementNode(
        f"Are the `{label}` good?", then={True: 10, False: 0}, name="asks", **more
    )


def test_a_label_is_certain_when_every_way_to_its_reader_goes_through_its_producer() -> None:
    # `words` is behind a verdict, yet nobody reaches the reader without it.
    last = asks_about("words", evaluation_params=ACTUAL)
    middle = yes_no("middle", yes=last)
    words = task("words", middle, last)
    assert problems_of(metric(yes_no("first", yes=words))) == []


def test_a_label_is_not_certain_because_its_producer_is_an_ancestor() -> None:
    # `words` comes before the reader on one path; the other verdict leads around it.
    last = asks_about("words", evaluation_params=ACTUAL)
    middle = yes_no("middle", yes=last)
    words = task("words", middle, last)
    assert codes_of(metric(yes_no("first", yes=words, no=last))) == ["label-uncertain"]


def test_naming_the_producer_as_an_input_makes_its_label_certain() -> None:
    last = asks_about("words", inputs=[task("words")])
    middle = yes_no("middle", yes=last)
    assert problems_of(metric(yes_no("first", yes=middle, no=last))) == []


def test_a_node_may_be_read_by_two_judgements_of_which_a_verdict_skips_the_first() -> None:
    # Whoever of `middle` and `last` runs makes `words` run, and neither waits for itself:
    # `middle` needs it when `first` says yes, and when it says no only `last` is left.
    words = task("words")
    last = asks_about("words", inputs=[words])
    middle = yes_no("middle", yes=last, inputs=[words])
    assert problems_of(metric(yes_no("first", yes=middle, no=last))) == []


def test_alternatives_of_one_name_are_no_clash() -> None:
    last = BinaryJudgementNode("Is it good?", then={True: 10, False: 0}, name="good")
    assert problems_of(alternatives(last, "long form")) == []


def test_a_label_of_alternatives_that_cover_every_verdict_is_certain() -> None:
    assert problems_of(alternatives(asks_about("long form"), "long form")) == []


def test_backticks_around_other_words_are_no_reference() -> None:
    judgement = BinaryJudgementNode(
        "Does it call `print()` and `os.walk` in `actual_output`?",
        evaluation_params=ACTUAL,
        then={True: 10, False: 0},
    )
    assert problems_of(metric(judgement)) == []


def meeting_tree() -> DAGMetric:
    order = NonBinaryJudgementNode(
        criteria="Are the summary headings in the right order: 'intro' => 'body' => 'conclusion'?",
        children=[
            VerdictNode(verdict="Yes", score=10),
            VerdictNode(verdict="Two are out of order", score=4),
            VerdictNode(verdict="All out of order", score=2),
        ],
    )
    headings = BinaryJudgementNode(
        criteria="Do the summary headings contain all of 'intro', 'body' and 'conclusion'?",
        children=[VerdictNode(verdict=False, score=0), order],
    )
    extract = TaskNode(
        instructions="Extract all headings in `actual_output`",
        evaluation_params=[LLMTestCaseParams.ACTUAL_OUTPUT],
        output_label="Summary headings",
        children=[headings, order],
    )
    return DAGMetric(name="Format Correctness", dag=DAG(root_node=extract))


def test_the_meeting_tree_has_no_problem_at_all() -> None:
    assert problems_of(meeting_tree()) == []


def test_the_meeting_tree_without_the_bare_child_lacks_a_verdict() -> None:
    tree = meeting_tree()
    headings = tree.dag.root_nodes[0].children[0]
    headings.children.pop()
    assert "verdict-missing" in codes_of(tree)


def test_a_sound_metric_under_a_verdict_has_no_problem() -> None:
    assert problems_of(under_a_verdict(meeting_tree())) == []


def test_a_label_of_the_outer_metric_is_unknown_inside_a_nested_one() -> None:
    inner = metric(asks_about("words", evaluation_params=ACTUAL), name="Inner")
    words = task("words", yes_no("long", no=inner))
    # Not a near miss of anything that the nested metric knows, so no error; nor is it read.
    assert codes_of(metric(words, name="Outer")) == []


# -- several terminals ---------------------------------------------------------------------


def diamond() -> DAGMetric:
    last = yes_no("good", reads=())
    left, right = task("left", last), task("right", last)
    return metric(task("top", left, right))


def test_a_diamond_of_tasks_joined_by_one_judgement_has_one_terminal_at_a_time() -> None:
    assert problems_of(diamond()) == []


def test_two_verdicts_that_lead_to_one_node_have_one_terminal_at_a_time() -> None:
    last = yes_no("last")
    first = yes_no("first", yes=yes_no("middle", yes=last, no=last), no=last)
    assert problems_of(metric(first)) == []


def test_a_judgement_that_another_one_reads_is_no_second_terminal() -> None:
    first = BinaryJudgementNode("Is it clear?", evaluation_params=ACTUAL, name="clear")
    assert problems_of(metric(yes_no("good", inputs=[first]))) == []


def weighing(*nodes: BaseNode) -> CodeNode:
    return CodeNode(lambda *verdicts: 0.5, inputs=nodes, name="weighs")


def test_scores_that_code_computes_its_own_from_are_no_second_terminal() -> None:
    good, short = yes_no("good"), yes_no("short")
    assert problems_of(metric(weighing(good, short))) == []
    # It does not matter where the judgements run besides, or what code is between.
    assert problems_of(metric(good, short, weighing(good, short))) == []
    counts = CodeNode(lambda verdict: "few", inputs=[short], then={"few": 3, "many": 9})
    assert problems_of(metric(weighing(good, counts))) == []
    assert problems_of(metric(yes_no("gate", yes=weighing(good, short)))) == []


def test_code_that_may_not_run_leaves_the_scores_of_what_it_reads() -> None:
    good = yes_no("good")
    (problem,) = problems_of(metric(good, yes_no("gate", yes=weighing(good))))
    assert problem.code == "several-terminals"
    assert "leave then= out of what 'weighs' only weighs" in problem.hint


def test_a_judgement_with_a_score_that_reads_another_one_is_asked_whether_it_comes_after() -> None:
    (problem,) = problems_of(metric(yes_no("tone", inputs=[yes_no("correct")])))
    assert problem.code == "several-terminals"
    assert "'tone' is meant to come after a verdict of 'correct'" in problem.hint


def test_the_diamond_with_a_judgement_on_each_side_has_two_terminals() -> None:
    left = task("left", yes_no("good", reads=()))
    right = task("right", yes_no("short", reads=()))
    assert codes_of(metric(task("top", left, right))) == ["several-terminals"]


def test_two_verdicts_of_two_roots_that_share_a_node_may_both_fire() -> None:
    last = yes_no("last")
    roots = yes_no("first", yes=last), yes_no("second", yes=last)
    assert codes_of(metric(*roots)) == ["several-terminals"]


def test_a_map_whose_items_are_judged_is_no_decision() -> None:
    claims = task("claims", output_type=list[str])
    judged = MapNode("Is it true?", claims, "truths", answer=bool)
    share = CodeNode(lambda all_of_them: 0.5, inputs=[judged], name="share")
    assert problems_of(metric(share)) == []


def test_a_second_way_into_a_branch_is_named_with_the_first() -> None:
    (problem,) = problems_of(a_branch_that_also_runs_after_a_detour(True))
    ways = "it runs after True of 'first', and also whenever 'detour' runs"
    assert (problem.where, problem.message) == ("metric 'Tested', node 'last'", ways)
    assert "remove it from the children of 'detour'" in problem.hint


def test_data_from_what_always_runs_is_no_second_way_into_a_branch() -> None:
    last = yes_no("last")
    assert problems_of(metric(yes_no("first", yes=last), task("words", last))) == []
    # A parent that comes before the gate hands on data, too, wherever it stands itself.
    gate = yes_no("gate", yes=(end := yes_no("end")))
    assert problems_of(metric(yes_no("start", yes=task("prepare", gate, end)))) == []


# -- size ----------------------------------------------------------------------------------


def chain(length: int) -> DAGMetric:
    node = yes_no("last")
    for place in range(length - 1):
        node = yes_no(f"step {place}", yes=node)
    return metric(node)


def lattice(layers: int) -> DAGMetric:
    below: list[BaseNode] = [yes_no("good", reads=())]
    for layer in range(layers):
        below = [TaskNode(f"Task {layer} {side}", f"{layer} {side}", list(below)) for side in "ab"]
    first = task("start")
    first.children += below
    return metric(first)


def test_a_chain_of_more_judgements_than_calls_may_nest_is_checked() -> None:
    problems, wiring = check(chain(DEEP).spec())
    assert problems == []
    assert wiring is not None
    assert len([slot for slot in wiring.slots if slot.kind == "node"]) == DEEP


def test_a_lattice_of_forty_layers_of_tasks_is_checked() -> None:
    problems, wiring = check(lattice(40).spec())
    assert problems == []
    assert wiring is not None
    assert len([slot for slot in wiring.slots if slot.kind == "node"]) == 2 * 40 + 2


def test_a_mistake_at_the_end_of_a_long_chain_is_found() -> None:
    tree = chain(DEEP)
    node = tree.dag.root_nodes[0]
    while isinstance(node.then[True], BaseNode):
        node = node.then[True]
    node.then[True] = 11
    assert codes_of(tree) == ["score-range"]


def looked_at(levels: int) -> int:
    """How often the innermost metric is looked at when metrics nest under both verdicts."""
    looks = 0

    class Counted(DAGMetric):
        def spec(self) -> MetricSpec:
            nonlocal looks
            looks += 1
            return super().spec()

    inner: DAGMetric = Counted("Level 0", DAG(yes_no("good")))
    for level in range(1, levels):
        inner = metric(yes_no("good", yes=inner, no=inner), name=f"Level {level}")
    assert codes_of(inner) == []
    return looks


def test_deeper_nesting_under_both_verdicts_does_not_multiply_the_work() -> None:
    assert looked_at(8) <= looked_at(4) + 8
