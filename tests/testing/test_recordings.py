"""Recorded answers: without a key and without a network a suite ends as it did with the judge."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from graphs.packing_judge import PackingJudge  # noqa: F401 - suites use it
from programs.evaluations import JUDGED, Left, run

from dagengine.errors import InputError
from dagengine.testing.recordings import Recording

pytest_plugins = ["pytester"]

SUITE = f"""{JUDGED}
@pytest.mark.parametrize("one", [case("good one"), case("bad two"), case("good three")])
def test_each(one):
    assert_test(one, [quality, metric("Other", "Is it fine?")])


def test_equal():
    assert_test(case("good one"), [quality])
"""
# No judge can be asked: whoever tries fails.
SILENT = SUITE.replace("asked.append(", "raise RuntimeError('asked') or asked.append(", 1)


def recorded(pytester: pytest.Pytester, text: str = SUITE) -> Left:
    pytester.makepyfile(test_it=text)
    return run(pytester, "--evals=record")


def recording(pytester: pytest.Pytester) -> Path:
    return Path(pytester.path, "recordings", "test_it.jsonl")


def test_a_recorded_suite_ends_the_same_and_asks_nobody(pytester: pytest.Pytester) -> None:
    live = recorded(pytester)
    before = recording(pytester).read_bytes()
    pytester.makepyfile(test_it=SILENT)
    again = run(pytester, "--evals=replay")
    assert (again.code, again.events) == (live.code, live.events)
    assert again.junit.replace(" · recorded", "") == live.junit
    assert recording(pytester).read_bytes() == before
    assert "7 of 7 answers recorded" in again.output
    assert run(pytester, "--evals=record").events == live.events, "nothing is missing"
    assert recording(pytester).read_bytes() == before


def test_where_ci_is_set_a_recording_is_replayed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = recorded(pytester)
    pytester.makepyfile(test_it=SILENT)
    monkeypatch.setenv("CI", "1")
    assert run(pytester).events == live.events
    assert "asked" in run(pytester, "--evals=live").output


def test_a_recording_is_sorted_readable_and_holds_no_judged_text(
    pytester: pytest.Pytester,
) -> None:
    recorded(pytester)
    header, *rows = map(json.loads, recording(pytester).read_text(encoding="utf-8").splitlines())
    assert header["format"] == 1
    assert list(header["judges"].values()) == ["scripted toy"]
    assert rows == sorted(rows, key=lambda row: (row["node"], row["key"]))
    assert list(rows[0]) == ["node", "key", "judge", "sample", "prompt", "parts", "raw", "usage",
                             "mode"]  # fmt: skip
    assert "good three" not in recording(pytester).read_text(encoding="utf-8")
    assert set(rows[0]["parts"]["evidence"]) == {"actual_output"}


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"Is it good?": "Is it very good?"},
         "Quality: Good: no recorded answer; against the nearest: instructions changed; evidence, "
         "answer form and options equal. Run --evals=record"),
        ({"good three": "good four"},
         "evidence changed (actual_output); instructions, answer form and options equal"),
        ({"Is it good?": "Well?", 'name="Good"': 'name="Goody"'},
         "nothing is recorded for this node; did you mean 'Good'?"),
        ({'name="toy"': 'name="other"'},
         "it was recorded with the judge 'scripted toy', and is asked of 'scripted other': a "
         "recording is for one judge"),
        ({', name="toy"': ""}, "has no durable identity, so its answers are not recorded"),
    ],
    ids=["criterion", "evidence", "node", "judge", "judge without a name"],
)  # fmt: skip
def test_what_is_not_recorded_is_an_error_that_says_what_changed(
    pytester: pytest.Pytester, edit: dict[str, str], said: str
) -> None:
    recorded(pytester)
    text = SILENT
    for old, new in edit.items():
        text = text.replace(old, new)
    pytester.makepyfile(test_it=text)
    left = run(pytester, "--evals=replay", "-rA")
    assert left.code == 1
    assert said in left.output
    assert re.search(r"\d errors? in", left.output.splitlines()[-1])
    assert "RuntimeError" not in left.output
    assert re.search(r"[0-6] of 7 answers recorded", left.output)


EXPECTED = f"""{JUDGED}
@pytest.mark.xfail(reason="known")
def test_fails():
    assert_test(bad, [quality])


def test_raises():
    with pytest.raises(AssertionError):
        assert_test(bad, [quality])


def test_needs_a_score(dagengine_case):
    assert dagengine_case(bad, [quality]).metrics[0].score == 0.3


@pytest.mark.evals(votes=3, pass_rule="majority")
@pytest.mark.xfail(reason="known")
def test_votes():
    assert_test(case("bad, again"), [quality])
"""


def test_what_is_not_recorded_is_no_failure_that_a_test_expects(pytester: pytest.Pytester) -> None:
    live = recorded(pytester, EXPECTED)
    assert live.code == 0
    assert run(pytester, "--evals=replay").events == live.events
    pytester.makepyfile(test_it=EXPECTED.replace('votes=3, pass_rule="majority"', "votes=9"))
    left = run(pytester, "--evals=replay")
    assert [event[2] for event in left.outcomes] == ["skipped", "passed", "passed", "failed"]
    assert "options changed from Options(" in left.outcomes[-1][-1]
    pytester.makepyfile(test_it=EXPECTED.replace("Is it good?", "Is it fine?"))
    left = run(pytester, "--evals=replay", "--evals-ignore-errors")
    assert {event[2] for event in left.outcomes} == {"failed"}
    assert "4 errors in" in left.output
    assert "/dagengine/" not in left.output, "a frame of ours"


def test_the_odds_of_an_answer_are_recorded(pytester: pytest.Pytester) -> None:
    suite = f"""{JUDGED}
from dataclasses import replace

from graphs.packing_judge import PackingJudge


class Unsure(PackingJudge):
    def _outcome(self, question):
        return replace(super()._outcome(question), odds=((True, 0.75), (False, 0.25)))


def test_expectation(dagengine_case):
    quality.expected = True
    row = dagengine_case(good, [quality], model=Unsure())
    assert row.metrics[0].score == pytest.approx(0.75 + 0.3 / 4)
""".replace('model=judge or ScriptedJudge(answer, name="toy")', "model=judge")
    live = recorded(pytester, suite)
    assert live.code == 0, live.output
    again = run(pytester, "--evals=replay")
    assert again.code == 0, again.output


def test_without_a_recording_a_replay_says_how_to_make_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=SILENT)
    assert "run --evals=record" in run(pytester, "--evals=replay").output
    assert not recording(pytester).exists()


def test_record_adds_and_refresh_drops_what_nobody_asks(pytester: pytest.Pytester) -> None:
    recorded(pytester)
    before = recording(pytester).read_text(encoding="utf-8").splitlines()
    fewer = SUITE.replace(', case("bad two")', "").replace("good three", "good four")
    recorded(pytester, fewer)
    added = recording(pytester).read_text(encoding="utf-8").splitlines()
    assert set(before) < set(added)
    assert len(added) == len(before) + 2
    run(pytester, "--evals=refresh", "-k", "good one")
    assert recording(pytester).read_text(encoding="utf-8").splitlines() == added
    cut = fewer.replace("def test_equal():", "def test_equal():\n    pytest.skip('not here')")
    recorded(pytester, cut)
    run(pytester, "--evals=refresh")
    assert recording(pytester).read_text(encoding="utf-8").splitlines() == added
    recorded(pytester, fewer)
    run(pytester, "--evals=refresh")
    kept = recording(pytester).read_text(encoding="utf-8").splitlines()
    assert set(kept) < set(added)
    assert len(kept) == 1 + 4


@pytest.mark.parametrize("secret", ["sk-very-secret", 'sk-"very"\\secret\u00e9'])
def test_a_secret_does_not_get_into_a_recording(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("TOY_API_KEY", secret)
    recorded(pytester, SUITE.replace('"so it seems"', repr(f"it says {secret}")))
    text = recording(pytester).read_text(encoding="utf-8")
    assert "it says …" in text
    assert "secret" not in text


def test_an_answer_that_holds_a_word_which_is_a_secret_is_not_recorded(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_PASSWORD", "abracadabra")  # a word is hidden in no answer
    left = recorded(pytester, SUITE.replace("so it seems", "it says abracadabra"))
    assert "not recorded: an answer to 'Good' holds a secret" in left.output
    assert not recording(pytester).exists()


def test_the_failures_of_a_judge_are_replayed(pytester: pytest.Pytester) -> None:
    refusing = SUITE.replace(
        'return {"verdict"', 'from dagengine.errors import RefusedError\n    '
        'return RefusedError("no") if "bad" in asked[-1] else {"verdict"', 1)  # fmt: skip
    live = recorded(pytester, refusing)
    assert "judge_refused" in live.output
    assert run(pytester, "--evals=replay").events == live.events


def test_a_damaged_recording_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "test_it.jsonl"
    path.write_text('{"format": 1, "judges": {}}\n<<<<<<< HEAD\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2 of the recording .*test_it\.jsonl"):
        Recording.read(path)
    path.write_text('{"format": 2, "judges": {}}\n', encoding="utf-8")
    with pytest.raises(InputError, match="has format 2"):
        Recording.read(path)
