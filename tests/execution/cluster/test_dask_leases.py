"""Workers of Dask that are killed, and clients: the same rows, no budget exceeded, nobody waits."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from graphs.trees import yes_no_metric
from programs.commands import start_program
from servers.dask_cluster import dask_cluster

from dagengine.evaluation import evaluate
from dagengine.execution import Workers
from dagengine.gateway import Limits
from dagengine.judges import ScriptedJudge
from dagengine.question import Question
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")


@pytest.fixture
def scheduler() -> Iterator[str]:
    """A scheduler with three workers: two may die, and Dask does not replace each of them."""
    with dask_cluster(workers=3, deaths=9) as address:
        yield address


def deadly(folder: Path, deaths: int) -> ScriptedJudge:
    """A judge that kills so many processes: each at the question of a case of its own."""

    def answer(question: Question[Any]) -> bool:
        text = question.messages[-1]["content"]
        case = next(line for line in text.splitlines() if line.startswith("case "))
        with (folder / "asked.txt").open("a") as log:
            log.write(f"{case}\n")
        number = int(case.split()[1])
        died = folder / f"died-{number}"
        if number % 10 == 3 and number < 10 * deaths and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number % 3 > 0

    return ScriptedJudge(answer, name="deadly")


CASES = [LLMTestCase(input=f"case {number}", actual_output="") for number in range(80)]


def asked(folder: Path) -> Counter[str]:
    return Counter((folder / "asked.txt").read_text().splitlines())


@pytest.mark.parametrize("at_once", [1, 8])
def test_workers_that_die_with_all_places_leave_them_to_others(
    scheduler: str, tmp_path: Path, at_once: int
) -> None:
    result = evaluate(
        CASES, [yes_no_metric()], model=deadly(tmp_path, 2), show=False,
        cluster=Workers(scheduler, 3), limits=Limits(max_in_flight=at_once),
    )  # fmt: skip
    assert len(list(tmp_path.glob("died-*"))) == 2
    assert result.scores("worth") == [float(number % 3 > 0) for number in range(80)]


def test_a_budget_is_kept_where_a_worker_dies_which_costs_at_most_its_slice(
    scheduler: str, tmp_path: Path
) -> None:
    calls = 60
    result = evaluate(
        CASES, [yes_no_metric()], model=deadly(tmp_path, 1), show=False,
        cluster=Workers(scheduler, 3), limits=Limits(max_calls=calls),
    )  # fmt: skip
    outcomes = Counter(row.metrics[0].outcome for row in result.rows)
    assert (tmp_path / "died-3").exists()
    assert calls - calls // 6 <= asked(tmp_path).total() <= calls
    assert outcomes.keys() == {OutcomeKind.OK, OutcomeKind.OVER_BUDGET}
    assert outcomes.total() == 80


def test_an_equal_question_whose_worker_dies_is_asked_by_the_next_one_only(
    scheduler: str, tmp_path: Path
) -> None:
    cases = [LLMTestCase(input=f"case {number % 4}", actual_output="") for number in range(400)]
    result = evaluate(
        cases, [yes_no_metric()], model=deadly(tmp_path, 1), show=False,
        cluster=Workers(scheduler, 3),
    )  # fmt: skip
    assert result.scores("worth") == [float(number % 4 % 3 > 0) for number in range(400)]
    questions = asked(tmp_path)
    assert set(questions) == {f"case {number}" for number in range(4)}
    # Case 3 killed its worker, perhaps with answers that nobody else had heard of.
    assert questions["case 3"] == 2
    assert max(questions.values()) == 2


CLIENT = """
import sys
from pathlib import Path

import anyio

from dagengine import evaluate
from dagengine.execution import Workers
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.test_case import LLMTestCase

address, folder = sys.argv[1], Path(sys.argv[2])


async def answer(question):
    (folder / "asked").touch()
    try:
        await anyio.sleep_forever()
    finally:
        (folder / "ended").touch()


node = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
evaluate(
    [LLMTestCase(input="a")], [DAGMetric("good", DAG(node))], show=False,
    model=ScriptedJudge(answer, name="waits"), cluster=Workers(address, 3),
)
"""


def test_when_the_client_is_killed_its_workers_stop_asking(scheduler: str, tmp_path: Path) -> None:
    client = start_program(CLIENT, scheduler, str(tmp_path))
    wait_for(tmp_path / "asked")
    client.kill()
    wait_for(tmp_path / "ended")
    client.ended()


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)
