"""Is a recorded judge ever made worse on the sealed part? Searches over recorded answers.

    python benchmarks/recorded/improved_recordings.py [PART OF A NAME]

The "rewritten criteria" are other prompts or questions that the same judge was asked about the same
cases, so every proposal is replayed. Three recordings have labels of people and such answers:

- LLMBar: every evaluator begins with each of its prompts. The two orders are two repetitions. The
  prompt `Vanilla` asks for the better answer at once; that is the holistic rival.
- LLM-Rubric: GPT-3.5 rates dialogues by nine questions, with the probability of every rating. A
  search begins with each question and the labels of people for it (3 or 4 of 4 passes), and with
  each question and the label for the whole, which `Q0` asks for. Eight begin with a tree of the
  other questions, and change one of them.
- PandaLM: one prompt, so only threshold and scores are tried.

Votes are left out: no recording has enough answers to one prompt.

The exit code is 1 if an accepted change is worse on the sealed part, 2 if the data is not there.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recordings import Folder, data_directory, how_to_get, rating

from dagengine.improvement import Improvement
from dagengine.improvement.improvement_report import Candidate, decision, percent, points
from dagengine.improvement.rewriters import Task
from dagengine.improvement.search import run_search
from dagengine.improvement.search_plan import Search
from dagengine.judges import RecordedJudge, Recording
from dagengine.metrics import DAGMetric
from dagengine.metrics.common.base import BaseMetric
from dagengine.metrics.dag import DAG, NonBinaryJudgementNode, RatingNode
from dagengine.question import Question
from dagengine.reliability.statistics.paired_comparisons import Comparison
from dagengine.results import Totals
from dagengine.test_case import LLMTestCase

WHOLE = "Whole"
"""The node of a rival to a tree."""


@dataclass(frozen=True)
class Start:
    """One search: a metric, the labels, the recorded answers, and what is proposed.

    `node` is the one to change. `answers` are by criterion, case and repetition. `holistic` is the
    criterion that asks for the whole at once.
    """

    name: str
    metric: BaseMetric
    node: str
    labels: Mapping[str, Any]
    answers: Mapping[tuple[str, str, int], Recording]
    proposals: tuple[str, ...] = ()
    holistic: str = ""
    times: int = 1

    def search(self) -> Improvement:
        """The search, with the recorded answers."""
        judge = RecordedJudge(
            {"/".join(map(str, key)): recording for key, recording in self.answers.items()},
            key=_key, name=self.name,
        )  # fmt: skip
        cases = [LLMTestCase(name=name, input=name, actual_output="") for name in self.labels]
        search = Search.of(
            cases, self.metric, dict(enumerate(self.labels.values())), node=self.node,
            times=self.times, proposals=len(self.proposals),
        )  # fmt: skip
        search = replace(search, rungs=[rung for rung in search.rungs if rung != "votes"])
        others = Others(list(self.proposals))
        return asyncio.run(run_search(search, {"model": judge}, rewriter=others))


def _key(question: Question[Any]) -> str:
    asked = question.decision
    assert asked is not None
    criterion = WHOLE if question.name == WHOLE else asked.instructions
    return f"{criterion}/{asked.case.name}/{question.options.sample}"


@dataclass
class Others:
    """A rewriter that proposes other recorded criteria, one after the other."""

    names: list[str] = field(default_factory=list)

    async def rewrite(self, task: Task, settings: Mapping[str, Any]) -> tuple[str | None, Totals]:
        """The next criterion."""
        return (self.names.pop(0) if self.names else None), Totals()


def verdict(answer: str) -> Recording:
    """A recorded verdict as the answer of a judge."""
    return Recording(json.dumps({"reason": "recorded", "verdict": answer}))


def llmbar(folder: Folder) -> Iterator[Start]:
    """Every evaluator, from every of its prompts."""
    labels = {name: item["labels"]["preferred"] for name, item in folder.items().items()}
    answers: defaultdict[str, dict[tuple[str, str, int], Recording]] = defaultdict(dict)
    prompts: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for row in folder.judgements():
        evaluator, _, prompt = row["protocol"].partition("/")
        prompts[evaluator][prompt] = None
        for sample, order in enumerate(("AB", "BA")):
            winner = row["result"].get(order)
            if winner in ("A", "B"):  # the others gave no verdict
                answers[evaluator][prompt, row["item"], sample] = verdict(winner)
    for evaluator, names in prompts.items():
        for prompt in names:
            node = NonBinaryJudgementNode(
                prompt, evaluation_params=["input"], then={"A": 10, "B": 0}, name="Winner"
            )
            yield Start(
                f"LLMBar {evaluator}/{prompt}", DAGMetric("LLMBar", DAG(node)), "Winner",
                labels, answers[evaluator], tuple(name for name in names if name != prompt),
                "Vanilla", 2,
            )  # fmt: skip


def llm_rubric(folder: Folder) -> Iterator[Start]:
    """Every question by its own labels and by those of the whole, and all of them as a tree."""
    people = {name: item["labels"]["annotations"][0] for name, item in folder.items().items()}
    answers: dict[tuple[str, str, int], Recording] = {}
    for row in folder.judgements():
        odds = row["calls"][0]["token_probs"]
        answers[row["dim"], row["item"], 0] = rating(odds)
        if row["dim"] == "Q0":
            passing = sum(chance for stated, chance in odds.items() if int(stated) >= 3)
            yes = 2 * passing >= sum(odds.values())
            answers[WHOLE, row["item"], 0] = Recording(
                json.dumps({"reason": "recorded", "verdict": yes})
            )
    questions = sorted({criterion for criterion, *_ in answers} - {WHOLE})

    def labels(question: str) -> dict[str, bool]:
        # 0 says that the question does not apply.
        return {name: row[question] >= 3 for name, row in people.items() if row[question]}

    def node(question: str) -> RatingNode:
        return RatingNode(question, evaluation_params=["input"], scale=(1, 4), name=question)

    for question in questions:
        for by in dict.fromkeys((question, "Q0")):
            yield Start(
                f"LLM-Rubric {question} by labels of {by}",
                DAGMetric("LLM-Rubric", DAG(node(question))), question, labels(by), answers,
                tuple(name for name in questions if name != question), "Q0",
            )  # fmt: skip
    for question in questions[1:]:
        eight = DAG(root_nodes=[node(each) for each in questions[1:]])
        yield Start(
            f"LLM-Rubric, the mean of eight, at {question}",
            DAGMetric("LLM-Rubric", eight, combine="mean"), question, labels("Q0"), answers,
            tuple(name for name in questions if name != question),
        )  # fmt: skip


def pandalm(folder: Folder) -> Iterator[Start]:
    """Whether A is as good as B, with a tie that fails."""
    answers = {
        ("Which is better?", row["item"], 0): verdict(row["calls"][0]["verdict"])
        for row in folder.judgements()
        if row["calls"][0].get("verdict")
    }
    labels = {
        name: Counter(item["labels"]["annotators"]).most_common(1)[0][0] != "B"
        for name, item in folder.items().items()
    }
    node = NonBinaryJudgementNode(
        "Which is better?", evaluation_params=["input"], then={"A": 10, "tie": 0, "B": 0},
        name="Winner",
    )  # fmt: skip
    yield Start("PandaLM", DAGMetric("PandaLM", DAG(node)), "Winner", labels, answers)


SOURCES = {"llmbar": llmbar, "llm_rubric_logprobs": llm_rubric, "pandalm": pandalm}


def starts(directory: Path) -> Iterator[Start]:
    """Every search."""
    for name, source in SOURCES.items():
        yield from source(Folder(directory / name))


@dataclass
class Sums:
    """What the searches of one recording came to."""

    searches: int = 0
    proved: int = 0
    sealed: list[float] = field(default_factory=list)
    rivals: list[Candidate] = field(default_factory=list)

    @property
    def worse(self) -> int:
        """How many accepted changes are worse on the sealed part."""
        return sum(gain < 0 for gain in self.sealed)

    def __str__(self) -> str:
        accepted, gains = len(self.sealed), [100 * _gain(rival) for rival in self.rivals]
        text = f"{self.searches} searches, {accepted} accepted, {self.proved} proved"
        text += f", {self.worse} worse on the sealed part"
        if not gains:
            return f"{text}; no holistic rival"
        better = sum(gain > 0 for gain in gains)
        won = sum(rival.accepted for rival in self.rivals)
        return (
            f"{text}; holistic rival better on held-out cases in {better} of {len(gains)} searches "
            f"(mean {statistics.fmean(gains):+.1f} points), accepted in {won}"
        )


def _gain(candidate: Candidate) -> float:
    return candidate.gain.value if isinstance(candidate.gain, Comparison) else 0.0


def report(start: Start, sums: Sums) -> None:
    """Search, and say what was tried."""
    result = start.search()
    print(f"{start.name}: right {percent(result.right)}")
    for candidate in result.candidates:
        if candidate.skipped:
            continue
        name = candidate.detail["criterion"] if candidate.rung == "criterion" else candidate.what
        if candidate.rung == "rival" or name == start.holistic:
            sums.rivals.append(candidate)
            name += " (holistic)"
        print(f"    {name:28} {points(candidate.gain):18} {decision(candidate)}")
    sums.searches += 1
    sums.proved += result.proved
    if result.sealed is not None and isinstance(result.sealed.gain, Comparison):
        print(f"    sealed: {points(result.sealed.gain)}, proved: {result.proved}")
        sums.sealed.append(result.sealed.gain.value)


def main() -> int:
    """Search from every start, or from those with a text in their names."""
    directory = data_directory()
    if not all(Folder(directory / name).is_there for name in SOURCES):
        print(how_to_get(directory), file=sys.stderr)
        return 2
    sums: defaultdict[str, Sums] = defaultdict(Sums)
    for start in starts(directory):
        if "".join(sys.argv[1:]) in start.name:
            report(start, sums[start.metric.spec().name])
    for name, each in sums.items():
        print(f"{name}: {each}")
    return int(any(each.worse for each in sums.values()))


if __name__ == "__main__":
    sys.exit(main())
