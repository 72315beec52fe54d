"""The evaluator protocols of LLMBar as decision graphs, and replays of their recorded calls.

LLMBar (Zeng et al. 2023, https://arxiv.org/abs/2310.07641) asks judges which of two answers
follows an instruction, in both orders of presentation, and publishes every call together with
the accuracy and agreement that follow from them. A replay answers the questions of the graphs
here from those calls. A prompt that differs from the published one by a single byte has no
recording, so equal figures mean that the engine put together the same prompts, asked nothing
else, left nothing out, and drew the same conclusions.

    recording = load(data_directory())
    print(statistics(recording, replay(recording, "GPT-4/Swap_CoT")))
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dagengine import PromptTemplate, evaluate
from dagengine.judges import RecordedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    CodeNode,
    FieldNode,
    Judgement,
    NonBinaryJudgementNode,
    TaskNode,
)
from dagengine.question import FirstMatch, Message, Options, Question
from dagengine.results import CaseResult, MetricResult
from dagengine.test_case import ArenaTestCase, LLMTestCase

Json = dict[str, Any]

DATA_VARIABLE = "DAGENGINE_RECORDED"
ORDERS = ("AB", "BA")
"""Orders of presentation: in BA the judge sees the answer of contestant B first."""

UNPARSED = "unparsed"
SCORES = {"A": 10, UNPARSED: 5, "B": 0}
"""What a verdict scores, so that the winner can be read off the score of a result."""

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
        contestants = {
            name: LLMTestCase(input=self.instruction, actual_output=text)
            for name, text in self.answers.items()
        }
        return ArenaTestCase(name=self.id, contestants=contestants)


@dataclass(frozen=True)
class Stage:
    """One kind of call of a protocol.

    `template` is the prompt with its role markers, as it was sent. `patterns` are those of the
    answer shown first and of the one shown second; there are none where the text is the answer.
    """

    name: str
    template: str
    patterns: tuple[str, ...]
    options: Options


@dataclass(frozen=True)
class Protocol:
    """One way of judging with one model, for instance `GPT-4/Swap_CoT`."""

    id: str
    stages: Mapping[str, Stage]

    @property
    def judge(self) -> str:
        return self.id.partition("/")[0]

    @property
    def kind(self) -> str:
        return self.id.partition("/")[2]


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


def data_directory() -> Path:
    """Where the recorded data is, or would be."""
    beside_the_project = Path(__file__).resolve().parents[2] / "shared" / "data" / "recorded"
    return Path(os.environ.get(DATA_VARIABLE) or beside_the_project)


def is_there(directory: Path) -> bool:
    """Whether a directory holds the recorded data."""
    return (directory / "llmbar" / "judgements.jsonl").is_file()


def how_to_get(directory: Path) -> str:
    """What to say when the data is not there."""
    return f"no recorded data in {directory}; set {DATA_VARIABLE} to the directory that holds it"


def load(directory: Path) -> Recording:
    """Read a directory of recorded data."""
    folder = directory / "llmbar"
    templates: Mapping[str, str] = _json(folder / "prompts.json")
    items = [_item(row) for row in _lines(folder / "items.jsonl")]
    protocols = [_protocol(row, templates) for row in _lines(folder / "protocols.jsonl")]
    return Recording(
        items={item.id: item for item in items},
        protocols={protocol.id: protocol for protocol in protocols},
        runs=tuple(_lines(folder / "judgements.jsonl")),
        published={
            name: figure["value"]
            for name, figure in _json(directory / "EXPECTED.json").items()
            if name.startswith("llmbar/")
        },
    )


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _lines(path: Path) -> list[Json]:
    # Not splitlines(): JSON allows other line separators inside a text.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


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


# Prompts: the recorded ones are one text with role markers, the engine has messages.

_SYSTEM, _USER, _END = "<|im_start|>system\n", "<|im_end|>\n<|im_start|>user\n", "<|im_end|>"


def prompt_template(text: str) -> PromptTemplate:
    """A recorded template as messages; nothing is stripped, so `joined` gives it back."""
    system, _, user = text.removeprefix(_SYSTEM).removesuffix(_END).partition(_USER)
    return PromptTemplate(system=system, user=user)


def joined(messages: Sequence[Message]) -> str:
    """Messages as the one text with role markers that was sent."""
    system, user = (message["content"] for message in messages)
    return f"{_SYSTEM}{system}{_USER}{user}{_END}"


# The graphs.


def metrics_for(protocol: Protocol) -> list[DAGMetric]:
    """Two metrics over shared nodes: which contestant wins when shown AB, and when shown BA."""
    roots = _GRAPHS[protocol.kind](_Nodes(protocol))
    return [
        DAGMetric(f"{protocol.id} {order}", DAG(root_node=roots[order]), threshold=None)
        for order in ORDERS
    ]


class _Nodes:
    """Makes the nodes of one protocol; a field that several nodes read is one node."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._fields: dict[tuple[str, str], FieldNode] = {}

    def instruction(self) -> FieldNode:
        """The instruction, which all contestants share."""
        return self._field("contestants.A.input", "input")

    def answer(self, contestant: str, label: str) -> FieldNode:
        """The answer of one contestant, under the name that a prompt has for it."""
        return self._field(f"contestants.{contestant}.actual_output", label)

    def _field(self, path: str, label: str) -> FieldNode:
        node = FieldNode(path, output_label=label, name=f"{path} as {label}")
        return self._fields.setdefault((path, label), node)

    def text(self, stage: str, label: str, inputs: Iterable[BaseNode] = ()) -> TaskNode:
        """A call whose whole text is its result."""
        how = self._protocol.stages[stage]
        return TaskNode(
            f"Write the {stage}.",
            output_label=label,
            inputs=[self.instruction(), *inputs],
            prompt=prompt_template(how.template),
            parser=FirstMatch(((r"([\s\S]*)", None),), field="output"),
            options=how.options,
        )

    def verdict(
        self,
        stage: str,
        order: str,
        inputs: Iterable[BaseNode] = (),
        then: Mapping[str, int | None] = SCORES,
    ) -> NonBinaryJudgementNode:
        """A call that shows both answers in one order; its verdict is the contestant."""
        how = self._protocol.stages[stage]
        shown = [self.answer(name, f"output_{place}") for place, name in enumerate(order, 1)]
        return NonBinaryJudgementNode(
            "Which output is better?",
            output_label=f"{stage} {order}",
            inputs=[self.instruction(), *shown, *inputs],
            then=then,
            prompt=prompt_template(how.template),
            parser=verdict_reader(how.patterns, order),
            options=how.options,
        )


def verdict_reader(patterns: Iterable[str], order: str) -> FirstMatch:
    """Reads the contestant named, or that none is: the last pattern is found in any text."""
    return FirstMatch((*zip(patterns, order, strict=True), (r"", UNPARSED)))


Roots = Mapping[str, BaseNode]
"""The root node of each order's graph."""


def _compare(nodes: _Nodes) -> Roots:
    """One question per order."""
    return {order: nodes.verdict("verdict", order) for order in ORDERS}


def _compare_with_aids(nodes: _Nodes) -> Roots:
    """Questions to check and an answer to compare with are written once, for both orders."""
    metrics = nodes.text("metrics", "auxiliary_input_0")
    reference = nodes.text("reference", "auxiliary_input_1")
    return {order: nodes.verdict("verdict", order, [metrics, reference]) for order in ORDERS}


def _rate(nodes: _Nodes) -> Roots:
    """Each answer is rated alone; order matters only to ties and to what is no number."""
    ratings = {
        name: nodes.text("rating", f"rating of {name}", [nodes.answer(name, "output")])
        for name in "AB"
    }
    return {
        order: CodeNode(
            higher,
            inputs=[ratings[name] for name in order],
            then={"first": SCORES[order[0]], "second": SCORES[order[1]]},
            name=f"higher rating {order}",
        )
        for order in ORDERS
    }


def _swap_and_synthesize(nodes: _Nodes) -> Roots:
    """Both orders are judged first; only if they contradict each other, again with both texts."""
    nowhere = dict.fromkeys(SCORES)
    first = [nodes.verdict("verdict", order, then=nowhere) for order in ORDERS]
    return {order: _after_both(nodes, order, first) for order in ORDERS}


def _after_both(nodes: _Nodes, order: str, first: Sequence[BaseNode]) -> CodeNode:
    """Decides whether the first verdict of an order stands or the second stage is asked."""
    own = first[ORDERS.index(order)]
    stands = CodeNode(verdict_of, inputs=[own], then=SCORES, name=f"first verdict {order} stands")
    debate = [
        CodeNode(explanation_for(name, order), inputs=first, output_label=f"explanation_{place}")
        for place, name in enumerate(order, 1)
    ]
    again = nodes.verdict("synthesize", order, debate)
    then = {True: again, False: stands}
    return CodeNode(conflicting, inputs=first, then=then, name=f"conflict, for {order}")


_GRAPHS: dict[str, Callable[[_Nodes], Roots]] = {
    "Vanilla": _compare,
    "CoT": _compare,
    "Swap_CoT": _swap_and_synthesize,
    "Metrics_Reference": _compare_with_aids,
    "Rating": _rate,
}


# What the code nodes do.


def higher(first: str, second: str) -> Literal["first", "second"]:
    """Which of two ratings wins: ties go to the second, what is no number to the first."""
    try:
        return "first" if int(first) > int(second) else "second"
    except ValueError:
        return "first"


def conflicting(shown_ab: Judgement, shown_ba: Judgement) -> bool:
    """Whether the two first verdicts name different contestants; no verdict names none."""
    return {shown_ab.verdict, shown_ba.verdict} == {"A", "B"}


def verdict_of(judgement: Judgement) -> str:
    """A verdict passed on as it is."""
    return str(judgement.verdict)


def explanation_for(contestant: str, order: str) -> Callable[[Judgement, Judgement], str]:
    """Picks the text that voted for a contestant, worded for answers shown in `order`."""

    def explanation(shown_ab: Judgement, shown_ba: Judgement) -> str:
        same, other = (shown_ab, shown_ba) if order == "AB" else (shown_ba, shown_ab)
        if same.verdict == contestant:
            return same.reason or ""
        return swapped(other.reason or "")

    return explanation


def swapped(text: str) -> str:
    """A text about answers shown in one order, for readers who see them in the other."""
    return re.sub(r"([Oo]utput) \(([ab])\)", lambda m: f"{m[1]} ({'ba'['ab'.index(m[2])]})", text)


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
    asked: Counter[str] = Counter()
    cases = [item.case() for item in recording.items.values()]
    judge = _judge(protocol_id, texts, asked)
    done = evaluate(cases, metrics_for(protocol), model=judge, show=False)
    return Replay(
        protocol=protocol,
        winners={row.case: _winners(row) for row in done.rows},
        failures=tuple(_failures(done.rows)),
        questions=done.totals.asked,
        asked=asked,
        recorded=frozenset(texts),
        second_stage=second_stage_prompts(recording, protocol_id),
    )


def _judge(name: str, texts: Mapping[str, str], asked: Counter[str]) -> RecordedJudge:
    """A judge of its own per protocol: two of them recorded different texts for one prompt."""

    def key(question: Question[Any]) -> str:
        prompt = sha1(joined(question.messages))
        asked[prompt] += 1
        return prompt

    return RecordedJudge(texts, key=key, name=name)


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
