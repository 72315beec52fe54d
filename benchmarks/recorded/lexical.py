"""Measures `LexicalJudge`, which has no model, against recorded judges and labels.

    python benchmarks/recorded/lexical.py

Every text is judged by a graph with the prompts of `FaithfulnessMetric`: the facts of the
context are extracted, and claims get verdicts. Accuracy alone says little where most claims
are good, so it stands beside that of saying always the same, balanced accuracy (1/2 for
always the same) and Cohen's kappa (0 for chance).

WikiEval's claims and verdicts are those of Llama-3-8B-Instruct: agreeing with it is not being
right. Weights and threshold were chosen with all of WikiEval in view, so none of it is held
out; its halves only show how much a figure moves. The other two sources were looked at
afterwards. People's labels of the summaries are their corrections of a model's verdict, as
the recording's README reads them.

The data is looked for where the environment variable DAGENGINE_RECORDED says, else in
`shared/data/recorded` next to the project. The exit code is 2 if the data is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from label_agreement import LabelAgreement, agreement
from recordings import Folder, Json, data_directory, how_to_get
from rich.console import Console
from rich.table import Table

from dagengine import evaluate
from dagengine.graph import Judgement, NodeValue, VerdictListNode
from dagengine.judges.lexical import LexicalJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.common.extraction import truths_of
from dagengine.metrics.dag import DAG, CodeNode
from dagengine.metrics.faithfulness import SUPPORTED, FaithfulnessMetric
from dagengine.reliability.statistics.correlation_and_bias import spearman
from dagengine.test_case import LLMTestCase

SOURCES = ("wikieval_rag_chain", "ragas_aspect_critic", "factcc_explanations")
WIDTH_OF_A_FILE = 110


@dataclass(frozen=True)
class Claim:
    """A claim, the text it is compared with, and whether somebody found it supported."""

    text: str
    context: str
    supported: bool


def main() -> int:
    """Judge, print, and return the exit code."""
    directory = data_directory()
    if not all((directory / name / "items.jsonl").is_file() for name in SOURCES):
        print(how_to_get(directory), file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    console.print(_table(agreements(directory)))
    score = faithfulness_correlation(Folder(directory / SOURCES[0]))
    shown = "none" if score is None else f"{score:.3f}"
    console.print(f"faithfulness of WikiEval's answers, Spearman with the recorded score: {shown}")
    return 0


def agreements(directory: Path, judge: LexicalJudge | None = None) -> dict[str, LabelAgreement]:
    """How far the judge agrees with each source, by what the labels are."""
    judge = judge or LexicalJudge()

    def judged(claims: Sequence[Claim]) -> list[tuple[bool, bool]]:
        supported = [claim.supported for claim in claims]
        return [*zip(supported, verdicts_on(claims, judge), strict=True)]

    even, odd = (judged(wikieval_claims(Folder(directory / SOURCES[0]), half)) for half in (0, 1))
    pairs = {
        "WikiEval, all: recorded Llama-3-8B": [*even, *odd],
        "  even pairs": even,
        "  odd pairs": odd,
        "ragas summaries: people": judged(summary_claims(Folder(directory / SOURCES[1]))),
        "factCC: gold, all contradict": judged(contradictions(Folder(directory / SOURCES[2]))),
    }
    return {name: agreement(labelled) for name, labelled in pairs.items()}


# Claims of the sources.


def wikieval_claims(folder: Folder, half: int) -> list[Claim]:
    """The recorded statements of every other pair of answers, with the recorded verdicts."""
    items = folder.items()
    rows = [row for row in _chains(folder) if items[row["item"]]["meta"]["pair"] % 2 == half]
    return [
        Claim(row["calls"][0]["parsed"][call["target"]], _context(items, row), call["verdict"] == 1)
        for row in rows
        for call in row["calls"][1:]
    ]


def summary_claims(folder: Folder) -> list[Claim]:
    """Summaries that people found to be accurate or not."""
    return [
        Claim(item["responses"]["A"]["text"], item["input"], item["labels"]["verdict"] == 1)
        for item in folder.items().values()
    ]


def contradictions(folder: Folder) -> list[Claim]:
    """Sentences that are known to contradict their text."""
    return [
        Claim(item["responses"]["A"]["text"], item["context"], item["labels"]["consistent"])
        for item in folder.items().values()
    ]


def _chains(folder: Folder) -> list[Json]:
    return folder.judgements("ragas_ff_chat")


def _context(items: Mapping[str, Json], row: Json) -> str:
    # The source kept line breaks as a backslash and an n.
    return str(items[row["item"]]["context"]).replace("\\n", "\n")


# Judging.


def verdicts_on(claims: Sequence[Claim], judge: LexicalJudge) -> list[bool]:
    """Whether the judge finds each claim supported."""
    cases = [
        LLMTestCase(name=str(place), input="", actual_output=claim.text, context=[claim.context])
        for place, claim in enumerate(claims)
    ]
    done = evaluate(cases, [support_metric()], model=judge, show=False)
    return [_score(row.metrics[0].score) == 1 for row in done.rows]


def support_metric() -> DAGMetric:
    """Whether the output, as one claim, is supported by the facts of the context."""
    claim = CodeNode(
        lambda text: [text], evaluation_params=["actual_output"], output_label="claims"
    )
    verdicts = VerdictListNode(
        SUPPORTED.text,
        claim,
        "support",
        verdicts=SUPPORTED.verdicts,
        item_label="claim",
        inputs=[truths_of("context")],
    )
    return DAGMetric("supported", DAG(CodeNode(_first, inputs=[verdicts])), threshold=None)


def _first(verdicts: list[Judgement]) -> NodeValue:
    met = float(verdicts[0].verdict == "yes")
    return NodeValue(met, score=met)


def _score(score: float | None) -> float:
    if score is None:
        raise ValueError("a claim got no verdict")
    return score


def faithfulness_correlation(folder: Folder) -> float | None:
    """The metric as it comes, with its own claims, against the recorded score per answer."""
    items, rows = folder.items(), _chains(folder)
    cases = [
        LLMTestCase(
            name=row["item"],
            input=items[row["item"]]["input"],
            actual_output=items[row["item"]]["responses"]["A"]["text"],
            retrieval_context=[_context(items, row)],
        )
        for row in rows
    ]
    metric = FaithfulnessMetric(penalize_ambiguous_claims=True)
    done = evaluate(cases, [metric], model=LexicalJudge(), show=False)
    ours = [_score(row.metrics[0].score) for row in done.rows]
    return spearman(ours, [row["result"]["faithfulness"] for row in rows])


# Printing.


def _table(found: Mapping[str, LabelAgreement]) -> Table:
    table = Table("labels", title="The lexical judge against recorded verdicts and labels")
    for name in ("claims", "accuracy", "always\nthe same", "balanced", "kappa"):
        table.add_column(name, justify="right")
    for name, one in found.items():
        # Balanced accuracy and kappa say something of labels of both kinds only.
        beyond = (one.balanced_accuracy, one.kappa) if one.baseline < 1 else (None, None)
        shares = (one.accuracy, one.baseline, *beyond)
        table.add_row(name, str(one.items), *map(_shown, shares))
    return table


def _shown(figure: float | None) -> str:
    return "none" if figure is None else f"{figure:.3f}"


if __name__ == "__main__":
    sys.exit(main())
