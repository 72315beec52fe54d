"""A search finds what is wrong, leaves alone what is not, and asks what it foretold."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from graphs import misread
from improved import POPULATIONS
from improved import search as simulated

from dagengine import Limits, a_improve, improve
from dagengine.compiler.metric_hashes import definitions
from dagengine.errors import InputError
from dagengine.improvement.faulty_node import LEAST_WRONG
from dagengine.improvement.improvement_report import Improvement, cause, step
from dagengine.improvement.search_plan import Search
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode, MapNode, RatingNode, TaskNode
from dagengine.question import Usage
from dagengine.record.label_file import Label
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.human_labels import metric_hash
from dagengine.reliability.statistics.intervals import Interval
from dagengine.reliability.statistics.paired_comparisons import Comparison
from dagengine.results import Attempt

pytestmark = pytest.mark.anyio
COUNT = 100


def judge() -> ScriptedJudge:
    return ScriptedJudge(misread.answer, name="misreads")


def searched(metric: DAGMetric, *, sources: bool = False, **settings: Any) -> Improvement:
    chosen: dict[str, Any] = {"model": judge(), "times": 1, **settings}
    return improve(misread.cases(COUNT), metric, misread.labels(COUNT, sources=sources), **chosen)


@cache
def calls_of_a_search() -> int:
    """The calls of a search that nothing stops."""
    return searched(misread.single()).totals.calls


def test_a_misread_criterion_is_named_reworded_and_proved() -> None:
    result = searched(misread.chain(), sources=True)
    assert result.blame is not None
    assert result.blame.node == "Tone"
    (change,) = result.accepted
    assert change.what == "criterion rewritten, a"
    assert misread.RULE in change.detail["criterion"]
    assert result.proved
    assert result.sealed is not None
    assert isinstance(result.sealed.gain, Comparison)
    assert isinstance(result.sealed.gain.interval, Interval)
    assert result.sealed.gain.interval.low > 0
    asked = [node.text for node in result.metric.spec().graph.nodes()]
    assert change.detail["criterion"] in asked
    rival = next(each for each in result.candidates if each.rung == "rival")
    assert not rival.accepted


def test_what_cannot_be_shown_to_cases_is_never_among_the_held_out_ones() -> None:
    search = Search.of(misread.cases(COUNT), misread.single(), misread.labels(COUNT))
    shown = {misread.texts(COUNT)[n] for n in search.split.folds[0]}
    seen: list[str] = []

    def listening(question: Any) -> Any:
        text = question.messages[-1]["content"]
        if question.name == "New criterion" or "solved example" in text:
            seen.append(text.partition("<<<BEGIN solved")[2] or text)
        return misread.answer(question)

    searched(misread.single(), model=ScriptedJudge(listening))
    assert seen
    for text in set(misread.texts(COUNT)) - shown:
        assert not any(f"{text}\n" in prompt for prompt in seen)


def test_final_labels_of_one_question_become_its_examples() -> None:
    result = searched(misread.single(), proposals=0)
    (change,) = result.accepted
    assert change.rung == "examples"
    assert {row["answer"] for row in change.detail["examples"]} == {True, False}


def walked(path: Path, metric: DAGMetric) -> Path:
    """Labels of somebody who walked the tree of every case."""
    replay = Counterfactual(metric)
    definition = definitions(replay.plan, replay.plan.metrics[0])
    lines: list[str] = []
    for number, case in enumerate(misread.cases(COUNT)):
        text = case.actual_output or ""
        polite, sources = misread.is_good(text), "sources=True" in text
        answers = {"Tone": polite, **({"Sources": sources} if polite else {})}
        ends = [*answers.items(), ("", None)]
        for node, verdict in ends:
            label = Label(
                id=f"{number} {node}", who="Ana", when="2026-01-01T00:00:00Z",
                case=case.content_hash(), index=number, name=case.name or "", metric="Manners",
                node=node, definition=definition[node] if node else metric_hash(replay),
                answer=verdict,
                outcome=None if node else "pass" if polite and sources else "fail",
            )  # fmt: skip
            lines.append(json.dumps(asdict(label)))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_walked_labels_name_the_node_and_give_examples(tmp_path: Path) -> None:
    metric = misread.chain()
    labels = walked(tmp_path / "labels.jsonl", metric)
    result = improve(misread.cases(COUNT), metric, labels, model=judge(), times=1)
    assert result.blame is not None
    assert (result.blame.node, result.blame.by) == ("Tone", "labels of nodes")
    rungs = {each.rung: each for each in result.candidates}
    assert rungs["examples"].accepted
    assert len(rungs["examples"].detail["examples"]) == 4
    assert "together" in rungs
    assert result.proved


def test_the_calls_are_those_of_the_plan() -> None:
    settings: dict[str, Any] = {"times": 2, "proposals": 1, "node": "Tone"}
    search = Search.of(misread.cases(COUNT), misread.single(), misread.labels(COUNT), **settings)
    plan = search.plan()
    asked = searched(misread.single(), **settings).totals.calls
    # Votes are not asked of a judge that never differs.
    spared = sum(
        step.calls.most or 0
        for step in plan.steps
        if step.what in ("3 votes", "sealed part, after")
    )
    sealed = len(search.split.sealed) * 2
    retried = 1  # a rewriter may be asked twice
    # This one words no second criterion, however often it is asked.
    halved = next(step.calls.most or 0 for step in plan.steps if step.what == "split in two") - 2
    assert plan.calls.most is not None
    assert asked == plan.calls.most - spared + sealed - retried - halved
    assert asked >= plan.calls.least


async def test_a_search_that_is_killed_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    keys: list[str] = []

    class Killed(Exception):
        pass

    async def run(most: int | None) -> Improvement:
        def note(attempt: Attempt) -> None:
            if attempt.origin == "live":
                keys.append(attempt.key)
                if most is not None and len(keys) == most:
                    raise Killed

        return await a_improve(
            misread.cases(COUNT), misread.single(), misread.labels(COUNT), model=judge(),
            store=tmp_path / "answers.db", times=1, on_attempt=note,
        )  # fmt: skip

    for most in (30, 140):
        with pytest.raises(Killed):
            await run(most)
    resumed = await run(None)
    assert resumed.proved
    assert len(keys) == len(set(keys))
    assert len(keys) == calls_of_a_search()


def test_a_limit_of_calls_ends_a_search_which_then_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "answers.db"
    with pytest.raises(InputError, match="limit of calls or money is reached"):
        searched(misread.single(), store=store, limits=Limits(max_calls=90))
    rest = searched(misread.single(), store=store).totals.calls
    assert rest + 90 == calls_of_a_search()


class Priced(ScriptedJudge):
    """A judge each of whose calls costs a tenth of a cent."""

    async def answer(self, question: Any) -> Any:
        return replace(await super().answer(question), usage=Usage(1000, 0))


def test_a_search_keeps_to_one_budget_and_says_what_it_spent(tmp_path: Path) -> None:
    priced = Priced(misread.answer, name="misreads")
    prices: dict[str, Any] = {"prices": {"*": (1.0, 1.0)}, "max_in_flight": 1}
    paid: list[Attempt] = []
    with pytest.raises(InputError, match="limit of calls or money is reached"):
        searched(
            misread.single(), store=tmp_path / "answers.db", model=priced, on_attempt=paid.append,
            limits=Limits(budget=0.09, **prices),
        )  # fmt: skip
    assert 85 <= len(paid) <= 90
    whole = searched(misread.single(), model=priced, limits=Limits(budget=10, **prices)).totals
    assert whole.cost == pytest.approx(whole.calls / 1000)


def test_labels_are_not_asked_for_where_no_label_can_name_a_node() -> None:
    items = TaskNode("List the words.", "Words", evaluation_params=["actual_output"],
                     output_type=list[str])  # fmt: skip
    good = MapNode("Is it polite?", items, "Good", answer=bool)
    share = CodeNode(lambda all_of_them: sum(map(bool, all_of_them)) / 2, inputs=[good])
    answers = {"Words": ["a", "b"], "Good": True}
    result = searched(DAGMetric("Manners", DAG(share)), model=ScriptedJudge(answers))
    assert result.blame is not None
    assert result.blame.wrong >= LEAST_WRONG
    assert result.blame.needed is None
    assert "labels cannot tell" in step(result, None)
    assert "no other answer of one node mends" in cause(result.blame)


def test_a_wrong_threshold_is_mended_by_replay() -> None:
    node = RatingNode("How polite?", evaluation_params=["actual_output"], name="Tone")
    scores = {n: 7 - n % 3 if good else 4 + n % 2 for n, good in misread.labels(COUNT).items()}

    def rate(question: Any) -> Any:
        text = question.messages[-1]["content"]
        number = int(text.partition("answer ")[2].partition(":")[0])
        return {"score": scores[number]}

    result = searched(
        DAGMetric("Manners", DAG(node), threshold=0.7), model=ScriptedJudge(rate), proposals=0
    )
    change = result.accepted[0]
    assert change.rung == "threshold"
    assert change.calls == 0
    assert 0.5 < change.detail["threshold"] <= 0.6
    assert result.metric.spec().threshold == change.detail["threshold"]
    assert result.proved


def test_a_verdict_on_the_wrong_side_gets_another_score() -> None:
    result = improve(
        misread.cases(COUNT, 0.0), wrong_leaf(), misread.labels(COUNT, 0.0), model=judge(), times=1
    )
    change = result.accepted[0]
    assert (change.rung, change.where) == ("scores", "Tone")
    assert change.detail == {"verdict": True, "before": 3, "score": 10}
    assert result.proved


def wrong_leaf() -> DAGMetric:
    metric = misread.single()
    (tone,) = metric.spec().graph.nodes()
    tone.then[True], tone.then[False] = 3, 0
    return metric


def test_a_judge_that_is_always_right_has_nothing_to_improve() -> None:
    result = improve(
        misread.cases(COUNT, 0.0), misread.chain(), misread.labels(COUNT, 0.0, sources=True),
        model=judge(), times=1,
    )  # fmt: skip
    assert not result.accepted
    assert result.sealed is None
    assert result.blame is not None
    assert result.blame.node is None


def test_labels_that_know_nothing_of_the_text_accept_nothing() -> None:
    result, _ = simulated(POPULATIONS["labels by chance"], 1, times=1, engine=True)
    assert not result.accepted
    assert result.sealed is None


@pytest.mark.parametrize(
    ("planted", "rung"), [("two in one node", "split"), ("two apart", "merge")]
)
def test_a_question_of_the_wrong_size_is_found_and_proved(planted: str, rung: str) -> None:
    result, _ = simulated(POPULATIONS[planted], 1)
    assert result.blame is not None
    assert result.blame.by == "labels of nodes"
    (change,) = result.accepted
    assert change.rung == rung
    assert result.proved


@pytest.mark.parametrize("planted", ["two in one, chance", "two apart, chance"])
def test_labels_by_chance_reshape_nothing(planted: str) -> None:
    result, _ = simulated(POPULATIONS[planted], 2)
    assert {"merge", "split"} & {each.rung for each in result.candidates if not each.skipped}
    assert not result.accepted


def test_merges_and_splits_ask_no_more_than_the_plan_says() -> None:
    def halving(question: Any) -> Any:
        if question.name == "Two criteria":
            return "Is the answer polite? AND Is the answer kind?"
        return misread.answer(question)

    settings: dict[str, Any] = {"times": 2, "proposals": 1, "node": "Tone"}
    cases, labels = misread.cases(COUNT), misread.labels(COUNT, sources=True)
    plan = Search.of(cases, misread.chain(), labels, **settings).plan()
    most = {step.what: step.calls.most or 0 for step in plan.steps}
    tried = searched(
        misread.chain(), sources=True, model=ScriptedJudge(halving), **settings
    ).candidates
    calls = {candidate.rung: candidate.calls for candidate in tried}
    assert 0 < calls["merge"] <= most["merged with a neighbour"]
    assert 0 < calls["split"] <= most["split in two"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"node": "Tome"}, "no node 'Tome' has a criterion to change; there is 'Tone'"),
        ({"times": 0}, "times= is a whole number from 1 on"),
        ({"sealed": 1.0}, "lies from 0.1 to 0.9"),
    ],
)
def test_what_cannot_be_is_refused_before_a_call(settings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        searched(misread.single(), model=ScriptedJudge({}), **settings)


def test_unknown_settings_and_too_few_labels_are_refused() -> None:
    with pytest.raises(TypeError, match="time"):
        searched(misread.single(), time=3)
    few = dict.fromkeys(range(12), True)
    with pytest.raises(InputError, match="label more cases"):
        improve(misread.cases(12), misread.single(), few, model=ScriptedJudge({}))
    numbers = {n: n / 3 for n in range(COUNT)}
    with pytest.raises(InputError, match="pass or fail"):
        improve(misread.cases(COUNT), misread.single(), numbers, model=ScriptedJudge({}))
