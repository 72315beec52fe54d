"""What vectors, words and a judge say of pairs of questions, of which we know which are one.

`golden_pairs.jsonl` has, for each of 32 topics in seven languages, a question, a paraphrase of it,
another question, and one that differs in a word (`near`). Needs an embedding server; with a judge
it also asks what the synthesis asks (see docs/goldens.md).

    python benchmarks/reliability/golden_pairs.py e5 http://127.0.0.1:8961/v1
    python benchmarks/reliability/golden_pairs.py e5 http://127.0.0.1:8961/v1 \
        --judge smollm2 --base-url http://127.0.0.1:8917/v1
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import openai

from dagengine import Limits, evaluate
from dagengine.judges import OpenAIJudge
from dagengine.synthesis.generators import LIKENESS, SAME, duplicates, pair_case
from dagengine.synthesis.near_duplicates import ALIKE, GoldenTexts, TextPair

KINDS = ("paraphrase", "other", "near")
Topic = Mapping[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("embedder")
    parser.add_argument("embedder_url")
    parser.add_argument("--alike", type=float, default=ALIKE)
    parser.add_argument("--judge")
    parser.add_argument("--base-url")
    given = parser.parse_args()
    lines = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    topics: list[Topic] = [json.loads(line) for line in lines]
    texts = [topic[kind] for topic in topics for kind in ("text", *KINDS)]
    client = openai.OpenAI(base_url=given.embedder_url, api_key="none")
    data = client.embeddings.create(model=given.embedder, input=texts).data
    vectors = {text: part.embedding for text, part in zip(texts, data, strict=True)}
    nominated = report_likeness(topics, vectors, given.alike)
    if given.judge:
        judge = OpenAIJudge(given.judge, base_url=given.base_url)
        report_verdicts(topics, nominated, duplicates(given.alike, judge))


def report_likeness(
    topics: Sequence[Topic], vectors: Mapping[str, list[float]], alike: float
) -> list[TextPair]:
    """Print the cosines by kind; returns the pairs that a synthesis of all texts would compare."""
    directions = {text: numpy.asarray(v) / numpy.linalg.norm(v) for text, v in vectors.items()}

    def cosine(first: str, second: str) -> float:
        return float(directions[first] @ directions[second])

    print(f"{'pairs':12} count    min  median    max   at {alike:g} or more")
    for kind in KINDS:
        show(kind, [cosine(topic["text"], topic[kind]) for topic in topics], alike)
    apart = [
        cosine(one[a], other[b])
        for one, other in itertools.combinations(topics, 2)
        for a, b in itertools.product(("text", *KINDS), repeat=2)
    ]
    show("unrelated", apart, alike)
    texts, pairs = GoldenTexts(), list[TextPair]()
    for text, vector in vectors.items():
        pairs += texts.nearest(texts.add(text, vector), vector)
    chosen = [pair for pair in pairs if pair.meaning >= alike]
    kinds = [kind_of(topics, pair) for pair in chosen]
    print(
        f"\nof {len(pairs)} nearest pairs {len(chosen)} are nominated: "
        + ", ".join(f"{kinds.count(kind)} {kind}" for kind in (*KINDS, "unrelated"))
    )
    return chosen


def show(kind: str, cosines: Sequence[float], alike: float) -> None:
    low, median, high = numpy.quantile(cosines, [0, 0.5, 1])
    share = sum(cosine >= alike for cosine in cosines) / len(cosines)
    print(f"{kind:12} {len(cosines):5}  {low:.3f}   {median:.3f}  {high:.3f}   {share:.1%}")


def kind_of(topics: Sequence[Topic], pair: TextPair) -> str:
    """How two texts differ; of one topic, two that are not each other's paraphrase ask for
    something else."""
    for topic in topics:
        kinds = {kind for kind, text in topic.items() if text in pair.texts and kind != "language"}
        if kinds == {"text", "paraphrase"}:
            return "paraphrase"
        if len(kinds) == 2:
            return "near" if "near" in kinds else "other"
    return "unrelated"


def report_verdicts(topics: Sequence[Topic], pairs: Sequence[TextPair], metric: Any) -> None:
    """Print what the judge of the metric says of each kind of pair."""
    run = evaluate(
        [pair_case(pair) for pair in pairs], [metric], limits=Limits(max_in_flight=4), show=False
    )
    print()
    for kind in (*KINDS, "unrelated"):
        results = [
            row.metrics[0]
            for row, pair in zip(run, pairs, strict=True)
            if kind_of(topics, pair) == kind
        ]
        answered = [result for result in results if (LIKENESS, True) in result.path]
        same = sum((SAME, True) in result.path for result in answered)
        failed = f", {n} without an answer" if (n := len(results) - len(answered)) else ""
        print(f"{kind:12} {same} of {len(answered)} are called the same{failed}")


if __name__ == "__main__":
    main()
