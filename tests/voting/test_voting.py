"""Votes, juries and escalation: the same verdicts for fewer calls, and nothing hidden."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import krippendorff
import numpy as np
import pytest
from graphs.contract import case_for, judge, make, metric_classes
from graphs.random_graphs import Script, drawings, metric_of
from graphs.trees import yes_no
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from servers.openai_server import OpenAIServer, Reply

from dagengine import Limits, a_evaluate, compile_metrics, evaluate
from dagengine.data import read_rows
from dagengine.errors import GraphError, InputError, ProviderError
from dagengine.estimate import estimate
from dagengine.graph import Judgement, NodeValue
from dagengine.judges import OpenAIJudge, ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric, RubricMetric
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
)
from dagengine.prompts.probabilities.weighted_scores import stated_probability
from dagengine.question import Answer, Capabilities, Question, TokenChoice
from dagengine.reliability import jury_report
from dagengine.reliability.jury import correlation, effective_votes, vote_table
from dagengine.results import EvaluationResult, MetricResult, OutcomeKind, Step
from dagengine.test_case import LLMTestCase
from dagengine.voting import (
    Curtailed,
    Rule,
    Sprt,
    StandardError,
    answered_by,
    escalated,
    judged_by,
    voted,
)
from dagengine.voting.votes_and_juries import RepeatVotes, leading, likely_votes

CASE = LLMTestCase(input="a question", actual_output="an answer")
PROPERTY = settings(max_examples=60)
RULES = st.one_of(
    st.just(Curtailed()),
    st.builds(Sprt, st.floats(0.05, 0.45), st.floats(0.001, 0.4)),
)


def metric(*roots: BaseNode, name: str = "tree", **more: Any) -> DAGMetric:
    return DAGMetric(name, DAG(root_nodes=roots or [yes_no()]), **more)


def says(votes: Sequence[Any]) -> ScriptedJudge:
    """A judge whose answer depends on the sample index only."""
    return ScriptedJudge(lambda question: votes[question.options.sample])


def run(target: BaseMetric, model: Any, cases: Sequence[LLMTestCase] = (CASE,)) -> EvaluationResult:
    return evaluate(cases, [target], model=model, show=False)


def result(target: BaseMetric, model: Any, case: Any = CASE) -> MetricResult:
    found: MetricResult = run(target, model, [case]).rows[0].metrics[0]
    return found


def step_of(found: MetricResult, name: str) -> Step:
    return next(step for step in found.steps if step.node == name)


# When to stop.


def majority(votes: Sequence[bool]) -> bool:
    counts = Counter(votes)
    return max(dict.fromkeys(votes), key=lambda vote: counts[vote])


def cast(rule: Rule, votes: Sequence[Any], at_once: bool) -> int:
    """How many votes a rule takes, in rounds or one after the other."""
    used = 0
    while more := rule.more(votes[:used], len(votes) - used):
        used += more if at_once else 1
    return used


@PROPERTY
@given(RULES, st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=25))
def test_rounds_of_verdicts_cost_no_more_than_one_after_the_other(
    rule: Rule, votes: list[Any]
) -> None:
    assert cast(rule, votes, at_once=True) == cast(rule, votes, at_once=False)


@PROPERTY
@given(st.floats(0.01, 0.3), st.lists(st.floats(0, 1), min_size=1, max_size=25))
def test_rounds_of_ratings_cost_no_more_than_one_after_the_other(
    target: float, votes: list[float]
) -> None:
    rule = StandardError(target)
    used = cast(rule, votes, at_once=True)
    assert used == cast(rule, votes, at_once=False)
    if used < len(votes):
        achieved = rule.error(votes[:used])
        assert achieved is not None
        assert achieved <= target + 1e-9


@PROPERTY
@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=25))
def test_a_lead_that_cannot_be_overtaken_gives_the_verdict_of_all_votes(votes: list[Any]) -> None:
    assume(any(votes))
    used = cast(Curtailed(), votes, at_once=True)
    ones = [1.0] * len(votes)
    assert votes[leading(votes[:used], ones)] == votes[leading(votes, ones)]


@PROPERTY
@given(st.floats(0.05, 0.45), st.floats(0.001, 0.4))
def test_the_ratio_test_keeps_its_error_with_the_least_lead(noise: float, error: float) -> None:
    lead = Sprt(noise, error).lead

    def wrong(lead: int) -> float:  # gambler's ruin
        return 1 / (1 + ((1 - noise) / noise) ** lead)

    assert wrong(lead) <= error * (1 + 1e-9)
    assert wrong(lead - 1) > error * (1 - 1e-9)


def test_the_likely_number_of_votes_is_the_expected_one() -> None:
    # 2 votes agree by 0.82, else a third one decides.
    assert likely_votes(Curtailed(), 3) == pytest.approx(2 + 2 * 0.9 * 0.1)
    assert likely_votes(Curtailed(), 1) == 1


@pytest.mark.parametrize("bad", [{"noise": 0.5}, {"noise": 0.0}, {"error": 0.7}])
def test_a_ratio_test_that_cannot_end_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Sprt(**bad)


def drawn(noise: float, items: int, votes: int) -> list[list[bool]]:
    """Votes that are True but for the noise."""
    table: list[list[bool]] = (np.random.default_rng(7).random((items, votes)) >= noise).tolist()
    return table


def polled(panel: RepeatVotes, votes: Sequence[bool]) -> tuple[bool, int]:
    """The verdict of a panel, and the votes it took."""
    poll, used = panel.poll(), 0
    ballots = next(poll)
    while True:
        used += len(ballots)
        answers = [votes[ballot.sample] for ballot in ballots]
        try:
            ballots = poll.send([NodeValue(vote, verdict=vote) for vote in answers])
        except StopIteration as end:
            return end.value.verdict, used


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.2])
def test_the_default_reaches_the_accuracy_of_11_votes_with_60_percent_of_them(noise: float) -> None:
    (node,) = voted(DAG(yes_no())).root_nodes
    assert isinstance(node.panel, RepeatVotes)
    table = drawn(noise, 4000, 15)
    fixed = sum(majority(votes[:11]) for votes in table)
    verdicts, used = zip(*(polled(node.panel, votes) for votes in table), strict=True)
    assert sum(verdicts) >= fixed
    assert sum(used) <= 0.6 * 11 * len(table)


# Votes in a graph.


def test_the_majority_decides_with_the_reason_of_its_first_vote_and_the_votes_are_shown() -> None:
    votes = [
        {"verdict": v, "reason": f"r{n}"} for n, v in enumerate((False, True, True, False, True))
    ]
    done = run(voted(metric(), 5, stop=Curtailed()), says(votes))
    (step,) = done.rows[0].metrics[0].steps
    assert (step.verdict, step.reason) == (True, "r1")
    assert step.votes == (False, True, True, False, True)
    assert step.as_dict()["votes"] == [False, True, True, False, True]
    assert step.agreeing == 3
    assert done.rows[0].metrics[0].score == 1
    assert done.totals.calls == 5


def test_nothing_is_asked_once_the_outcome_is_settled() -> None:
    assert run(voted(metric(), 5, stop=Curtailed()), says([True] * 5)).totals.calls == 3
    assert run(voted(metric(), 15), says([True] * 15)).totals.calls == 4
    assert run(voted(metric(), 1), says([True])).totals.calls == 1


def test_between_equal_verdicts_the_first_one_voted_wins() -> None:
    assert result(voted(metric(), 4, stop=Curtailed()), says([False, True, True, False])).score == 0
    assert result(voted(metric(), 4, stop=Curtailed()), says([True, False, False, True])).score == 1


def test_an_answer_that_cannot_be_read_is_no_vote() -> None:
    votes = ["nonsense", True, "nonsense", False, True]
    found = result(voted(metric(), 5, stop=Curtailed()), says(votes))
    assert found.score == 1
    assert found.steps[0].votes == (None, True, None, False, True)


def test_without_any_vote_the_first_unreadable_answer_is_the_failure() -> None:
    done = run(voted(metric(), 3), says(["x1", "x2", "x3"]))
    failure = done.rows[0].metrics[0].failure
    assert failure is not None
    assert failure.kind == OutcomeKind.UNPARSEABLE
    assert "x1" in str(failure.raw)


def test_a_provider_that_fails_is_not_outvoted() -> None:
    down = ProviderError("HTTP 401", transient=False)
    found = result(voted(metric(), 3), says([True, down, True]))
    assert found.failure is not None
    assert found.failure.kind == OutcomeKind.PROVIDER_ERROR


def test_ratings_are_averaged_until_the_standard_error_is_small() -> None:
    rating = metric(RatingNode("How good?", ["input"], name="rating"))
    same = run(voted(rating, 11), says([8] * 11))
    assert same.totals.calls == 8
    assert same.rows[0].metrics[0].score == pytest.approx(0.8)
    assert str(same.rows[0].metrics[0].steps[0].mode).endswith(", standard error 0.050")
    wide = run(voted(rating, 11), says([0, 10] * 6))
    assert wide.totals.calls == 11
    assert wide.rows[0].metrics[0].score == pytest.approx(5 / 11)
    (step,) = wide.rows[0].metrics[0].steps
    assert step.output == pytest.approx(50 / 11)
    assert step.votes == (0, 10) * 5 + (0,)
    assert str(step.mode).startswith("mean of 11 (raw")
    assert str(step.mode).endswith(", standard error 0.148")


def test_a_vote_on_an_empty_list_has_no_standard_error() -> None:
    poll = RepeatVotes(3, StandardError(), by_item=True).poll()
    assert len(next(poll)) == 3
    with pytest.raises(StopIteration) as ended:
        poll.send([NodeValue([])] * 3)
    assert (ended.value.value.value, ended.value.value.mode) == ([], None)


def test_the_standard_error_is_that_of_two_more_ratings_with_a_deviation() -> None:
    rule = StandardError()
    ratings = [0.2, 0.4, 0.9]
    squares = 3 * np.var(ratings)
    assert rule.error([*ratings, None]) == pytest.approx(((2 * 0.09 + squares) / 4 / 3) ** 0.5)
    assert rule.error([]) is None
    assert rule.error([0.5]) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("values", "chances"),
    [((0.4, 0.8), (1, 1)), ((0.2, 0.8), (1, 9)), ((0, 0.25, 0.5, 0.75, 1), (1, 1, 1, 1, 1))],
)
def test_ratings_that_are_equal_by_chance_do_not_end_a_vote(
    values: tuple[float, ...], chances: tuple[int, ...]
) -> None:
    """With three equal ratings as the end the error was up to twice the target."""
    random, squares = Random(1), []
    truth = sum(v * c for v, c in zip(values, chances, strict=True)) / sum(chances)
    for _ in range(600):
        ratings = random.choices(values, chances, k=60)
        squares.append((np.mean(ratings[: cast(StandardError(), ratings, True)]) - truth) ** 2)
    assert np.sqrt(np.mean(squares)) < 0.062


def share_of(judged: list[Judgement]) -> float:
    return sum(one.verdict in (True, "yes") for one in judged) / len(judged)


ITEMS = LLMTestCase(input="a", actual_output="b", context=["steady", "split", "false"])


def test_lists_are_voted_item_by_item() -> None:
    listed = VerdictListNode("Is it so?", "context", "so", verdicts=("yes", "no"), name="list")
    rows = ["yyy", "yyn", "yyn", "nyn", "yyn"]

    def answer(question: Question[Any]) -> Any:
        row = rows[question.options.sample]
        words = {"y": "yes", "n": "no"}
        numbered = [{"number": n, "reason": "", "verdict": words[v]} for n, v in enumerate(row, 1)]
        return {"verdicts": numbered}

    tree = metric(listed, CodeNode(share_of, inputs=[listed], name="share"))
    found = result(voted(tree, 5, stop=Curtailed()), ScriptedJudge(answer), ITEMS)
    assert found.score == pytest.approx(2 / 3)
    assert len(step_of(found, "list").votes) == 4  # the third item was open until then
    assert step_of(found, "list").votes[3] == [None, None, "no"]


def test_of_one_question_per_item_only_the_open_items_are_asked_again() -> None:
    seen: Counter[str] = Counter()

    def answer(question: Question[Any]) -> bool:
        text = question.messages[-1]["content"]
        item = next(word for word in ("steady", "split", "false") if word in text)
        seen[item] += 1
        return {"steady": True, "false": False}.get(item, question.options.sample % 2 == 0)

    each = MapNode("Is it so?", "context", "so", answer=bool, name="each")
    tree = metric(each, CodeNode(share_of, inputs=[each], name="share"))
    found = result(voted(tree, 5, stop=Curtailed()), ScriptedJudge(answer), ITEMS)
    assert seen == {"steady": 3, "split": 5, "false": 3}
    assert found.score == pytest.approx(2 / 3)
    assert step_of(found, "each").votes[4] == [None, True, None]
    done = run(voted(tree, 5, stop=Curtailed()), ScriptedJudge(answer), [ITEMS])
    assert done.totals.asked in estimate(compile_metrics([voted(tree, 5)]), [ITEMS]).asked
    assert done.totals.calls == 11


def test_votes_of_different_repetitions_never_meet() -> None:
    seen: list[int] = []

    def answer(question: Question[Any]) -> bool:
        seen.append(question.options.sample)
        return len(seen) % 2 == 0

    for repetition in range(3):
        options = yes_no().options.__class__(sample=repetition)
        run(voted(metric(yes_no(options=options)), 5, stop=Curtailed()), ScriptedJudge(answer))
    assert len(seen) == len(set(seen)) == 15


def test_a_given_seed_and_temperature_change_with_the_votes() -> None:
    asked: list[tuple[Any, Any]] = []

    def answer(question: Question[Any]) -> bool:
        asked.append((question.options.seed, question.options.temperature))
        return True

    node = yes_no()
    node.options = node.options.__class__(seed=40)
    run(voted(metric(node), 3, stop=Curtailed(), temperature=0.7), ScriptedJudge(answer))
    assert sorted(asked) == [(40, 0.7), (41, 0.7)]


# What is voted on.


def test_a_question_that_cannot_change_the_score_is_asked_once() -> None:
    same = metric(yes_no("needless", yes=5, no=yes_no("needless too", yes=5, no=5)))
    assert run(voted(same, 5), says([False] * 5)).totals.calls == 2
    strict = metric(yes_no("strict", yes=3, no=0), strict_mode=True)
    assert run(voted(strict, 5), says([False] * 5)).totals.calls == 1
    assert run(voted(metric(yes_no("open", yes=3)), 5), says([False] * 5)).totals.calls == 3


def test_a_decision_that_others_read_is_voted_on_whatever_it_leads_to() -> None:
    read = yes_no("read", yes=5, no=5)
    reader = yes_no("reader", inputs=[read])
    done = run(voted(metric(read, reader, combine="max"), 3), says([True] * 3))
    assert done.totals.calls == 4


def test_only_the_named_nodes_vote_and_the_original_stays_as_it_is() -> None:
    second = yes_no("second")
    tree = metric(yes_no("first", yes=second))
    twice = voted(tree, 3, nodes=["second"])
    assert run(twice, says([True] * 3)).totals.calls == 3
    assert run(voted(tree, 3, nodes=[second]), says([True] * 3)).totals.calls == 3
    assert run(tree, says([True])).totals.calls == 2
    assert second.panel is None


def test_metrics_under_a_verdict_vote_too() -> None:
    inner = metric(yes_no("inner"), name="within")
    tree = metric(yes_no("outer", yes=inner))
    assert run(voted(tree, 3), says([True] * 3)).totals.calls == 4
    assert run(voted(tree, 3, nodes=["inner"]), says([True] * 3)).totals.calls == 3


def test_a_question_that_matters_in_one_metric_only_is_voted_on_there() -> None:
    shared = yes_no("shared", yes=5, no=5)
    reader = metric(shared, yes_no("reader", inputs=[shared]), combine="max", name="within")
    tree = metric(shared, yes_no("outer", yes=reader), combine="max")
    done = run(voted(tree, 3, nodes=[shared]), says([True] * 3))
    votes = {step.node: len(step.votes) for step in done.rows[0].metrics[0].steps}
    assert votes["within > shared"] == 2


@pytest.mark.anyio
async def test_another_judge_answers_a_task_and_nothing_else() -> None:
    """Also what has no verdict to vote on can be given to another judge."""
    listed = TaskNode("List the facts", "facts", evaluation_params=["actual_output"])
    kind = BinaryJudgementNode("Kind?", inputs=[listed], then={True: 10, False: 0}, name="kind")
    asked: dict[str, list[str]] = {"first": [], "second": []}

    def judge_of(name: str) -> ScriptedJudge:
        def answer(question: Question[Any]) -> Any:
            asked[name].append(question.name)
            return f"facts of the {name}" if question.name == "facts" else True

        return ScriptedJudge(answer, name=name)

    mixed = answered_by(metric(kind), judge_of("second"), ["facts"])
    plan = compile_metrics([mixed])
    forecast = estimate(plan, [CASE])
    done = await a_evaluate([CASE], [mixed], model=judge_of("first"), show=False)
    assert asked == {"first": ["kind"], "second": ["facts"]}
    assert done.rows[0].metrics[0].steps[0].output == "facts of the second"
    assert (forecast.asked.least, forecast.asked.most) == (2, 2)
    assert [judge.calls for judge in forecast.judges] == [1, 1]


def test_a_metric_that_contains_itself_is_still_a_finding() -> None:
    node = yes_no("outer")
    tree = metric(node)
    node.then[True] = tree
    with pytest.raises(GraphError, match="contains itself"):
        compile_metrics([voted(tree, 3)])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: voted(metric(), 3, nodes=["godo"]),
            "no node 'godo' that asks a judge; it has 'good'",
        ),
        (lambda: voted(metric(), 0), "votes must be a whole number from 1"),
        (
            lambda: voted(voted(metric(), 3), 3),
            "several judges: up to 3 votes",
        ),
        (
            lambda: voted(metric(CodeNode(lambda text: 1.0, None or (), ["input"]))),
            "no node that asks a judge",
        ),
        (lambda: voted("metric"), "neither a metric nor a graph"),  # type: ignore[type-var]
        (lambda: voted(metric(), 3, nodes="good"), r"nodes takes a list: \['good'\]"),
        (lambda: judged_by(metric(), ["gpt-4o"]), "at least two judges"),
        (lambda: judged_by(metric(), "gpt-4o"), "as one list"),
        (lambda: judged_by(metric(), ["a", "b"], weights=[1.0]), "as many weights"),
        (lambda: judged_by(metric(), ["a", "b"], weights=[1.0, math.nan]), "must be positive"),
        (lambda: answered_by(metric(), None), "answered_by needs a judge"),
        (lambda: answered_by(metric(), "b", ["godo"]), "no node 'godo' that asks a judge"),
        (
            lambda: escalated(RubricMetric("R", ["polite"]), "b", votes=3),
            r"no node that gives a single verdict \(not a list of them\)",
        ),
        (lambda: escalated(metric(), "b"), "say when the judge is unsure"),
        (lambda: escalated(metric(), "b", below=2.0), "below must be a probability"),
        (lambda: escalated(metric(), "b", unsure="maybe"), "unsure takes a list"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(
    wrong: Callable[[], Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        wrong()


@pytest.mark.parametrize("kind", metric_classes(), ids=lambda kind: kind.__name__)
def test_every_metric_can_vote_and_a_steady_judge_gives_the_score_of_one_vote(
    kind: type[PrebuiltMetric],
) -> None:
    plain = make(kind)
    if all(node.vote is None for node in plain.spec().graph.nodes()):
        pytest.skip("nothing in this metric gives a verdict or a rating")
    case, once = case_for(plain), run_any(plain)
    often = run_any(voted(plain, 5))
    assert often.rows[0].metrics[0].score == once.rows[0].metrics[0].score
    assert often.totals.calls > once.totals.calls
    foretold = estimate(compile_metrics([voted(plain, 5)]), [case])
    assert often.totals.asked in foretold.asked


def run_any(target: Any) -> EvaluationResult:
    source = target.metric if hasattr(target, "metric") else target
    return evaluate([case_for(source)], [target], model=judge(0), show=False)


@settings(PROPERTY, max_examples=30)
@given(drawings())
def test_steady_votes_change_no_result_of_any_graph_and_stay_within_the_estimate(
    drawing: dict[str, Any],
) -> None:
    script = Script()
    plain = metric_of(drawing, script)
    try:
        once = run(plain, script.judge()).rows[0].metrics[0]
        often = voted(plain, 4, stop=Curtailed())
    except (GraphError, InputError):
        assume(False)
        raise
    done = run(often, script.judge())
    found = done.rows[0].metrics[0]
    assert (found.score, found.path, found.reason) == (once.score, once.path, once.reason)
    if found.failure is None:
        assert done.totals.asked in estimate(compile_metrics([often]), [CASE]).asked


# Juries.


def fixed(verdict: Any) -> ScriptedJudge:
    return ScriptedJudge(lambda _: verdict)


def test_a_jury_decides_by_majority_and_by_weight() -> None:
    judges = [fixed(True), fixed(False), fixed(False)]
    done = run(judged_by(metric(), judges), None)
    assert done.rows[0].metrics[0].score == 0
    assert done.totals.calls == 3
    (step,) = done.rows[0].metrics[0].steps
    assert (step.votes, step.voters) == ((True, False, False), (0, 1, 2))
    assert result(judged_by(metric(), judges, weights=[3, 1, 1]), None).score == 1


def test_a_jury_averages_ratings_by_weight() -> None:
    rating = metric(RatingNode("How good?", ["input"], name="rating"))
    judges = [fixed(10), fixed(4)]
    assert result(judged_by(rating, judges), None).score == pytest.approx(0.7)
    assert result(judged_by(rating, judges, weights=[1, 2]), None).score == pytest.approx(0.6)


def test_one_judge_in_two_seats_is_asked_twice() -> None:
    same = says([True, False])
    (step,) = result(judged_by(metric(), [same, same, fixed(False)]), None).steps
    assert step.votes == (True, False, False)


TABLE = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=3, max_size=3), min_size=2
)


@PROPERTY
@given(TABLE)
def test_the_correlation_of_verdicts_is_krippendorffs_alpha(table: list[list[Any]]) -> None:
    ours = correlation(table)
    codes = {"a": 0.0, "b": 1.0, "c": 2.0, None: np.nan}
    data = np.array([[codes[vote] for vote in row] for row in table]).T
    if ours is None:
        paired = [v for row in table for v in row if v and sum(x is not None for x in row) > 1]
        assert len(set(paired)) < 2
        return
    assert ours == pytest.approx(krippendorff.alpha(data, level_of_measurement="nominal"), abs=1e-9)


@PROPERTY
@given(st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3), min_size=2))
def test_the_correlation_of_ratings_is_krippendorffs_alpha(table: list[list[int]]) -> None:
    ours = correlation(table)
    if len({vote for row in table for vote in row}) < 2:
        assert ours is None
        return
    data = np.array(table, dtype=float).T
    alpha = krippendorff.alpha(data, level_of_measurement="interval")
    assert ours == pytest.approx(alpha, abs=1e-9)


def test_effective_votes_are_those_of_kish() -> None:
    assert effective_votes(5, 0.0) == 5
    assert effective_votes(5, 1.0) == 1
    assert effective_votes(5, 0.25) == 2.5
    assert effective_votes(5, -0.2) == 5
    with pytest.raises(InputError):
        effective_votes(0, 0.5)


def test_a_jury_whose_judges_err_together_is_worth_less_than_one_whose_judges_err_apart() -> None:
    cases = [LLMTestCase(input=f"case {n};", actual_output="") for n in range(60)]

    def erring(seat: int, together: bool) -> ScriptedJudge:
        def answer(question: Question[Any]) -> bool:
            text = question.messages[-1]["content"]
            number = int(text.partition("case ")[2].partition(";")[0])
            return number % 5 != (0 if together else seat)

        return ScriptedJudge(answer)

    def report(together: bool) -> Any:
        jury = judged_by(metric(), [erring(seat, together) for seat in range(3)])
        return jury_report(run(jury, None, cases).rows, "tree", "good", truth=[True] * 60)

    assert report(True).effective == pytest.approx(1)
    apart = report(False)
    assert apart.effective == 3
    assert apart.items == 60
    assert apart.agreement == (0.8, 0.8, 0.8)


def test_the_table_of_votes_has_a_row_per_item_and_survives_being_written(tmp_path: Path) -> None:
    each = MapNode("Is it so?", "context", "so", answer=bool, name="each")
    tree = metric(each, CodeNode(share_of, inputs=[each], name="share"))
    done = run(judged_by(tree, [fixed(True), fixed("nonsense"), fixed(False)]), None, [ITEMS])
    expected = [[True, None, False]] * 3
    assert vote_table(done.rows, "tree", "each") == expected
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps(done.rows[0].as_dict()) + "\n")
    assert vote_table(list(read_rows(file)), "tree", "each") == expected
    with pytest.raises(InputError, match="has votes on a node 'share'"):
        jury_report(done.rows, "tree", "share")
    with pytest.raises(InputError, match="3 rows of votes need as many truths, got 1"):
        jury_report(done.rows, "tree", "each", truth=[True])


# Escalation.


class SureJudge:
    """Says True with a probability that stands in the case's input."""

    identity = "sure"
    capabilities = ScriptedJudge.capabilities

    async def answer(self, question: Question[Any]) -> Answer[Any]:
        chance = float(question.messages[-1]["content"].partition("p=")[2].partition(";")[0])
        tokens = None
        if question.options.top_logprobs:
            choices = ((" true", math.log(chance)), (" false", math.log1p(-chance)))
            tokens = (
                TokenChoice('{"reason": "r", "verdict":', ()),
                TokenChoice(" true", choices),
                TokenChoice("}", ()),
            )
        raw = '{"reason": "r", "verdict": true}'
        return Answer(question.answer_type.model_validate_json(raw), raw, tokens)


def test_a_better_judge_answers_where_the_probability_is_low() -> None:
    cases = [LLMTestCase(input=f"p={p};", actual_output="") for p in (0.99, 0.6, 0.8)]
    ledger: Counter[str] = Counter()
    better = fixed(False)
    done = evaluate(
        cases, [escalated(metric(), better, below=0.8)], model=SureJudge(), show=False,
        on_attempt=lambda attempt: ledger.update([attempt.judge]),
    )  # fmt: skip
    assert done.scores("tree") == [1, 0, 1]
    assert ledger == {"sure": 3, better.identity: 1}
    (step,) = done.rows[1].metrics[0].steps
    assert (step.votes, step.voters) == ((True, False), (0, 1))


@pytest.mark.anyio
async def test_a_server_that_gives_token_probabilities_is_left_only_where_they_are_low() -> None:
    def token(text: str, **mass: float) -> dict[str, Any]:
        tops = [
            {"token": other, "logprob": math.log(p)} for other, p in (mass or {text: 1}).items()
        ]
        return {"token": text, "logprob": tops[0]["logprob"], "top_logprobs": tops}

    def respond(body: Any) -> Reply:
        if body["model"] == "better":
            assert "logprobs" not in body
            return Reply('{"reason": "r", "verdict": false}')
        chance = 0.6 if "doubtful" in body["messages"][-1]["content"] else 0.95
        verdict = token("true", true=chance, false=1 - chance)
        tokens = [token('{"reason": "r", "verdict": '), verdict, token("}")]
        return Reply('{"reason": "r", "verdict": true}', logprobs=tokens)

    cases = [LLMTestCase(input=text, actual_output="") for text in ("clear", "doubtful")]
    with OpenAIServer(respond) as server:
        cheap = OpenAIJudge("cheap", base_url=server.base_url, api_key="any")
        better = OpenAIJudge("better", base_url=server.base_url, api_key="any")
        target = escalated(metric(), better, below=0.9)
        done = await a_evaluate(cases, [target], model=cheap, show=False)
    assert done.scores("tree") == [1, 0]
    assert sorted(body["model"] for body in server.requests) == ["better", "cheap", "cheap"]


def test_a_judge_without_probabilities_counts_as_unsure() -> None:
    assert result(escalated(metric(), fixed(False), below=0.5), fixed(True)).score == 0


@pytest.mark.parametrize(
    ("votes", "calls", "score"), [([True, True], 2, 1), ([True, False], 3, 0), ([True, "x"], 3, 0)]
)
def test_split_and_unreadable_votes_escalate(votes: list[Any], calls: int, score: int) -> None:
    limits = Limits(reasks=0)
    tree = escalated(metric(), fixed(False), votes=2)
    done = evaluate([CASE], [tree], model=says(votes), limits=limits, show=False)
    assert done.totals.calls == calls
    assert done.rows[0].metrics[0].score == score


def test_a_verdict_that_says_unsure_escalates() -> None:
    then = {"yes": 10, "no": 0, "unsure": 5}
    node = NonBinaryJudgementNode("Well?", evaluation_params=["input"], then=then, name="well")
    tree = escalated(metric(node), fixed("no"), unsure=["unsure"])
    assert result(tree, fixed("unsure")).score == 0
    assert result(tree, fixed("yes")).score == 1


def test_when_the_better_judge_cannot_be_read_there_is_no_score() -> None:
    found = result(escalated(metric(), fixed("nonsense"), votes=2), says([True, False]))
    assert found.failure is not None
    assert found.failure.kind == OutcomeKind.UNPARSEABLE


def test_the_probability_is_that_of_the_first_token_among_the_verdicts() -> None:
    def about(verdicts: Sequence[str], **mass: float) -> float | None:
        raw = json.dumps({"verdict": verdicts[0]})
        start, end = raw.split(verdicts[0])
        tokens = tuple((token, math.log(share)) for token, share in mass.items())
        first = verdicts[0][:3]
        parts = (start, first, verdicts[0][3:] + end)
        choices = [TokenChoice(part, tokens if part == first else ()) for part in parts]
        shape = yes_no().answer_type()
        answer = Answer(shape.model_construct(), raw, tuple(choices))
        return stated_probability(answer, verdicts[0], verdicts)[0]

    assert about(["fully", "partly"], ful=0.6, par=0.2, xyz=0.2) == pytest.approx(0.75)
    assert about(["fully", "fulsome"], ful=0.9) is None


# Concurrency.


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["votes", "jury"])
async def test_the_votes_of_a_round_are_in_flight_together(how: str) -> None:
    arrived, everybody = [0], anyio.Event()

    async def answer(question: Question[Any]) -> bool:
        arrived[0] += 1
        if arrived[0] == 4:
            everybody.set()
        await everybody.wait()
        return True

    judges = [ScriptedJudge(answer) for _ in range(4)]
    target = voted(metric()) if how == "votes" else judged_by(metric(), judges)
    with anyio.fail_after(120):
        done = await a_evaluate([CASE], [target], model=judges[0], show=False)
    assert done.rows[0].metrics[0].score == 1
    assert done.totals.calls == 4


@PROPERTY
@given(
    st.lists(st.booleans(), min_size=7, max_size=7),
    st.lists(st.integers(0, 5), min_size=7, max_size=7),
    st.sampled_from(["asyncio", "trio"]),
)
def test_results_do_not_depend_on_who_answers_first(
    votes: list[bool], delays: list[int], backend: str
) -> None:
    async def late(question: Question[Any]) -> bool:
        for _ in range(delays[question.options.sample]):
            await anyio.lowlevel.checkpoint()
        return votes[question.options.sample]

    async def main() -> EvaluationResult:
        return await a_evaluate([CASE], [target], model=ScriptedJudge(late), show=False)

    target = voted(metric(), 7)
    found = anyio.run(main, backend=backend)
    assert found.rows[0].as_dict() == run(target, says(votes)).rows[0].as_dict()


@pytest.mark.anyio
async def test_votes_that_nobody_needs_any_longer_are_cancelled_and_leave_nothing_behind() -> None:
    under_way, all_there = [0], anyio.Event()

    async def answer(question: Question[Any]) -> Any:
        if question.name == "broken":
            await all_there.wait()
            return ProviderError("HTTP 401", transient=False)
        under_way[0] += 1
        if under_way[0] == 4:
            all_there.set()
        try:
            await anyio.sleep_forever()
        finally:
            under_way[0] -= 1

    broken = TaskNode("Break", "broken", [yes_no("end")], ["input"])
    tree = metric(broken, yes_no("slow"))
    with anyio.fail_after(120):
        done = await a_evaluate(
            [CASE], [voted(tree, nodes=["slow"])], model=ScriptedJudge(answer), show=False
        )
    assert done.rows[0].metrics[0].failure is not None
    assert under_way == [0]


# What it costs, and what is drawn.


def test_the_plan_shows_the_calls_of_votes_juries_and_escalations() -> None:
    def asked(target: BaseMetric) -> tuple[int, int | None]:
        span = estimate(compile_metrics([target]), [CASE]).asked
        assert span.most is not None
        assert span.least <= span.likely <= span.most
        return span.least, span.most

    assert asked(voted(metric(), 11, stop=Curtailed())) == (6, 11)
    assert asked(voted(metric())) == (4, 15)
    assert asked(judged_by(metric(), ["a", "b", "c"])) == (3, 3)
    assert asked(escalated(metric(), "b", votes=2)) == (2, 3)
    (node,) = estimate(compile_metrics([voted(metric())]), [CASE]).metrics[0].nodes
    assert node.panel == "up to 15 votes"


def test_a_judge_of_a_panel_that_cannot_do_what_is_asked_is_refused() -> None:
    class Mute(ScriptedJudge):
        capabilities = Capabilities(schema=False)

    able = fixed(True)
    with pytest.raises(GraphError, match="structured answer, which mute"):
        run(judged_by(metric(), [able, Mute({}, name="mute")]), able)


def test_the_plan_shares_calls_out_to_the_judges_that_get_them() -> None:
    found = estimate(compile_metrics([judged_by(metric(), ["a", "b"], weights=[2, 1])]), [CASE])
    assert {one.judge: one.calls for one in found.judges} == {"default": 0, "a": 1, "b": 1}
    found = estimate(compile_metrics([escalated(metric(), "b", votes=2)]), [CASE])
    assert {one.judge: one.calls for one in found.judges} == pytest.approx(
        {"default": 2, "b": 0.25}
    )


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (voted(metric(), 11), "up to 11 votes"),
        (judged_by(metric(), ["a", "b"]), "jury of 2"),
        (escalated(metric(), "gpt-5", below=0.8), "unsure (probability below 0.8) → gpt-5"),
        (escalated(metric(), "gpt-5", votes=3), "unsure (3 votes differ) → gpt-5"),
    ],
)
def test_pictures_say_who_is_asked(target: BaseMetric, words: str) -> None:
    from dagengine.report import draw

    drawn = draw(target.spec())
    for text in (drawn.dot, drawn.mermaid):
        plain = re.sub(r"<[^<>]+>", " ", text).replace("&gt;", ">").replace("#gt;", ">")
        assert words in " ".join(plain.split())


def test_pictures_of_a_path_say_how_the_vote_went() -> None:
    from dagengine.report import draw

    target = voted(metric(), 5, stop=Curtailed())
    found = result(target, says([True, False, True, False, True]))
    assert "→ True (3 of 5 votes)" in draw(target.spec(), result=found).dot
