"""Runs over many cases: every row, in order, whatever happens to the others."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import anyio
import pytest
from trio.testing import MockClock

from dagengine import Limits, a_evaluate, compile_metrics, evaluate, stream
from dagengine.errors import GraphError, InputError, JudgeSetupError, ProviderError
from dagengine.estimate.case_warnings import missing_fields
from dagengine.graph.node_values import NodeValue
from dagengine.judges import OpenAIJudge, ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, MapNode, TaskNode
from dagengine.question import Question
from dagengine.results import Attempt, CaseResult, OutcomeKind
from dagengine.test_case import ConversationalTestCase, LLMTestCase, Turn

FAILING, HANGING = 200, 300


def tree(name: str = "tree", model: Any = None) -> DAGMetric:
    """A task and a judgement that reads it."""
    last = BinaryJudgementNode(
        "Is it good?", [], ["input"], then={True: 10, False: 0}, name=f"{name} judgement"
    )
    task = TaskNode("Extract", f"{name} facts", [last], ["input"])
    return DAGMetric(name, DAG(root_node=task), model=model)


def numbered(count: int) -> list[LLMTestCase]:
    return [LLMTestCase(input=f"number {n};", actual_output="text") for n in range(count)]


def about(question: Question[Any], number: int) -> bool:
    return f"number {number};" in question.messages[-1]["content"]


def slow_judge(latency: float) -> ScriptedJudge:
    """Takes `latency` seconds; fails on one case and never answers on another."""

    async def answer(question: Question[Any]) -> Any:
        if about(question, HANGING):
            raise TimeoutError
        await anyio.sleep(latency)
        if about(question, FAILING):
            return ProviderError("HTTP 400: no", transient=False, status=400)
        return True if "judgement" in question.name else "facts"

    return ScriptedJudge(answer, name=f"slow {latency}")


@pytest.mark.anyio
@pytest.mark.parametrize("latency", [0.0, 0.05])
async def test_400_cases_give_400_rows_in_order_and_failures_stay_where_they_are(
    latency: float,
) -> None:
    garbage = ScriptedJudge(lambda question: {"nonsense": 1}, name="garbage")
    metrics = [tree("good"), tree("garbled", garbage)]
    limits = Limits(attempts=1, reasks=1, max_in_flight=256)

    done = await a_evaluate(
        numbered(400), metrics, model=slow_judge(latency), limits=limits, show=False
    )

    assert [row.index for row in done.rows] == list(range(400))
    kinds = {row.index: row.metrics[0].outcome for row in done.rows if row.metrics[0].failure}
    assert kinds == {FAILING: OutcomeKind.PROVIDER_ERROR, HANGING: OutcomeKind.TIMEOUT}
    assert all(row.metrics[0].score == 1.0 for row in done.rows if row.index not in kinds)
    assert all(row.metrics[1].outcome == OutcomeKind.UNPARSEABLE for row in done.rows)
    failure = done.rows[FAILING].metrics[0].failure
    assert failure is not None
    assert "HTTP 400" in failure.message
    assert failure.node == "good facts"


@pytest.mark.anyio
async def test_a_dead_endpoint_fails_its_own_metric_only() -> None:
    dead = OpenAIJudge("none", base_url="http://127.0.0.1:9/v1")
    metrics = [tree("dead", dead), tree("alive")]
    limits = Limits(attempts=2, backoff=0.001, patience=0.2)
    done = await a_evaluate(numbered(50), metrics, model=slow_judge(0.0), limits=limits, show=False)
    assert [row.metrics[0].outcome for row in done.rows] == [OutcomeKind.PROVIDER_ERROR] * 50
    assert done.scores("alive") == [1.0] * 50


@pytest.mark.anyio
async def test_independent_nodes_of_one_case_are_asked_at_once() -> None:
    arrived, everybody = Counter[str](), anyio.Event()

    async def answer(question: Question[Any]) -> Any:
        arrived[question.name] += 1
        if len(arrived) == 3:
            everybody.set()
        await everybody.wait()  # would wait for ever if they were asked one by one
        return True

    names = ("a", "b", "c")
    roots = [
        BinaryJudgementNode(f"{n}?", [], ["input"], then={True: 10, False: 0}, name=n)
        for n in names
    ]
    metric = DAGMetric("m", DAG(root_nodes=roots), combine="mean", model=ScriptedJudge(answer))
    with anyio.fail_after(120):
        assert await metric.a_measure(LLMTestCase(input="x")) == 1.0


@pytest.mark.anyio
async def test_items_of_a_map_node_are_asked_at_once_and_within_the_limit() -> None:
    now, most = 0, 0

    async def answer(question: Question[Any]) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        now -= 1
        return "odd" if "item 1" in question.messages[1]["content"] else "even"

    each = MapNode("Odd or even?", "context", "parity", answer=("odd", "even"))
    score = CodeNode(lambda found: sum(j.verdict == "even" for j in found) / 40, inputs=[each])
    metric = DAGMetric("m", DAG(root_node=score), model=ScriptedJudge(answer))
    case = LLMTestCase(input="x", context=[f"item {n}" for n in range(40)])
    done = await a_evaluate([case], [metric], limits=Limits(max_in_flight=8), show=False)
    # item 1 and items 10 to 19 are odd
    assert done.rows[0].metrics[0].score == pytest.approx(29 / 40)
    assert most == 8


@pytest.mark.anyio
async def test_a_failure_stops_the_siblings_that_no_longer_matter() -> None:
    stopped: list[str] = []

    async def answer(question: Question[Any]) -> Any:
        if question.name == "a":
            return ProviderError("no", transient=False)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            stopped.append(question.name)
            raise

    roots = [
        BinaryJudgementNode(f"{n}?", [], ["input"], then={True: 10, False: 0}, name=n)
        for n in ("a", "b")  # what is declared first takes precedence
    ]
    metric = DAGMetric("m", DAG(root_nodes=roots), combine="min", model=ScriptedJudge(answer))
    with anyio.fail_after(120):
        done = await a_evaluate([LLMTestCase(input="x")], [metric], show=False)
    assert done.rows[0].metrics[0].outcome == OutcomeKind.PROVIDER_ERROR
    assert stopped in ([], ["b"])  # b may not have been asked yet
    assert [step.node for step in done.rows[0].metrics[0].steps] == ["a"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})])
async def test_a_case_has_a_deadline_of_its_own() -> None:
    async def answer(question: Question[Any]) -> Any:
        if about(question, 3):
            await anyio.sleep_forever()
        return True if "judgement" in question.name else "facts"

    limits = Limits(case_timeout=100, call_timeout=None)
    done = await a_evaluate(
        numbered(8), [tree()], model=ScriptedJudge(answer), limits=limits, show=False
    )
    outcomes = [row.metrics[0].outcome for row in done.rows]
    assert outcomes == [OutcomeKind.TIMEOUT if n == 3 else OutcomeKind.OK for n in range(8)]


@pytest.mark.anyio
async def test_cases_are_read_as_they_are_needed_and_not_all_at_once() -> None:
    read = written = most = 0

    def cases() -> Iterator[LLMTestCase]:
        nonlocal read, most
        for case in numbered(500):
            read += 1
            most = max(most, read - written)
            yield case

    def take(row: CaseResult) -> None:
        nonlocal written
        written += 1

    judge = slow_judge(0.0)
    await stream(cases(), [tree()], take, model=judge, limits=Limits(max_in_flight=2))
    assert written == 500
    assert most <= 4 * 2 + 32 + 1  # the runner's workers, and the one being read


@pytest.mark.anyio
async def test_a_broken_source_of_cases_ends_the_run_and_keeps_what_is_done() -> None:
    def cases() -> Iterator[LLMTestCase]:
        yield from numbered(5)
        raise InputError("line 6 is broken")

    rows: list[CaseResult] = []
    with pytest.raises(InputError, match="line 6 is broken"):
        await stream(
            cases(), [tree()], rows.append, model=slow_judge(0.0), limits=Limits(max_in_flight=1)
        )
    assert [row.index for row in rows] == list(range(len(rows)))


@pytest.mark.anyio
async def test_a_missing_field_costs_no_call_and_names_field_metric_and_node() -> None:
    node = BinaryJudgementNode(
        "Is `expected_output` right?", [], ["expected_output"], then={True: 10, False: 0}, name="j"
    )
    asked: list[str] = []

    def answer(question: Question[Any]) -> bool:
        asked.append(question.name)
        return True

    judge = ScriptedJudge(answer)
    metric = DAGMetric("needs more", DAG(root_node=node), model=judge)
    done = await a_evaluate(
        [LLMTestCase(input="x"), LLMTestCase(input="x", expected_output="y")], [metric], show=False
    )
    failure = done.rows[0].metrics[0].failure
    assert failure is not None
    assert failure.kind == OutcomeKind.MISSING_FIELD
    assert "`expected_output`" in failure.message
    assert failure.node == "j"
    assert done.rows[1].metrics[0].score == 1.0
    assert asked == ["j"]


@pytest.mark.anyio
async def test_a_field_that_only_one_branch_reads_is_needed_only_there() -> None:
    deep = BinaryJudgementNode(
        "Right?", [], ["expected_output"], then={True: 10, False: 1}, name="deep"
    )
    first = BinaryJudgementNode("Long?", [], ["input"], then={True: deep, False: 5}, name="first")
    judge = ScriptedJudge(lambda q: q.name == "first" and "long" in q.messages[1]["content"])
    metric = DAGMetric("m", DAG(root_node=first), model=judge)
    cases = [LLMTestCase(input="short"), LLMTestCase(input="long")]
    done = await a_evaluate(cases, [metric], show=False)
    assert done.rows[0].metrics[0].score == 0.5
    assert done.rows[1].metrics[0].outcome == OutcomeKind.MISSING_FIELD


def constant_metric(name: str, ran: Counter[str], error: Exception | None = None) -> DAGMetric:
    """A metric with a step that reads no case field."""

    async def steps() -> str:
        ran["steps"] += 1
        await anyio.lowlevel.checkpoint()
        if error is not None:
            raise error
        return "the steps"

    def score(text: str, given: str) -> float:
        ran["score"] += 1
        return 1.0

    made = CodeNode(steps, name="steps", output_label="steps")
    last = CodeNode(score, evaluation_params=["input"], inputs=[made], name="score")
    return DAGMetric(name, DAG(root_node=last))


@pytest.mark.anyio
async def test_a_node_that_no_case_field_reaches_runs_once_per_run() -> None:
    ran: Counter[str] = Counter()
    metric = constant_metric("m", ran)
    await a_evaluate(numbered(100), [metric], show=False)
    assert ran == {"steps": 1, "score": 100}
    await a_evaluate(numbered(1), [metric], show=False)
    assert ran["steps"] == 2  # a new run


@pytest.mark.anyio
async def test_user_code_that_raises_is_a_typed_outcome_of_its_case() -> None:
    metric = constant_metric("m", Counter(), error=ZeroDivisionError("by zero"))
    done = await a_evaluate(numbered(3), [metric], show=False)
    for row in done.rows:
        failure = row.metrics[0].failure
        assert failure is not None
        assert (failure.kind, failure.node) == (OutcomeKind.CODE_ERROR, "steps")
        assert "ZeroDivisionError: by zero" in failure.message


@pytest.mark.anyio
async def test_a_node_shared_by_two_metrics_runs_once_per_case() -> None:
    shared = TaskNode("Extract", "Facts", evaluation_params=["input"])
    asked: Counter[str] = Counter()

    def answer(question: Question[Any]) -> Any:
        asked[question.name] += 1
        return "facts" if question.name == "Facts" else True

    metrics = [
        DAGMetric(
            name,
            DAG(
                root_node=BinaryJudgementNode(
                    f"{name}?", inputs=[shared], then={True: 10, False: 0}, name=name
                )
            ),
        )
        for name in ("one", "two")
    ]
    cases = [LLMTestCase(input=f"text {n}") for n in range(10)]
    judge = ScriptedJudge(answer)
    done = await a_evaluate(cases, metrics, model=judge, show=False)
    assert asked["Facts"] == 10
    assert done.totals.asked == 10 + 20
    # The judgements read the same words in every case: an equal question is asked once.
    assert (asked["one"], asked["two"]) == (1, 1)


@pytest.mark.anyio
async def test_metrics_with_judges_of_their_own_share_nothing() -> None:
    shared = BinaryJudgementNode("Good?", [], ["input"], then={True: 10, False: 0}, name="j")
    yes, no = ScriptedJudge({"j": True}, name="yes"), ScriptedJudge({"j": False}, name="no")
    metrics = [DAGMetric(n, DAG(root_node=shared), model=m) for n, m in (("a", yes), ("b", no))]
    done = await a_evaluate(numbered(3), metrics, show=False)
    assert done.scores("a") == [1.0] * 3
    assert done.scores("b") == [0.0] * 3


@pytest.mark.anyio
async def test_every_attempt_reaches_the_ledger() -> None:
    attempts: list[Attempt] = []
    left = Counter({"tree facts": 2})

    def answer(question: Question[Any]) -> Any:
        left[question.name] -= 1
        if left[question.name] >= 0:
            return ProviderError("HTTP 503", transient=True)
        return True if "judgement" in question.name else "facts"

    await a_evaluate(
        [LLMTestCase(input="x")],
        [tree()],
        model=ScriptedJudge(answer),
        limits=Limits(backoff=0.001, max_backoff=0.001),
        on_attempt=attempts.append,
        show=False,
    )
    assert [(a.node, str(a.outcome)) for a in attempts] == [
        ("tree facts", "provider_error"),
        ("tree facts", "provider_error"),
        ("tree facts", "ok"),
        ("tree judgement", "ok"),
    ]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: evaluate(numbered(1), [DAGMetric("m", DAG())], show=False), GraphError, "no root"),
        (
            lambda: evaluate(cast(Any, ["text"]), [tree()], show=False),
            InputError,
            "case 0: str",
        ),
        (
            lambda: evaluate(
                [ConversationalTestCase(turns=[Turn(role="user", content="hi")])],
                [tree()],
                show=False,
            ),
            InputError,
            "no such field",
        ),
    ],
)
def test_bad_input_is_refused_before_the_first_call(
    call: Callable[[], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call()


def test_a_missing_key_is_one_clear_error_and_not_one_per_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(JudgeSetupError, match="OPENAI_API_KEY"):
        evaluate(numbered(3), [tree()], show=False)


def test_no_cases_give_no_rows() -> None:
    assert evaluate([], [tree()], model=slow_judge(0), show=False).rows == ()


async def cancelled_from_within() -> None:
    """Somebody's code that awaits a task which it has cancelled."""
    task = asyncio.ensure_future(asyncio.sleep(10))
    task.cancel()
    await task


def test_a_cancellation_inside_a_judge_costs_its_own_case_only() -> None:
    async def answer(question: Question[Any]) -> Any:
        if about(question, 2):
            await cancelled_from_within()
        return True if "judgement" in question.name else "facts"

    done = evaluate(numbered(5), [tree()], model=ScriptedJudge(answer), show=False)
    outcomes = [row.metrics[0].outcome for row in done.rows]
    assert outcomes == [OutcomeKind.PROVIDER_ERROR if n == 2 else OutcomeKind.OK for n in range(5)]


def test_a_cancellation_inside_a_code_node_is_a_code_error() -> None:
    async def score(text: str) -> float:
        await cancelled_from_within()
        return 1.0

    node = CodeNode(score, evaluation_params=["input"])
    done = evaluate(numbered(3), [DAGMetric("m", DAG(root_node=node))], show=False)
    assert [row.metrics[0].outcome for row in done.rows] == [OutcomeKind.CODE_ERROR] * 3


def test_an_item_whose_question_was_cancelled_leaves_no_hole_in_the_list() -> None:
    async def answer(question: Question[Any]) -> Any:
        if "second" in question.messages[1]["content"]:
            await cancelled_from_within()
        return True

    each = MapNode("Supported?", "context", "support", answer=bool)
    score = CodeNode(lambda found: sum(j.verdict for j in found) / len(found), inputs=[each])
    metric = DAGMetric("m", DAG(root_node=score), model=ScriptedJudge(answer))
    case = LLMTestCase(input="x", context=["first", "second", "third"])
    result = evaluate([case], [metric], show=False).rows[0].metrics[0]
    assert result.score is None
    assert result.outcome == OutcomeKind.PROVIDER_ERROR


@pytest.mark.parametrize("verdict", [["a"], 1, None, {"a": 1}])
def test_a_verdict_that_is_none_of_the_declared_ones_is_a_code_error(verdict: Any) -> None:
    node = CodeNode(lambda text: verdict, evaluation_params=["input"], then={True: 10, False: 0})
    done = evaluate(numbered(3), [DAGMetric("m", DAG(root_node=node))], show=False)
    for row in done.rows:
        assert row.metrics[0].outcome == OutcomeKind.CODE_ERROR
        assert repr(verdict) in str(row.metrics[0].failure)


def test_two_judges_of_one_name_keep_their_answers_apart() -> None:
    metrics = [tree("a", slow_judge(0)), tree("b", ScriptedJudge(lambda q: False, name="slow 0"))]
    done = evaluate(numbered(2), metrics, show=False)
    assert done.scores("a") == [1.0, 1.0]
    assert done.scores("b") == [None, None]  # False is no text for the task


def test_code_that_changes_what_it_is_given_changes_nothing_for_others() -> None:
    def pops(found: list[str]) -> float:
        found.pop()
        return len(found) / 10

    def counts(found: list[str]) -> float:
        return len(found) / 10

    made = TaskNode("List", "words", evaluation_params=["input"], output_type=list[str])
    metrics = [
        DAGMetric(function.__name__, DAG(root_node=CodeNode(function, inputs=[made])))
        for function in (pops, counts)
    ]
    judge = ScriptedJudge(lambda question: ["a", "b", "c"])
    case = LLMTestCase(input="same")
    done = evaluate([case, case, case], metrics, model=judge, show=False)
    assert done.scores("pops") == [0.2] * 3
    assert done.scores("counts") == [0.3] * 3


def test_a_constant_node_that_fails_for_good_is_tried_once() -> None:
    ran: Counter[str] = Counter()
    evaluate(numbered(50), [constant_metric("m", ran, error=KeyError("gone"))], show=False)
    assert ran == {"steps": 1}


def test_values_without_a_text_form_do_not_end_a_run() -> None:
    circle: list[Any] = []
    circle.append(circle)
    node = CodeNode(lambda text: {("a", 1): 2}, evaluation_params=["input"], output_label="odd")
    score = CodeNode(lambda odd: 1.0, inputs=[node])
    done = evaluate(numbered(2), [DAGMetric("m", DAG(root_node=score))], show=False)
    assert done.scores("m") == [1.0, 1.0]
    assert "without a text form" in str(done.rows[0].metrics[0].steps[0].output)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("same", "same"), "2 metrics have this name"),
        ((" ",), "the name is empty"),
        (("\ud800",), "half of one"),
        ((None,), "not a text"),
        ((["actual_output"],), "not a text"),
        ((tree("a").dag,), "metric <DAG from <.*>>: the name is not a text"),  # swapped
    ],
)
def test_a_metric_without_a_name_of_its_own_is_refused(names: tuple[Any, ...], words: str) -> None:
    metrics = [DAGMetric(name, tree("a").dag) for name in names]
    with pytest.raises(GraphError, match=f"metric-name .*{words}"):
        evaluate(numbered(1), metrics, model=slow_judge(0), show=False)


@pytest.mark.parametrize(
    "limits",
    [{"max_in_flight": 0}, {"reasks": -1}, {"call_timeout": float("nan")}, {"backoff": -1.0}],
)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(limits))):
        Limits(**limits)


@pytest.mark.parametrize(
    ("error", "calls", "outcome"),
    [
        (ConnectionError("lost"), 3, OutcomeKind.PROVIDER_ERROR),
        (TimeoutError(), 2, OutcomeKind.TIMEOUT),
        (RuntimeError("no memory"), 1, OutcomeKind.PROVIDER_ERROR),
        (ValueError("a bug"), 1, OutcomeKind.CODE_ERROR),
        (KeyError("a bug"), 1, OutcomeKind.CODE_ERROR),
    ],
)
def test_errors_of_somebodys_judge_are_retried_where_they_may_pass(
    error: Exception, calls: int, outcome: OutcomeKind
) -> None:
    def answer(question: Question[Any]) -> Any:
        raise error

    limits = Limits(attempts=3, backoff=0.0, max_backoff=0.0)
    done = evaluate(numbered(1), [tree()], model=ScriptedJudge(answer), limits=limits, show=False)
    assert done.rows[0].metrics[0].outcome == outcome
    assert done.totals.calls == calls


def test_fields_that_some_cases_lack_are_counted_beforehand() -> None:
    cases = [LLMTestCase(input="x"), LLMTestCase(input="x", actual_output="y")]
    node = BinaryJudgementNode("Good?", [], ["actual_output"], then={True: 10, False: 0})
    plan = compile_metrics([DAGMetric("m", DAG(root_node=node))])
    assert missing_fields(plan, cases) == ["1 of 2 cases have no `actual_output` (first: case 0)"]


@pytest.mark.anyio
async def test_the_collector_works_rarely_during_a_run_and_as_before_after_it() -> None:
    seen: list[tuple[int, ...]] = []

    def answer(question: Question[Any]) -> Any:
        seen.append(gc.get_threshold())
        return True if "judgement" in question.name else "facts"

    before = gc.get_threshold()
    async with anyio.create_task_group() as group:  # one run inside another, too
        for _ in range(2):
            group.start_soon(
                partial(a_evaluate, numbered(3), [tree()], model=ScriptedJudge(answer))
            )
    assert gc.get_threshold() == before
    assert seen[0][0] > before[0]  # the run that ends first takes it back, for both


@pytest.mark.parametrize("own", [0, 1_000_000])
def test_a_collector_that_somebody_has_set_is_left_alone(own: int) -> None:
    before, seen = gc.get_threshold(), list[int]()

    def answer(question: Question[Any]) -> Any:
        seen.append(gc.get_threshold()[0])
        return "facts"

    gc.set_threshold(own)
    try:
        evaluate(numbered(1), [tree()], model=ScriptedJudge(answer), show=False)
        assert gc.get_threshold()[0] == own
    finally:
        gc.set_threshold(*before)
    assert set(seen) == {own}


def test_a_step_holds_what_readers_saw_also_of_a_decision() -> None:
    def decide(text: str) -> NodeValue:
        return NodeValue([text], verdict="short", reason="few words")

    code = CodeNode(decide, evaluation_params=["input"], then={"short": 10, "long": 0})
    judged = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: code})
    metric = DAGMetric("m", DAG(root_node=judged), model=ScriptedJudge(lambda question: False))
    judgement, decision = (
        evaluate([LLMTestCase(input="a")], [metric], show=False)[0].metrics[0].steps
    )
    assert judgement.output == {"verdict": False, "reason": "scripted"}
    assert (decision.output, decision.verdict) == (["a"], "short")
    assert "output" not in judgement.as_dict()  # nothing more than verdict and reason
    assert decision.as_dict()["output"] == ["a"]


@pytest.mark.anyio
async def test_an_error_of_on_attempt_comes_once_after_every_row() -> None:
    told: list[str] = []
    rows: list[Any] = []

    def broken(attempt: Any) -> None:
        told.append(attempt.key)
        raise ZeroDivisionError(f"ledger {len(told)}")

    node = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
    metric = DAGMetric("m", DAG(root_node=node))
    cases = [LLMTestCase(input=str(n)) for n in range(5)]
    judge = ScriptedJudge(lambda question: True)
    with pytest.raises(ZeroDivisionError, match=r"^ledger 1\s") as caught:
        await a_evaluate(
            cases, [metric], model=judge, on_attempt=broken, on_row=rows.append, show=False
        )
    assert len(told) == len(rows) == 5
    assert caught.value.result.scores("m") == [1.0] * 5  # type: ignore[attr-defined]
    assert caught.value.result.totals.calls == 5  # type: ignore[attr-defined]
    assert any("every row" in note for note in caught.value.__notes__)
