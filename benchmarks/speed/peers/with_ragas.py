"""ragas with its present metrics (`ragas.metrics.collections`) and one shared client.

Each of its metrics asks one question after the other, so as many pairs of a case and a metric
are under way as calls may be in flight. It has no decision tree and no G-Eval; its context
relevance stands for contextual relevancy. Answer relevancy also asks for embeddings, which
take their time and are not counted as judge calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import openai
from job import FAITHFULNESS, MODEL, RAG, Case, Job, cases, each, measure
from ragas.embeddings.base import embedding_factory
from ragas.llms import llm_factory
from ragas.metrics.collections import (
    AnswerRelevancy,
    ContextPrecisionWithReference,
    ContextRecall,
    ContextRelevance,
    Faithfulness,
)

Score = Callable[[Case], Awaitable[Any]]


def scores_of(workload: str, client: Any) -> list[Score]:
    """The metrics of a workload, as functions of a case."""
    llm = llm_factory(MODEL, client=client)

    faithful = Faithfulness(llm=llm)

    async def faithfulness(one: Case) -> Any:
        return await faithful.ascore(one.input, one.actual_output, [*one.retrieval_context])

    if workload == FAITHFULNESS:
        return [faithfulness]
    assert workload == RAG, f"ragas has no {workload}"
    embeddings = embedding_factory("openai", model="text-embedding-3-small", client=client)
    relevancy = AnswerRelevancy(llm=llm, embeddings=embeddings)
    precision, recall = ContextPrecisionWithReference(llm=llm), ContextRecall(llm=llm)
    relevance = ContextRelevance(llm=llm)
    return [
        faithfulness,
        lambda one: relevancy.ascore(one.input, one.actual_output),
        lambda one: precision.ascore(one.input, one.expected_output, [*one.retrieval_context]),
        lambda one: recall.ascore(one.input, [*one.retrieval_context], one.expected_output),
        lambda one: relevance.ascore(one.input, [*one.retrieval_context]),
    ]


async def score_all(job: Job, first: int, count: int) -> list[float | None]:
    """All scores of the cases."""
    async with openai.AsyncOpenAI(base_url=job.base_url, api_key="none") as client:
        scores = scores_of(job.workload, client)
        work = [partial(score, one) for one in cases(first, count) for score in scores]
        return [found.value for found in await each(work, job.in_flight)]


def run(job: Job, first: int, count: int) -> Sequence[float | None]:
    """All scores of the cases."""
    return asyncio.run(score_all(job, first, count))


if __name__ == "__main__":
    measure(run)
