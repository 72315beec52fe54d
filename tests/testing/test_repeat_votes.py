"""A verdict that knows its noise: what failed is judged again, as long as that can matter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from programs.evaluations import JUDGED, run

from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, VerdictNode
from dagengine.reliability import repeat
from dagengine.reliability.card import make_card, write_card
from dagengine.test_case import LLMTestCase
from dagengine.testing.repeat_votes import decide_votes
from dagengine.voting import Curtailed, Sprt

pytest_plugins = ["pytester"]

# What the judge says of a case as one sample after the other: "y" for yes.
SUITE = f"""{JUDGED}
from dagengine.testing.repeat_votes import SAMPLES

ALWAYS = {{"steady": "n", "unlucky": "nyyyyyyyyy", "torn": "nynynynyny", "good": "y"}}


def answer_as_sample(question):
    text = next(name for name in ALWAYS if name in question.messages[-1]["content"])
    sample = question.options.sample // SAMPLES
    script = ALWAYS[text]
    return {{"verdict": script[sample % len(script)] == "y", "reason": "as it is"}}


noisy = metric(judge=ScriptedJudge(answer_as_sample, name="noisy"))


@pytest.mark.evals(votes=9)
@pytest.mark.parametrize("one", [case(name) for name in ALWAYS])
def test_each(one):
    assert_test(one, [noisy, metric("Other", judge=ScriptedJudge({{"Good": True}}))])

"""


def test_what_fails_is_judged_until_the_votes_decide(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    left = run(pytester)
    said = {event[1].split("[")[-1].rstrip("]"): event for event in left.outcomes}
    assert said["steady"][-1] == ("failed (p = 1.00, 4 of 4 votes failed): 0.3 < 0.5 Quality: Good")
    assert said["torn"][-1] == "unsure (p = 0.80, 5 of 9 votes failed): 0.3 < 0.5 Quality: Good"
    assert (said["unlucky"][2], said["good"][2]) == ("passed", "passed")
    assert len(left.outcomes) == 4
    # Asked as often as votes were cast (4, 6, 9 and 1), and once by the other metric of each case.
    assert "24 questions, 24 judge calls" in left.output
    assert "3 failed at first and were judged again: 1 failed, 1 passed, 1 unsure" in left.output
    assert "no judge card says how noisy this judge is" in left.output


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A judge card; pytester would forget what makes it."""
    good = BinaryJudgementNode(
        "Is it good?", name="Good", evaluation_params=["actual_output"],
        children=[VerdictNode(True, score=10), VerdictNode(False, score=3)],
    )  # fmt: skip
    metrics, cases = [DAGMetric("Quality", DAG(root_node=good))], [LLMTestCase(input="x")]
    path = tmp_path_factory.mktemp("card") / "card.json"
    seen = repeat(cases, metrics, times=2, model=ScriptedJudge({}, name="noisy"))
    write_card(make_card(seen, metrics, cases, ["scripted noisy"]), path)
    return path


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({}, ""),
        ({'name="noisy"': 'name="other"'}, "is stale: judge: scripted noisy → scripted other"),
        ({"Is it good?": "Well?"}, "is stale: metric 'Quality': node 'Good' changed"),
    ],
    ids=["fits", "judge", "criterion"],
)
def test_a_card_that_does_not_fit_is_said_to_be_stale(
    pytester: pytest.Pytester, card: Path, edit: dict[str, str], said: str
) -> None:
    text = SUITE.replace(', metric("Other", judge=ScriptedJudge({"Good": True}))', "")
    for old, new in edit.items():
        text = text.replace(old, new)
    pytester.makepyfile(text)
    notes = [
        line for line in run(pytester, f"--evals-card={card}").output.splitlines()
        if line.startswith("votes: ")
    ]  # fmt: skip
    assert notes == ([f"votes: the judge card {card} {said}"] if said else [])


def test_a_vote_that_a_recording_lacks_is_reported_with_the_judge_that_answered(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_it=f"""{JUDGED}
def judged_by(name, verdict):
    return metric(name, judge=ScriptedJudge({{"Good": verdict}}, name=name))


@pytest.mark.evals(votes=7)
def test_it():
    passing, failing = judged_by("kind", True), judged_by("short", False)
    assert_test(good, [passing, failing, judged_by("true", False)])
"""
    )
    run(pytester, "--evals=record")
    recording = pytester.path / "recordings" / "test_it.jsonl"
    head, *rows = map(json.loads, recording.read_text("utf-8").splitlines())
    (lacking,) = (key for key, name in head["judges"].items() if "true" in name)
    kept = [row for row in rows if row["judge"] != lacking or not row["sample"]]
    assert 0 < len(kept) < len(rows)
    lines = [json.dumps(row) + "\n" for row in (head, *kept)]
    recording.write_text("".join(lines), "utf-8")
    output = run(pytester, "--evals=replay").output
    assert "0.3 < 0.5 short: Good" in output
    assert "answer    no · recorded · judge scripted short" in output


def test_what_no_answer_can_change_is_not_judged_again(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""{JUDGED}
from dagengine.metrics import ExactMatchMetric


@pytest.mark.evals(votes=9)
def test_exactly():
    one = LLMTestCase(input="x", actual_output="bad", expected_output="other")
    assert_test(one, [quality, ExactMatchMetric()])


@pytest.mark.evals(votes=9)
def test_without_a_score():
    assert_test(LLMTestCase(input="x"), [quality])
""")
    left = run(pytester)
    assert [event[2] for event in left.outcomes] == ["failed", "failed"]
    assert "1 question, 1 judge call;" in left.output
    assert "judged again" not in left.output


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("vote=3", r"has no argument 'vote'; did you mean 'votes'\?"),
        ("3", "takes names, such as votes=7, and no 3"),
        ("votes=0", "votes must be a whole number from 1 on, got 0"),
        ("votes=3", r"votes=3 cannot decide by Sprt\(noise=0.2, error=0.01\), which needs a "
         "lead of 4"),
        ("votes=7, pass_rule='most'", "pass_rule must be 'sprt', 'majority' or a rule"),
        ("votes=7, pass_rule=3", "pass_rule must be a rule of dagengine.voting, got 3"),
        ("pass_rule='majority'", "pass_rule says when votes decide: give votes=, too"),
        ("immediate=1", "immediate must be True or False, got 1"),
    ],
)  # fmt: skip
def test_a_mark_that_makes_no_sense_is_refused_before_anything_runs(
    pytester: pytest.Pytester, mark: str, said: str
) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.evals({mark})\ndef test_it(): 1 / 0")
    done = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:asyncio")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.re_match_lines([rf".*::test_it: @pytest.mark.evals {said}"])


def test_a_rule_says_what_votes_are_worth() -> None:
    assert decide_votes([False] * 4, Sprt()).decision == "failed"
    assert decide_votes([False, True, True, True, True, True], Sprt()).decision == "passed"
    assert decide_votes([False, False, True], Sprt()).decision == "unsure"
    assert decide_votes([False, False, True], Curtailed()).decision == "failed"
    assert decide_votes([False, True], Curtailed()).decision == "unsure"
    votes = decide_votes([False, False, False, None], Sprt())
    assert votes.p == pytest.approx(64 / 65)
