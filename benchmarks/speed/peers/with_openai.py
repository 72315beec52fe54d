"""Plain `create` of the openai client: a loop with the requests that dagengine sends.

The requests of a case come in rounds, one after the other; those of one round are under way
at the same time. What is the same for every case is asked once. Answers are read as JSON and
not looked at further. The setting `aiohttp` takes the client's other transport, and
`bare` asks for no token probabilities.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import openai
from job import RAG, Job, each, label, measure

Call = dict[str, Any]


def filled(rounds: Sequence[Sequence[Call]], number: int) -> list[list[Call]]:
    """The requests of a case; they were written down for case 0."""
    text = json.dumps(rounds).replace(label(0), label(number))
    return json.loads(text)  # type: ignore[no-any-return]


def split(rounds: Sequence[Sequence[Call]]) -> tuple[list[Call], list[list[Call]]]:
    """The calls that are the same for every case, and the rounds of the others."""
    same = [call for one in rounds for call in one if label(0) not in json.dumps(call)]
    own = [[call for call in one if call not in same] for one in rounds]
    return same, [one for one in own if one]


def bare(rounds: Sequence[Sequence[Call]]) -> list[list[Call]]:
    """The requests without token probabilities."""
    left_out = {"logprobs", "top_logprobs"}
    return [
        [{k: v for k, v in call.items() if k not in left_out} for call in one] for one in rounds
    ]


async def ask_all(job: Job, first: int, count: int) -> list[float | None]:
    """Ask everything; every case whose answers all came has a score."""
    same, own = split(bare(job.requests) if job.setting == "bare" else job.requests)
    limit = asyncio.Semaphore(job.in_flight)
    transport: Any = (
        openai.DefaultAioHttpClient if job.setting == "aiohttp" else openai.DefaultAsyncHttpxClient
    )
    async with openai.AsyncOpenAI(
        base_url=job.base_url, api_key="none", max_retries=0, http_client=transport()
    ) as client:

        async def ask(call: Call) -> Any:
            async with limit:
                done = await client.chat.completions.create(**call)
            return json.loads(done.choices[0].message.content or "")

        async def judge(number: int) -> float:
            for one in filled(own, number):
                await asyncio.gather(*map(ask, one))
            return 1.0

        await asyncio.gather(*map(ask, same))
        work = [partial(judge, number) for number in range(first, first + count)]
        return await each(work, job.in_flight)


def run(job: Job, first: int, count: int) -> Sequence[float | None]:
    """All scores of the cases; one for each metric."""
    found = asyncio.run(ask_all(job, first, count))
    return found * (5 if job.workload == RAG else 1)


if __name__ == "__main__":
    measure(run)
