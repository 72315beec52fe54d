"""One question about the items of a list: what is missing is asked item by item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dagengine import Limits, Store, a_evaluate
from dagengine.graph import VerdictListNode
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode, Judgement
from dagengine.prompts.evidence import unfence
from dagengine.question import Question
from dagengine.results import EvaluationResult, OutcomeKind
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio

ITEMS = ["one", "two", "three", "four"]
CASE = LLMTestCase(input="Which are even?", context=ITEMS)
EVEN = {"one": "no", "two": "yes", "three": "no", "four": "yes"}


def item(number: int, verdict: str) -> dict[str, Any]:
    return {"reason": f"{number}", "verdict": verdict, "number": number}


def texts(question: Question[Any]) -> list[str]:
    """The items that a question is about."""
    return [piece.text for piece in unfence(question.messages[1]["content"])]


class Sloppy:
    """Answers about single items as it should, and about several with `said`."""

    def __init__(self, *said: dict[str, Any], only: frozenset[str] = frozenset(ITEMS)) -> None:
        self.said = {"verdicts": list(said)}
        self.only = only
        self.asked: list[list[str]] = []

    def __call__(self, question: Question[Any]) -> Any:
        about = texts(question)
        self.asked.append(about)
        if len(about) > 1 and set(about) & self.only:
            return self.said
        return {"verdicts": [item(n, EVEN[text]) for n, text in enumerate(about, 1)]}


async def judged(script: Any, **more: Any) -> tuple[EvaluationResult, list[str]]:
    """A run of one case, and the verdicts that readers saw."""
    seen: list[str] = []

    def score(verdicts: list[Judgement]) -> float:
        seen.extend(str(one.verdict) for one in verdicts)
        return 1.0

    even = VerdictListNode("Is it even?", "context", "even", verdicts=("yes", "no"), **more)
    metric = DAGMetric("m", DAG(CodeNode(score, inputs=[even], name="score")))
    judge = ScriptedJudge(script)
    done = await a_evaluate([CASE], [metric], model=judge, limits=Limits(reasks=1), show=False)
    return done, seen


@pytest.mark.parametrize(
    ("said", "lists", "singly"),
    [
        ([item(1, "no"), item(2, "yes"), item(4, "yes")], 1, ["three"]),
        ([item(1, "no"), item(2, "yes"), item(2, "no"), item(4, "yes")], 2, ["two", "three"]),
        ([item(1, "no"), item(2, "yes"), item(3, "perhaps"), item(4, "yes")], 1, ["three"]),
        ([item(n, "yes" if n % 2 == 0 else "no") for n in range(1, 6)], 2, []),
        (
            [item(2, "yes"), item(7, "no"), item(8, "no"), item(9, "no")],
            2,
            ["one", "three", "four"],
        ),
    ],
    ids=["missing", "doubled", "not a verdict", "too many", "most are missing"],
)
async def test_what_a_list_leaves_out_is_asked_item_by_item_and_a_doubtful_list_once_more(
    said: list[Any], lists: int, singly: list[str]
) -> None:
    script = Sloppy(*said)
    done, seen = await judged(script)
    assert seen == ["no", "yes", "no", "yes"]
    assert script.asked[:lists] == [ITEMS] * lists
    assert sorted(script.asked[lists:]) == sorted([text] for text in singly)
    step = done.rows[0].metrics[0].steps[0]
    assert json.loads(step.answers[0]) == script.said  # the raw text stays on record
    assert len(step.answers) == 1 + len(singly)


async def test_verdicts_under_their_numbers_are_those_of_the_items() -> None:
    def script(question: Question[Any]) -> Any:
        return {
            "verdicts": {
                str(number): {"reason": "r", "verdict": EVEN[text]}
                for number, text in reversed([*enumerate(texts(question), 1)])
            }
        }

    done, seen = await judged(script)
    assert seen == ["no", "yes", "no", "yes"]
    assert done.totals.calls == 1


async def test_one_sloppy_part_of_a_list_leaves_the_other_parts_alone() -> None:
    script = Sloppy(item(2, "yes"), only=frozenset(["one", "two"]))
    _, seen = await judged(script, per_call=2)
    assert seen == ["no", "yes", "no", "yes"]
    assert script.asked.count(["three", "four"]) == 1
    assert script.asked[-1] == ["one"]


async def test_a_list_of_which_nothing_can_be_used_costs_no_further_questions() -> None:
    script = Sloppy()
    done, seen = await judged(script)
    assert seen == []
    assert done.rows[0].metrics[0].outcome == OutcomeKind.UNPARSEABLE
    assert script.asked == [ITEMS, ITEMS]


TWO_LEFT_OUT = [item(1, "no"), item(2, "yes"), item(2, "no"), item(5, "yes")]


async def scored(
    script: Any, store: Store | None, metrics: tuple[str, ...] = ("m",)
) -> EvaluationResult:
    """Metrics that put the same questions, over one case, and share of even items as score."""

    def share(verdicts: list[Judgement]) -> float:
        return sum(one.verdict == "yes" for one in verdicts) / len(verdicts)

    made = []
    for name in metrics:
        even = VerdictListNode("Is it even?", "context", "even", verdicts=("yes", "no"), name=name)
        made.append(DAGMetric(name, DAG(CodeNode(share, inputs=[even], name="share"))))
    judge = ScriptedJudge(script, name="sloppy")
    return await a_evaluate(
        [CASE], made, model=judge, limits=Limits(reasks=1), store=store, show=False
    )


def rows(done: EvaluationResult) -> list[bytes]:
    """The rows as they are written to a file."""
    return [json.dumps(row.as_dict(), sort_keys=True).encode() for row in done.rows]


@pytest.mark.parametrize(
    "said",
    [TWO_LEFT_OUT, [item(n, "yes" if n % 2 == 0 else "no") for n in range(1, 6)]],
    ids=["missing and doubled", "too many"],
)
async def test_a_list_completed_item_by_item_is_found_again_in_the_store(
    said: list[Any], tmp_path: Path
) -> None:
    script, path = Sloppy(*said), tmp_path / "answers.db"
    first = await scored(script, Store(path))
    asked = len(script.asked)
    second = await scored(script, Store(path))
    replayed = await scored(script, Store(path, replay=True))
    assert first.rows[0].metrics[0].score == 0.5
    assert len(script.asked) == asked
    assert second.totals.calls == replayed.totals.calls == 0
    assert rows(first) == rows(second) == rows(replayed)


async def test_equal_sloppy_lists_of_two_metrics_are_asked_once(tmp_path: Path) -> None:
    for store in (None, Store(tmp_path / "answers.db")):
        script = Sloppy(*TWO_LEFT_OUT)
        done = await scored(script, store, ("one", "two"))
        assert [metric.score for metric in done.rows[0].metrics] == [0.5, 0.5]
        assert sorted(script.asked) == sorted([ITEMS, ITEMS, ["three"], ["two"], ["four"]])


async def test_a_list_of_which_nothing_can_be_used_is_not_stored(tmp_path: Path) -> None:
    store = Store(tmp_path / "answers.db")
    assert (await scored(Sloppy(), store)).rows[0].metrics[0].score is None
    done = await scored(Sloppy(*(item(n, "no") for n in range(1, 5))), store)
    assert (done.totals.calls, done.rows[0].metrics[0].score) == (1, 0.0)
