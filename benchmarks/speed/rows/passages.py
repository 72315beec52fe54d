"""Time and memory of making passages of many chunks: cutting, duplicates, neighbours, drafts.

    python benchmarks/speed/rows/passages.py [--chunks 10000]

Targets for 10,000 chunks: under 10 s and 300 MB in all; twice the chunks in about twice the time.
"""

from __future__ import annotations

import itertools
import resource
import time
from random import Random
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dagengine.synthesis.near_duplicates import NearDuplicates
from dagengine.synthesis.passages import Neighbours, passages_of
from dagengine.synthesis.quotas import Context, Filling
from dagengine.synthesis.synthesis_types import (
    ContextConstructionConfig,
    Document,
    EvolutionConfig,
    Passage,
    Quota,
    Section,
)

WORDS, LENGTH, TOPICS, SECTIONS = 30_000, 200, 200, 10


def corpus(chunks: int) -> list[Document]:
    """Documents of ten sections, of words as rare as those of real texts, each about a topic."""
    random = Random(1)
    words = [f"word{number}" for number in range(WORDS)]
    weights = [1 / (number + 10) for number in range(WORDS)]
    sections = []
    for number in range(chunks):
        topic = f"topic{random.randrange(TOPICS)}"
        text = " ".join([*random.choices(words, weights, k=LENGTH), *[topic] * 3])
        sections.append(Section(text, number % SECTIONS * 10_000))
    parts = [sections[at : at + SECTIONS] for at in range(0, chunks, SECTIONS)]
    return [Document(f"document {number}", tuple(part)) for number, part in enumerate(parts)]


def wider(passage: Passage, near: Neighbours) -> tuple[Passage, ...]:
    """The passage and its neighbour."""
    other = near.of(passage)
    assert other is not None
    return (passage, other)


def fill(contexts: list[Context]) -> None:
    """Draw a golden of every context, a tenth of them of one kind, and keep each."""
    count = len(contexts)
    quotas = [Quota(count // 10, kind="multi-context"), Quota(count - count // 10)]
    filling = Filling(quotas, contexts, EvolutionConfig(), drafts=4, tries=5, seed=0, per_context=2)
    kept = [filling.keep(seed, None) for seed in filling.next()]
    assert all(kept)
    assert not filling.next()


def main(
    chunks: Annotated[int, typer.Option(help="Chunks of the smaller corpus.")] = 10_000,
) -> None:
    """Measure a corpus, then one of twice the size, and print one table."""
    table = Table("chunks", "cut", "duplicates", "index", "others", "drafts", "all", "peak memory")
    for count in (chunks, 2 * chunks):
        documents, marks = corpus(count), [time.process_time()]
        config = ContextConstructionConfig()
        passages = [passage for one in documents for passage in passages_of(one, config)]
        marks.append(time.process_time())
        seen = NearDuplicates()
        kept = [passage for passage in passages if seen.is_new(passage.text)]
        del seen
        marks.append(time.process_time())
        near = Neighbours(kept)
        marks.append(time.process_time())
        contexts = [Context(one.document, (one,), wider(one, near)) for one in kept]
        marks.append(time.process_time())
        fill(contexts)
        marks.append(time.process_time())
        steps = [f"{after - before:.1f} s" for before, after in itertools.pairwise(marks)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        table.add_row(f"{count:,}", *steps, f"{marks[-1] - marks[0]:.1f} s", f"{peak:,.0f} MB")
    Console().print(table)
    Console().print("processor time, one run; memory of the whole process")


if __name__ == "__main__":
    typer.run(main)
