"""Every problem the compiler can find: a graph that has it, and its twin that has not."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import dagengine.compiler.checks
import dagengine.compiler.syntax
from dagengine.compiler import check, compile_metrics
from dagengine.errors import GraphError, Problem, Severity
from dagengine.graph import MetricSpec
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
from dagengine.test_case import LLMTestCaseParams

ACTUAL = ("actual_output",)
Build = Callable[[bool], DAGMetric]


@dataclass(frozen=True)
class Example:
    """A metric that has a problem when `build(True)` makes it, and none at all otherwise."""

    code: str
    where: str
    build: Build
    severity: Severity


EXAMPLES: list[Example] = []


def example(code: str, where: str, severity: Severity = "error") -> Callable[[Build], Build]:
    """Put a pair of graphs into the table; `where` is what the problem must name."""

    def keep(build: Build) -> Build:
        EXAMPLES.append(Example(code, where, build, severity))
        return build

    return keep


def yes_no(
    name: str, yes: Any = 10, no: Any = 0, reads: tuple[str, ...] = ACTUAL, **more: Any
) -> BinaryJudgementNode:
    """A binary judgement written from the child's side."""
    return BinaryJudgementNode(
        f"Is it {name}?", evaluation_params=reads, then={True: yes, False: no}, name=name, **more
    )


def task(label: str, *children: BaseNode, **more: Any) -> TaskNode:
    more.setdefault("evaluation_params", ACTUAL)
    return TaskNode(f"Prepare the {label}", label, list(children), **more)


def metric(root: Any, *more: Any, name: str = "Tested", **settings: Any) -> DAGMetric:
    return DAGMetric(name, DAG(root_nodes=[root, *more]), **settings)


def problems_of(tested: DAGMetric) -> list[Problem]:
    return check(tested.spec())[0]


def codes_of(tested: DAGMetric) -> list[str]:
    return [problem.code for problem in problems_of(tested)]


# -- the graph as it is written ------------------------------------------------------------


@example("cycle", "node 'first'")
def tasks_in_a_circle(broken: bool) -> DAGMetric:
    first = task("first")
    second = task("second", yes_no("good", reads=()), evaluation_params=())
    first.children.append(second)
    if broken:
        second.children.append(first)
    return metric(first)


@example("cycle", "node 'words'")
def a_verdict_that_leads_back_to_what_its_judgement_reads(broken: bool) -> DAGMetric:
    words = task("words", evaluation_params=ACTUAL)
    again = task("words again", yes_no("short", reads=()))
    decides = yes_no("long", reads=(), inputs=[words], no=words if broken else again)
    return metric(decides) if not broken else metric(words, decides)


@example("cycle", "node 'loop'")
def a_judgement_that_leads_to_itself(broken: bool) -> DAGMetric:
    loop = yes_no("loop")
    loop.then[False] = loop if broken else yes_no("other")
    return metric(loop)


@example("metric-cycle", "metric 'Self'")
def a_metric_under_its_own_verdict(broken: bool) -> DAGMetric:
    root = yes_no("long")
    whole = metric(root, name="Self")
    root.then[False] = whole if broken else metric(yes_no("short"), name="Other")
    return whole


@example("no-root", "metric 'Tested'")
def a_graph_that_starts_nowhere(broken: bool) -> DAGMetric:
    return DAGMetric("Tested", DAG() if broken else DAG(yes_no("good")))


@example("threshold-range", "metric 'Tested'")
def a_threshold_on_the_wrong_scale(broken: bool) -> DAGMetric:
    return metric(yes_no("good"), threshold=7 if broken else 0.7)


@example("threshold-range", "metric 'Tested'")
def a_threshold_that_is_not_a_number(broken: bool) -> DAGMetric:
    return metric(yes_no("good"), threshold=float("nan") if broken else 1)


@example("threshold-range", "metric 'Tested'")
def a_threshold_in_quotes(broken: bool) -> DAGMetric:
    wrong: Any = "0.5"
    return metric(yes_no("good"), threshold=wrong if broken else 0.5)


@example("combine", "metric 'Tested'")
def a_way_to_combine_that_does_not_exist(broken: bool) -> DAGMetric:
    return metric(yes_no("good"), combine="median" if broken else "mean")


@example("verdict-root", "node 'verdict True'")
def a_verdict_at_the_root(broken: bool) -> DAGMetric:
    return metric(VerdictNode(True, score=1) if broken else yes_no("good"))


@example("not-a-node", "metric 'Tested'")
def a_root_that_is_text(broken: bool) -> DAGMetric:
    return metric("a root" if broken else yes_no("good"))


@example("not-a-node", "metric 'Tested'")
def a_child_that_is_text(broken: bool) -> DAGMetric:
    child: Any = "a child" if broken else yes_no("good", reads=())
    return metric(task("words", child))


@example("not-a-node", "metric 'Tested'")
def a_judgement_with_a_child_that_is_text(broken: bool) -> DAGMetric:
    child: Any = "a child" if broken else VerdictNode(True, score=10)
    judgement = BinaryJudgementNode("Good?", [child], ACTUAL)
    if not broken:
        judgement.add_verdict(False, score=0)
    return metric(judgement)


@example("not-a-node", "metric 'Tested'")
def a_judgement_with_a_metric_among_its_children(broken: bool) -> DAGMetric:
    inner: Any = metric(yes_no("short"), name="Inner")
    children: list[Any] = [VerdictNode("letter", score=10), VerdictNode("poem", score=0)]
    children.append(inner if broken else VerdictNode("list", child=inner))
    return metric(NonBinaryJudgementNode("Which kind?", children, ACTUAL))


@example("not-a-node", "metric 'Tested'")
def an_input_that_is_text(broken: bool) -> DAGMetric:
    read: Any = "words" if broken else task("words")
    return metric(yes_no("good", inputs=[read]))


@example("verdict-misplaced", "node 'words'")
def a_verdict_under_a_task(broken: bool) -> DAGMetric:
    child = VerdictNode(True, score=10) if broken else yes_no("good", reads=())
    return metric(task("words", child))


@example("verdict-misplaced", "node 'good'")
def a_verdict_among_the_inputs(broken: bool) -> DAGMetric:
    read = VerdictNode(True, score=10) if broken else task("words")
    return metric(yes_no("good", inputs=[read]))


@example("scale-range", "node 'rated'")
def a_scale_of_one_point(broken: bool) -> DAGMetric:
    return metric(RatingNode("How good?", ACTUAL, scale=(1, 1 if broken else 2), name="rated"))


@example("scale-range", "node 'rated'")
def a_scale_that_starts_with_the_best(broken: bool) -> DAGMetric:
    scale = (10, 1) if broken else (1, 10)
    return metric(RatingNode("How good?", ACTUAL, scale=scale, name="rated"))


@example("scale-range", "node 'rated'")
def a_scale_with_fractions(broken: bool) -> DAGMetric:
    scale: Any = (0.5, 1.5) if broken else (0, 1)
    return metric(RatingNode("How good?", ACTUAL, scale=scale, name="rated"))


@example("empty-text", "node 'silent'")
def a_judgement_without_a_criterion(broken: bool) -> DAGMetric:
    criteria = " \n " if broken else "Is it good?"
    judgement = BinaryJudgementNode(
        criteria, evaluation_params=ACTUAL, then={True: 10, False: 0}, name="silent"
    )
    return metric(judgement)


@example("field-unknown", "node 'good'")
def a_field_with_a_letter_missing(broken: bool) -> DAGMetric:
    return metric(yes_no("good", reads=("actual_ouput" if broken else "actual_output",)))


@example("field-unknown", "node 'good'")
def a_dotted_field_whose_first_part_is_unknown(broken: bool) -> DAGMetric:
    start = "metadata" if broken else "additional_metadata"
    return metric(yes_no("good", reads=(f"{start}.topic",)))


@example("bare-child", "node 'good'")
def a_bare_child_beside_two_declared_verdicts(broken: bool) -> DAGMetric:
    next_one = yes_no("short")
    declared = VerdictNode(True, score=10) if broken else VerdictNode(True, child=next_one)
    children: list[BaseNode] = [declared, VerdictNode(False, score=0)]
    if broken:
        children.append(next_one)
    return metric(BinaryJudgementNode("Good?", children, ACTUAL, name="good"))


@example("bare-child", "node 'good'")
def two_bare_children(broken: bool) -> DAGMetric:
    first: BaseNode = yes_no("short") if broken else VerdictNode(False, score=0)
    return metric(BinaryJudgementNode("Good?", [first, yes_no("calm")], ACTUAL, name="good"))


@example("bare-child", "node 'kind'")
def a_bare_child_under_a_judgement_with_many_verdicts(broken: bool) -> DAGMetric:
    children: list[BaseNode] = [VerdictNode("letter", score=10), VerdictNode("list", score=3)]
    last = yes_no("short")
    children.append(last if broken else VerdictNode("poem", child=last))
    return metric(NonBinaryJudgementNode("Which kind?", children, ACTUAL, name="kind"))


@example("verdict-duplicate", "node 'kind'")
def one_verdict_declared_twice(broken: bool) -> DAGMetric:
    verdicts = ["letter", "poem", "letter" if broken else "list"]
    children = [VerdictNode(verdict, score=n * 4) for n, verdict in enumerate(verdicts)]
    return metric(NonBinaryJudgementNode("Which kind?", children, ACTUAL, name="kind"))


@example("verdict-duplicate", "node 'good'")
def one_verdict_as_a_child_and_in_then(broken: bool) -> DAGMetric:
    children = [VerdictNode(True, score=10)]
    then = {True: 9, False: 0} if broken else {False: 0}
    return metric(BinaryJudgementNode("Good?", children, ACTUAL, then=then, name="good"))


@example("verdict-both", "node 'good'")
def a_verdict_with_a_score_and_a_child(broken: bool) -> DAGMetric:
    judgement = BinaryJudgementNode("Good?", evaluation_params=ACTUAL, name="good")
    judgement.add_verdict(True, score=10)
    judgement.add_verdict(False, score=1 if broken else None, child=yes_no("short"))
    return metric(judgement)


@example("verdict-type", "node 'good'")
def the_word_true_under_a_binary_judgement(broken: bool) -> DAGMetric:
    return metric(
        BinaryJudgementNode(
            "Good?",
            evaluation_params=ACTUAL,
            then={"True" if broken else True: 10, False: 0},
            name="good",
        )
    )


@example("verdict-type", "node 'good'")
def the_number_one_under_a_binary_judgement(broken: bool) -> DAGMetric:
    then = {1 if broken else True: 10, False: 0}
    return metric(BinaryJudgementNode("Good?", evaluation_params=ACTUAL, then=then, name="good"))


@example("verdict-type", "node 'kind'")
def a_bool_under_a_judgement_with_strings(broken: bool) -> DAGMetric:
    then: dict[Any, int] = {True if broken else "letter": 10, "poem": 0}
    return metric(
        NonBinaryJudgementNode("Which?", evaluation_params=ACTUAL, then=then, name="kind")
    )


@example("verdict-type", "node 'kind'")
def a_verdict_without_words(broken: bool) -> DAGMetric:
    then = {" " if broken else "letter": 10, "poem": 0}
    return metric(
        NonBinaryJudgementNode("Which?", evaluation_params=ACTUAL, then=then, name="kind")
    )


@example("verdict-type", "node 'counted'")
def a_number_as_the_verdict_of_a_function(broken: bool) -> DAGMetric:
    then: dict[Any, int] = {1 if broken else "one": 10, "many": 0}
    return metric(CodeNode(lambda text: "many", (), ACTUAL, then=then, name="counted"))


@example("verdict-type", "node 'kind'")
def a_list_as_a_verdict(broken: bool) -> DAGMetric:
    odd: Any = ["letter"] if broken else "letter"
    children = [VerdictNode(odd, score=10), VerdictNode("poem", score=0)]
    return metric(NonBinaryJudgementNode("Which?", children, ACTUAL, name="kind"))


@example("verdict-missing", "node 'good'")
def half_a_binary_judgement(broken: bool) -> DAGMetric:
    judgement = BinaryJudgementNode("Good?", evaluation_params=ACTUAL, name="good")
    judgement.add_verdict(True, score=10)
    if not broken:
        judgement.add_verdict(False, score=0)
    return metric(judgement)


@example("verdict-missing", "node 'kind'")
def a_judgement_with_nothing_to_choose_from(broken: bool) -> DAGMetric:
    then = {"letter": 10} if broken else {"letter": 10, "poem": 0}
    return metric(
        NonBinaryJudgementNode("Which?", evaluation_params=ACTUAL, then=then, name="kind")
    )


def tells_the_kind(text: str) -> Literal["letter", "poem"]:
    return "letter" if text.startswith("Dear") else "poem"


def is_long(text: str) -> bool:
    return len(text) > 80


@example("verdict-missing", "node 'kind'")
def a_function_whose_second_verdict_leads_nowhere(broken: bool) -> DAGMetric:
    then = {"letter": 10} if broken else {"letter": 10, "poem": 0}
    return metric(CodeNode(tells_the_kind, (), ACTUAL, then=then, name="kind"))


@example("unreachable-verdict", "node 'kind'", "warning")
def a_verdict_that_the_function_never_returns(broken: bool) -> DAGMetric:
    then = {"letter": 10, "poem": 0, **({"list": 3} if broken else {})}
    return metric(CodeNode(tells_the_kind, (), ACTUAL, then=then, name="kind"))


@example("unreachable-verdict", "node 'long'", "warning")
def a_word_as_the_verdict_of_a_function_that_returns_a_bool(broken: bool) -> DAGMetric:
    then: dict[Any, int] = {True: 10, False: 0, **({"maybe": 3} if broken else {})}
    return metric(CodeNode(is_long, (), ACTUAL, then=then, name="long"))


@example("verdict-target", "node 'good'")
def a_verdict_that_leads_to_a_verdict(broken: bool) -> DAGMetric:
    return metric(yes_no("good", no=VerdictNode(False, score=0) if broken else 0))


@example("score-range", "node 'good'")
def a_score_above_ten(broken: bool) -> DAGMetric:
    return metric(yes_no("good", yes=11 if broken else 10))


@example("score-range", "node 'good'")
def a_score_below_zero(broken: bool) -> DAGMetric:
    return metric(yes_no("good", no=-1 if broken else 0))


@example("score-range", "node 'good'")
def a_score_with_a_fraction(broken: bool) -> DAGMetric:
    return metric(yes_no("good", yes=7.0 if broken else 7))


@example("score-range", "node 'good'")
def a_score_that_is_a_bool(broken: bool) -> DAGMetric:
    return metric(yes_no("good", yes=True if broken else 10))


@example("score-range", "node 'good'")
def a_verdict_that_leads_to_text(broken: bool) -> DAGMetric:
    return metric(yes_no("good", no="the next node" if broken else 0))


# -- what shows when the graph is wired ----------------------------------------------------


@example("reads-nothing", "node 'good'")
def a_decision_about_nothing(broken: bool) -> DAGMetric:
    return metric(yes_no("good", reads=() if broken else ACTUAL))


@example("label-clash", "node 'good'")
def two_inputs_of_one_name(broken: bool) -> DAGMetric:
    first, second = task("words"), task("words" if broken else "lines")
    return metric(yes_no("good", reads=(), inputs=[first, second]))


@example("label-clash", "node 'good'")
def an_input_named_like_a_field(broken: bool) -> DAGMetric:
    words = task("actual_output" if broken else "words")
    return metric(yes_no("good", inputs=[words]))


def alternatives(last: BaseNode, first_label: str) -> DAGMetric:
    """A decision whose two verdicts lead to a task each; both hand on to `last`."""
    one, two = task(first_label, last), task("long form", last)
    return metric(yes_no("short", yes=one, no=two))


@example("label-uncertain", "node 'good'")
def a_label_that_only_one_verdict_produces(broken: bool) -> DAGMetric:
    # On both sides an ancestor carries the label; only with two of that name is it certain.
    last = BinaryJudgementNode(
        "Is the `short form` good?" if broken else "Is it good?",
        then={True: 10, False: 0},
        name="good",
    )
    return alternatives(last, "short form")


@example("label-uncertain", "node 'good'")
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


@example("label-uncertain", "node 'measured'")
def an_argument_that_may_not_be_there(broken: bool) -> DAGMetric:
    last = CodeNode(lambda first, second: 0.5, name="measured")
    one = task("one", last)
    two = task("two", last)
    return metric(yes_no("short", yes=one, no=two)) if broken else metric(one, two)


@example("label-uncertain", "node 'good'")
def a_placeholder_that_only_one_verdict_fills(broken: bool) -> DAGMetric:
    last = BinaryJudgementNode(
        "Is it good?",
        prompt=PromptTemplate("Good? {one} {two}"),
        then={True: 10, False: 0},
        name="good",
    )
    one, two = task("one", last), task("two", last)
    return metric(yes_no("short", yes=one, no=two)) if broken else metric(one, two)


@example("code-arity", "node 'measured'")
def a_function_with_an_argument_too_many(broken: bool) -> DAGMetric:
    function: Any = (lambda text, more: 0.5) if broken else (lambda text, more=1: 0.5)
    return metric(CodeNode(function, (), ACTUAL, name="measured"))


@example("code-arity", "node 'measured'")
def a_function_with_an_argument_missing(broken: bool) -> DAGMetric:
    reads = ("actual_output", "input") if broken else ACTUAL
    return metric(CodeNode(lambda text: 0.5, (), reads, name="measured"))


@example("field-not-read", "node 'good'", "warning")
def a_field_in_backticks_that_is_not_read(broken: bool) -> DAGMetric:
    judgement = BinaryJudgementNode(
        "Does it match `expected_output`?",
        evaluation_params=ACTUAL if broken else ("actual_output", "expected_output"),
        then={True: 10, False: 0},
        name="good",
    )
    return metric(judgement)


@example("label-unknown", "node 'good'")
def a_label_with_a_letter_missing(broken: bool) -> DAGMetric:
    headings = task("Summary headings")
    word = "Sumary headings" if broken else "Summary headings"
    judgement = BinaryJudgementNode(
        f"Are the `{word}` in order?", inputs=[headings], then={True: 10, False: 0}, name="good"
    )
    return metric(judgement)


@example("label-unknown", "node 'good'")
def a_placeholder_that_stands_for_nothing(broken: bool) -> DAGMetric:
    judgement = BinaryJudgementNode(
        "Good?",
        evaluation_params=ACTUAL,
        prompt=PromptTemplate("Good? {output}" if broken else "Good? {actual_output}"),
        then={True: 10, False: 0},
        name="good",
    )
    return metric(judgement)


@example("template", "node 'good'")
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


@example("unused-output", "node 'good'", "warning")
def a_field_that_the_prompt_leaves_out(broken: bool) -> DAGMetric:
    judgement = BinaryJudgementNode(
        "Good?",
        evaluation_params=("input", "actual_output") if broken else ACTUAL,
        prompt=PromptTemplate("Good? {actual_output}"),
        then={True: 10, False: 0},
        name="good",
    )
    return metric(judgement)


@example("leaf-without-score", "node 'words'")
def a_task_at_the_end_of_a_path(broken: bool) -> DAGMetric:
    words = task("words") if broken else task("words", yes_no("short", reads=()))
    return metric(yes_no("good", no=words))


@example("leaf-without-score", "node 'good'")
def a_verdict_that_leads_nowhere(broken: bool) -> DAGMetric:
    judgement = BinaryJudgementNode("Good?", evaluation_params=ACTUAL, name="good")
    judgement.add_verdict(True, score=10)
    judgement.add_verdict(False, score=None if broken else 0)
    return metric(judgement)


@example("root-reachable", "node 'good'")
def a_root_that_follows_another_root(broken: bool) -> DAGMetric:
    good = yes_no("good", reads=())
    words = task("words", good)
    return metric(words, good) if broken else metric(words)


@example("no-score", "metric 'Tested'")
def a_tree_that_never_scores(broken: bool) -> DAGMetric:
    words = task("words")
    return metric(words if broken else task("lines", yes_no("good", reads=())))


@example("no-score", "good")
def a_tree_of_which_one_verdict_never_scores(broken: bool) -> DAGMetric:
    words = task("words")
    return metric(yes_no("good", no=words if broken else 0))


@example("several-terminals", "metric 'Tested'", "warning")
def two_independent_decisions(broken: bool) -> DAGMetric:
    return metric(yes_no("good"), yes_no("short"), combine="last" if broken else "min")


@example("several-terminals", "metric 'Tested'", "warning")
def two_decisions_that_read_one_task(broken: bool) -> DAGMetric:
    good, short = yes_no("good", reads=()), yes_no("short", reads=())
    if not broken:
        good.then[False] = short
    return metric(task("words", good, short))


@example("threshold-unreachable", "metric 'Tested'", "warning")
def no_verdict_is_good_enough(broken: bool) -> DAGMetric:
    return metric(yes_no("good", yes=7 if broken else 8), threshold=0.8)


@example("threshold-unreachable", "metric 'Tested'", "warning")
def strict_and_no_verdict_is_perfect(broken: bool) -> DAGMetric:
    return metric(yes_no("good", yes=9 if broken else 10), strict_mode=True)


@example("threshold-trivial", "metric 'Tested'", "warning")
def every_verdict_is_good_enough(broken: bool) -> DAGMetric:
    return metric(yes_no("good", no=5 if broken else 4), threshold=0.5)


@example("circular-liveness", "'second'")
def a_decision_that_would_have_to_know_what_follows_it(broken: bool) -> DAGMetric:
    # `second` is reached directly or through `detour`, whose output it reads when there is one;
    # whether there is one also depends on `last`, which `second` decides on.
    detour = task("detour")
    last = yes_no("last", inputs=[detour] if broken else [])
    second = yes_no("second", yes=last)
    detour.children.append(second if broken else yes_no("other"))
    first = yes_no("first", yes=second, no=detour)
    return metric(first)


@example("gate-bypassed", "node 'last'", "warning")
def a_branch_that_also_runs_after_a_detour(broken: bool) -> DAGMetric:
    last = yes_no("last")
    detour = task("detour", last if broken else yes_no("other"))
    return metric(yes_no("first", yes=last, no=detour))


@example("nested-too-deep", "")
def a_metric_in_a_metric_in_a_metric(broken: bool) -> DAGMetric:
    inner = metric(yes_no("innermost"))
    for number in range(60 if broken else 6):
        inner = metric(yes_no(f"level {number}", yes=inner))
    return inner


@example("never-runs", "'gate'")
def a_decision_that_only_its_own_branch_reads(broken: bool) -> DAGMetric:
    words = task("words")
    gate = BinaryJudgementNode("Are there many?", inputs=[words], name="gate")
    last = yes_no("last", reads=(), inputs=[gate])
    gate.then = {True: last, False: 0}
    words.children += [last] if broken else [gate, last]
    return metric(words)


def named(one: Example) -> str:
    return f"{one.code}-{one.build.__name__}"


@pytest.mark.parametrize("one", EXAMPLES, ids=named)
def test_the_broken_graph_has_the_problem_with_a_name_and_a_hint(one: Example) -> None:
    found = [problem for problem in problems_of(one.build(True)) if problem.code == one.code]
    assert found, f"{one.code} is not among {codes_of(one.build(True))}"
    assert any(one.where in f"{problem.where}: {problem.message}" for problem in found)
    for problem in found:
        assert problem.severity == one.severity
        assert problem.hint.strip()
        assert problem.message.strip()
        assert "metric '" in problem.where


@pytest.mark.parametrize("one", EXAMPLES, ids=named)
def test_its_twin_has_no_problem_at_all(one: Example) -> None:
    assert problems_of(one.build(False)) == []


@pytest.mark.parametrize("one", EXAMPLES, ids=named)
def test_errors_keep_a_metric_from_compiling_and_warnings_do_not(one: Example) -> None:
    broken = one.build(True)
    if one.severity == "warning":
        assert one.code in [problem.code for problem in compile_metrics([broken]).warnings]
    else:
        with pytest.raises(GraphError, match=one.code):
            compile_metrics([broken])


@pytest.mark.parametrize("one", EXAMPLES, ids=named)
def test_no_problem_is_reported_twice(one: Example) -> None:
    found = problems_of(one.build(True))
    assert len(found) == len(set(found))


def codes_in(source: str) -> set[str]:
    """First arguments of all calls of `report`, and of `Problem`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    made = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in ("report", "Problem")]
    first = [call.args[0] for call in made if call.args]
    return {a.value for a in first if isinstance(a, ast.Constant) and isinstance(a.value, str)}


def test_every_code_of_the_sources_is_in_the_table_above() -> None:
    files = (dagengine.compiler.checks.__file__, dagengine.compiler.syntax.__file__)
    codes = {code for file in files for code in codes_in(Path(file).read_text(encoding="utf-8"))}
    assert len(codes) > 30
    assert codes == {one.code for one in EXAMPLES}


def test_the_codes_that_stop_the_wiring_are_real_codes() -> None:
    assert {one.code for one in EXAMPLES} >= dagengine.compiler.syntax.UNWIRABLE


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


def test_a_near_miss_of_a_name_gets_the_right_one_as_a_hint() -> None:
    (field,) = problems_of(a_field_with_a_letter_missing(True))
    (label,) = problems_of(a_label_with_a_letter_missing(True))
    assert "'actual_output'" in field.hint
    assert "'Summary headings'" in label.hint


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
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, NonBinaryJudgementNode

def kind(text: str) -> Literal["letter", "poem"]:
    return "poem"

then = {"letter": 10, "poem": 0, "list": 1, "song": 2, "essay": 3, "note": 4}
root = CodeNode(kind, (), ["actual_ouput"], then=then)
root.then["letter"] = NonBinaryJudgementNode("Are `the wrds` in `input`?", name="asks")
root.then["poem"] = BinaryJudgementNode("?", then={"a": 1, "b": 2, "c": 99}, name="odd")
for problem in DAG(root).check():
    print(problem)
"""


def test_problems_come_in_the_same_order_with_every_hash_seed() -> None:
    texts = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", SEEDED], env=environment, capture_output=True, check=True
        )
        texts.add(done.stdout)
    (text,) = texts
    assert text.count(b"unreachable-verdict") == 4


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


# -- nested metrics ------------------------------------------------------------------------


def under_a_verdict(inner: DAGMetric) -> DAGMetric:
    return metric(yes_no("long", no=inner), name="Outer")


@pytest.mark.parametrize("one", EXAMPLES, ids=named)
def test_a_problem_of_a_nested_metric_names_that_metric(one: Example) -> None:
    inner = one.build(True)
    found = [p for p in problems_of(under_a_verdict(inner)) if p.code == one.code]
    assert found
    assert any(inner.name in f"{p.where}: {p.message}" for p in found)
    # The name stands there once: nobody owns a metric called "Inner > Inner".
    assert all(f"{inner.name} > {inner.name}" not in p.where for p in found)


def test_a_sound_metric_under_a_verdict_has_no_problem() -> None:
    assert problems_of(under_a_verdict(meeting_tree())) == []


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
    assert "out of the children of 'detour'" in problem.hint


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


def test_a_chain_of_five_thousand_judgements_is_checked() -> None:
    problems, wiring = check(chain(5_000).spec())
    assert problems == []
    assert wiring is not None
    assert len([slot for slot in wiring.slots if slot.kind == "node"]) == 5_000


def test_a_lattice_of_forty_layers_of_tasks_is_checked() -> None:
    problems, wiring = check(lattice(40).spec())
    assert problems == []
    assert wiring is not None
    assert len([slot for slot in wiring.slots if slot.kind == "node"]) == 2 * 40 + 2


def test_a_mistake_at_the_end_of_a_long_chain_is_found() -> None:
    tree = chain(2_000)
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
