"""Recorded calls of other projects: where they are, how they are read, and who answers from them.

A folder holds the items of one source and what a judge wrote about each. The judges here answer
from such calls alone and count what they were asked, so that a replay shows that the graphs asked
for every recorded call and for nothing else.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from dagengine import evaluate
from dagengine.judges import RecordedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BaseNode
from dagengine.prompts import as_text
from dagengine.question import Answer, Capabilities, FirstMatch, Question, TokenChoice
from dagengine.results import CaseResult, EvaluationResult, MetricResult, OutcomeKind
from dagengine.test_case import ArenaTestCase, LLMTestCase, TestCase

Json = dict[str, Any]
T = TypeVar("T", bound=BaseModel)

DATA_VARIABLE = "DAGENGINE_RECORDED"

WHOLE_TEXT = FirstMatch(((r"([\s\S]*)", None),), field="output")
"""Takes an answer as it stands."""


# Where the recordings are, and what is in them.


def data_directory() -> Path:
    """Where the recorded data is, or would be."""
    beside_the_project = Path(__file__).resolve().parents[2] / "shared" / "data" / "recorded"
    return Path(os.environ.get(DATA_VARIABLE) or beside_the_project)


def how_to_get(directory: Path) -> str:
    """What to say when the data is not there."""
    return f"no recorded data in {directory}; set {DATA_VARIABLE} to the directory that holds it"


def expected_figures(directory: Path) -> dict[str, float]:
    """The figures to be met, of all sources."""
    return {name: stored["value"] for name, stored in read(directory / "EXPECTED.json").items()}


def read(path: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Folder:
    """Items and judgements of one source."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def is_there(self) -> bool:
        """Whether the folder holds recorded calls."""
        return (self.path / "judgements.jsonl").is_file()

    def items(self) -> dict[str, Json]:
        """Items by id, each with what it inherits."""
        rows = {row["id"]: row for row in self.rows("items")}
        return {name: _inherited(row, rows) for name, row in rows.items()}

    def judgements(self, *protocols: str) -> list[Json]:
        """Judgements of the named protocols, or all."""
        rows = self.rows("judgements")
        return [row for row in rows if not protocols or row["protocol"] in protocols]

    def rows(self, kind: str) -> list[Json]:
        """The rows of one kind as they are stored."""
        # Not splitlines(): JSON allows other line separators inside a text.
        text = (self.path / f"{kind}.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.split("\n") if line]


def _inherited(row: Json, rows: Mapping[str, Json]) -> Json:
    """An item with the fields of its parent, and the answers of both."""
    parent = rows.get(row.get("parent", ""), {})
    answers = {**parent.get("responses", {}), **row.get("responses", {})}
    return {**parent, **row, "responses": answers}


def contest(name: str, instruction: str, answers: Mapping[str, str]) -> ArenaTestCase:
    """Several answers to one instruction as a case."""
    contestants = {
        contestant: LLMTestCase(input=instruction, actual_output=text)
        for contestant, text in answers.items()
    }
    return ArenaTestCase(name=name, contestants=contestants)


def arena_case(item: Json) -> ArenaTestCase:
    """An item's answers against each other."""
    # One answer in PandaLM's data is the JSON value true.
    answers = {name: as_text(answer["text"]) for name, answer in item["responses"].items()}
    return contest(item["id"], item["input"], answers)


def answer_case(item: Json) -> LLMTestCase:
    """An item's first answer, with the context if there is one."""
    context = [item["context"]] if item.get("context") else None
    answer = item["responses"]["A"]["text"]
    return LLMTestCase(
        name=item["id"], input=item["input"], actual_output=answer, retrieval_context=context
    )


# Judges that answer from what was recorded.


@dataclass(frozen=True)
class Call:
    """What a judge wrote, and the alternatives to the first token where they were stored."""

    text: str
    first: TokenChoice | None = None

    @property
    def tokens(self) -> tuple[TokenChoice, ...] | None:
        if self.first is None:
            return None
        return self.first, TokenChoice(self.text.removeprefix(self.first.token), ())


def likeliest(probabilities: Mapping[str, float], text: str | None = None) -> Call:
    """A call known by the probabilities of its first token, and by its text if that was kept."""
    written = max(probabilities, key=probabilities.__getitem__) if text is None else text
    token = max(filter(written.startswith, probabilities), key=len)
    found = ((name, _log(share)) for name, share in probabilities.items())
    return Call(written, TokenChoice(token, tuple(found)))


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -math.inf


def key(prompt: str, sample: int = 0) -> str:
    """What a recording is found by."""
    return f"{prompt}#{sample}"


def key_of(question: Question[Any]) -> str:
    """The key of the recording that answers a question."""
    return key(question.messages[-1]["content"], question.options.sample)


class CountingJudge(RecordedJudge):
    """A recorded judge that counts in `asked` how often the key of each text was looked for."""

    def __init__(
        self, texts: Mapping[str, str], key: Callable[[Question[Any]], str], name: str = "recorded"
    ) -> None:
        self.recorded = frozenset(texts)
        self.asked: Counter[str] = Counter()

        def counted_key(question: Question[Any]) -> str:
            found = key(question)
            self.asked[found] += 1
            return found

        super().__init__(texts, key=counted_key, name=name)


class CallJudge(CountingJudge):
    """A recorded judge that also gives the token probabilities."""

    capabilities = Capabilities(repeatable=False, logprobs=True)

    def __init__(self, calls: Mapping[str, Call]) -> None:
        super().__init__({name: call.text for name, call in calls.items()}, key_of)
        self.calls = calls

    async def answer(self, question: Question[T]) -> Answer[T]:
        """The recorded answer with its tokens; raises RecordingMissError when there is none."""
        plain = await super().answer(question)
        return replace(plain, tokens=self.calls[key_of(question)].tokens)


# Runs, and what they add up to.


@dataclass(frozen=True)
class Run:
    """The results of one evaluation by metric and case, and what its judge was asked."""

    done: EvaluationResult
    recorded: frozenset[str]
    asked: Counter[str]

    def results(self, metric: str) -> dict[str, MetricResult]:
        """One metric's results by case."""
        return {row.case: _of(row, metric) for row in self.done.rows}

    def failures(self, *expected: OutcomeKind) -> tuple[str, ...]:
        """What ended without a score, but for the kinds that were to be expected."""
        found = [result for row in self.done.rows for result in row.metrics if result.failure]
        return tuple(
            f"{result.metric}: {result.failure.message}"
            for result in found
            if result.failure and result.failure.kind not in expected
        )


def _of(row: CaseResult, metric: str) -> MetricResult:
    return next(result for result in row.metrics if result.metric == metric)


def run(
    cases: Sequence[TestCase], graphs: Mapping[str, BaseNode], calls: Mapping[str, Call]
) -> Run:
    """Judge cases by graphs, each given by its root, from recorded calls."""
    metrics = [DAGMetric(name, DAG(root), threshold=None) for name, root in graphs.items()]
    return judged(cases, metrics, CallJudge(calls))


def judged(cases: Sequence[TestCase], metrics: Sequence[DAGMetric], judge: CountingJudge) -> Run:
    """Judge cases by metrics, all questions answered by one judge."""
    done = evaluate(cases, metrics, model=judge, show=False)
    return Run(done, judge.recorded, judge.asked)


@dataclass(frozen=True)
class Check:
    """How many records are the same here as in the recording."""

    equal: int
    of: int


@dataclass(frozen=True)
class Replay:
    """One folder of recordings, judged by the graphs here.

    `figures` have the names of EXPECTED.json, `checks` compare record by record. `recorded`
    are the keys of the calls, `asked` how often a judge was asked for each; `failures` are the
    metrics that ended without a score.
    """

    folder: str
    figures: Mapping[str, float | None] = field(default_factory=dict)
    checks: Mapping[str, Check] = field(default_factory=dict)
    recorded: frozenset[str] = frozenset()
    asked: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every recorded call was used, nothing else asked, and nothing failed."""
        used = self.asked.keys() == self.recorded
        return used and not self.failures and all(c.equal == c.of for c in self.checks.values())


def finished(
    folder: Folder,
    runs: Iterable[Run],
    figures: Mapping[str, float | None],
    checks: Mapping[str, Check],
    expected: Sequence[OutcomeKind] = (),
) -> Replay:
    """The replay that several runs make together."""
    runs = list(runs)
    asked: Counter[str] = Counter()
    for one in runs:
        asked.update(one.asked)
    recorded = frozenset().union(*(one.recorded for one in runs))
    failures = tuple(line for one in runs for line in one.failures(*expected))
    return Replay(folder.name, figures, checks, recorded, asked, failures)


def counted(pairs: Iterable[tuple[Any, Any]]) -> Check:
    """How many pairs are equal."""
    return held(ours == stored for ours, stored in pairs)


def held(answers: Iterable[bool]) -> Check:
    """How many answers are yes."""
    found = list(answers)
    return Check(sum(found), len(found))


def near(ours: float | None, stored: float, tolerance: float) -> bool:
    """Whether there is a figure and it is close enough to the stored one."""
    return ours is not None and abs(ours - stored) <= tolerance


def output_of(result: MetricResult, node: str) -> Any:
    """What readers of one node saw, if it ran."""
    return next((step.output for step in result.steps if step.node == node), None)


def on_scale(result: MetricResult, low: float, high: float) -> float | None:
    """A score as the number that the judge was asked for."""
    return None if result.score is None else low + result.score * (high - low)
