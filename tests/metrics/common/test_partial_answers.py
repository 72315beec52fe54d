"""No score from an answer that is missing, partial or empty: every metric, every behaviour."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from graphs.contract import case_for, make, metric_classes, valid
from pydantic import BaseModel

from dagengine import Limits, evaluate
from dagengine.errors import RefusedError
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.prompts.parsing import read_answer
from dagengine.question import Answer, Capabilities, Question
from dagengine.results import MetricResult, OutcomeKind

T = TypeVar("T", bound=BaseModel)
Behaviour = Callable[[Any], str]
# Once without a second chance: a failure is a failure at once.
FIRST = Limits(attempts=1, reasks=0)


class TextJudge:
    """Writes a valid answer as `behaviour` distorts it, and reads the text as real judges do.

    With `only` it is the question of this place (from 0 on) whose answer is distorted, also when it
    is asked again.
    """

    capabilities = Capabilities()
    durable_identity = None

    def __init__(self, behaviour: Behaviour, only: int | None = None) -> None:
        self.identity = f"text {id(self):x}"
        self.asked: dict[Any, int] = {}
        self.distorted = 0
        self._behaviour, self._only = behaviour, only

    async def answer(self, question: Question[T]) -> Answer[T]:
        words = json.dumps(question.messages[:2])  # what is asked again has more messages
        place = self.asked.setdefault(words, len(self.asked))
        whole = valid(question, 0)
        text = whole if isinstance(whole, str) else json.dumps(whole)
        told = {"reason": whole, "verdict": "Y"} if isinstance(whole, str) else whole
        if self._only in (None, place) and (other := self._behaviour(told)) != json.dumps(told):
            self.distorted += 1
            text = other
        return Answer(read_answer(question, text), text)


# The fields of a judgement; all other texts are material for the questions that follow.
JUDGED = ("reason", "verdict", "winner")


# What a judge may write in place of an answer, made of the valid one.


def leaves(change: Callable[[str, Any], Any]) -> Behaviour:
    """The answer with every text, number and verdict changed; `change` gets its name and value."""

    def changed(part: Any, name: str = "") -> Any:
        if isinstance(part, dict):
            return {key: changed(value, key) for key, value in part.items()}
        return (
            [changed(item, name) for item in part] if isinstance(part, list) else change(name, part)
        )

    return lambda answer: json.dumps(changed(answer))


def lists(change: Callable[[list[Any]], list[Any]]) -> Behaviour:
    """The answer with every list changed."""

    def changed(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: changed(value) for key, value in part.items()}
        return change([changed(item) for item in part]) if isinstance(part, list) else part

    return lambda answer: json.dumps(changed(answer))


def rated(number: Any) -> Behaviour:
    """The answer with this in place of every rating."""
    return leaves(lambda name, value: number if name == "score" else value)


def reasons_only(answer: Any) -> str:
    if isinstance(answer, dict) and "reason" in answer:
        return json.dumps({"reason": answer["reason"]})
    return lists(lambda items: [{"reason": "words"} for _ in items])(answer)


NO_ANSWER: dict[str, Behaviour] = {
    "a list": lambda answer: "[]",
    "an object": lambda answer: "{}",
    "null": lambda answer: "null",
    "nothing": lambda answer: "",
    "blanks": lambda answer: " \n",
    "a quoted nothing": lambda answer: '""',
    "N/A": lambda answer: "N/A",
    "half": lambda answer: json.dumps(answer)[: len(json.dumps(answer)) // 2],
    "a refusal in prose": lambda answer: "I am sorry, but I cannot judge that.",
    "prose in German": lambda answer: "Das kann ich nicht beurteilen.",
    "a draft in a thought": lambda answer: f"<think>perhaps {json.dumps(answer)}",
    "fields of null": leaves(lambda name, value: None),
    "lists of null": lists(lambda items: [None]),
    "reasons only": reasons_only,
    "a verdict that is none": leaves(lambda name, value: "maybe" if name in JUDGED[1:] else value),
    "an empty verdict": leaves(lambda name, value: "" if name in JUDGED[1:] else value),
    "a rating below": rated(-1),
    "a rating above": rated(11),
    "a rating between": rated(0.5),
    "no number": rated(float("nan")),
    "infinity": rated(float("inf")),
    "a rating of true": rated(True),
    "no rating": rated(None),
}
EMPTY: dict[str, Behaviour] = {
    "empty lists": lists(lambda items: []),
    "lists of nothing": lists(lambda items: [""]),
    "empty material": leaves(
        lambda name, value: "" if isinstance(value, str) and name not in JUDGED else value
    ),
    "blank material": leaves(
        lambda name, value: " \n" if isinstance(value, str) and name not in JUDGED else value
    ),
}
SAME: dict[str, Behaviour] = {
    "numbers as texts": leaves(
        lambda name, value: str(value) if type(value) in (int, float) else value
    ),
    "JSON in a fence": lambda answer: f"```json\n{json.dumps(answer)}\n```",
    "after a thought": lambda answer: f"<think>no: {{}}</think>\n{json.dumps(answer)}",
}
# A judgement without words is one all the same. Verdicts that are all there count without the
# end of their list, or are asked for again.
JUDGEMENTS: dict[str, Behaviour] = {
    "no words": leaves(lambda name, value: "" if name == "reason" else value),
    "all but the end": lambda answer: json.dumps(answer)[:-1],
}
KINDS = metric_classes()


def results(
    kind: type[PrebuiltMetric], judges: dict[str, TextJudge]
) -> Iterator[tuple[str, MetricResult]]:
    """The result of one case by each judge whose answers were distorted, in one run."""
    metrics = [make(kind, model=judge) for judge in judges.values()]
    for name, metric in zip(judges, metrics, strict=True):
        metric.name = name
    row = evaluate([case_for(metrics[0])], metrics, show=False, limits=FIRST).rows[0]
    for (name, judge), result in zip(judges.items(), row.metrics, strict=True):
        if judge.distorted:
            yield name, result


def undistorted(kind: type[PrebuiltMetric], judge: TextJudge | None = None) -> MetricResult:
    """The result of valid answers."""
    judge = judge or TextJudge(lambda answer: f" {json.dumps(answer)}")
    return next(result for _, result in results(kind, {"valid": judge}))


def is_unjudged(result: MetricResult) -> bool:
    return result.score is None and result.outcome in (
        OutcomeKind.UNPARSEABLE,
        OutcomeKind.SKIPPED,
    )


every_asking_metric = pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if any(node.asks for node in make(kind).spec().graph.nodes())],
    ids=lambda kind: kind.__name__,
)


@every_asking_metric
def test_what_is_no_answer_is_no_score(kind: type[PrebuiltMetric]) -> None:
    judges = {name: TextJudge(behaviour) for name, behaviour in NO_ANSWER.items()}
    scored = {
        name: (result.score, str(result.outcome), result.reason)
        for name, result in results(kind, judges)
        if not is_unjudged(result)
    }
    assert scored == {}


# Where an empty list is an answer, or counts for no score, the result says so.
SAID = (
    *(f"no {item} found" for item in ("opinion", "detail", "piece of advice", "service")),
    *("no departure found", "the agent states no plan"),
    "replies after a stated fact",  # a turn may state none
    "1 context of 2 stated nothing",
    "coverage nothing to judge",
)


@every_asking_metric
def test_an_empty_answer_is_no_score_or_the_reason_says_what_was_not_found(
    kind: type[PrebuiltMetric],
) -> None:
    counting = TextJudge(lambda answer: f" {json.dumps(answer)}")
    undistorted(kind, counting)
    judges = {
        f"{name} at {place}": TextJudge(behaviour, place)
        for place in (None, *range(len(counting.asked)))
        for name, behaviour in EMPTY.items()
    }
    for name, result in results(kind, judges):
        reasons = "\n".join(step.reason or "" for step in result.steps)
        assert is_unjudged(result) or any(said in reasons for said in SAID), (name, reasons)


@every_asking_metric
def test_the_same_answer_in_another_form_is_the_same_score(kind: type[PrebuiltMetric]) -> None:
    judges = {name: TextJudge(behaviour) for name, behaviour in SAME.items()}
    whole = undistorted(kind)
    for name, result in results(kind, judges):
        assert (name, result.score, result.reason) == (name, whole.score, whole.reason)
    judges = {name: TextJudge(behaviour) for name, behaviour in JUDGEMENTS.items()}
    for name, result in results(kind, judges):
        cut = name == "all but the end" and is_unjudged(result)
        assert cut or result.score == whole.score, (name, result)


def refuse(answer: Any) -> str:
    raise RefusedError("no")


@every_asking_metric
def test_a_single_question_without_an_answer_leaves_no_score(kind: type[PrebuiltMetric]) -> None:
    counting = TextJudge(lambda answer: f" {json.dumps(answer)}")
    undistorted(kind, counting)
    assert counting.asked
    judges = {
        f"{name} at {place}": TextJudge(behaviour, place)
        for place in range(len(counting.asked))
        for name, behaviour in (("nothing", NO_ANSWER["nothing"]), ("a refusal", refuse))
    }
    for name, result in results(kind, judges):
        kinds = {"n": OutcomeKind.UNPARSEABLE, "a": OutcomeKind.JUDGE_REFUSED}
        assert (name, result.score, result.outcome) == (name, None, kinds[name[0]])
