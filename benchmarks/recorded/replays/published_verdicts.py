"""Published figures of judges that give verdicts: WikiEval's chains, AlpacaEval, PandaLM."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from recordings import Folder, Json, answer_case, arena_case, first_token, key

from dagengine.judges import Recording
from dagengine.metrics.dag import BaseNode
from dagengine.reliability.statistics.stability import majority
from dagengine.results import MetricResult
from replays.published_graphs import (
    RANKS,
    TOKEN,
    comparison,
    faithfulness,
    preference,
    ranked_preference,
    token_preference,
)
from replays.replaying import Check, Replay, Run, counted, finished, held, judged, near, output_of

# WikiEval: the statements of an answer, and a verdict on each.


def replay_chains(folder: Folder) -> Replay:
    """Faithfulness = supported / statements."""
    items, chains = folder.items(), folder.judgements("ragas_ff_chat")
    cases = [answer_case(items[row["item"]]) for row in chains]
    done = judged(cases, [faithfulness()], _chain_calls(chains))
    found = done.results("faithfulness")
    scores = [(found[row["item"]].score, row["result"]["faithfulness"]) for row in chains]
    verdicts = [pair for row in chains for pair in _verdict_pairs(found[row["item"]], row)]
    checks = {
        "wikieval/faithfulness": counted(scores),
        "wikieval/statement verdicts": counted(verdicts),
    }
    return finished(folder, [done], {}, checks)


def _chain_calls(chains: Sequence[Json]) -> dict[str, str]:
    calls: dict[str, str] = {}
    for row in chains:
        first, *others = row["calls"]
        calls[key(f"the statements of {row['item']}")] = first["text"]
        for other in others:
            statement = first["parsed"][other["target"]]
            calls[key(f"{row['item']}: {statement}")] = other["text"]
    return calls


def _verdict_pairs(result: MetricResult, row: Json) -> Iterable[tuple[Any, Any]]:
    ours = [judgement["verdict"] for judgement in output_of(result, "verdicts") or ()]
    return zip_longest(ours, [str(call["verdict"]) for call in row["calls"][1:]])


# AlpacaEval: one answer against a baseline, in an order that the instruction decides.


def replay_tokens(folder: Folder) -> Replay:
    """The share of comparisons that each of five models wins, by the probability of one token."""
    return _alpaca_eval(folder, "weighted_alpaca_eval_gpt4_turbo", TOKEN, token_preference)


def replay_rankings(folder: Folder) -> Replay:
    """The share of comparisons that a model wins in the rankings of a judge that explains."""
    return _alpaca_eval(folder, "alpaca_eval_cot_gpt4_turbo_fn", RANKS, ranked_preference)


def _alpaca_eval(
    folder: Folder, protocol: str, prompt: str, compare: Callable[[str], BaseNode]
) -> Replay:
    items, rows = folder.items(), folder.judgements(protocol)
    calls = {
        key(prompt.format(name=row["item"])): _alpaca_call(call)
        for row in rows
        for call in row["calls"]
    }
    done = judged([arena_case(items[row["item"]]) for row in rows], [preference(compare)], calls)
    figures, checks = dict[str, float | None](), dict[str, Check]()
    for model in dict.fromkeys(_model_of(row) for row in rows):
        name, own = f"alpaca_eval/{protocol}/{model}", _of_model(rows, model)
        figures |= _win_figures(name, done, own)
        checks[f"{name}/preferences"] = _preferences(done, own)
    return finished(folder, [done], figures, checks)


def _alpaca_call(call: Json) -> Recording:
    if "top_logprobs" not in call:
        return Recording(call["text"])
    return first_token(call["text"], call["text"], call["top_logprobs"])


def _model_of(row: Json) -> str:
    return str(row["item"].rpartition("/")[2])


def _of_model(rows: Iterable[Json], model: str) -> list[Json]:
    return [row for row in rows if _model_of(row) == model]


def _win_figures(name: str, done: Run, rows: Sequence[Json]) -> dict[str, float | None]:
    """Win rate, its standard error, and the rate of plain wins, in per cent."""
    found = done.results("preference")
    scores = [found[row["item"]].score for row in rows]
    wins = [score for score in scores if score is not None]
    plain = [0.5 if win == 0.5 else float(win > 0.5) for win in wins]
    return {
        f"{name}/win_rate": 100 * statistics.fmean(wins),
        f"{name}/standard_error": 100 * statistics.stdev(wins) / math.sqrt(len(wins)),
        f"{name}/discrete_win_rate": 100 * statistics.fmean(plain),
    }


def _preferences(done: Run, rows: Sequence[Json]) -> Check:
    """Preferences were stored as 1 (baseline) to 2 (model), with ten decimals."""
    found = done.results("preference")
    stored = [(found[row["item"]].score, row["result"]["preference"] - 1) for row in rows]
    return held(near(ours, preference, 1e-9) for ours, preference in stored)


# PandaLM: first answer, second answer or tie, against the majority of three people.


def replay_pandalm(folder: Folder) -> Replay:
    """Verdicts against the majority of the annotators, in per cent."""
    items, rows = folder.items(), folder.judgements()
    calls = {key(row["item"]): call["text"] for row in rows for call in row["calls"]}
    done = judged([arena_case(item) for item in items.values()], [comparison()], calls)
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
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    sides = list(map(str, people)), verdicts
    nothing: Any = 0  # a share of nothing
    means = precision_recall_fscore_support(*sides, average="macro", zero_division=nothing)[:3]
    values = zip(("accuracy", "macro_precision", "macro_recall", "macro_f1"),
                 (accuracy_score(*sides), *means), strict=True)  # fmt: skip
    return {f"pandalm/{judge}/{measure}": 100 * float(value) for measure, value in values}
