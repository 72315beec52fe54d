"""Whole runs over a real server: how many requests a case takes, and that its rows are the same."""

from __future__ import annotations

import os
import runpy
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from graphs.contract import FULL, case_for, judge, make, metric_classes
from graphs.hostile import two_of_each
from graphs.packing_judge import PackingJudge
from graphs.shapes import summary_tree
from programs.commands import start_program
from servers.decision_server import DecisionServer

from dagengine import Limits, a_evaluate, compile_metrics
from dagengine.estimate import estimate
from dagengine.estimate.paths import Odds, with_writers
from dagengine.judges import DecisionJudge, ScriptedJudge
from dagengine.metrics import (
    AnswerRelevancyMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
    DAGMetric,
    FaithfulnessMetric,
)
from dagengine.question import Packs
from dagengine.results import EvaluationResult, OutcomeKind

DOCS = Path(__file__).resolve().parents[2] / "docs"
SETTINGS: list[dict[str, Any]] = [
    {"pack": False}, {"speculate": "never"}, {"speculate": "packed"}, {"speculate": 1},
]  # fmt: skip

LOOPS = (("asyncio", 64), ("trio", 1), ("trio", 64), ("asyncio", 3))


def five() -> list[Any]:
    return [
        AnswerRelevancyMetric(), FaithfulnessMetric(), ContextualPrecisionMetric(),
        ContextualRecallMetric(), ContextualRelevancyMetric(),
    ]  # fmt: skip


def tree() -> DAGMetric:
    return DAGMetric("tree", summary_tree())


def writer() -> ScriptedJudge:
    return ScriptedJudge(lambda question: two_of_each(question, 0), name="writer")


def cases(count: int) -> list[Any]:
    one = FULL.model_copy(update={"retrieval_context": FULL.retrieval_context[:1]})  # type: ignore[index]
    return [one.model_copy(update={"input": f"{one.input} ({number})"}) for number in range(count)]


def run(
    backend: str, metrics: Any, model: Any, data: Any, limit: int = 64, **more: Any
) -> EvaluationResult:
    async def main() -> EvaluationResult:
        limits = Limits(max_in_flight=limit)
        return await a_evaluate(data, metrics, model=model, show=False, limits=limits, **more)

    return anyio.run(main, backend=backend)


def untold(value: Any) -> Any:
    """Rows without the tokens of their answers: those of a request are shared by its questions."""
    if isinstance(value, dict):
        return {name: untold(part) for name, part in value.items() if name != "usage"}
    return [untold(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", ["decisions", "systemone"])
def test_the_rows_are_the_same_however_questions_travel(form: str, tmp_path: Path) -> None:
    seen: list[Any] = []
    with DecisionServer() as server:
        for number, settings in enumerate(SETTINGS):
            model = DecisionJudge(form=form, base_url=server.base_url, writer=writer(), **settings)
            # Every setting on both event loops, every limit with two of the settings; the form
            # of a request is the judge's alone, so that one loop is enough for the other.
            for turn in (number, number + 1) if form == "decisions" else (number,):
                backend, limit = LOOPS[turn % len(LOOPS)]
                path = tmp_path / f"{number}-{backend}-{limit}.db"
                metrics = [*five(), tree()]
                done = run(backend, metrics, model, cases(2), limit, store=path)
                seen.append(untold([row.as_dict() for row in done.rows]))
                asked = len(server.asked)
                # In turn every setting reads what every setting has stored.
                reading = SETTINGS[(number + turn) % len(SETTINGS)]
                reader = DecisionJudge(
                    form=form, base_url=server.base_url, writer=writer(), **reading
                )
                again = run(backend, metrics, reader, cases(2), limit, store=path)
                assert [row.as_dict() for row in again.rows] == [row.as_dict() for row in done.rows]
                assert (again.totals.calls, again.totals.requests) == (0, 0)
                assert len(server.asked) == asked
    assert all(one == seen[0] for one in seen)


def test_the_tree_of_the_seeds_takes_two_requests_and_five_rag_metrics_three() -> None:
    with DecisionServer() as server:
        model = DecisionJudge(base_url=server.base_url, writer=writer())
        done = run("asyncio", [tree()], model, cases(1))
        assert (len(server.asked), done.totals.requests) == (1, 2)
        server.asked.clear()
        # Each with texts of its own: no question is shared among them.
        contexts = FULL.retrieval_context or []
        others = [
            FULL.model_copy(
                update={
                    "actual_output": f"{FULL.actual_output} No. {number}.",
                    "retrieval_context": [*contexts, f"No. {number} is known."],
                }
            )
            for number in range(20)
        ]
        done = run("asyncio", five(), model, others)
        assert len(server.asked) == 20
        assert done.totals.requests == 3 * 20  # two extractions of the writer's, and all decisions
        alone = DecisionJudge(base_url=server.base_url, writer=writer(), pack=False)
        done = run("asyncio", five(), alone, others)
        assert done.totals.requests > 5 * 20


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with DecisionServer() as server:
        yield server.base_url


KINDS: dict[int, list[Any]] = {}
for _kind in metric_classes():  # those that judge one and the same case
    KINDS.setdefault(id(case_for(make(_kind))), []).append(_kind)


@pytest.mark.parametrize("kinds", KINDS.values(), ids=lambda kinds: f"with {kinds[0].__name__}")
def test_every_metric_gives_the_same_results_packed_and_alone(
    kinds: list[Any], address: str
) -> None:
    rows: list[Any] = []
    for settings in SETTINGS[:3]:
        model = DecisionJudge(base_url=address, writer=judge(0), **settings)
        metrics = [make(kind) for kind in kinds]
        done = run("asyncio", metrics, model, [case_for(metrics[0])])
        rows.append(untold([row.as_dict() for row in done.rows]))
        assert {result.outcome for result in done[0].metrics} == {OutcomeKind.OK}
    assert rows[0] == rows[1] == rows[2]


def test_the_table_of_the_page_is_what_runs_ask() -> None:
    made = runpy.run_path(str(DOCS / "make_request_table.py"))
    page = made["PAGE"].read_text(encoding="utf-8")
    assert f"{made['BEGIN']}\n\n{made['table']()}\n\n{made['END']}" in page


@pytest.mark.parametrize("packs", [None, Packs(400, 128_000), Packs(400, 128_000, 32)])
@pytest.mark.parametrize("places", [3, 64])
def test_a_plan_tells_the_requests_of_a_run(packs: Packs | None, places: int) -> None:
    for metrics in ([tree()], five()[2:4], [tree(), *five()[2:4]]):
        model = PackingJudge(packs=packs, writer=writer())
        plan = compile_metrics(metrics)
        judges = with_writers([model] * len(plan.models))
        # The first verdict of every decision is that of this judge.
        odds: Odds = {("tree", "headings"): {True: 1.0}, ("tree", "order"): {"Yes": 1.0}}
        found = estimate(plan, cases(4), judges=judges, items=2, odds=odds, max_in_flight=places)
        done = run("asyncio", metrics, model, cases(4), places)
        decisions = sum(map(len, model.requests)) - done.totals.unneeded
        assert found.judges[0].judge == model.identity
        assert found.judges[0].calls == decisions
        if packs is None:
            assert found.travel.requests == 0
            continue
        assert found.travel.requests == len(model.requests)
        assert found.travel.questions == decisions
        assert found.travel.unneeded == done.totals.unneeded
        state = found.travel.state_tokens / found.travel.requests
        spared = (decisions - len(model.requests)) * state
        assert found.travel.spared_tokens == pytest.approx(spared)
        single = [PackingJudge(packs=None, writer=model.writer), *judges[1:]]
        alone = estimate(plan, cases(4), judges=single, items=2, odds=odds)
        saved = alone.judges[0].input_tokens - found.judges[0].input_tokens
        assert saved == pytest.approx(spared)


KILLED = """
import sys
from dagengine import evaluate, Limits
from dagengine.judges import DecisionJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.test_case import LLMTestCase

url, store = sys.argv[1:]
def node(n):
    return BinaryJudgementNode(f"{n}?", evaluation_params=["input"], then={True: 10, False: 0})
metrics = [DAGMetric(f"m{n}", DAG(node(n))) for n in range(4)]
cases = [LLMTestCase(input=str(n)) for n in range(6)]
done = evaluate(cases, metrics, model=DecisionJudge(base_url=url), store=store, show=False,
                limits=Limits(max_in_flight=8))
print(done.totals.calls, done.totals.cached, done.totals.requests)
"""


def test_a_killed_run_asks_only_what_was_under_way_again(tmp_path: Path) -> None:
    store, answered = tmp_path / "answers.db", list[Any]()

    def kill_at_the_fourth(body: Any) -> None:
        answered.append(body)
        if len(answered) == 4:
            os.kill(process.pid, signal.SIGKILL)

    with DecisionServer(fault=kill_at_the_fourth) as server:
        process = start_program(KILLED, server.base_url, str(store))
        assert process.ended().returncode == -signal.SIGKILL
        done = start_program(KILLED, server.base_url, str(store)).ended()
        calls, cached, requests = map(int, done.stdout.split())
    assert (calls + cached, requests) == (24, calls // 4)
    assert cached >= 4  # with eight places two packs are under way, and one of four was through
