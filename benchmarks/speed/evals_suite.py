"""A suite of evaluations: deferred verdicts, immediate ones, and deepeval's `test run`.

    python benchmarks/speed/evals_suite.py --tests 200 --latency 0.05 --turns 2

Each test judges one case with a tree of three questions in a row; the judge is a function that
sleeps, in the process of the tests. The clients run in turns, deepeval in an environment of its
own. Times are from the end of the collection to the end of the session; "all" is the command.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from environments import UnavailableError, python_of

PEER = Path(__file__).parent / "peers" / "deepeval.txt"

TIMES = """
import time

import pytest

began = [0.0]


def pytest_collection_finish(session):
    began[0] = time.perf_counter()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    with open("seconds.txt", "w") as file:
        file.write(str(time.perf_counter() - began[0]))
"""

SUITE = """
import asyncio
import time

import pytest
from {package} import assert_test
from {package}.metrics import DAGMetric
from {package}.metrics.dag import BinaryJudgementNode, DeepAcyclicGraph, VerdictNode
from {package}.test_case import LLMTestCase, LLMTestCaseParams
{imports}


class Slow({base}):
    def load_model(self):
        return self

    def get_model_name(self):
        return "slow"

    def generate(self, prompt, schema=None):
        time.sleep({latency})
        return schema(verdict=True, reason="so")

    async def a_generate(self, prompt, schema=None):
        await asyncio.sleep({latency})
        return schema(verdict=True, reason="so")


def tree():
    found = None
    for number in (3, 2, 1):
        end = VerdictNode(verdict=True, score=10) if found is None else VerdictNode(
            verdict=True, child=found)
        found = BinaryJudgementNode(
            criteria=f"Is condition {{number}} met?",
            evaluation_params=[LLMTestCaseParams.ACTUAL_OUTPUT],
            children=[VerdictNode(verdict=False, score=0), end])
    return DeepAcyclicGraph(root_nodes=[found])


metric = DAGMetric(name="Conditions", dag=tree(), model=Slow(), include_reason=False)
CASES = [LLMTestCase(input="x", actual_output=f"answer {{number}}") for number in range({tests})]


@pytest.mark.parametrize("case", CASES, ids=[str(number) for number in range({tests})])
def test_case(case):
    assert_test(case, [metric])
"""
OURS = {
    "package": "dagengine",
    "base": "BaseLLM",
    "imports": "from dagengine.judges import BaseLLM",
}
THEIRS = {
    "package": "deepeval",
    "base": "DeepEvalBaseLLM",
    "imports": "from deepeval.models import DeepEvalBaseLLM",
}


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as place:
        clients = _clients(Path(place), options)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
        for _ in range(options.turns):
            for name, client in clients.items():
                found[name].append(client())
                print(f"  {name}: {found[name][-1][0]:.2f} s", file=sys.stderr)
    ideal = options.tests * 3 * options.latency / 64
    print(f"{options.tests} tests of 3 questions in a row, {options.latency * 1000:g} ms each; 64 "
          f"calls in flight would take {ideal:.2f} s\n")  # fmt: skip
    print("| client | after collection | all | beside deferred |\n|---|---|---|---|")
    base = statistics.median(seconds for seconds, _ in found["deferred"])
    for name, times in found.items():
        seconds, whole = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"| {name} | {seconds:.2f} s | {whole:.2f} s | {seconds / base:.1f} |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds of one call")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--without-deepeval", action="store_true")
    return parser.parse_args()


def _clients(
    place: Path, options: argparse.Namespace
) -> dict[str, Callable[[], tuple[float, float]]]:
    """What is measured, by name."""
    ours = _suite(place / "ours", OURS, options)
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    clients: dict[str, Callable[[], tuple[float, float]]] = {
        "deferred": lambda: _seconds(ours, pytest),
        "immediate": lambda: _seconds(ours, [*pytest, "--evals-immediate"]),
    }
    if not options.without_deepeval:
        try:
            python = python_of(PEER)
        except UnavailableError as error:
            print(f"deepeval is left out: {error}", file=sys.stderr)
            return clients
        theirs = _suite(place / "theirs", THEIRS, options)
        command = [str(python.parent / "deepeval"), "test", "run", "test_suite.py"]
        clients["deepeval test run"] = lambda: _seconds(theirs, command)
    return clients


def _suite(place: Path, words: dict[str, str], options: argparse.Namespace) -> Path:
    place.mkdir()
    (place / "conftest.py").write_text(TIMES)
    text = SUITE.format(**words, tests=options.tests, latency=options.latency)
    (place / "test_suite.py").write_text(text)
    return place


def _seconds(place: Path, command: Sequence[str]) -> tuple[float, float]:
    """Seconds after the collection, and of the whole command; raises where a test failed."""
    quiet = {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "DEEPEVAL_DISABLE_DOTENV": "1"}
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=place, env={**os.environ, **quiet}, capture_output=True, text=True
    )
    whole = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return float((place / "seconds.txt").read_text()), whole


if __name__ == "__main__":
    main()
