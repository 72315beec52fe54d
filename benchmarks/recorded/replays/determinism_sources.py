"""Recorded judges that were asked the same thing several times, repeated by the engine.

Every recording is replayed the way a live benchmark runs: a metric is repeated under
conditions, its questions are answered from the calls that were recorded for the prompt and
the repetition, and all figures are read off the observations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recordings import Folder, Json, arena_case, key

from dagengine import PromptTemplate
from dagengine.judges import RecordedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import NonBinaryJudgementNode, RatingNode
from dagengine.question import FirstMatch, Question
from dagengine.reliability import Observations, repeat
from dagengine.test_case import ArenaTestCase, LLMTestCase
from replays.llmbar import load as load_llmbar
from replays.llmbar import sha1, texts_by_prompt
from replays.llmbar_graphs import SCORES, joined, metrics_for
from replays.published_graphs import comparison, metric, number, stated_rating

ORDERS = {"AB": "given", "BA": "swapped"}
"""What the recordings call an order, and what a condition does."""


def recorded_judge(texts: Mapping[str, str]) -> RecordedJudge:
    """Answers from texts by prompt and repetition."""
    return RecordedJudge(texts, key=_key_of)


def _key_of(question: Question[Any]) -> str:
    return key(question.messages[-1]["content"], question.options.repetition)


# Pairs of answers in both orders, three times, by four models.

PAIR = "{name}: {contestants.A.actual_output}\n\nor\n\n{contestants.B.actual_output}"
"""What stands in for the prompts, which were not kept."""

CHOICES = {"MTBench/option3": r"\[\[([ABC])\]\]", "DevBench/option2": r"Choice: ([AB])"}
"""How the source read a choice: C is a tie, and nothing else is an answer."""


def pairwise(protocol: str) -> DAGMetric:
    """Which of two answers is the better one, as it stands in the text."""
    fields = ["name", *(f"contestants.{name}.actual_output" for name in "AB")]
    verdict = NonBinaryJudgementNode(
        "Which answer is better?",
        name="verdict",
        evaluation_params=fields,
        then={"A": 10, "C": 5, "B": 0},
        prompt=PromptTemplate(PAIR),
        parser=FirstMatch(((CHOICES[protocol], None),)),
    )
    return metric("pairwise", verdict)


def repeat_pairs(folder: Folder, protocol: str) -> Observations:
    """Three repetitions in both orders by each model, which are the judges' names."""
    items, rows = folder.items(), folder.judgements(protocol)
    cases = {row["item"]: arena_case(items[row["item"]]) for row in rows}
    texts: dict[str, dict[str, str]] = {}
    for row in rows:
        of = texts.setdefault(row["judge"]["model"], {})
        for call in row["calls"]:
            prompt = _pair_prompt(cases[row["item"]], call["order"])
            of[key(prompt, call["sample"])] = call["text"]
    judges = {model: recorded_judge(of) for model, of in texts.items()}
    return repeat(
        list(cases.values()), [pairwise(protocol)],
        times=3, orders=tuple(ORDERS.values()), judges=judges, second_answers=False,
    )  # fmt: skip


def _pair_prompt(case: ArenaTestCase, order: str) -> str:
    first, second = (case.contestants[name].actual_output for name in order)
    return f"{case.name}: {first}\n\nor\n\n{second}"


# Ratings: three by a rubric, or two because a run was made again.


def rubric_rating() -> DAGMetric:
    """A rating from 1 to 5 after the feedback."""
    rating = RatingNode(
        "Rate the answer by the rubric.",
        ["input"],
        scale=(1, 5),
        name="rating",
        prompt=PromptTemplate("{input}"),
        parser=number(r"\[RESULT\]\s*(\d+)"),
    )
    return metric("rating", rating)


def repeat_prometheus(folder: Folder) -> tuple[list[str], Observations]:
    """The data set of each case, and three repetitions."""
    items = folder.items()
    texts = {
        # The source stored feedback and score apart.
        key(items[row["item"]]["prompt"], call["sample"]):
            f"Feedback: {call['text']} [RESULT] {call['score']}"
        for row in folder.judgements()
        for call in row["calls"]
    }  # fmt: skip
    sources = [str(item["meta"]["dataset"]) for item in items.values()]
    return sources, _repeat_prompts(items.values(), rubric_rating(), texts, 3)


def repeat_mtbench(folder: Folder) -> Observations:
    """The prompts that were sent twice, in two repetitions."""
    items = folder.items()
    twice = [row for row in folder.judgements() if len(row["calls"]) == 2]
    texts = {
        key(items[row["item"]]["prompt"], call["sample"]): call["text"]
        for row in twice
        for call in row["calls"]
    }
    return _repeat_prompts((items[row["item"]] for row in twice), stated_rating(0), texts, 2)


def _repeat_prompts(
    items: Iterable[Json], rating: DAGMetric, texts: Mapping[str, str], times: int
) -> Observations:
    cases = [LLMTestCase(name=item["id"], input=item["prompt"]) for item in items]
    judge = recorded_judge(texts)
    return repeat(cases, [rating], times=times, model=judge, second_answers=False)


# Judges against labels.


def llmbar_verdicts(folder: Folder) -> tuple[list[Json], dict[str, Observations]]:
    """LLMBar's items, and every protocol with a metric for each order."""
    recording = load_llmbar(folder.path.parent)
    cases = [item.case() for item in recording.items.values()]
    found: dict[str, Observations] = {}
    for name, protocol in recording.protocols.items():
        texts = texts_by_prompt(recording, name)
        judge = RecordedJudge(texts, key=lambda question: sha1(joined(question.messages)))
        found[name] = repeat(cases, metrics_for(protocol), times=1, model=judge)
    items = [{"subset": i.subset, "preferred": i.preferred} for i in recording.items.values()]
    return items, found


def winner(score: float | None) -> str:
    """The winner that a score of LLMBar's graphs stands for."""
    return next((name for name, points in SCORES.items() if score == points / 10), "failed")


def pandalm_verdicts(folder: Folder) -> tuple[list[Sequence[str]], Observations]:
    """The three people's verdicts of each pair, and the model's one."""
    items = folder.items()
    texts = {key(row["item"]): call["text"] for row in folder.judgements() for call in row["calls"]}
    found = repeat(
        [arena_case(item) for item in items.values()], [comparison()],
        times=1, model=recorded_judge(texts),
    )  # fmt: skip
    return [item["labels"]["annotators"] for item in items.values()], found
