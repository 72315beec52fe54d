"""What a session does as a whole: sharing, fixtures, limits, messages, gates."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from programs.evaluations import JUDGED, UNUSED, run, without

pytest_plugins = ["pytester"]

# A judge that answers nobody before so many questions wait: bodies must not wait for verdicts.
TOGETHER = f"""{JUDGED}
waiting = []
all_there = None


async def together(question):
    global all_there
    all_there = all_there or anyio.Event()
    waiting.append(question)
    if len(waiting) == 20:
        all_there.set()
    await all_there.wait()
    return {{"verdict": True, "reason": "all are there"}}


quick = metric(judge=ScriptedJudge(together))


@pytest.mark.parametrize("one", [case(f"good {{n}}") for n in range(20)])
def test_together(one):
    assert_test(one, [quick])
"""


def test_cases_of_many_tests_are_judged_at_once_and_named_after_their_cases(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(TOGETHER)
    left = run(pytester, "-v")
    assert left.code == 0
    assert "::test_together[good 7] PASSED" in left.output
    assert "Quality: 20 of 20 passed (100%, 95 % interval 84% to 100%), mean score 1" in left.output


def test_equal_questions_are_asked_once_in_a_session(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""{JUDGED}
@pytest.mark.parametrize("time", range(10))
def test_equal(time):
    assert_test(good, [metric(judge=quality.model)])


def test_afterwards():
    with pytest.raises(AssertionError):
        assert_test(bad, [quality])
    assert len(asked) == 2
""")
    left = run(pytester)
    assert left.code == 0, left.output
    assert "11 questions, 2 judge calls, 9 shared" in left.output
    assert re.search(r"; slowest node: \S.* \(\S+ s a call\)\n", left.output)


def test_a_session_without_evaluations_loads_nothing_and_says_nothing(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("""
import sys


def test_nothing():
    ours = {name for name in sys.modules if name.partition(".")[0] == "dagengine"}
    names = ("dagengine", "dagengine.testing", "dagengine.testing.plugin", "dagengine.unknown")
    assert ours == set(names)
""")
    done = pytester.runpytest_subprocess(*without(*UNUSED))
    done.assert_outcomes(passed=1)
    assert "= evaluations =" not in done.stdout.str()


FIXTURES = f"""{JUDGED}
log = []


class Server:
    def __init__(self):
        self.is_open = True

    def generate(self, prompt, schema=None):
        assert self.is_open, "the server is gone"
        return '{{"reason": "so", "verdict": true}}'

    async def a_generate(self, prompt, schema=None):
        await anyio.lowlevel.checkpoint()
        return self.generate(prompt, schema)


@pytest.fixture(scope="SCOPE")
def server():
    found = Server()
    yield found
    found.is_open = False


@pytest.mark.parametrize("one", [case(f"good {{n}}") for n in range(8)])
def test_asks(one, server):
    assert_test(one, [metric(judge=server)])


class TestHeld:
    def test_in_a_metric(self, server):
        assert_test(good, [metric()], model=server)
"""


@pytest.mark.parametrize("scope", ["function", "class", "module", "session"])
def test_a_fixture_that_owns_a_judge_lives_until_the_verdict(
    pytester: pytest.Pytester, scope: str
) -> None:
    pytester.makepyfile(FIXTURES.replace("SCOPE", scope))
    left = run(pytester)
    assert left.code == 0, left.output


def test_the_limits_of_a_call_hold_and_what_fails_says_so_first(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""{JUDGED}
from dagengine import Limits


def test_is_refused():
    assert_test(good, [quality], limits=Limits(max_calls=0))


def test_has_no_such_setting():
    assert_test(good, [quality], stor="x.db")
""")
    left = run(pytester)
    assert [event[-1].split(": ")[0] for event in left.outcomes] == ["over_budget", "TypeError"]
    assert "did you mean 'store'?" in left.output
    assert "/dagengine/" not in left.output, "a frame of ours"


def test_the_tree_of_a_metric_that_failed_is_shown_to_who_wants_to_see_more(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(f"{JUDGED}\n\ndef test_bad():\n    assert_test(bad, [quality])\n")
    assert "flowchart TD" not in run(pytester).output
    found = [run(pytester, "-v", *mode).output for mode in ((), ("--evals-immediate",))]
    for output in found:
        assert "Tree of Quality (Mermaid)" in output
        assert output.count("flowchart TD") == 1


def test_what_a_verbose_metric_prints_stands_in_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""{JUDGED}
def test_verbose(capsys):
    loud = metric()
    loud.verbose_mode = True
    assert_test(good, [loud])
    assert "Good" in capsys.readouterr().out
""")
    assert run(pytester).code == 0


def test_errors_can_be_skipped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""{JUDGED}
from dagengine.errors import RefusedError

refusing = metric(judge=ScriptedJudge(lambda question: RefusedError("no")))


def test_has_no_score():
    assert_test(good, [refusing])


def test_fails_all_the_same():
    assert_test(bad, [quality, metric("Other", judge=refusing.model)])
""")
    left = run(pytester, "--evals-ignore-errors", "-rs")
    assert [event[2] for event in left.outcomes] == ["skipped", "failed"]
    assert "judge_refused: Quality: Good: no" in left.output


def test_gates_decide_the_exit_code(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""{JUDGED}
@pytest.mark.xfail
@pytest.mark.parametrize("one", [case("good 1"), case("good 2"), case("bad 3")])
def test_each(one):
    one = one.model_copy(update={{"tags": [one.name.split()[0]]}})
    assert_test(one, [quality])
""")
    assert run(pytester, "--evals-min=Quality>=0.6").code == 0
    left = run(pytester, "--evals-min=Quality[good]>=100%", "--evals-min=Quality>=0.7")
    assert left.code == 1
    assert "--evals-min Quality[good]>=100%: holds, 2 of 2 passed (100%)" in left.output
    assert "--evals-min Quality>=0.7: does not hold, 2 of 3 passed (67%)" in left.output
    left = run(pytester, "--evals-min=Qualty>=0.7")
    assert "nothing was judged by this metric; did you mean 'Quality'?" in left.output
    assert left.code == 1
    pytester.makepyfile("def test_without_an_evaluation(): pass")
    assert run(pytester, "--evals-min=Quality>=0.7", "--collect-only").code == 0
    left = run(pytester, "--evals-min=Quality>=0.7")
    assert "--evals-min Quality>=0.7: nothing was judged by this metric" in left.output
    assert left.code == 1


@pytest.mark.parametrize("options", [(), ("--evals-immediate",), ("-n1",)], ids=" ".join)
def test_a_failure_that_a_gate_decides_about_is_expected(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(f"""{JUDGED}
other = metric("Other")


@pytest.mark.parametrize("one", [case("good 1"), case("bad 2")])
def test_each(one):
    assert_test(one, [quality])


def test_of_several_calls():
    assert_test(case("bad 3"), [quality])
    assert_test(case("good 4"), [other])


def test_caught():
    with pytest.raises(AssertionError, match="Quality"):
        assert_test(case("bad 5"), [quality])
""")
    needs = ["cacheprovider", *(["xdist"] if "-n1" in options else [])]
    left = run(pytester, "--evals-min=Quality>=0.2", "-rx", *options, needs=needs)
    assert left.code == 0
    ends = {event[1].partition("::")[2]: event[2] for event in left.outcomes}
    assert ends == {
        "test_each[good 1]": "passed", "test_each[bad 2]": "skipped",
        "test_of_several_calls": "skipped", "test_caught": "passed",
    }  # fmt: skip
    assert "2 passed, 2 xfailed" in left.output
    (suite,) = ElementTree.parse(pytester.path / "junit.xml").getroot()
    assert [suite.get(name) for name in ("failures", "errors", "skipped")] == ["0", "0", "2"]
    words = "--evals-min Quality>=0.2: 0.3 < 0.5 Quality"
    for skipped in suite.iter("skipped"):
        assert (skipped.get("message") or "").startswith(words)
    again = run(pytester, "--evals-min=Quality>=0.9", "--lf", *options, needs=needs)
    assert again.code == 1
    assert "2 xfailed" in again.output
    assert "does not hold, 0 of 2 passed (0%); not passed: " in again.output
    assert again.output.count("test_each[bad 2]") >= 1


@pytest.mark.parametrize("options", [(), ("--evals-immediate",)], ids=" ".join)
def test_what_no_gate_decides_about_fails_its_test(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(f"""{JUDGED}
from dagengine.errors import RefusedError

other = metric("Other")
refusing = metric(judge=ScriptedJudge(lambda question: RefusedError("no")))
tagged = case("bad").model_copy(update={{"tags": ["billing"]}})


def test_other_metric():
    assert_test(bad, [quality, other])


def test_without_score():
    assert_test(good, [refusing])


def test_without_the_tag():
    assert_test(bad, [metric("Tagged")])


def test_with_the_tag():
    assert_test(tagged, [metric("Tagged")])


def test_fails_afterwards():
    assert_test(tagged, [metric("Tagged")])
    raise ValueError("its own")


@pytest.mark.xfail(reason="its own")
def test_has_a_mark():
    assert_test(tagged, [metric("Tagged")])
""")
    gates = ["--evals-min=Quality>=0", "--evals-min=Tagged[billing]>=0"]
    left = run(pytester, *gates, "-rx", *options)
    assert left.code == 1
    ends = {event[1].partition("::")[2]: event[2] for event in left.outcomes}
    late = "skipped" if options else "failed"  # a body that waits does not get so far
    assert ends == {
        "test_other_metric": "failed", "test_without_score": "failed",
        "test_without_the_tag": "failed", "test_with_the_tag": "skipped",
        "test_fails_afterwards": late, "test_has_a_mark": "skipped",
    }  # fmt: skip
    assert "test_has_a_mark - its own" in left.output


@pytest.mark.parametrize("workers", [(), ("-n1",)])
def test_a_gate_that_does_not_hold_is_a_failure_for_a_ci_server(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(f"""{JUDGED}
@pytest.mark.xfail
@pytest.mark.parametrize("one", [case("good 1"), case("bad 3")])
def test_each(one):
    assert_test(one, [quality])
""")
    needs = ["xdist"] if workers else []
    gates = [f"--evals-min=Quality>={least}" for least in ("50%", "90%")]  # the first one holds
    run(pytester, *gates, *workers, needs=needs)
    (suite,) = ElementTree.parse(pytester.path / "junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    (failure,) = suite.iter("failure")
    assert "--evals-min Quality>=90%: does not hold, 1 of 2 passed" in (failure.text or "")


@pytest.mark.parametrize("text", ["Quality", "Quality>=2", "Quality>=x", ">=0.5"])
def test_a_gate_that_makes_no_sense_is_refused_in_a_sentence(
    pytester: pytest.Pytester, text: str
) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    left = run(pytester, f"--evals-min={text}")
    assert left.code == pytest.ExitCode.USAGE_ERROR
    assert "needs a metric and a share from 0 to 1, for instance" in left.output


def test_a_card_that_is_not_there_is_refused_before_anything_runs(
    pytester: pytest.Pytester,
) -> None:
    left = run(pytester, "--evals-card=nowhere.json")
    assert left.code == pytest.ExitCode.USAGE_ERROR
    assert "there is no judge card nowhere.json" in left.output


def test_tests_are_made_of_a_file_of_cases(pytester: pytest.Pytester) -> None:
    lines = ['{"name": "first", "input": "x", "actual_output": "good"}', '{"inputt": "x"}']
    Path(pytester.path, "cases.jsonl").write_text("\n".join(lines), encoding="utf-8")
    pytester.makepyfile(f"""{JUDGED}
from dagengine import read_cases


@pytest.mark.parametrize("one", read_cases("cases.jsonl"))
def test_each(one):
    assert_test(one, [quality])
""")
    left = run(pytester, "-W", "error")
    assert [(event[1].partition("::")[2], event[2]) for event in left.outcomes] == [
        ("test_each[first]", "passed"), ("test_each[cases.jsonl line 2]", "failed"),
    ]  # fmt: skip
    assert "cases.jsonl line 2: the field 'input' is missing" in left.output


def test_a_judge_that_has_to_be_asked_again_is_named_while_tests_wait(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagengine.testing.deferral._LOOK", 0.01)
    pytester.makepyfile(f"""{JUDGED}
from dagengine.errors import ProviderError


async def down_at_first(question):
    asked.append(question)
    if len(asked) == 1:
        raise ProviderError("cannot connect to the server", transient=True, retry_after=1.5)
    return {{"verdict": True, "reason": "so it seems"}}


def test_waits():
    assert_test(good, [metric(judge=ScriptedJudge(down_at_first))])
""")
    left = run(pytester)
    assert left.code == 0, left.output
    lines = [line for line in left.output.splitlines() if "dagengine still waits" in line]
    assert len(lines) == 1  # once, and not at every look
    assert lines[0].startswith("dagengine still waits for verdicts: 1 waits (no answer, next in ")
