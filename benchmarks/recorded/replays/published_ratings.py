"""Published figures of judges that rate: WikiEval, LLM-Rubric, MT-Bench, Prometheus."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from recordings import Folder, Json, answer_case, key, likeliest

from dagengine.reliability.statistics.correlation_and_bias import kendall, pearson, spearman
from dagengine.reliability.statistics.stability import flip_rate, majority_share
from dagengine.results import MetricResult, OutcomeKind
from dagengine.test_case import LLMTestCase
from replays.published_graphs import (
    MT_SCALE,
    QUESTIONS,
    SCALES,
    TIMES,
    agreement,
    relevance,
    rubric_metrics,
    stated_rating,
)
from replays.replaying import (
    Check,
    Replay,
    Run,
    counted,
    finished,
    held,
    judged,
    near,
    on_scale,
    output_of,
)

# WikiEval: ratings on three scales, with probabilities.


def replay_relevance(folder: Folder) -> Replay:
    """Ratings weighted by token probabilities."""
    items = folder.items()
    rows = [row for row in folder.judgements() if row["protocol"].startswith("direct_score")]
    calls = {
        key(f"{_scale_of(row)} of {row['item']}"): likeliest(call["token_probs"], call["text"])
        for row in rows
        for call in row["calls"]
    }
    cases = [answer_case(items[name]) for name in dict.fromkeys(row["item"] for row in rows)]
    done = judged(cases, [relevance(scale) for scale in SCALES], calls)
    return finished(folder, [done], {}, _rating_checks(done, rows))


def _scale_of(row: Json) -> str:
    return str(row["protocol"].rpartition("_")[2])


def _rating_checks(done: Run, ratings: Sequence[Json]) -> dict[str, Check]:
    found = {scale: done.results(scale) for scale in SCALES}
    pairs = [(found[_scale_of(row)][row["item"]], row) for row in ratings]
    equal = [
        near(on_scale(result, *SCALES[_scale_of(row)]), row["result"]["weighted_score"], 2e-3)
        for result, row in pairs
    ]
    modes = ((result.mode, "weighted") for result, _ in pairs)
    return {
        "wikieval/weighted scores (within 0.002)": held(equal),
        "wikieval/weighted scores, mode weighted": counted(modes),
    }


# LLM-Rubric: nothing but the probabilities of four answers.


def rmse(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Root of the mean squared difference."""
    return math.dist(first, second) / math.sqrt(len(first)) if first else None


_MEASURES = {"rmse": rmse, "pearson": pearson, "spearman": spearman, "kendall": kendall}


def replay_llm_rubric(folder: Folder) -> Replay:
    """The most likely and the expected answer, against what people answered."""
    items, rows = folder.items(), folder.judgements()
    calls = {
        key(f"{row['dim']} of {row['item']}"): likeliest(call["token_probs"])
        for row in rows
        for call in row["calls"]
    }
    cases = [LLMTestCase(name=name, input="a dialogue that was not recorded") for name in items]
    done = judged(cases, rubric_metrics(), calls)
    names = {"argmax": "argmax Q0", "expected": "Q0"}
    people = {name: item["labels"]["annotations"][0]["Q0"] for name, item in items.items()}
    figures = {
        f"llm_rubric/Q0/{kind}_llm/{name}": measure(*_against(people, done, metric))
        for kind, metric in names.items()
        for name, measure in _MEASURES.items()
    }
    modes = [found.mode for q in QUESTIONS for found in done.results(q).values()]
    check = counted((mode, "weighted") for mode in modes)
    return finished(folder, [done], figures, {"llm_rubric/expected answers, mode weighted": check})


def _against(
    people: Mapping[str, float], done: Run, metric: str
) -> tuple[list[float], list[float]]:
    """The ratings of the judge, and those of people for the same items."""
    found = {name: on_scale(one, 1, 4) for name, one in done.results(metric).items()}
    rated = {name: rating for name, rating in found.items() if rating is not None}
    return list(rated.values()), [people[name] for name in rated]


# MT-Bench: a number in double brackets, anywhere in the answer.


def replay_mtbench(folder: Folder) -> Replay:
    """Ratings read from the text; where the source has -1, no number and therefore no score."""
    items, rows = folder.items(), folder.judgements()
    runs = [_mtbench_run(items, rows, sample) for sample in range(2)]
    results = [done.results("rating") for done in runs]
    pairs = [
        (results[call["sample"]][row["item"]], call["score"])
        for row in rows
        for call in row["calls"]
    ]
    checks = {"mtbench/ratings": held(_meets(result, score) for result, score in pairs)}
    votes = [[found[name].score for found in results] for name in results[1]]
    figures = votes_figures("mtbench GPT-4 T=0 repeats", [v for v in votes if None not in v])
    return finished(folder, runs, figures, checks, expected=[OutcomeKind.UNPARSEABLE])


def _mtbench_run(items: Mapping[str, Json], rows: Sequence[Json], sample: int) -> Run:
    called = [(row["item"], c) for row in rows for c in row["calls"] if c["sample"] == sample]
    calls = {key(items[name]["prompt"], sample): call["text"] for name, call in called}
    cases = [LLMTestCase(name=name, input=items[name]["prompt"]) for name, _ in called]
    return judged(cases, [stated_rating(sample)], calls)


def _meets(result: MetricResult, score: float) -> bool:
    """Whether a rating is the stored one; a failure is stored as -1 and has no score here."""
    if score == -1:
        return result.outcome is OutcomeKind.UNPARSEABLE
    return near(on_scale(result, *MT_SCALE), score, 1e-9)


def votes_figures(name: str, votes: Sequence[Sequence[Any]]) -> dict[str, float | None]:
    """How far several answers to the same prompt agree, as means over the prompts."""
    equal = [len(set(row)) == 1 for row in votes if len(row) > 1]  # of an unreadable one the rest
    unanimous = statistics.fmean(equal) if equal else None
    return repeated(name, [len(votes), unanimous, majority_share(votes), flip_rate(votes)])


def repeated(name: str, values: Iterable[float | None]) -> dict[str, Any]:
    """Figures of repeated calls by name: prompts, unanimous ones, mean shares and disagreement."""
    measures = ("prompts", "unanimous", "majority_share", "disagreement")
    return {f"repeated/{name}/{m}": v for m, v in zip(measures, values, strict=True)}


# Prometheus: a rubric score after the feedback, asked three times.


def replay_prometheus(folder: Folder) -> Replay:
    """Three ratings per prompt by a rubric, and how far they agree."""
    items, rows = folder.items(), folder.judgements()
    calls = {
        key(items[row["item"]]["prompt"], call["sample"]): _restored(call)
        for row in rows
        for call in row["calls"]
    }
    cases = [LLMTestCase(name=name, input=item["prompt"]) for name, item in items.items()]
    done = judged(cases, [agreement()], calls)
    votes = {name: _ratings(result) for name, result in done.results("agreement").items()}
    stored = {row["item"]: row["result"]["scores"] for row in rows}
    pairs = [pair for name in votes for pair in zip_longest(votes[name], stored[name])]
    figures: dict[str, float | None] = {}
    for source in ("mt_bench_eval", "vicuna_eval"):
        own = [votes[name] for name, item in items.items() if item["meta"]["dataset"] == source]
        figures |= votes_figures(f"prometheus/{source} GPT-4 n=3", own)
    return finished(folder, [done], figures, {"prometheus/ratings": counted(pairs)})


def _restored(call: Json) -> str:
    """The answer as the prompt asked for it; the source stored feedback and score apart."""
    return f"Feedback: {call['text']} [RESULT] {call['score']}"


def _ratings(result: MetricResult) -> list[float]:
    found = [output_of(result, f"rating {sample}") for sample in TIMES]
    return [float(rating) for rating in found if rating is not None]
