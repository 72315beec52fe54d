"""What an engine costs its callers, beside one evaluation of the same cases in the same process.

python benchmarks/speed/engine/callers.py [many]   with `many` (100,000) cases for the memory
"""

from __future__ import annotations

import resource
import statistics
import sys
import threading
import time

import anyio

from dagengine import Engine, Limits, a_evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.test_case import LLMTestCase

METRIC = DAGMetric(
    "good",
    DAG(BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})),
)
JUDGE = ScriptedJudge(lambda question: True)


def cases(count: int, word: str) -> list[LLMTestCase]:
    return [LLMTestCase(input=f"{word} {number}") for number in range(count)]


async def evaluation(word: str) -> float:
    """Milliseconds of processor for a case of one evaluation of 512."""
    made = cases(512, word)
    began = time.process_time()
    await a_evaluate(made, [METRIC], model=JUDGE, show=False)
    return (time.process_time() - began) / 512 * 1000


async def callers(engine: Engine, word: str) -> float:
    """Milliseconds of processor for a case of 256 callers with one case each, at the same time."""
    made = cases(256, word)
    began = time.process_time()
    async with anyio.create_task_group() as group:
        for case in made:
            group.start_soon(engine.judge, case)
    return (time.process_time() - began) / 256 * 1000


async def main(many: int) -> None:
    ratios, whole, single = [], [], []
    async with Engine(METRIC, model=JUDGE, limits=Limits(remembered=100)) as engine:
        for turn in range(15):
            whole.append(await evaluation(f"e{turn}"))
            single.append(await callers(engine, f"c{turn}"))
            ratios.append(single[-1] / whole[-1])
        best, median = min(single) / min(whole), statistics.median(ratios)
        print(f"evaluation of 512: {min(whole):.3f} ms a case; 256 callers: {min(single):.3f} ms")
        print(f"ratio: {best:.2f} of the best turns, {median:.2f} the median")
        times = []
        for case in cases(1000, "alone"):
            began = time.perf_counter()
            await engine.judge(case)
            times.append((time.perf_counter() - began) * 1000)
        print(f"one caller: p50 {statistics.median(times):.3f} ms, best {min(times):.3f} ms")
        for part in range(10):
            for first in range(0, many // 10, 250):
                await engine.judge_all(cases(250, f"m{part} {first}"))
            held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
            print(f"{(part + 1) * many // 10} cases: {held:.0f} MB at most")


def threads() -> None:
    with Engine(METRIC, model=JUDGE) as engine:

        def work(name: int) -> None:
            for case in cases(50, f"thread {name}"):
                engine.judge(case)

        workers = [threading.Thread(target=work, args=(name,)) for name in range(64)]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        print(f"64 threads: {(time.perf_counter() - began) / 3200 * 1000:.3f} ms a case")


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    threads()
