"""Which cases to label next: a random part that keeps rates unbiased, and doubtful ones."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from folders.runs import but, record
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.cli.measuring import labels as command
from dagengine.errors import InputError
from dagengine.record.label_file import LABELS, LabelFile
from dagengine.record.reader import load_run
from dagengine.reliability.statistics.intervals import Unknown
from dagengine.reliability.threshold_fitting import Abstention, FittedThreshold
from dagengine.results import CaseResult
from dagengine.view.compared_runs import OpenRun
from dagengine.view.label_queues import (
    PLAN,
    LabelPlan,
    label_plan,
    planned_cases,
    sample,
    write_plan,
)
from dagengine.view.labelling import At, Labelling

METRIC = "Support quality"
NOW = datetime(2026, 11, 22, 4, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    script = but(
        ("Tone", "answer 1", "rude"), ("Next step", "answer 3", False), ("Tone", "22", "apologetic")
    )
    return record(tmp_path / "run", script, over=40)


def plan_of(folder: Path, **more: int | float | tuple[float, float]) -> LabelPlan:
    run = load_run(folder)
    (metric,) = run.manifest.metrics
    labels = LabelFile(folder / LABELS).labels()
    return label_plan(metric, run.rows(), labels, seed=folder.name, **more)  # type: ignore[arg-type]


def walk(folder: Path, numbers: tuple[int, ...], who: str, wrong: float = 0.0) -> None:
    """Label cases as the judge does, except for a share of the answers."""
    random = Random(f"{who} {numbers}")
    with OpenRun(folder) as run:
        labels = Labelling(run, lambda: NOW)
        for place in numbers:
            at, position = At(who, METRIC, place), labels.position(At(who, METRIC, place))
            steps = {step.node: step for step in run.row(place).metrics[0].steps}
            while not position["done"]:
                asked = position["asked"]
                step, choices = steps.get(asked["node"]), asked["choices"]
                answer = str(step.verdict) if step is not None else ""
                choice = choices.index(answer) if answer in choices else 0
                if random.random() < wrong:
                    choice = (choice + 1) % len(choices)
                position = labels.answer(at, asked["node"], choice + 1)


def test_without_labels_half_is_the_beginning_of_the_random_sample(folder: Path) -> None:
    plan = plan_of(folder, count=12)
    order = sample(range(40), 40, "run")
    assert list(plan.random) == order[:6]
    assert len(plan.queue) == 12
    assert not set(plan.random) & set(plan.chosen)
    assert plan.agreement is None
    assert isinstance(plan.threshold, Unknown)
    assert [node.node for node in plan.nodes] == ["Kind", "Next step", "Tone"]
    # Every path has a case among those that are chosen.
    paths = {row.index: row.metrics[0].path for row in load_run(folder).rows()}
    rest = {paths[number] for number in order[6:]}
    assert {paths[number] for number in plan.chosen} == rest
    assert plan_of(folder, count=12, chosen=0).chosen == ()


def test_only_the_random_beginning_says_how_often_the_judge_is_right(folder: Path) -> None:
    first = plan_of(folder, count=30, chosen=10)
    walk(folder, first.queue, "Ana")
    second = plan_of(folder, count=6)
    assert second.labels == 30
    assert second.right >= 29  # a rating of the judge is no choice of this person
    assert 20 <= second.random_labels < 30
    assert second.agreement is not None
    assert second.agreement.items == second.random_labels
    assert not set(first.queue) & set(second.queue)
    assert [more for _, more in second.within] == sorted(more for _, more in second.within)
    assert second.within[0][1] < first.within[0][1]
    kind = next(node for node in second.nodes if node.node == "Kind")
    assert (kind.labels, kind.right, kind.reached) == (30, 30, 1.0)


def test_cases_on_which_people_differ_come_first(folder: Path) -> None:
    walk(folder, tuple(range(25)), "Ana")
    walk(folder, (3, 4, 5), "Ben", wrong=1.0)
    plan = plan_of(folder)
    assert plan.several == 3
    assert plan.contradictions
    differing = plan.contradictions[0]
    assert differing.index in (3, 4, 5)
    assert differing.node == "Kind"
    assert plan.queue[: len(plan.first)] == tuple(case.index for case in plan.contradictions)
    assert isinstance(plan.threshold, FittedThreshold)


def test_labels_of_another_definition_are_counted_and_left_out(folder: Path) -> None:
    walk(folder, (1, 2), "Ana")
    path = folder / LABELS
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    ends = [{**line, "definition": "old"} if not line["node"] else line for line in lines]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in ends), "utf-8")
    plan = plan_of(folder)
    assert (plan.stale, plan.labels) == (2, 0)
    # Nor do answers to nodes that were put in other words; their cases may be labelled anew.
    changed = [{**line, "definition": "old"} for line in lines]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in changed), "utf-8")
    again = plan_of(folder, count=1000)
    assert {node.labels for node in again.nodes} == {0}
    assert {1, 2} <= set(again.queue)


def test_the_plan_is_a_queue_of_view_and_the_command_says_what_is_next(folder: Path) -> None:
    done = CliRunner().invoke(app, ["labels", "plan", str(folder), "--count", "8"])
    assert done.exit_code == 0, done.output
    assert f"next: dagengine view {folder} --open" in done.output
    assert "4 drawn at random, 4 chosen by path and doubt" in done.output
    with OpenRun(folder) as run:
        labels = Labelling(run)
        assert labels.queue(METRIC, "planned", 1, "") == planned_cases(folder, METRIC)
    walk(folder, tuple(planned_cases(folder, METRIC)), "Ana", wrong=0.2)
    again = CliRunner().invoke(app, ["labels", "plan", str(folder), "--need", "agreement=85"])
    assert "8 of 40 cases have a label" in again.output
    assert "whether agreement is above 85 %" in again.output
    wrong = CliRunner().invoke(app, ["labels", "plan", str(folder), "--metric", "No"])
    assert isinstance(wrong.exception, InputError)
    assert "it had 'Support quality'" in str(wrong.exception)


def test_a_promised_rate_of_errors_says_below_which_confidence_a_verdict_is_unsure(
    folder: Path,
) -> None:
    walk(folder, tuple(range(40)), "Ana")
    run = load_run(folder)
    (metric,) = run.manifest.metrics
    labels, rows = LabelFile(folder / LABELS).labels(), list[CaseResult]()
    for row in run.rows():
        (result,) = row.metrics
        right = row.index < 30
        sure, success = (0.95 if right else 0.6), bool(result.success) == right
        steps = tuple(replace(step, confidence=sure) for step in result.steps)
        own = replace(result, steps=steps, success=success)
        rows.append(replace(row, metrics=(own,)))
    plan = label_plan(metric, rows, labels, promised=0.05)
    assert isinstance(plan.abstention, Abstention)
    assert (plan.abstention.below, plan.abstention.answered) == (0.95, 0.75)
    unknown = label_plan(metric, run.rows(), labels, promised=0.05).abstention
    assert isinstance(unknown, Unknown)
    assert unknown.detail == "no confidence is known"
    few = label_plan(metric, rows, labels, promised=0.02).abstention
    assert few == Unknown("too few labels", 40, 49)


@pytest.mark.parametrize(
    ("below", "words"),
    [
        (0.8641, "call a verdict below a confidence of 0.8641 unsure:"),  # 0.86 lets more through
        (1.0, "call a verdict below a confidence of 1 unsure:"),
        (math.nextafter(1, 2), "call every verdict unsure:"),
    ],
)
def test_the_confidence_that_is_printed_keeps_the_promise(below: float, words: str) -> None:
    fit = Abstention(below, promised=0.05, answered=0.5, wrong=0.0, items=40)
    assert words in "".join(command._abstention_lines(fit))


def test_a_wrong_pass_may_cost_more_than_a_wrong_fail(folder: Path) -> None:
    walk(folder, tuple(range(40)), "Ana", wrong=0.3)
    for costs in ("1", "-1,2", "0,1", "one,two"):
        refused = CliRunner().invoke(app, ["labels", "plan", str(folder), "--costs", costs])
        assert isinstance(refused.exception, InputError), costs
        assert str(refused.exception).startswith("--costs"), costs
    refused = CliRunner().invoke(app, ["labels", "plan", str(folder), "--wrong", "200"])
    assert "or equal to 100" in refused.output
    typed = ["labels", "plan", str(folder), "--costs", "9,1", "--wrong", "5"]
    done = CliRunner().invoke(app, typed)
    assert done.exit_code == 0, done.output
    assert "no confidence of a node is known" in done.output
    dear, usual = plan_of(folder, costs=(9.0, 1.0)).threshold, plan_of(folder).threshold
    assert isinstance(dear, FittedThreshold)
    assert isinstance(usual, FittedThreshold)
    assert (dear.cost_now, usual.cost_now) == pytest.approx((2.95, 0.35))


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"metrics": {"Support quality": {"first": 3}}}', '{"metrics": {}}']
)
def test_a_damaged_plan_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="labels plan"):
        planned_cases(tmp_path, METRIC)
    (tmp_path / PLAN).write_text(text)
    with pytest.raises(InputError, match="no plan"):
        planned_cases(tmp_path, METRIC)
    with pytest.raises(InputError, match="cannot write"):
        write_plan(tmp_path / PLAN / "none", [])  # below a file


@given(st.integers(1, 30), st.integers(1, 40), st.text(max_size=4))
def test_a_sample_is_the_beginning_of_a_greater_one(size: int, count: int, seed: str) -> None:
    small, great = sample(range(size), count, seed), sample(range(size), count + 3, seed)
    assert great[: len(small)] == small
    assert len(set(small)) == len(small) == min(size, count)


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(InputError, match="at least one case"):
        sample(range(3), 0, "")
