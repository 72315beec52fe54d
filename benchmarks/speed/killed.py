"""Runs that are killed again and again: what is lost, and what is asked twice.

    python benchmarks/speed/killed.py [--cases 2000] [--kills 20] [--processes 1] [--seed 0]

`dagengine run --store` asks two questions per case of a judge in another process, is killed
(SIGKILL) at random moments and started again until it is done; at last it is interrupted once
(SIGINT) on a new store, and goes on. The end has to be what an undisturbed run leaves, byte for
byte, and every answer that reached the store has to be the last one to its question. Exits
with 1 when it is not so.

Answers are given in vain when a run is killed before they are in the store: at most one for
every call that may be under way (64), since a call counts until its answer is in the file. With
`--processes 2` two runs of the same cases share the store, and both are killed. What one has
under way the other asks, too: they agree on the results, but share little work. Give each its
own part of the cases for that.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from server import Settings, digest, running

from dagengine.errors import InputError
from dagengine.store.maintenance import open_to_look, records

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode

words = TaskNode("List the words", "words", evaluation_params=["input"], name="words")
kind = BinaryJudgementNode("Kind?", inputs=[words], then={True: 10, False: 4}, name="kind")
metric = DAGMetric("Kind", DAG(kind))
"""
QUESTIONS = 2  # of one case
IN_FLIGHT = 64


@dataclass(frozen=True)
class Stop:
    """What there was when the runs had stopped.

    `given` counts the answers to each prompt, `stored` are the prompts in the store, `rows`
    those of the run that had fewest.
    """

    how: str
    given: Counter[str]
    stored: frozenset[str]
    rows: int


@dataclass(frozen=True)
class Trial:
    """What came of runs on one store, and the rows that each of them left."""

    stops: list[Stop]
    results: list[bytes]


@dataclass(frozen=True)
class Bench:
    """A folder with metrics and cases, and a judge that nobody else asks."""

    folder: Path
    judge: str
    processes: int = 1

    def start(self) -> list[subprocess.Popen[str]]:
        """Runs of all cases, on one store."""
        return [self._start(number) for number in range(self.processes)]

    def _start(self, number: int) -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "dagengine", "run", "metrics.py", "--data", "cases.jsonl",
            "--base-url", self.judge, "--judge", "any", "--out", f"out{number}",
            "--store", "answers.db", "--max-in-flight", str(IN_FLIGHT),
        ]  # fmt: skip
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "OPENAI_API_KEY": "none"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answered(self) -> int:
        """How many answers the judge has given."""
        given: int = self._get("stats")["outcomes"].get("answered", 0)
        return given

    def stop(self, how: str) -> Stop:
        """What there is now that nobody asks any more."""
        least = min(part.count(b"\n") for part in self.results())
        return Stop(how, Counter(self._get("answered")), self._stored(), least)

    def _get(self, page: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.judge}/{page}") as reply:
            found: dict[str, Any] = json.load(reply)
        return found

    def _stored(self) -> frozenset[str]:
        try:
            with open_to_look(self.folder / "answers.db") as db:
                return frozenset(digest(record.question.messages) for record in records(db))
        except InputError:  # killed before there was a store
            return frozenset()

    def results(self) -> list[bytes]:
        """The rows of every run, as far as they are written."""
        files = (self.folder / f"out{n}" / "results.jsonl" for n in range(self.processes))
        return [file.read_bytes() if file.exists() else b"" for file in files]

    def trial(self, stops: list[Stop]) -> Trial:
        """Let runs finish what others have begun."""
        for process in self.start():
            finish(process)
        return Trial([*stops, self.stop("done")], self.results())


@contextmanager
def bench(cases: int, processes: int = 1) -> Iterator[Bench]:
    """A place for runs on a new store."""
    with tempfile.TemporaryDirectory() as name, running(Settings(latency=0.02)) as judge:
        folder = Path(name)
        (folder / "metrics.py").write_text(METRICS, encoding="utf-8")
        rows = (json.dumps({"name": f"c{n}", "input": f"number {n}"}) for n in range(cases))
        (folder / "cases.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        yield Bench(folder, judge, processes)


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a run to end with this exit code; returns its messages."""
    _, errors = process.communicate()
    if process.returncode != code:
        raise RuntimeError(f"a run ended with {process.returncode}: {errors}")
    return errors


def wait_for(place: Bench, processes: list[subprocess.Popen[str]], given: int) -> bool:
    """Wait for so many answers; False when a run is over before."""
    while place.answered() < given:
        if any(process.poll() is not None for process in processes):
            return False
        time.sleep(0.002)
    return True


def whole(cases: int) -> Trial:
    """A run that nothing disturbs."""
    with bench(cases) as place:
        return place.trial([])


def killed(cases: int, kills: int, processes: int, pick: random.Random) -> Trial:
    """Kill the runs at random moments, then let them finish."""
    stops: list[Stop] = []
    with bench(cases, processes) as place:
        for moment in sorted(pick.choices(range(cases * QUESTIONS), k=kills)):
            started = place.start()
            wait_for(place, started, moment)
            time.sleep(pick.uniform(0.0, 0.05))
            for process in started:
                process.kill()
            for process in started:
                process.communicate()
            stops.append(place.stop("killed"))
        return place.trial(stops)


def interrupted(cases: int) -> Trial:
    """Interrupt a run half-way, as Ctrl-C does, then go on."""
    with bench(cases) as place:
        started = place.start()
        wait_for(place, started, cases * QUESTIONS // 2)
        for process in started:
            process.send_signal(signal.SIGINT)
            if "run the same command to go on" not in finish(process, code=130):
                raise RuntimeError("the interrupted run does not say how to go on")
        return place.trial([place.stop("interrupted")])


def problems(trial: Trial, expected: bytes, processes: int = 1) -> Iterator[str]:
    """What is not as it should be; the last stop is the end, at which nothing is lost."""
    last = trial.stops[-1]
    if any(rows != expected for rows in trial.results):
        yield "the results differ from those of an undisturbed run"
    if last.stored != last.given.keys():
        yield f"{len(last.given)} questions were answered and {len(last.stored)} stored"
    if processes == 1 and max(in_vain(trial.stops)) > IN_FLIGHT:
        yield f"more answers were given in vain than the {IN_FLIGHT} calls under way"
    for number, stop in enumerate(trial.stops, 1):
        again = sum(last.given[prompt] > stop.given[prompt] for prompt in stop.stored)
        if again:
            yield f"{again} answers were stored at stop {number}, and asked for again"


def in_vain(stops: Sequence[Stop]) -> list[int]:
    """Of each stop, the answers given since the one before it that were not stored."""
    missing = [0, *(stop.given.total() - len(stop.stored) for stop in stops)]
    return [now - before for before, now in itertools.pairwise(missing)]


def table_of(title: str, stops: Sequence[Stop]) -> Table:
    """One line for every stop."""
    table = Table("stop", "rows", "answers given", "stored", "given in vain", title=title)
    for number, (stop, vain) in enumerate(zip(stops, in_vain(stops), strict=True), 1):
        counts = (stop.rows, stop.given.total(), len(stop.stored), vain)
        table.add_row(f"{number} {stop.how}", *(f"{each:,}" for each in counts))
    return table


def main(
    cases: Annotated[int, typer.Option(help="Cases of two questions.")] = 2_000,
    kills: Annotated[int, typer.Option(help="How often the runs are killed.")] = 20,
    processes: Annotated[int, typer.Option(help="Runs that share the store.")] = 1,
    seed: Annotated[int, typer.Option(help="Another seed, other moments.")] = 0,
) -> None:
    """Kill, compare and print."""
    expected, found = whole(cases).results[0], list[str]()
    trials = {
        f"{processes} at once": killed(cases, kills, processes, random.Random(seed)),
        "Ctrl-C": interrupted(cases),
    }
    for title, trial in trials.items():
        Console().print(table_of(title, trial.stops))
        found += (f"{title}: {what}" for what in problems(trial, expected, processes))
    print("\n".join(found) or "the same rows as undisturbed; no stored answer was asked again")
    raise typer.Exit(bool(found))


if __name__ == "__main__":
    typer.run(main)
