"""The same requests through aiohttp alone: what a call costs below every client.

Bodies are written and answers are parsed as JSON, and nothing else is done.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import aiohttp
from job import RAG, Job, each, measure
from with_openai import Call, filled, split


async def ask_all(job: Job, first: int, count: int) -> list[float | None]:
    """Ask everything; every case whose answers all came has a score."""
    same, own = split(job.requests)
    limit = asyncio.Semaphore(job.in_flight)
    headers = {"Authorization": "Bearer none", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:

        async def ask(call: Call) -> Any:
            body = json.dumps(call).encode()
            async with limit, session.post(f"{job.base_url}/chat/completions", data=body) as done:
                answer = json.loads(await done.read())
            return json.loads(answer["choices"][0]["message"]["content"])

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
