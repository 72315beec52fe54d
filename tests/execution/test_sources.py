"""Runs over sources that are slow, broken, invalid in places, or need an app to be completed."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from dagengine import Limits, a_evaluate, evaluate, stream
from dagengine.dataset import App, ConversationalGolden, EvaluationDataset, Golden
from dagengine.errors import DagengineError, InputError
from dagengine.execution.cases_and_rows import PulledSource
from dagengine.execution.cluster.coordinator import Chunks
from dagengine.judges import ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric, ExactMatchMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Question
from dagengine.results import CaseResult, OutcomeKind
from dagengine.test_case import ConversationalTestCase, LLMTestCase, Turn

pytestmark = pytest.mark.anyio
SAME = ExactMatchMetric()


def same(number: int) -> LLMTestCase:
    return LLMTestCase(input=f"q{number}", actual_output="a", expected_output="a")


def judged() -> DAGMetric:
    return DAGMetric(
        "judged",
        DAG(BinaryJudgementNode("Good?", [], ["actual_output"], then={True: 10, False: 0})),
    )


def outcomes(rows: list[CaseResult]) -> list[str]:
    return [str(row.metrics[0].outcome) for row in rows]


# -- async sources -------------------------------------------------------------------------


async def test_earlier_cases_are_judged_while_a_slow_source_waits() -> None:
    judged_first = anyio.Event()

    async def source() -> AsyncIterator[LLMTestCase]:
        yield same(0)
        await judged_first.wait()  # would wait for ever if the first case waited for the second
        yield same(1)

    rows: list[CaseResult] = []

    def take(row: CaseResult) -> None:
        rows.append(row)
        judged_first.set()

    with anyio.fail_after(120):
        await stream(source(), [SAME], take)
    assert [row.index for row in rows] == [0, 1]


async def test_an_async_source_of_dicts_gives_every_row_in_order() -> None:
    async def source() -> AsyncIterator[dict[str, str]]:
        for number in range(500):
            yield {"name": str(number), "input": "a", "actual_output": "b"}

    async def answer(question: Question[Any]) -> Any:
        await anyio.lowlevel.checkpoint()
        return True

    done = await a_evaluate(source(), [judged()], model=ScriptedJudge(answer), show=False)
    assert [row.case for row in done] == [str(number) for number in range(500)]
    assert done.success


async def test_an_async_source_is_read_only_a_little_ahead() -> None:
    read, released = 0, anyio.Event()

    async def source() -> AsyncIterator[LLMTestCase]:
        nonlocal read
        for number in range(5000):
            read += 1
            yield same(number)

    async def answer(question: Question[Any]) -> Any:
        await released.wait()
        return True

    async def run() -> None:
        judge, limits = ScriptedJudge(answer), Limits(max_in_flight=1)
        done = await a_evaluate(source(), [judged()], model=judge, limits=limits, show=False)
        assert len(done) == 5000

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            assert 0 < read < 200
            released.set()


async def test_what_came_before_a_source_broke_off_is_judged_and_handed_out() -> None:
    async def feeds() -> AsyncIterator[LLMTestCase]:
        for case in pulls():
            yield case

    def pulls() -> Iterator[LLMTestCase]:
        yield from (same(number) for number in range(3))
        raise OSError("the disk is gone")

    async def answer(question: Question[Any]) -> Any:
        await anyio.wait_all_tasks_blocked()  # the source has failed before anything is judged
        return True

    for source in (feeds(), pulls()):
        rows: list[CaseResult] = []
        with pytest.raises(InputError, match="failed at row 3: OSError: the disk is gone"):
            await stream(source, [judged()], rows.append, model=ScriptedJudge(answer))
        assert outcomes(rows) == ["ok"] * 3


async def test_what_is_no_async_iterator_after_all_is_an_input_error() -> None:
    class Broken:
        def __aiter__(self) -> Any:
            raise ValueError("no")

    with pytest.raises(InputError, match="failed at row 0: ValueError: no"):
        await stream(Broken(), [SAME], lambda row: None)


async def test_a_cancelled_run_closes_its_source() -> None:
    closed = False

    async def source() -> AsyncIterator[LLMTestCase]:
        nonlocal closed
        try:
            yield same(0)
            await anyio.sleep_forever()
        finally:
            closed = True

    with anyio.CancelScope() as scope:
        await stream(source(), [SAME], lambda row: scope.cancel())
    assert closed


async def test_a_stream_keeps_only_the_cases_that_are_under_way() -> None:
    alive: weakref.WeakSet[LLMTestCase] = weakref.WeakSet()
    most = 0

    def source() -> Iterator[LLMTestCase]:
        for number in range(2000):
            case = same(number)
            alive.add(case)
            yield case

    def take(row: CaseResult) -> None:
        nonlocal most
        most = max(most, len(alive))

    await stream(source(), [SAME], take)
    assert 0 < most < 400  # workers hold a case each


# -- rows that are read ------------------------------------------------------------------------


async def test_rows_are_read_in_order_and_a_slow_reader_holds_the_run_back() -> None:
    taken = 0

    def source() -> Iterator[LLMTestCase]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield same(number)

    indices: list[int] = []
    async for row in stream(source(), [SAME]):
        if not indices:
            await anyio.wait_all_tasks_blocked()
            assert taken < 200
        indices.append(row.index)
    assert indices == list(range(1000))


async def test_a_reader_who_leaves_early_ends_the_run_and_closes_its_source() -> None:
    closed = False

    async def source() -> AsyncIterator[LLMTestCase]:
        nonlocal closed
        try:
            yield same(0)
            await anyio.sleep_forever()
        finally:
            closed = True

    with anyio.fail_after(120):
        async with aclosing(stream(source(), [SAME])) as rows:
            async for row in rows:
                assert row.index == 0
                break
        assert closed


async def test_a_reader_gets_the_rows_before_an_error_and_then_the_error() -> None:
    def source() -> Iterator[LLMTestCase]:
        yield same(0)
        raise OSError("the disk is gone")

    rows = stream(source(), [SAME])
    assert (await anext(rows)).index == 0
    with pytest.raises(InputError, match="failed at row 1: OSError: the disk is gone"):
        await anext(rows)


def test_a_loop_that_ends_before_a_run_has_begun_ends_its_reader() -> None:
    raised: list[BaseException] = []

    async def main() -> None:
        async def read() -> None:
            async for _ in stream([same(0)], [SAME]):
                pass

        reading = asyncio.ensure_future(read())
        raise LookupError(f"of the program, not of {reading}")

    def program() -> None:
        with pytest.raises(LookupError) as error:
            asyncio.run(main())
        raised.append(error.value)

    thread = threading.Thread(target=program, daemon=True)  # it would never end
    thread.start()
    thread.join(60)
    assert raised


def test_a_run_whose_task_is_cancelled_is_no_end_of_the_rows() -> None:
    async def main() -> None:
        before = asyncio.all_tasks()

        async def read() -> None:
            async for _ in stream([same(0)], [SAME]):
                pass

        reading = asyncio.ensure_future(read())
        while not (begun := asyncio.all_tasks() - before - {reading}):
            await asyncio.sleep(0)
        for task in begun:
            task.cancel()
        with pytest.raises(DagengineError, match="the run was cancelled before its last row"):
            await asyncio.wait_for(reading, 60)

    asyncio.run(main())


@pytest.mark.parametrize("own_loop", [False, True])
async def test_rows_are_read_inside_a_node_on_the_loop_of_its_code(own_loop: bool) -> None:
    async def count() -> int:
        answers = stream([same(0), same(1)], [judged()])
        return len([row async for row in answers if row.metrics[0].score == 1])

    class Counting(BaseMetric):
        if own_loop:

            def measure(self, test_case: LLMTestCase) -> float:
                return anyio.run(count) / 2
        else:

            async def a_measure(self, test_case: LLMTestCase) -> float:
                return await count() / 2

    judge = ScriptedJudge({"Good?": True})
    done = await a_evaluate([same(0)], [Counting()], model=judge, show=False)
    assert done.scores("Counting") == [1.0]
    assert done.totals.asked == 2


# -- invalid rows --------------------------------------------------------------------------


def many(path: Path, bad: int) -> Path:
    good = json.dumps({"input": "a", "actual_output": "b", "expected_output": "b"})
    path.write_text("".join("{broken\n" if n == bad else f"{good}\n" for n in range(1300)))
    return path


async def test_a_bad_line_far_down_costs_its_row_and_not_the_run(tmp_path: Path) -> None:
    done = await a_evaluate(str(many(tmp_path / "a.jsonl", 1200)), [SAME], show=False)
    assert outcomes(list(done)) == ["invalid_case" if n == 1200 else "ok" for n in range(1300)]
    failure = done[1200].metrics[0].failure
    assert "a.jsonl line 1201: not JSON" in failure.message
    assert done[1200].case.endswith("line 1201")


async def test_a_bad_line_among_the_first_stops_a_run_before_it_asks(tmp_path: Path) -> None:
    asked: list[Question[Any]] = []
    rows: list[CaseResult] = []
    with pytest.raises(InputError, match="line 901: not JSON"):
        await stream(
            str(many(tmp_path / "a.jsonl", 900)),
            [judged()],
            rows.append,
            model=ScriptedJudge(lambda question: asked.append(question)),
        )
    assert (asked, rows) == ([], [])


async def test_invalid_rows_of_an_async_source_are_outcomes() -> None:
    async def source() -> AsyncIterator[Any]:
        for row in ({"input": "a", "actual_output": "b", "expected_output": "b"}, 7, {"x": 1}):
            yield row

    done = await a_evaluate(source(), [SAME], show=False)
    assert outcomes(list(done)) == ["ok", "invalid_case", "invalid_case"]


# -- goldens -------------------------------------------------------------------------------

GOLDENS = [Golden(input=f"q{n}", expected_output=f"Q{n}", name=f"n{n}") for n in range(40)]


async def test_goldens_are_completed_at_once_within_their_own_limit() -> None:
    now, most = 0, 0

    async def app(text: str) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.wait_all_tasks_blocked()
        now -= 1
        return text.upper()

    done = await a_evaluate(GOLDENS, [SAME], app=App(app, max_in_flight=5), show=False)
    assert most == 5
    assert done.success
    assert [row.case for row in done] == [f"n{n}" for n in range(40)]


async def test_a_plain_function_runs_in_threads_side_by_side() -> None:
    together = threading.Barrier(4, timeout=60)

    def app(text: str) -> str:
        together.wait()  # would break if calls came one after the other
        return text.upper()

    done = await a_evaluate(GOLDENS, [SAME], app=App(app, max_in_flight=4), show=False)
    assert done.success


async def test_an_app_that_fails_costs_its_own_case_only() -> None:
    def app(text: str) -> Any:
        if text == "q1":
            raise RuntimeError("no connection")
        if text == "q2":
            return 7
        if text == "q3":
            return {"actual_ouput": "Q3"}
        return text.upper()

    done = await a_evaluate(GOLDENS[:5], [SAME], app=app, show=False)
    assert outcomes(list(done)) == ["ok", "code_error", "code_error", "code_error", "ok"]
    said = [str(done[n].metrics[0].failure) for n in (1, 2, 3)]
    assert "app app: RuntimeError: no connection (test_sources.py line" in said[0]
    assert "it returned int; return text" in said[1]
    assert "actual_ouput" in said[2]


@pytest.mark.parametrize("anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})])
async def test_an_app_that_hangs_ends_with_the_time_of_its_case() -> None:
    async def app(text: str) -> str:
        if text == "q1":
            await anyio.sleep_forever()
        return text.upper()

    limits = Limits(case_timeout=100)
    done = await a_evaluate(GOLDENS[:3], [SAME], app=app, limits=limits, show=False)
    assert outcomes(list(done)) == ["ok", "timeout", "ok"]


async def test_an_app_may_take_the_golden_and_return_fields_or_a_test_case() -> None:
    def whole(golden: Golden) -> dict[str, Any]:
        return {"actual_output": golden.expected_output, "retrieval_context": ["found"]}

    async def case(golden: Any) -> LLMTestCase:
        return LLMTestCase(input="x", actual_output="y", expected_output="y", name="own")

    first = await a_evaluate(GOLDENS[:2], [SAME], app=whole, show=False)
    second = await a_evaluate(GOLDENS[:2], [SAME], app=case, show=False)
    assert first.success
    assert second.success
    assert [row.case for row in second] == ["own", "own"]


async def test_an_app_completes_conversations_with_their_turns() -> None:
    def app(golden: ConversationalGolden) -> list[Turn]:
        return [Turn(role="user", content=golden.scenario), Turn(role="assistant", content="ok")]

    completed = await App(app).complete(ConversationalGolden(scenario="s", name="n"))
    assert isinstance(completed, ConversationalTestCase)
    assert (completed.name, completed.scenario, len(completed.turns)) == ("n", "s", 2)


@pytest.mark.parametrize(
    ("cases", "app", "words"),
    [
        (GOLDENS, None, "give app="),
        ([same(0)], str.upper, "the cases are test cases"),
        (GOLDENS, "upper", "an app is a function"),
        (GOLDENS, lambda: "x", "takes no argument"),
    ],
)
async def test_goldens_and_apps_that_lack_each_other_are_refused(
    cases: Any, app: Any, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        await a_evaluate(cases, [SAME], app=app, show=False)


async def test_a_late_golden_without_an_app_is_an_outcome() -> None:
    async def source() -> AsyncIterator[Any]:
        yield same(0)
        yield GOLDENS[0]

    done = await a_evaluate(source(), [SAME], show=False)
    assert outcomes(list(done)) == ["ok", "invalid_case"]
    assert done[1].metrics[0].outcome is OutcomeKind.INVALID_CASE


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_data_set_is_its_test_cases_and_with_an_app_its_goldens_too() -> None:
    dataset = EvaluationDataset([same(0)], GOLDENS[:2])
    assert len(evaluate(dataset, [SAME], show=False)) == 1
    done = dataset.evaluate([SAME], app=str.upper, show=False)
    assert [row.case for row in done] == ["case 0", "n0", "n1"]
    assert done.success
    only_goldens = EvaluationDataset(goldens=GOLDENS[:2])
    assert only_goldens.evaluate([SAME], app=lambda text: text.upper(), show=False).success
    with pytest.raises(InputError, match="give app="):
        only_goldens.evaluate([SAME], show=False)


@given(st.integers(1, 3_000), st.integers(1, 40))
def test_chunks_for_workers_get_shorter_so_that_none_is_long_at_the_end(
    count: int, places: int
) -> None:
    source = PulledSource(range(1, count + 1))
    firsts, items = zip(*Chunks(source, count, places), strict=True)
    sizes = list(map(len, items))
    assert list(itertools.chain(*items)) == list(range(1, count + 1))
    assert list(firsts) == list(itertools.accumulate(sizes, initial=0))[:-1]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= 64
    assert sizes[-1] <= 4
    # No more short ones than keep every place at work: each is a message to a worker.
    assert len(sizes) <= max(count / 64 + 4 * places * 6, min(count, 16 * places))


def test_chunks_of_a_source_whose_length_is_not_known_are_all_alike() -> None:
    chunks = Chunks(PulledSource(range(1, 64 * 20 + 1)), None, 8)
    assert [len(items) for _, items in chunks] == [64] * 20
