"""Published figures of LLM judges, computed anew by graphs from the recorded calls.

Every source here published what its judge answered and a figure that follows from it. The
questions of the graphs in `published_graphs` are answered from those calls; parsing, weighting
and combining happens in their nodes, and `dagengine.statistics` makes the figures of the scores.

Where a source kept its prompts they are the key of a recording; where it did not, the name of
the item stands in for the prompt, so that an answer can only reach the item it was about.

    for done in replays(data_directory()):
        print(done.folder, done.figures, done.checks)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from published_graphs import (
    QUESTIONS,
    RANKS,
    SCALES,
    TIMES,
    TOKEN,
    agreement_graph,
    faithfulness_graph,
    preference_graph,
    ranked_preference,
    rating_graph,
    rubric_graphs,
    stated,
    token_preference,
    verdict_graph,
)
from recordings import (
    Call,
    Check,
    Folder,
    Json,
    Replay,
    Run,
    answer_case,
    arena_case,
    counted,
    expected_figures,
    finished,
    held,
    key,
    likeliest,
    near,
    on_scale,
    output_of,
    run,
)

from dagengine import PromptTemplate
from dagengine.metrics.dag import BaseNode
from dagengine.question import Options, TokenChoice
from dagengine.results import MetricResult, OutcomeKind
from dagengine.statistics import (
    classification,
    kendall,
    majority,
    majority_share,
    pairwise_disagreement,
    pearson,
    rmse,
    spearman,
    win_rate,
)
from dagengine.test_case import LLMTestCase

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


def is_there(directory: Path) -> bool:
    """Whether a directory holds all the recordings that are replayed here."""
    return all(Folder(directory / name).is_there for name in REPLAYS)


def published(directory: Path) -> dict[str, float]:
    """The figures to be met: those of EXPECTED.json but LLMBar's, and those of repeated calls."""
    figures = {k: v for k, v in expected_figures(directory).items() if not k.startswith("llmbar/")}
    for name, values in REPEATED.items():
        figures |= _repeated(name, values)
    return figures


def _repeated(name: str, values: Iterable[float | None]) -> dict[str, Any]:
    measures = ("prompts", "unanimous", "majority_share", "disagreement")
    return {f"repeated/{name}/{m}": v for m, v in zip(measures, values, strict=True)}


def replays(directory: Path) -> list[Replay]:
    """Every folder, judged by its graphs."""
    return [make(Folder(directory / name)) for name, make in REPLAYS.items()]


# WikiEval: a chain of calls, and ratings with probabilities.


def replay_wikieval(folder: Folder) -> Replay:
    """Faithfulness = supported / statements, and ratings weighted by token probabilities."""
    chains = folder.judgements("ragas_ff_chat")
    ratings = [row for row in folder.judgements() if row["protocol"].startswith("direct_score")]
    first, second = _wikieval_chains(folder, chains), _wikieval_ratings(folder, ratings)
    checks = {**_chain_checks(first, chains), **_rating_checks(second, ratings)}
    return finished(folder, [first, second], {}, checks)


def _wikieval_chains(folder: Folder, chains: Sequence[Json]) -> Run:
    items, calls = folder.items(), dict[str, Call]()
    for row in chains:
        first, *others = row["calls"]
        calls[key(f"the statements of {row['item']}")] = Call(first["text"])
        for other in others:
            statement = first["parsed"][other["target"]]
            calls[key(f"{row['item']}: {statement}")] = Call(other["text"])
    cases = [answer_case(items[row["item"]]) for row in chains]
    return run(cases, {"faithfulness": faithfulness_graph()}, calls)


def _chain_checks(done: Run, chains: Sequence[Json]) -> dict[str, Check]:
    found = done.results("faithfulness")
    scores = [(found[row["item"]].score, row["result"]["faithfulness"]) for row in chains]
    verdicts = [pair for row in chains for pair in _verdict_pairs(found[row["item"]], row)]
    return {
        "wikieval/faithfulness": counted(scores),
        "wikieval/statement verdicts": counted(verdicts),
    }


def _verdict_pairs(result: MetricResult, row: Json) -> Iterable[tuple[Any, Any]]:
    ours = [judgement["verdict"] for judgement in output_of(result, "verdicts") or ()]
    return zip_longest(ours, [str(call["verdict"]) for call in row["calls"][1:]])


def _wikieval_ratings(folder: Folder, ratings: Sequence[Json]) -> Run:
    items = folder.items()
    calls = {
        key(f"{row['item']} from {_scale_of(row)}"): likeliest(call["token_probs"], call["text"])
        for row in ratings
        for call in row["calls"]
    }
    cases = [answer_case(items[name]) for name in dict.fromkeys(row["item"] for row in ratings)]
    return run(cases, {scale: rating_graph(scale) for scale in SCALES}, calls)


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
    done = run(cases, rubric_graphs(), calls)
    people = {name: item["labels"]["annotations"][0]["Q0"] for name, item in items.items()}
    figures = {
        f"llm_rubric/Q0/{kind}_llm/{name}": measure(*_against(people, done, f"{kind} Q0"))
        for kind in ("argmax", "expected")
        for name, measure in _MEASURES.items()
    }
    modes = [found.mode for q in QUESTIONS for found in done.results(f"expected {q}").values()]
    check = counted((mode, "weighted") for mode in modes)
    return finished(folder, [done], figures, {"llm_rubric/expected answers, mode weighted": check})


def _against(
    people: Mapping[str, float], done: Run, metric: str
) -> tuple[list[float], list[float]]:
    """The ratings of the judge, and those of people for the same items."""
    found = {name: on_scale(one, 1, 4) for name, one in done.results(metric).items()}
    rated = {name: rating for name, rating in found.items() if rating is not None}
    return list(rated.values()), [people[name] for name in rated]


# AlpacaEval: one answer against a baseline, in an order that the instruction decides.

_PROTOCOLS: Mapping[str, tuple[str, Callable[[str], BaseNode]]] = {
    "weighted_alpaca_eval_gpt4_turbo": (TOKEN, token_preference),
    "alpaca_eval_cot_gpt4_turbo_fn": (RANKS, ranked_preference),
}


def replay_alpaca_eval(folder: Folder) -> Replay:
    """The share of comparisons that each model wins against the baseline."""
    items = folder.items()
    runs, figures, checks = list[Run](), dict[str, float | None](), dict[str, Check]()
    for protocol, (prompt, compare) in _PROTOCOLS.items():
        rows = folder.judgements(protocol)
        done = _alpaca_run(items, rows, prompt, preference_graph(compare))
        for model in dict.fromkeys(_model_of(row) for row in rows):
            name, own = f"alpaca_eval/{protocol}/{model}", _of_model(rows, model)
            figures |= _win_figures(name, done, own)
            checks[f"{name}/preferences"] = _preferences(done, own)
        runs.append(done)
    return finished(folder, runs, figures, checks)


def _alpaca_run(
    items: Mapping[str, Json], rows: Sequence[Json], prompt: str, graph: BaseNode
) -> Run:
    calls = {
        key(prompt.format(name=row["item"])): _alpaca_call(call)
        for row in rows
        for call in row["calls"]
    }
    return run([arena_case(items[row["item"]]) for row in rows], {"preference": graph}, calls)


def _alpaca_call(call: Json) -> Call:
    if "top_logprobs" not in call:
        return Call(call["text"])
    return Call(call["text"], TokenChoice(call["text"], tuple(call["top_logprobs"].items())))


def _model_of(row: Json) -> str:
    return str(row["item"].rpartition("/")[2])


def _of_model(rows: Iterable[Json], model: str) -> list[Json]:
    return [row for row in rows if _model_of(row) == model]


def _win_figures(name: str, done: Run, rows: Sequence[Json]) -> dict[str, float | None]:
    """Win rate, its standard error, and the rate of plain wins, in per cent."""
    found = done.results("preference")
    scores = [found[row["item"]].score for row in rows]
    wins = [score for score in scores if score is not None]
    rate, plain = win_rate(wins), win_rate(wins, discrete=True)
    return {
        f"{name}/win_rate": _per_cent(rate.value if rate else None),
        f"{name}/standard_error": _per_cent(rate.standard_error if rate else None),
        f"{name}/discrete_win_rate": _per_cent(plain.value if plain else None),
    }


def _per_cent(part: float | None) -> float | None:
    return None if part is None else 100 * part


def _preferences(done: Run, rows: Sequence[Json]) -> Check:
    """Preferences were stored as 1 (baseline) to 2 (model), with ten decimals."""
    found = done.results("preference")
    stored = [(found[row["item"]].score, row["result"]["preference"] - 1) for row in rows]
    return held(near(ours, preference, 1e-9) for ours, preference in stored)


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
    calls = {key(items[name]["prompt"], sample): Call(call["text"]) for name, call in called}
    cases = [LLMTestCase(name=name, input=items[name]["prompt"]) for name, _ in called]
    prompt, options = PromptTemplate("{input}"), Options(sample=sample)
    graph = stated(prompt, r"\[\[(\d+(?:\.\d+)?)\]\]", 1, 10, ["input"], options)
    return run(cases, {"rating": graph}, calls)


def _meets(result: MetricResult, score: float) -> bool:
    """Whether a rating is the stored one; a failure is stored as -1 and has no score here."""
    if score == -1:
        return result.outcome is OutcomeKind.UNPARSEABLE
    return near(on_scale(result, 1, 10), score, 1e-9)


def votes_figures(name: str, votes: Sequence[Sequence[Any]]) -> dict[str, float | None]:
    """How far several answers to the same prompt agree, as means over the prompts."""
    shares = [majority_share(own) for own in votes]
    unanimous = [share == 1 for share in shares]
    differ = [pairwise_disagreement(own) for own in votes]
    means = [_mean(found) for found in (unanimous, shares, differ)]
    return _repeated(name, [len(votes), *means])


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return math.fsum(found) / len(found) if found else None


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
    done = run(cases, {"agreement": agreement_graph()}, calls)
    votes = {name: _ratings(result) for name, result in done.results("agreement").items()}
    stored = {row["item"]: row["result"]["scores"] for row in rows}
    pairs = [pair for name in votes for pair in zip_longest(votes[name], stored[name])]
    figures: dict[str, float | None] = {}
    for source in ("mt_bench_eval", "vicuna_eval"):
        own = [votes[name] for name, item in items.items() if item["meta"]["dataset"] == source]
        figures |= votes_figures(f"prometheus/{source} GPT-4 n=3", own)
    return finished(folder, [done], figures, {"prometheus/ratings": counted(pairs)})


def _restored(call: Json) -> Call:
    """The answer as the prompt asked for it; the source stored feedback and score apart."""
    return Call(f"Feedback: {call['text']} [RESULT] {call['score']}")


def _ratings(result: MetricResult) -> list[float]:
    found = [output_of(result, f"rating {sample}") for sample in TIMES]
    return [float(rating) for rating in found if rating is not None]


# PandaLM: first answer, second answer or tie, against the majority of three people.


def replay_pandalm(folder: Folder) -> Replay:
    """Verdicts against the majority of the annotators, in per cent."""
    items, rows = folder.items(), folder.judgements()
    calls = {key(row["item"]): Call(call["text"]) for row in rows for call in row["calls"]}
    done = run([arena_case(item) for item in items.values()], {"verdict": verdict_graph()}, calls)
    found = {name: _verdict(result) for name, result in done.results("verdict").items()}
    stored = [(found[row["item"]], row["calls"][0]["verdict"]) for row in rows]
    people = [majority(item["labels"]["annotators"]) for item in items.values()]
    figures = _class_figures(rows[0]["judge"]["model"], people, list(found.values()))
    return finished(folder, [done], figures, {"pandalm/verdicts": counted(stored)})


def _verdict(result: MetricResult) -> str:
    return str(result.path[-1][1]) if result.path else "failed"


def _class_figures(
    judge: str, people: Sequence[str | None], verdicts: Sequence[str]
) -> dict[str, float | None]:
    found = classification(people, verdicts)
    measures = ("accuracy", "macro_precision", "macro_recall", "macro_f1")
    return {f"pandalm/{judge}/{m}": _per_cent(getattr(found, m, None)) for m in measures}


REPLAYS: Mapping[str, Callable[[Folder], Replay]] = {
    "wikieval_rag_chain": replay_wikieval,
    "llm_rubric_logprobs": replay_llm_rubric,
    "alpaca_eval": replay_alpaca_eval,
    "mtbench_gpt4": replay_mtbench,
    "prometheus_gpt4x3": replay_prometheus,
    "pandalm": replay_pandalm,
}
