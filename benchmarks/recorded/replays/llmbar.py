"""Replays of the recorded calls of LLMBar's evaluator protocols.

LLMBar (Zeng et al. 2023, https://arxiv.org/abs/2310.07641) asks judges which of two answers
follows an instruction, in both orders of presentation, and publishes every call together with
the accuracy and agreement that follow from them. A replay answers the questions of the graphs
in `llmbar_graphs` from those calls. A prompt that differs from the published one by a single
byte has no recording, so equal figures mean that the engine put together the same prompts,
asked nothing else, left nothing out, and drew the same conclusions.

    recording = load(data_directory())
    print(statistics(recording, replay(recording, "GPT-4/Swap_CoT")))
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recordings import Folder, Json, contest, expected_figures, read

from dagengine.question import Options, Question
from dagengine.results import CaseResult, MetricResult
from dagengine.test_case import ArenaTestCase
from replays.llmbar_graphs import ORDERS, SCORES, Protocol, Stage, joined, metrics_for
from replays.replaying import judged

_WINNERS = {score / 10: verdict for verdict, score in SCORES.items()}


# The recording.


@dataclass(frozen=True)
class Item:
    """An instruction, two answers to it, and which of them people prefer."""

    id: str
    subset: str
    instruction: str
    answers: Mapping[str, str]
    preferred: str

    def case(self) -> ArenaTestCase:
        """The item as the engine judges it."""
        return contest(self.id, self.instruction, self.answers)


@dataclass(frozen=True)
class Recording:
    """Items, protocols, the calls per protocol and item, and the published figures."""

    items: Mapping[str, Item]
    protocols: Mapping[str, Protocol]
    runs: tuple[Json, ...]
    published: Mapping[str, float]

    def runs_of(self, protocol: str) -> Iterable[Json]:
        """The runs of one protocol, one per item."""
        return (run for run in self.runs if run["protocol"] == protocol)


def is_there(directory: Path) -> bool:
    """Whether a directory holds the recorded data."""
    return Folder(directory / "llmbar").is_there


def load(directory: Path) -> Recording:
    """Read a directory of recorded data."""
    folder = Folder(directory / "llmbar")
    templates: Mapping[str, str] = read(folder.path / "prompts.json")
    items = [_item(row) for row in folder.rows("items")]
    protocols = [_protocol(row, templates) for row in folder.rows("protocols")]
    return Recording(
        items={item.id: item for item in items},
        protocols={protocol.id: protocol for protocol in protocols},
        runs=tuple(folder.judgements()),
        published={k: v for k, v in expected_figures(directory).items() if k.startswith("llmbar/")},
    )


def _item(row: Json) -> Item:
    answers = {name: answer["text"] for name, answer in row["responses"].items()}
    subset, preferred = row["meta"]["subset"], row["labels"]["preferred"]
    return Item(row["id"], subset, row["input"], answers, preferred)


def _protocol(row: Json, templates: Mapping[str, str]) -> Protocol:
    stages = [_stage(node, templates[node["prompt"]]) for node in row["nodes"]]
    return Protocol(row["id"], {stage.name: stage for stage in stages})


def _stage(row: Json, template: str) -> Stage:
    patterns = tuple(row["parsing"][place] for place in "12") if "parsing" in row else ()
    options = Options(temperature=row.get("temperature"), max_tokens=row["max_tokens"])
    return Stage(row["node"], template, patterns, options)


def texts_by_prompt(recording: Recording, protocol: str) -> dict[str, str]:
    """What the model wrote, by the SHA-1 of the prompt, for every recorded call.

    Second-stage calls come with the hash of their prompt, taken when they were made. The
    other prompts are put together here without the engine, so that a mistake of the engine's
    cannot hide in both.
    """
    texts: dict[str, str] = {}
    for run in recording.runs_of(protocol):
        item, stages = recording.items[run["item"]], recording.protocols[protocol].stages
        for call in run["calls"]:
            template = stages[call["node"]].template
            key = call.get("prompt_sha1") or sha1(_sent(template, item, run, call))
            if key in texts:
                raise ValueError(f"two calls of {protocol} share a prompt, one for {item.id}")
            texts[key] = call["text"]
    return texts


def second_stage_prompts(recording: Recording, protocol: str) -> frozenset[str]:
    """The SHA-1 values that were recorded with the second-stage calls of a protocol."""
    calls = (call for run in recording.runs_of(protocol) for call in run["calls"])
    return frozenset(call["prompt_sha1"] for call in calls if "prompt_sha1" in call)


def _sent(template: str, item: Item, run: Json, call: Json) -> str:
    """The prompt of a recorded call, filled in by one pass: answers may contain braces."""
    written = {other["node"]: other["text"] for other in run["calls"]}
    values = {
        "input": item.instruction,
        "output": item.answers.get(call.get("target", ""), ""),
        "auxiliary_input_0": written.get("metrics", ""),
        "auxiliary_input_1": written.get("reference", ""),
    }
    for place, name in enumerate(call.get("order", ""), 1):
        values[f"output_{place}"] = item.answers[name]
    parts = re.split(r"\{(\w+)\}", template)
    return "".join(values[part] if place % 2 else part for place, part in enumerate(parts))


def sha1(text: str) -> str:
    """The SHA-1 (hex) of a prompt; it names a recording and protects nothing."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


# The replay.


@dataclass(frozen=True)
class Replay:
    """What one protocol's graphs made of the recorded texts.

    `winners` maps items to the winner per order. `questions` counts what nodes asked,
    `asked` how often each prompt reached the judge.
    """

    protocol: Protocol
    winners: Mapping[str, Mapping[str, str]]
    failures: tuple[str, ...]
    questions: int
    asked: Counter[str]
    recorded: frozenset[str]
    second_stage: frozenset[str]

    @property
    def matched(self) -> int:
        """Second-stage prompts whose hash is the recorded one."""
        return len(self.second_stage & self.asked.keys())

    @property
    def complete(self) -> bool:
        """Whether nothing failed and every recorded call was used exactly once."""
        once = self.asked == Counter(self.recorded)
        return once and self.questions == len(self.recorded) and not self.failures


def replay(recording: Recording, protocol_id: str) -> Replay:
    """Judge every item by one protocol, answering from its recorded calls."""
    protocol = recording.protocols[protocol_id]
    texts = texts_by_prompt(recording, protocol_id)
    cases = [item.case() for item in recording.items.values()]
    # A judge of its own per protocol: two of them recorded different texts for one prompt.
    run = judged(cases, metrics_for(protocol), texts, _key_of)
    done = run.done
    return Replay(
        protocol=protocol,
        winners={row.case: _winners(row) for row in done.rows},
        failures=tuple(_failures(done.rows)),
        questions=done.totals.asked,
        asked=run.asked,
        recorded=run.recorded,
        second_stage=second_stage_prompts(recording, protocol_id),
    )


def _key_of(question: Question[Any]) -> str:
    return sha1(joined(question.messages))


def _winners(row: CaseResult) -> dict[str, str]:
    return {order: _winner(found) for order, found in zip(ORDERS, row.metrics, strict=True)}


def _winner(result: MetricResult) -> str:
    return "failed" if result.score is None else _WINNERS[result.score]


def _failures(rows: Iterable[CaseResult]) -> Iterable[str]:
    for row in rows:
        for result in row.metrics:
            if result.failure is not None:
                yield f"{row.case}, {result.metric}: {result.failure.message}"


def statistics(recording: Recording, done: Replay) -> dict[str, float]:
    """Accuracy and agreement per subset in per cent, under the names of the published ones."""
    subsets = dict.fromkeys(item.subset for item in recording.items.values())
    figures: dict[str, float] = {}
    for subset in subsets:
        items = [item for item in recording.items.values() if item.subset == subset]
        winners = [done.winners[item.id] for item in items]
        pairs = list(zip(items, winners, strict=True))
        right = sum(won[order] == item.preferred for item, won in pairs for order in ORDERS)
        equal = sum(won["AB"] == won["BA"] for won in winners)
        start = f"llmbar/{done.protocol.id}/{subset}"
        figures[f"{start}/acc_average"] = right / 2 / len(items) * 100
        figures[f"{start}/agreement"] = equal / len(items) * 100
    return figures
