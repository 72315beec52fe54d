"""Metrics of agents: the tools they called and the task they completed."""

from __future__ import annotations

import inspect
import itertools
import re
from fractions import Fraction
from functools import partial
from typing import Any

import anyio
import pytest
from graphs.trees import result_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine import a_evaluate, compile_metrics, evaluate
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.agent.argument_correctness import (
    ArgumentCorrectnessMetric,
    ArgumentCorrectnessTemplate,
)
from dagengine.metrics.agent.goal_accuracy import GoalAccuracyMetric, GoalAccuracyTemplate
from dagengine.metrics.agent.plan_adherence import PlanAdherenceMetric, PlanAdherenceTemplate
from dagengine.metrics.agent.step_efficiency import StepEfficiencyMetric, StepEfficiencyTemplate
from dagengine.metrics.agent.tool_use import ToolUseMetric, ToolUseTemplate
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.metrics.task_completion import TaskCompletionMetric, TaskCompletionTemplate
from dagengine.metrics.tool_correctness import (
    ToolCorrectnessMetric,
    agreement,
    best_assignment,
    best_in_order,
)
from dagengine.metrics.turns.topic_adherence import TopicAdherenceMetric, TopicAdherenceTemplate
from dagengine.question import Question
from dagengine.results import OutcomeKind
from dagengine.test_case import (
    ConversationalTestCase,
    LLMTestCase,
    ToolCall,
    ToolCallParams,
    ToolCallType,
    Turn,
)


def calls(*names: str) -> list[ToolCall]:
    return [ToolCall(name=name) for name in names]


def tools(called: list[ToolCall] | None, expected: list[ToolCall] | None) -> LLMTestCase:
    return LLMTestCase(input="x", tools_called=called, expected_tools=expected)


TABLE = [
    # called, expected, any order, in order, exact, precision
    ("", "", 1, 1, 1, 1),
    ("a", "", 0, 0, 0, 0),
    ("", "a", 0, 0, 0, 0),
    ("a", "a", 1, 1, 1, 1),
    ("aa", "aa", 1, 1, 1, 1),
    ("a", "aa", 1 / 2, 1 / 2, 0, 1),
    ("aa", "a", 1, 1, 0, 1 / 2),
    ("ba", "ab", 1, 1 / 2, 0, 1),
    ("abc", "ab", 1, 1, 0, 2 / 3),
    ("cab", "ab", 1, 1, 0, 2 / 3),
    ("bca", "abc", 1, 2 / 3, 0, 1),
    ("aba", "aab", 1, 2 / 3, 0, 1),
    ("xy", "ab", 0, 0, 0, 0),
]


@pytest.mark.parametrize(("called", "expected", "free", "ordered", "exact", "precise"), TABLE)
def test_scores_by_name_are_those_computed_by_hand(
    called: str, expected: str, free: float, ordered: float, exact: float, precise: float
) -> None:
    case = tools(calls(*called), calls(*expected))
    assert ToolCorrectnessMetric().measure(case) == pytest.approx(free)
    in_order = ToolCorrectnessMetric(should_consider_ordering=True)
    assert in_order.measure(case) == pytest.approx(ordered)
    assert ToolCorrectnessMetric(should_exact_match=True).measure(case) == exact
    assert ToolCorrectnessMetric(precision=True).measure(case) == pytest.approx(precise)


def typed(name: str, kind: str | None) -> ToolCall:
    return ToolCall(name=name, type=kind)


@pytest.mark.parametrize("settings", [{}, {"should_consider_ordering": True}, {"precision": True}])
def test_a_call_of_another_type_is_another_call(settings: dict[str, Any]) -> None:
    expected = [typed("get", ToolCallType.FUNCTION), typed("ask", "function")]
    called = [typed("get", ToolCallType.FUNCTION), typed("ask", ToolCallType.MCP)]
    metric = ToolCorrectnessMetric(**settings)
    assert metric.measure(tools(called, expected)) == 0.5
    assert "Of another type: ask (expected function, called MCP)." in (metric.reason or "")


def test_every_position_must_hold_the_type_if_all_must_match() -> None:
    metric = ToolCorrectnessMetric(should_exact_match=True)
    case = tools([typed("ask", ToolCallType.MCP)], [typed("ask", ToolCallType.FUNCTION)])
    assert metric.measure(case) == 0
    assert "1: ask for ask (expected FUNCTION, called MCP)" in (metric.reason or "")


def test_a_call_that_says_no_type_matches_any() -> None:
    for called, expected in ((None, "MCP"), ("MCP", None), (None, None), ("mcp", "MCP")):
        case = tools([typed("ask", called)], [typed("ask", expected)])
        assert ToolCorrectnessMetric().measure(case) == 1


def search(output: Any = None, **arguments: Any) -> ToolCall:
    return ToolCall(name="search", input_parameters=arguments, output=output)


@pytest.mark.parametrize(
    ("params", "score"),
    [
        ([], 1),
        (["input_parameters"], 1 / 2),  # q agrees; n does not
        (["output"], 2 / 3),  # hits and more agree; time does not
        (["input_parameters", "output"], 1 / 3),
    ],
)
def test_arguments_and_output_earn_part_of_the_credit(params: list[str], score: float) -> None:
    made = search({"hits": 3, "time": 1, "more": {}}, q="rain", n=5)
    wanted = search({"hits": 3, "time": 2, "more": {}}, q="rain", n=6)
    metric = ToolCorrectnessMetric(evaluation_params=params)
    assert metric.measure(tools([made], [wanted])) == pytest.approx(score)


@pytest.mark.parametrize(
    ("left", "right", "share"),
    [
        ({}, {}, 1),
        ({"a": 1}, {}, 0),
        ({"a": 1}, {"a": 1, "b": 2}, 1 / 2),
        ({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"x": 1, "y": 3}, "b": 1}, 3 / 4),
        ([1, {"a": 2}], [1, {"a": 2}], 1),
        ([1, 2], [1, 2, 3], 0),
        ([{"a": 1, "b": 2}], [{"a": 1, "b": 3}], 0),
        (1, 1.0, 1),
        (1, True, 0),
        (None, None, 1),
        (None, "", 0),
    ],
)
def test_values_agree_by_keys_and_else_in_whole(left: Any, right: Any, share: float) -> None:
    assert agreement(left, right) == agreement(right, left) == Fraction(share)


def test_no_arguments_and_an_empty_mapping_are_the_same() -> None:
    case = tools([ToolCall(name="a", input_parameters={})], calls("a"))
    assert ToolCorrectnessMetric(evaluation_params=["input_parameters"]).measure(case) == 1.0


def test_the_best_assignment_is_not_the_greedy_one() -> None:
    # Greedily, the first expected call takes the call that agrees in 2 of 3 arguments with it.
    expected = [search(a=1, b=1, c=1), search(a=1, b=1, c=2)]
    called = [search(a=1, b=1, c=2), search(a=1, b=0, c=0)]
    metric = ToolCorrectnessMetric(evaluation_params=[ToolCallParams.INPUT_PARAMETERS])
    assert metric.measure(tools(called, expected)) == pytest.approx((1 + 1 / 3) / 2)
    expected.reverse()
    assert metric.measure(tools(called, expected)) == pytest.approx((1 + 1 / 3) / 2)


def test_in_order_the_subsequence_worth_most_wins_over_the_longest() -> None:
    # Both are in order: one match in full, or two of which 1 argument in 4 agrees.
    expected = [search(a=1, b=0, c=0, d=0), search(a=1, b=1, c=1, d=1)]
    called = [search(a=1, b=1, c=1, d=1), search(a=1, b=5, c=7, d=8)]
    metric = ToolCorrectnessMetric(
        should_consider_ordering=True, evaluation_params=["input_parameters"]
    )
    assert metric.measure(tools(called, expected)) == pytest.approx(1 / 2)


def test_an_exact_match_includes_the_parameters_asked_for() -> None:
    case = tools([search(q="rain")], [search(q="snow")])
    assert ToolCorrectnessMetric(should_exact_match=True).measure(case) == 1.0
    strict = ToolCorrectnessMetric(should_exact_match=True, evaluation_params=["input_parameters"])
    assert strict.measure(case) == 0.0


def test_the_reason_gives_counts_formula_and_findings_and_nothing_is_asked() -> None:
    case = tools([search(q="rain", n=5), *calls("fly")], [search(q="rain", n=6), *calls("book")])
    metric = ToolCorrectnessMetric(evaluation_params=["input_parameters"])
    done = evaluate([case], [metric], model=ScriptedJudge({}), show=False)
    assert done.totals.asked == 0
    assert done.rows[0].metrics[0].reason == (
        "0.5 of 2 expected calls were made, in any order: 0.5/2 = 0.25.\n"
        "Expected, but no call matches: book.\n"
        "Right in part: search (0.5).\n"
        "Called, but matches nothing expected: fly."
    )


@pytest.mark.parametrize(
    ("case", "setting", "reason"),
    [
        (tools([], []), {}, "No tool was expected and none was called."),
        (
            tools(calls("a"), []),
            {},
            "None of 1 calls has a counterpart: 0.\nCalled, but matches nothing expected: a.",
        ),
        (
            tools(calls("b", "a"), calls("a", "b")),
            {"should_consider_ordering": True},
            "1 of 2 expected calls were made, in order: 1/2 = 0.5.\n"
            "Expected, but no call matches in this place: a.\n"
            "Called, but matches nothing expected in this place: a.",
        ),
        (
            tools(calls("a", "b"), calls("a", "c", "d")),
            {"should_exact_match": True},
            "1 of 3 positions hold the expected call; all must: 0.\n"
            "Wrong: 2: b for c, 3: no call for d.",
        ),
        (
            tools(calls("a", "b"), calls("a")),
            {"precision": True},
            "1 of 2 calls made were expected, in any order: 1/2 = 0.5.\n"
            "Called, but matches nothing expected: b.",
        ),
    ],
)
def test_reasons_of_the_modes_read_like_this(
    case: LLMTestCase, setting: dict[str, Any], reason: str
) -> None:
    assert result_of(case, ToolCorrectnessMetric(**setting)).reason == reason


def test_a_long_list_of_findings_is_cut_and_counted() -> None:
    reason = result_of(tools(calls(*"abcdefgh"), []), ToolCorrectnessMetric()).reason
    assert reason is not None
    assert reason.endswith("Called, but matches nothing expected: a, b, c, d, e and 3 more.")


@pytest.mark.parametrize("absent", ["tools_called", "expected_tools"])
def test_tool_lists_that_are_missing_are_a_typed_failure(absent: str) -> None:
    case = tools(calls("a"), calls("a")).model_copy(update={absent: None})
    result = result_of(case, ToolCorrectnessMetric())
    assert result.outcome == OutcomeKind.MISSING_FIELD
    assert f"`{absent}`" in str(result.failure)


def test_wrong_settings_of_tool_correctness_are_found_at_once() -> None:
    with pytest.raises(InputError, match="'arguments'"):
        ToolCorrectnessMetric(evaluation_params=["arguments"])
    with pytest.raises(TypeError, match="has no prompts"):
        ToolCorrectnessMetric(evaluation_template=TaskCompletionTemplate)


def test_strict_mode_wants_every_call_and_keeps_the_raw_score() -> None:
    metric = ToolCorrectnessMetric(strict_mode=True)
    result = result_of(tools(calls("a"), calls("a", "b")), metric)
    assert (result.score, result.raw_score, result.success) == (0.0, 0.5, False)
    assert result_of(tools(calls("b", "a"), calls("a", "b")), metric).success is True


TOOL = st.builds(
    ToolCall,
    name=st.sampled_from("ab"),
    input_parameters=st.dictionaries(st.sampled_from("xyz"), st.integers(0, 1)),
    output=st.sampled_from([None, 1]),
)
TOOLS = st.lists(TOOL, max_size=4)
PARAMS: list[Any] = ["input_parameters", "output"]
FREE = ToolCorrectnessMetric(evaluation_params=PARAMS)
ORDERED = ToolCorrectnessMetric(evaluation_params=PARAMS, should_consider_ordering=True)
EXACT = ToolCorrectnessMetric(evaluation_params=PARAMS, should_exact_match=True)
PRECISE = ToolCorrectnessMetric(evaluation_params=PARAMS, precision=True)
FREE.name, ORDERED.name, EXACT.name, PRECISE.name = "free", "ordered", "exact", "precise"


def scores(called: list[ToolCall], expected: list[ToolCall], *metrics: Any) -> list[Any]:
    (row,) = evaluate([tools(called, expected)], metrics, show=False).rows
    return [result.score for result in row.metrics]


@settings(max_examples=30, deadline=None)
@given(TOOLS, TOOLS, st.randoms(use_true_random=False))
def test_without_order_no_permutation_of_either_list_changes_the_score(
    called: list[ToolCall], expected: list[ToolCall], random: Any
) -> None:
    shuffled, other = called[:], expected[:]
    random.shuffle(shuffled)
    random.shuffle(other)
    assert scores(called, expected, FREE, PRECISE) == scores(shuffled, other, FREE, PRECISE)


@settings(max_examples=60, deadline=None)
@given(TOOLS, TOOLS)
def test_modes_are_ordered_by_strictness_and_precision_is_the_other_way_round(
    called: list[ToolCall], expected: list[ToolCall]
) -> None:
    free, ordered, exact, precise = scores(called, expected, FREE, ORDERED, EXACT, PRECISE)
    assert 0 <= exact <= ordered <= free <= 1
    assert [precise] == scores(expected, called, FREE)


@settings(max_examples=30, deadline=None)
@given(TOOLS)
def test_calls_as_expected_are_perfect_in_every_mode_however_often_they_repeat(
    expected: list[ToolCall],
) -> None:
    assert scores(expected * 2, expected * 2, FREE, ORDERED, EXACT, PRECISE) == [1.0] * 4


CREDIT = st.sampled_from([Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(1)])
CREDITS = st.integers(0, 4).flatmap(
    lambda width: st.lists(st.lists(CREDIT, min_size=width, max_size=width), max_size=4)
)


def brute(credits: list[list[Fraction]], *, in_order: bool) -> Fraction:
    """The best sum over every way to match, tried one by one."""
    height, width = len(credits), len(credits[0]) if credits else 0
    best = Fraction(0)
    for size in range(min(height, width) + 1):
        choose = itertools.combinations if in_order else itertools.permutations
        for rows in itertools.combinations(range(height), size):
            for columns in choose(range(width), size):
                pairs = zip(rows, columns, strict=True)
                best = max(best, sum((credits[i][j] for i, j in pairs), Fraction(0)))
    return best


@given(CREDITS)
def test_matchings_are_as_good_as_trying_everything(credits: list[list[Fraction]]) -> None:
    for match, in_order in ((best_assignment, False), (best_in_order, True)):
        pairs = match(credits)
        assert sum(pair.credit for pair in pairs) == brute(credits, in_order=in_order)
        assert len({pair.expected for pair in pairs}) == len(pairs)
        assert len({pair.call for pair in pairs}) == len(pairs)
        assert all(pair.credit == credits[pair.expected][pair.call] for pair in pairs)


def test_tool_correctness_runs_under_a_verdict_of_a_tree() -> None:
    inner = ToolCorrectnessMetric(strict_mode=True)
    outer = DAGMetric(
        "agent",
        DAG(
            root_node=BinaryJudgementNode(
                "Were tools needed?",
                evaluation_params=["input"],
                then={True: inner, False: 10},
                name="needed",
            )
        ),
    )
    result = result_of(tools(calls("a"), calls("a", "b")), outer, ScriptedJudge({"needed": True}))
    assert result.score == 0.0
    assert result.reason is not None
    assert "1 of 2 expected calls" in result.reason


TRIP = LLMTestCase(input="Book a train to Bonn.", actual_output="Booked: 9:10, seat 4.")
DONE = {"task": "Book a train to Bonn.", "outcome": "A train was booked."}


def rater(rating: Any, prompts: list[Question[Any]] | None = None) -> ScriptedJudge:
    def answer(question: Question[Any]) -> Any:
        if prompts is not None:
            prompts.append(question)
        if question.name == "completion":
            return {"score": rating, "reason": "half of it"}
        return DONE if question.name == "task and outcome" else DONE["outcome"]

    return ScriptedJudge(answer)


@pytest.mark.parametrize(("rating", "score"), [(0, 0.0), (5, 0.5), (7, 0.7), (10, 1.0)])
def test_a_rating_of_task_completion_is_put_on_the_range_from_0_to_1(
    rating: int, score: float
) -> None:
    done = evaluate([TRIP], [TaskCompletionMetric()], model=rater(rating), show=False)
    result = done.rows[0].metrics[0]
    assert (result.score, result.reason) == (score, "half of it")
    assert done.totals.calls == 2


def test_the_rating_sees_task_and_outcome_and_not_the_answer() -> None:
    asked: list[Question[Any]] = []
    result_of(TRIP, TaskCompletionMetric(), rater(5, asked))
    first, last = (question.messages[1]["content"] for question in asked)
    assert "seat 4" in first
    assert "seat 4" not in last
    assert "A train was booked." in last


def test_a_task_that_is_given_is_not_asked_for() -> None:
    asked: list[Question[Any]] = []
    metric = TaskCompletionMetric(task="Sell a ticket.")
    assert result_of(TRIP, metric, rater(4, asked)).score == 0.4
    assert [question.name for question in asked] == ["outcome", "completion"]
    assert "Sell a ticket." in asked[1].messages[1]["content"]
    assert "Sell a ticket." not in asked[0].messages[1]["content"]


def test_tools_that_were_called_are_evidence_and_need_not_be_there() -> None:
    asked: list[Question[Any]] = []
    case = TRIP.model_copy(update={"tools_called": [ToolCall(name="book", output="ok")]})
    evaluate([case, TRIP], [TaskCompletionMetric()], model=rater(5, asked), show=False)
    first = {question.messages[1]["content"] for question in asked if question.name != "completion"}
    assert sum('{"name": "book", "output": "ok"}' in text for text in first) == 1
    assert sum("tools_called (empty list)" in text for text in first) == 1


@pytest.mark.parametrize("bad", [11, -1, True])
def test_a_rating_outside_its_range_is_asked_for_again_and_never_scored(bad: Any) -> None:
    done = evaluate([TRIP], [TaskCompletionMetric()], model=rater(bad), show=False)
    assert done.rows[0].metrics[0].outcome == OutcomeKind.UNPARSEABLE
    assert done.rows[0].metrics[0].score is None
    assert done.totals.calls == 1 + 3


@pytest.mark.parametrize("blank", ["", " \n", "\u200b"])
@pytest.mark.parametrize("given_task", [None, "Book a train."])
def test_an_outcome_without_words_is_asked_for_again_and_never_rated(
    blank: str, given_task: str | None
) -> None:
    def answer(question: Question[Any]) -> Any:
        if question.name == "completion":
            return {"score": 10, "reason": "done"}
        return blank if given_task else {"task": "Book a train.", "outcome": blank}

    metric = TaskCompletionMetric(task=given_task)
    done = evaluate([TRIP], [metric], model=ScriptedJudge(answer), show=False)
    result = done.rows[0].metrics[0]
    assert (result.score, result.outcome) == (None, OutcomeKind.UNPARSEABLE)
    assert done.totals.calls == 3


def test_task_completion_without_an_answer_fails_before_any_call() -> None:
    done = evaluate(
        [LLMTestCase(input="x")], [TaskCompletionMetric()], model=rater(5), show=False
    )  # fmt: skip
    assert done.rows[0].metrics[0].outcome == OutcomeKind.MISSING_FIELD
    assert done.totals.calls == 0


def test_strict_mode_of_task_completion_takes_the_best_rating_only() -> None:
    metric = TaskCompletionMetric(strict_mode=True)
    assert result_of(TRIP, metric, rater(9)).score == 0.0
    assert result_of(TRIP, metric, rater(10)).score == 1.0


def test_prompts_of_task_completion_can_be_replaced_one_by_one() -> None:
    class Own(TaskCompletionTemplate):
        @staticmethod
        def generate_rating(task: str, outcome: str) -> str:
            return f"rate {outcome!r} for {task!r}"

        @staticmethod
        def extract_outcome(input: str, actual_output: str, tools_called: Any) -> str:
            return f"what came of {input!r} with {len(tools_called)} tools?"

    asked: list[Question[Any]] = []
    result_of(TRIP, TaskCompletionMetric(task="t", evaluation_template=Own), rater(5, asked))
    assert [question.messages[-1]["content"] for question in asked] == [
        "what came of 'Book a train to Bonn.' with 0 tools?",
        "rate 'A train was booked.' for 't'",
    ]


def test_the_default_templates_hold_everything_that_is_read() -> None:
    template, more = TaskCompletionTemplate, [ToolCall(name="book")]
    for prompt in (
        template.extract_task_and_outcome("in", "out", more),
        template.extract_outcome("in", "out", more),
    ):
        assert all(word in prompt for word in ("in", "out", "book"))
    assert "BEGIN outcome" in template.generate_rating("t", "o")


def test_the_graph_of_task_completion_is_extraction_then_rating() -> None:
    graph = compile_metrics([TaskCompletionMetric()]).graph
    names = {node: data["name"] for node, data in graph.nodes(data=True)}
    edges = {(names[a], names[b]) for a, b in graph.edges}
    assert ("task and outcome", "task") in edges
    assert ("outcome", "completion") in edges


@pytest.mark.anyio
async def test_cases_of_task_completion_are_judged_at_the_same_time() -> None:
    everybody, arrived = anyio.Event(), 0

    async def answer(question: Question[Any]) -> Any:
        nonlocal arrived
        if question.name == "completion":
            return 8
        arrived += 1
        if arrived == 3:
            everybody.set()
        await everybody.wait()
        return DONE

    cases = [TRIP.model_copy(update={"input": f"case {n}"}) for n in range(3)]
    with anyio.fail_after(120):
        done = await a_evaluate(
            cases, [TaskCompletionMetric()], model=ScriptedJudge(answer), show=False
        )
    assert done.scores("Task Completion") == [0.8] * 3


# Calls, each judged in view of all of them.

CALLS: list[Any] = [(ArgumentCorrectnessMetric, "arguments"), (StepEfficiencyMetric, "need")]
TASK = LLMTestCase(
    input="Book a train to Bonn.",
    actual_output="Booked.",
    tools_called=[
        ToolCall(name="search", input_parameters={"to": "Bonn"}, output={"train": 9}),
        ToolCall(name="book", input_parameters={"train": 7}, reasoning="I search, then book."),
    ],
)


def verdicts(letters: str) -> dict[str, Any]:
    """One verdict per letter: y or n."""
    words = {"y": "yes", "n": "no"}
    judged = {
        str(place): {"reason": f"why {place}", "verdict": words[letter]}
        for place, letter in enumerate(letters, 1)
    }
    return {"verdicts": judged}


@pytest.mark.parametrize(("kind", "node"), CALLS)
@pytest.mark.parametrize(
    ("letters", "score"), [("yy", 1.0), ("yn", 1 / 2), ("nny", 1 / 3), ("n", 0.0)]
)
def test_a_score_of_calls_is_the_share_of_good_ones(
    kind: Any, node: str, letters: str, score: float
) -> None:
    case = LLMTestCase(input="Do it.", tools_called=calls(*(f"tool {n}" for n in letters)))
    done = evaluate([case], [kind()], model=ScriptedJudge({node: verdicts(letters)}), show=False)
    assert done.rows[0].metrics[0].score == pytest.approx(score)
    assert done.totals.calls == 1


@pytest.mark.parametrize(("kind", "node"), CALLS)
@pytest.mark.parametrize("size", [None, 1])
def test_every_call_is_judged_in_view_of_all_calls(kind: Any, node: str, size: Any) -> None:
    asked: list[str] = []

    def answer(question: Question[Any]) -> Any:
        asked.append(question.messages[-1]["content"])
        return verdicts("yn" if size is None else "y")

    result = result_of(TASK, kind(verdicts_per_call=size), ScriptedJudge(answer))
    assert len(asked) == (1 if size is None else 2)
    for text in asked:
        assert "BEGIN tools_called (1 of 2)" in text
        assert '"train": 7' in text
        assert "Book a train to Bonn." in text
    items = re.findall(r"^tools_called \(. of 2\)$", "\n".join(asked), re.MULTILINE)
    assert items == ["tools_called (1 of 2)", "tools_called (2 of 2)"]
    if size is None:
        assert "Not: 'call 2: book' (why 2)" in str(result.reason)


@pytest.mark.parametrize(
    ("plan", "letters", "score"),
    [(["Search.", "Book."], "yn", 1 / 2), (["Search."], "y", 1.0), ([], "", 1.0)],
)
def test_plan_adherence_is_the_share_of_the_plan_that_was_carried_out(
    plan: list[str], letters: str, score: float
) -> None:
    script = {"plan of the agent": {"plan": plan}, "adherence": verdicts(letters)}
    done = evaluate([TASK], [PlanAdherenceMetric()], model=ScriptedJudge(script), show=False)
    result = done.rows[0].metrics[0]
    assert (result.score, done.totals.calls) == (score, 2 if plan else 1)
    assert plan or "the agent states no plan" in str(result.reason)


def test_a_plan_may_be_in_the_reasoning_of_calls_without_any_answer() -> None:
    asked: list[str] = []

    def answer(question: Question[Any]) -> Any:
        asked.append(question.messages[-1]["content"])
        return {"plan": ["Search.", "Book."]} if len(asked) == 1 else verdicts("yy")

    case = TASK.model_copy(update={"actual_output": " "})
    assert result_of(case, PlanAdherenceMetric(), ScriptedJudge(answer)).score == 1.0
    assert "I search, then book." in asked[0]
    assert "BEGIN plan (2 of 2)" in asked[1]
    silent = TASK.model_copy(update={"actual_output": " ", "tools_called": []})
    assert (
        result_of(silent, PlanAdherenceMetric(), ScriptedJudge({})).outcome == OutcomeKind.SKIPPED
    )


# Agents in conversations.

AVAILABLE = [ToolCall(name="search", description="Finds trains."), ToolCall(name="book")]
TRIP_TALK = ConversationalTestCase(
    turns=[
        Turn(role="user", content="A train to Bonn!"),
        Turn(role="assistant", content="", tools_called=TASK.tools_called),
        Turn(role="user", content="Thanks."),
        Turn(role="assistant", content="My pleasure."),
    ]
)


@pytest.mark.parametrize(
    ("chosen", "right", "score"), [("yy", "yy", 1.0), ("yn", "yy", 1 / 2), ("yy", "nn", 0.0)]
)
def test_tool_use_is_the_lesser_of_choice_and_arguments(
    chosen: str, right: str, score: float
) -> None:
    script = {"tool selection": verdicts(chosen), "arguments": verdicts(right)}
    done = evaluate(
        [TRIP_TALK], [ToolUseMetric(AVAILABLE)], model=ScriptedJudge(script), show=False
    )
    assert done.rows[0].metrics[0].score == score
    assert done.totals.calls == 2


def test_without_a_tool_call_only_the_choice_counts() -> None:
    case = TRIP_TALK.model_copy(update={"turns": TRIP_TALK.turns[2:]})
    done = evaluate(
        [case],
        [ToolUseMetric(AVAILABLE)],
        model=ScriptedJudge({"tool selection": verdicts("n")}),
        show=False,
    )
    result = done.rows[0].metrics[0]
    assert (result.score, done.totals.calls) == (0.0, 1)
    assert "min(selection 0, arguments nothing to judge) = 0." in str(result.reason)


def test_tool_use_names_turns_and_calls_and_shows_the_tools() -> None:
    asked: dict[str, str] = {}

    def answer(question: Question[Any]) -> Any:
        asked[question.name] = question.messages[-1]["content"]
        return verdicts("yn")

    result = result_of(TRIP_TALK, ToolUseMetric(AVAILABLE), ScriptedJudge(answer))
    for text in asked.values():
        assert "BEGIN available_tools (1 of 2)" in text
        assert "Finds trains." in text
        assert "BEGIN assistant turn 1, tools called>" in text
    assert "BEGIN reply 1>>>\nassistant turn 1\n" in asked["tool selection"]
    assert "BEGIN call 2>>>\nassistant turn 1, tools called, line 2\n" in asked["arguments"]
    assert "Not: 'assistant turn 1: book' (why 2)" in str(result.reason)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [([], InputError, "available_tools is an empty list"), (["search"], TypeError, "of ToolCall")],
)
def test_tools_have_to_be_given(given: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        ToolUseMetric(given)


@pytest.mark.parametrize(
    ("reached", "pursued", "score"), [("yy", "yy", 1.0), ("yn", "yy", 3 / 4), ("nn", "yn", 1 / 4)]
)
def test_goal_accuracy_is_the_mean_of_goals_and_plans(
    reached: str, pursued: str, score: float
) -> None:
    script = {
        "user intentions": {"intentions": ["To find a train.", "To book it."]},
        "satisfaction": verdicts(reached),
        "pursuit": verdicts(pursued),
    }
    done = evaluate([TRIP_TALK], [GoalAccuracyMetric()], model=ScriptedJudge(script), show=False)
    assert done.rows[0].metrics[0].score == score
    assert done.totals.calls == 3


TEMPLATES: list[Any] = [
    (ArgumentCorrectnessMetric, ArgumentCorrectnessTemplate, TASK),
    (StepEfficiencyMetric, StepEfficiencyTemplate, TASK),
    (PlanAdherenceMetric, PlanAdherenceTemplate, TASK),
    (partial(ToolUseMetric, AVAILABLE), ToolUseTemplate, TRIP_TALK),
    (GoalAccuracyMetric, GoalAccuracyTemplate, TRIP_TALK),
    (partial(TopicAdherenceMetric, ["trains"]), TopicAdherenceTemplate, TRIP_TALK),
]


@pytest.mark.parametrize(("make", "template", "case"), TEMPLATES)
def test_the_methods_of_a_template_are_the_built_in_prompts(
    make: Any, template: Any, case: Any
) -> None:
    methods = [name for name, _ in inspect.getmembers(template, inspect.isfunction)]

    def more(name: str) -> Any:
        original = getattr(template, name)
        return staticmethod(lambda *args, **fixed: f"{original(*args, **fixed)} And be strict.")

    def prompts(own: Any) -> list[str]:
        asked: list[str] = []

        def answer(question: Question[Any]) -> Any:
            asked.append("\n\n".join(message["content"] for message in question.messages))
            (name,) = question.answer_type.model_fields
            return verdicts("yy") if name == "verdicts" else {name: ["One.", "Two."]}

        assert result_of(case, make(evaluation_template=own), ScriptedJudge(answer)).score == 1.0
        return sorted(asked)

    own = type("Own", (template,), {name: more(name) for name in methods})
    assert prompts(own) == [f"{text} And be strict." for text in prompts(None)]
