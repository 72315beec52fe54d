"""Processor time of one judge call, beside a plain call of the openai client.

    python benchmarks/speed/judge_client.py [--calls 3000]

The whole path of ours (question, key, gateway, instructor, HTTP, checked answer) and
plain `AsyncOpenAI.chat.completions.create`, with its default transport and with aiohttp,
take turns against one local server in its own process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import anyio
import openai
import typer
from rich.console import Console
from rich.table import Table
from server import Settings, running

from dagengine.gateway import Gateway, Limits
from dagengine.judges import OpenAIJudge
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.prompts.instructions import judgement_instructions
from dagengine.question import Question, schema_of

VERDICTS = ("Yes", "Two are out of order", "All out of order")
SHAPE = judgement_type(VERDICTS)
SYSTEM = judgement_instructions("Are the headings in the right order?", VERDICTS)
Call = Callable[[int], Awaitable[Any]]


def question(number: int) -> Question[Any]:
    """A question like those of a tree, different for every number."""
    text = f"case {number}\n" + "A paragraph of the answer that is judged. " * 40
    return Question(messages_for(SYSTEM, [Evidence("actual_output", text)]), SHAPE, name="order")


async def many(call: Call, count: int, in_flight: int) -> float:
    """Processor seconds per call, `in_flight` of them at a time."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await call(number)

    started = time.process_time()
    async with anyio.create_task_group() as group:
        for _ in range(in_flight):
            group.start_soon(worker)
    return (time.process_time() - started) / count


async def ours(base_url: str, count: int, in_flight: int) -> float:
    """The whole path."""
    judge = OpenAIJudge("benchmark", base_url=base_url)
    gateway = Gateway(Limits(max_in_flight=in_flight, remembered=1))

    async def call(number: int) -> None:
        answer: Any = await gateway.ask(judge, question(number))
        assert answer.value.verdict == VERDICTS[0]

    async with judge.session():
        await many(call, in_flight, in_flight)
        return await many(call, count, in_flight)


async def plain(base_url: str, count: int, in_flight: int, transport: Any) -> float:
    """The openai client alone, with the same messages and the same schema."""
    schema = {"name": "Judgement", "schema": schema_of(SHAPE)}
    async with openai.AsyncOpenAI(
        base_url=base_url, api_key="none", max_retries=0, http_client=transport()
    ) as client:
        form: Any = {"type": "json_schema", "json_schema": schema}

        async def call(number: int) -> None:
            messages: Any = list(question(number).messages)
            done = await client.chat.completions.create(
                model="benchmark",
                messages=messages,
                response_format=form,
                temperature=0.0,
            )
            assert done.choices[0].message.content

        await many(call, in_flight, in_flight)
        return await many(call, count, in_flight)


def main(
    calls: Annotated[int, typer.Option(help="Calls per measurement.")] = 3000,
    repeats: Annotated[int, typer.Option(help="Measurements of each; the median counts.")] = 5,
    latency: Annotated[float, typer.Option(help="Seconds the server takes.")] = 0.02,
) -> None:
    """Measure in turns and print one table."""
    table = Table("in flight", "dagengine", "openai", "openai + aiohttp", "ours / openai + aiohttp")
    with running(Settings(latency=latency)) as base_url:
        for in_flight in (64, 512):
            found: dict[str, list[float]] = {"ours": [], "plain": [], "aiohttp": []}
            for _ in range(repeats):
                args = (base_url, calls, in_flight)
                found["ours"].append(anyio.run(ours, *args))
                found["plain"].append(anyio.run(plain, *args, openai.DefaultAsyncHttpxClient))
                found["aiohttp"].append(anyio.run(plain, *args, openai.DefaultAioHttpClient))
            medians = {name: statistics.median(values) for name, values in found.items()}
            shown = [f"{medians[name] * 1e3:.3f} ms" for name in found]
            ratio = f"{medians['ours'] / medians['aiohttp']:.2f}"
            table.add_row(str(in_flight), *shown, ratio)
    Console().print(table)
    Console().print("processor time per call, median; target: at most 1.0 ms and ratio 1.00")


if __name__ == "__main__":
    typer.run(main)
