"""Time and memory of making passages of many chunks: cutting, duplicates, neighbours.

    python benchmarks/speed/passages.py [--chunks 10000]

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

from dagengine.synthesis.passages import NearDuplicates, Neighbours, passages_of
from dagengine.synthesis.values import ContextConstructionConfig, Document, Section

WORDS, LENGTH, TOPICS = 30_000, 200, 200


def corpus(chunks: int) -> Document:
    """One document: sections of words as rare as those of real texts, each about a topic."""
    random = Random(1)
    words = [f"word{number}" for number in range(WORDS)]
    weights = [1 / (number + 10) for number in range(WORDS)]
    sections = []
    for number in range(chunks):
        topic = f"topic{random.randrange(TOPICS)}"
        text = " ".join([*random.choices(words, weights, k=LENGTH), *[topic] * 3])
        sections.append(Section(text, number * 10_000))
    return Document("corpus", tuple(sections))


def main(
    chunks: Annotated[int, typer.Option(help="Chunks of the smaller corpus.")] = 10_000,
) -> None:
    """Measure a corpus, then one of twice the size, and print one table."""
    table = Table("chunks", "cut", "near duplicates", "index", "neighbours", "all", "peak memory")
    for count in (chunks, 2 * chunks):
        document, marks = corpus(count), [time.process_time()]
        passages = passages_of(document, ContextConstructionConfig())
        marks.append(time.process_time())
        seen = NearDuplicates()
        kept = [passage for passage in passages if seen.is_new(passage.text)]
        del seen
        marks.append(time.process_time())
        near = Neighbours(kept)
        marks.append(time.process_time())
        assert all(near.of(passage) is not None for passage in kept)
        marks.append(time.process_time())
        steps = [f"{after - before:.1f} s" for before, after in itertools.pairwise(marks)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        table.add_row(f"{count:,}", *steps, f"{marks[-1] - marks[0]:.1f} s", f"{peak:,.0f} MB")
    Console().print(table)
    Console().print("processor time, one run; memory of the whole process")


if __name__ == "__main__":
    typer.run(main)
