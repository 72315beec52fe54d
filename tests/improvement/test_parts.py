"""The parts of a search: the split, the joint test, naming a node, edits, patches."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from graphs import misread
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.improvement.candidates import changed
from dagengine.improvement.experiment import LabelledExperiment, joint_p, split_cases
from dagengine.improvement.faulty_node import Faults
from dagengine.improvement.improvement_report import Candidate, Rung
from dagengine.improvement.rewriters import Task, complaint, words_changed
from dagengine.improvement.source_patch import patch, program
from dagengine.judges import ScriptedJudge
from dagengine.loading import load_metrics
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.human_labels import labels_for, metric_hash
from dagengine.voting import reworded

pytestmark = pytest.mark.anyio
COUNT = 120


@settings(max_examples=10, deadline=None)
@given(st.integers(60, COUNT))
def test_more_cases_move_none_from_one_part_to_the_other(count: int) -> None:
    cases, labels = misread.cases(COUNT), misread.labels(COUNT)
    whole = split_cases(cases, labels, {})
    part = split_cases(cases[:count], {n: labels[n] for n in range(count)}, {})
    assert set(part.sealed) == {n for n in whole.sealed if n < count}
    assert set(part.tried) | set(part.sealed) == set(range(count))
    assert part.sha256 == part.sha256


def test_copies_and_groups_stay_together() -> None:
    cases = misread.cases(COUNT)
    copies = [*cases, *cases]
    split = split_cases(copies, dict.fromkeys(range(2 * COUNT), True), {})
    assert {n % COUNT for n in split.sealed} == {n for n in split.sealed if n < COUNT}
    renamed = [case.model_copy(update={"name": f"{place}"}) for place, case in enumerate(copies)]
    reads = ["input", "actual_output"]
    assert split_cases(renamed, dict.fromkeys(range(2 * COUNT), True), {}, 0.4, reads) == (
        split_cases(copies, dict.fromkeys(range(2 * COUNT), True), {}, 0.4, reads)
    )
    groups = {n: f"document {n // 3}" for n in range(COUNT)}
    grouped = split_cases(cases, misread.labels(COUNT), groups)
    parts = [grouped.sealed, *grouped.folds]
    for number in range(0, COUNT, 3):
        assert any(set(range(number, number + 3)) <= set(part) for part in parts)


def test_one_joint_test_holds_its_promise_and_counts_equal_tries_once() -> None:
    random = Random(1)
    least = []
    for _ in range(150):
        tries = [{n: random.choice((-1.0, 0.0, 0.0, 1.0)) for n in range(40)} for _ in range(5)]
        least.append(min(joint_p(tries, {})))
    assert statistics.fmean(p <= 0.05 for p in least) <= 0.09
    better = {n: random.choice((-0.5, 0.0, 1.0)) for n in range(60)}
    alone, *_ = joint_p([better], {})
    assert joint_p([better] * 5, {}) == [alone] * 5
    grouped = joint_p([better], {n: n // 10 for n in range(60)})
    assert grouped[0] > alone
    assert joint_p([], {}) == []


async def test_the_node_is_named_by_final_labels_and_by_those_of_nodes() -> None:
    cases, metric = misread.cases(COUNT), misread.chain()
    replay = Counterfactual(metric)
    labels = labels_for(
        {n: (good,) for n, good in misread.labels(COUNT, sources=True).items()}, replay, cases
    )
    settings = {"model": ScriptedJudge(misread.answer)}
    asking = LabelledExperiment(settings=settings, times=1, cases=cases, labels=labels, groups={})
    judged = await asking.judge(metric, range(COUNT))
    by_results = Faults(judged, {}).blame(0.6)
    answers = {"Tone": {n: (good,) for n, good in misread.labels(COUNT).items()}}
    by_labels = Faults(judged, answers).blame(0.6)
    assert (by_results.node, by_results.by) == ("Tone", "counterfactuals")
    assert (by_labels.node, by_labels.by) == ("Tone", "labels of nodes")
    share = by_labels.shares[0]
    assert share.share == 1
    assert 0.8 < share.low < share.high <= 1
    few = await asking.judge(metric, range(4))
    assert Faults(few, {}).blame(0.6).node is None
    nobody = Faults(few, {"Tone": {0: ()}}).blame(0.6)
    assert nobody.by == "counterfactuals"


def test_an_edit_is_small_and_keeps_names() -> None:
    old = "Is `actual_output` polite?"
    task = Task(old, ["True", "False"], [])
    assert words_changed(old, "Is `actual_output` polite and short?") == 4
    assert complaint(task, "Is `actual_output` polite and short?") == ""
    assert "as it was" in complaint(task, old)
    assert "lost `actual_output`" in complaint(task, "Is it polite?")
    assert "changes 4" in complaint(task, old + " word" * 40)
    assert "characters longer" in complaint(task, old + " w" + "o" * 400)
    assert complaint(task, None)
    halved_task = replace(task, split=True)
    assert complaint(halved_task, "Is `actual_output` polite? AND Is it kind?") == ""
    for words in ("Is `actual_output` kind?", "Is `actual_output` it? AND b OR c", "AND Is it?"):
        assert "not two criteria" in complaint(halved_task, words)


EXAMPLE = {"reads": {"actual_output": 'Über "it"\'s'}, "answer": True, "reason": None}
CRITERION = 'Is the answer polite; "quoted" words of others do not count, ' + "ever " * 9
CHANGES: dict[Rung, tuple[str, dict[str, Any]]] = {
    "criterion": ("Tone", {"before": "Is the answer polite?", "criterion": CRITERION}),
    "threshold": ("whole metric", {"before": 0.5, "threshold": 0.62}),
    "scores": ("Tone", {"verdict": False, "before": 0, "score": 6}),
    "votes": ("Tone", {"votes": 3}),
    "examples": ("Tone", {"examples": [EXAMPLE]}),
    "together": ("Tone", {"criterion": CRITERION, "examples": [EXAMPLE]}),
    "split": ("Tone", {"criterion": "Is the answer polite? AND Is it kind?"}),
    "merge": ("Tone", {}),
}


@pytest.mark.parametrize("rung", CHANGES)
def test_a_patch_defines_the_accepted_metric(rung: Rung, tmp_path: Path) -> None:
    where, detail = CHANGES[rung]
    path = tmp_path / "metrics.py"
    path.write_text(misread.METRICS, encoding="utf-8")
    metric = misread.chain()
    made = changed(metric, rung, where, **detail)
    candidate = Candidate(rung, "a change", where, detail=detail)
    text = patch(path, metric, [candidate], made)
    assert text is not None
    assert path.read_text(encoding="utf-8") == misread.METRICS
    removed = [line for line in text.splitlines() if line.startswith("-") and line[1:2] != "-"]
    assert len(removed) <= (9 if rung == "merge" else 2)  # a merge takes a whole node away
    own = tmp_path / "improved.py"
    own.write_text(program(path, metric, [candidate]), encoding="utf-8")
    (loaded,) = load_metrics(f"{own}:improved")
    assert metric_hash(Counterfactual(loaded)) == metric_hash(Counterfactual(made))


@pytest.mark.parametrize(
    "verdicts",
    [
        "[VerdictNode(True, child=sources), VerdictNode(False, 0)]",
        "[VerdictNode(verdict=False, score=0), VerdictNode(verdict=True, child=sources)]",
    ],
)
@pytest.mark.parametrize("rung", ["merge", "split"])
def test_a_patch_leads_verdicts_that_are_nodes_elsewhere(
    rung: Rung, verdicts: str, tmp_path: Path
) -> None:
    source = misread.METRICS.replace("then={True: sources, False: 0}", f"children={verdicts}")
    source = source.replace("BinaryJudgementNode\n\n", "BinaryJudgementNode, VerdictNode\n\n")
    path = tmp_path / "metrics.py"
    path.write_text(source, encoding="utf-8")
    (metric,) = load_metrics(str(path))
    where, detail = CHANGES[rung]
    made = changed(metric, rung, where, **detail)
    text = patch(path, metric, [Candidate(rung, "a change", where, detail=detail)], made)
    assert text is not None
    assert ("True, score=10)" if rung == "merge" else "True, child=tone_2)") in text


def test_what_is_not_literal_has_no_patch(tmp_path: Path) -> None:
    path = tmp_path / "metrics.py"
    spelled = misread.METRICS.replace('"Is the answer polite?"', '"Is the " + "answer polite?"')
    path.write_text(spelled.replace('name="Tone"', 'name="To" + "ne"'), encoding="utf-8")
    metric = misread.chain()
    for rung in ("criterion", "split", "rival"):
        where, detail = CHANGES.get(rung, ("rival", {}))
        candidate = Candidate(rung, "a change", where, detail=detail)
        made = changed(metric, rung, where, **detail)
        assert patch(path, metric, [candidate], made) is None


def test_reworded_takes_nodes_that_are_there() -> None:
    with pytest.raises(InputError, match="has no node 'Tome' that has a criterion of its own"):
        reworded(misread.chain(), {"Tome": "Is it?"})
    with pytest.raises(InputError, match="reworded needs criteria by node"):
        reworded(misread.chain(), {})
