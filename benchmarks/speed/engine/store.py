"""What a store of answers costs.

    python benchmarks/speed/engine/store.py [--answers 100000] [--cases 2000] [--folder DIR]

Two tables: the store by itself (answers stored by concurrent tasks that each wait until
theirs is safe, the lag of the event loop meanwhile, answers found again, bytes, and the
interactive commands on the filled store), and an evaluation without a store, with an empty
one, with a full one and in a replay.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import anyio
import anyio.lowlevel
import typer
from overhead import at_once, judged_metric
from rich.console import Console
from rich.table import Table

from dagengine import Store, evaluate
from dagengine.judges import ScriptedJudge
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.prompts.instructions import judgement_instructions
from dagengine.question import Answer, Question, Usage
from dagengine.store import OpenStore
from dagengine.store.maintenance import AnswerSelection, count, groups, latest, open_to_look, size
from dagengine.test_case import LLMTestCase

TASKS, CHUNK = 256, 10_000
WORDS = [f"word{number}" for number in range(5000)]
NODES = [f"question {number}" for number in range(20)]
SHAPE = judgement_type(None)
JUDGES = [ScriptedJudge({}, name=f"model {number}") for number in range(3)]


def asked(number: int) -> Question[Any]:
    """A question with about 700 characters of evidence, like no other."""
    pick = random.Random(number)
    text = " ".join(pick.choices(WORDS, k=80))
    instructions = judgement_instructions("Does the text support the claim?", [True, False])
    node = NODES[number % len(NODES)]
    return Question(messages_for(instructions, [Evidence("text", text)]), SHAPE, name=node)


def answered(number: int) -> Answer[Any]:
    """An answer with a reason of two sentences."""
    reason = " ".join(random.Random(-number).choices(WORDS, k=25))
    raw = SHAPE.model_validate({"reason": reason, "verdict": number % 2 == 0}).model_dump_json()
    return Answer(SHAPE.model_validate_json(raw), raw, usage=Usage(300, 60), mode="json_schema")


class Item(NamedTuple):
    """A question with its judge and, when it is to be stored, its answer."""

    judge: ScriptedJudge
    question: Question[Any]
    answer: Answer[Any] | None

    async def ask(self) -> Answer[Any]:
        """The judge's answer, which takes one turn of the event loop."""
        await anyio.lowlevel.checkpoint()
        if self.answer is None:
            raise AssertionError("an answer is missing")
        return self.answer


def items(start: int, end: int, live: bool) -> list[Item]:
    """Questions made, and their keys computed, while no clock runs."""
    made = [Item(JUDGES[n % 3], asked(n), answered(n) if live else None) for n in range(start, end)]
    return made if all(item.question.key for item in made) else []


async def each(answers: OpenStore, wanted: Iterable[Item]) -> None:
    """Get all answers with `TASKS` tasks at once."""
    left = iter(wanted)

    async def work() -> None:
        for item in left:
            await answers.get(item.judge, item.question, item.ask)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for _ in range(TASKS):
            group.start_soon(work)


async def lags(found: list[float]) -> None:
    """Write down how much later than asked for the event loop comes back."""
    while True:
        before = time.perf_counter()
        await anyio.sleep(0.001)
        found.append(time.perf_counter() - before - 0.001)


async def timed(path: Path, total: int, live: bool) -> tuple[float, list[float]]:
    """Seconds for `total` answers, and the lags of the loop meanwhile."""
    seconds, found = 0.0, list[float]()
    async with Store(path).open() as answers:
        for start in range(0, total, CHUNK):
            chunk = items(start, min(start + CHUNK, total), live)
            async with anyio.create_task_group() as group:
                group.start_soon(lags, found)
                await anyio.sleep(0.01)
                before = time.perf_counter()
                await each(answers, chunk)
                seconds += time.perf_counter() - before
                group.cancel_scope.cancel()
    return seconds, sorted(found)


def took(work: Callable[[], object]) -> str:
    """How long something takes, in words."""
    before = time.perf_counter()
    work()
    return f"{time.perf_counter() - before:.3f} s"


def commands(path: Path) -> list[tuple[str, str]]:
    """The interactive commands, timed without the start of the interpreter."""
    with open_to_look(path) as db:
        return [
            ("show", took(lambda: groups(db))),
            ("show --limit 10", took(lambda: latest(db, AnswerSelection(), 10))),
            ("show --node", took(lambda: latest(db, AnswerSelection(node=NODES[3]), 10))),
            ("prune --dry-run", took(lambda: count(path, AnswerSelection(node=NODES[3])))),
        ]


def store_table(path: Path, total: int) -> Table:
    """The store by itself."""
    table = Table("store", f"{total:,} answers")
    for what, live in (("written", True), ("found again", False)):
        seconds, found = anyio.run(timed, path, total, live)
        lag = f"{found[len(found) * 99 // 100] * 1e3:.1f} / {found[-1] * 1e3:.1f} ms"
        table.add_row(what, f"{total / seconds:,.0f}/s, {seconds / total * 1e6:.0f} µs each")
        table.add_row(f"loop lag while {what}, p99 / most", lag)
    table.add_row("bytes per answer", f"{size(path) / total:,.0f}")
    for row in commands(path):
        table.add_row(*row)
    return table


def run_table(path: Path, cases: int) -> Table:
    """An evaluation of ten questions a case, with a judge that takes no time."""
    table = Table("evaluation", "wall", "per question", "judge calls", "from the store")
    data = [LLMTestCase(input=f"case {number}") for number in range(cases)]
    judge = ScriptedJudge(at_once, name="at once")
    stores = (None, Store(path), Store(path), Store(path, replay=True))
    for name, store in zip(("no store", "cold", "warm", "replay"), stores, strict=True):
        before = time.perf_counter()
        done = evaluate(data, [judged_metric()], model=judge, store=store, show=False)
        wall, totals = time.perf_counter() - before, done.totals
        assert done.success
        each = f"{wall / totals.asked * 1e6:.0f} µs"
        table.add_row(name, f"{wall:.2f} s", each, f"{totals.calls:,}", f"{totals.cached:,}")
    return table


def main(
    answers: Annotated[int, typer.Option(help="OpenStore to store.")] = 100_000,
    cases: Annotated[int, typer.Option(help="Cases of ten questions.")] = 2_000,
    folder: Annotated[Path | None, typer.Option(help="Where to write; by default /tmp.")] = None,
) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        names = (Path(scratch) / f"{number}.db" for number in itertools.count())
        Console().print(store_table(next(names), answers))
        Console().print(run_table(next(names), cases))


if __name__ == "__main__":
    typer.run(main)
