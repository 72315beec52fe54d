"""Published figures of LLM judges, computed anew by metrics from the recorded calls.

Every source here published what its judge answered and a figure that follows from it. The
questions of the metrics in `published_graphs` are answered from those calls; parsing, weighting
and combining happens in their nodes, and `dagengine.reliability.statistics` makes the figures of
the scores.

Where a source kept its prompts they are the key of a recording; where it did not, the name of
the item stands in for the prompt, so that an answer can only reach the item it was about.

    for done in replays(data_directory()):
        print(done.folder, done.figures, done.checks)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from recordings import Folder, expected_figures

from replays.published_ratings import (
    repeated,
    replay_llm_rubric,
    replay_mtbench,
    replay_prometheus,
    replay_relevance,
)
from replays.published_verdicts import replay_chains, replay_pandalm, replay_rankings, replay_tokens
from replays.replaying import Replay

IMPOSSIBLE = {
    "wikieval: the published accuracies": "the source's file of human answers is not public",
    "prometheus: scores from the verbatim answer": (
        "the source cut `[RESULT] n` off the text; it is put back from the stored score here, so "
        "that equal ratings only show that nodes and parser pass them on"
    ),
    "llm_rubric: the most likely answer from a text": (
        "only token probabilities are stored; the most likely token stands for the text"
    ),
    "pandalm: a source for its published figures": (
        "EXPECTED.json has them from memory, written down before anything was computed"
    ),
    "pandalm: verdicts from the verbatim answer": (
        "the source kept result, reason and reference apart and unreadable answers as ties; the "
        "text was put together again from them"
    ),
}
"""What cannot be had from the recordings, and why. No key of EXPECTED.json is among it."""

REPEATED: Mapping[str, tuple[int, float, float, float]] = {
    "prometheus/mt_bench_eval GPT-4 n=3": (160, 0.419, 0.794, 0.400),
    "prometheus/vicuna_eval GPT-4 n=3": (160, 0.588, 0.860, 0.277),
    "mtbench GPT-4 T=0 repeats": (6, 0.667, 0.833, 0.333),
}
"""Reference values of the recording's README for repeated calls, to three decimals: prompts,
share of unanimous ones, mean majority share, mean pairwise disagreement."""

_DIGITS = {"alpaca_eval": 8, "llm_rubric": 6, "pandalm": 2, "repeated": 3}


def digits_of(name: str) -> int:
    """To how many decimals a figure was printed.

    AlpacaEval printed all digits, but of figures of preferences that it kept to ten decimals.
    """
    return 0 if name.endswith("/prompts") else _DIGITS[name.partition("/")[0]]


def is_reference(name: str) -> bool:
    """Whether a figure is no publisher's, but computed by those who prepared the recordings."""
    return name.startswith("repeated/")


def same(ours: float | None, published: float | None, digits: int) -> bool:
    """Whether two figures are equal as far as they were printed."""
    if ours is None or published is None:
        return False
    return round(ours, digits) == round(published, digits)


def published(directory: Path) -> dict[str, float]:
    """The figures to be met: those of EXPECTED.json but LLMBar's, and those of repeated calls."""
    figures = {k: v for k, v in expected_figures(directory).items() if not k.startswith("llmbar/")}
    for name, values in REPEATED.items():
        figures |= repeated(name, values)
    return figures


REPLAYS: Mapping[str, tuple[str, Callable[[Folder], Replay]]] = {
    "faithfulness": ("wikieval_rag_chain", replay_chains),
    "relevance": ("wikieval_rag_chain", replay_relevance),
    "rubric": ("llm_rubric_logprobs", replay_llm_rubric),
    "tokens": ("alpaca_eval", replay_tokens),
    "rankings": ("alpaca_eval", replay_rankings),
    "mtbench": ("mtbench_gpt4", replay_mtbench),
    "prometheus": ("prometheus_gpt4x3", replay_prometheus),
    "pandalm": ("pandalm", replay_pandalm),
}
"""What is replayed, each from the folder of its recording."""


def is_there(directory: Path) -> bool:
    """Whether a directory holds all the recordings that are replayed here."""
    return all(Folder(directory / folder).is_there for folder, _ in REPLAYS.values())


def replays(directory: Path) -> list[Replay]:
    """Every source, judged by its metrics."""
    return [make(Folder(directory / folder)) for folder, make in REPLAYS.values()]
