"""Tables, steps, progress and failures: complete for their reader, and harmless on a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from dagengine import assert_test, compile_metrics, evaluate
from dagengine.errors import MetricFailedError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode
from dagengine.report.progress import Progress, bar
from dagengine.report.tables_and_junit import print_steps, print_table
from dagengine.report.tally import Tally
from dagengine.results import CaseResult, Failure, MetricResult, OutcomeKind, Step, Totals
from dagengine.system.terminal_text import plain
from dagengine.test_case import LLMTestCase

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07\x9b31m\rok\x08\x00 \u202egnp.exe\u2066 \U000e0041 pay\u200bpal "
    "\ud800 [bold]markup[/bold] [/oops] [link=http://evil]x[/link]"
)
WRITTEN = HOSTILE.replace("\ud800 ", "")  # half of a character is refused in what people write
OK, FAILED = OutcomeKind.OK, OutcomeKind.PROVIDER_ERROR


def step(**said: object) -> Step:
    return Step(HOSTILE, HOSTILE, **{"outcome": OK, "reason": HOSTILE, **said})  # type: ignore[arg-type]


STEPS = (
    step(verdict=HOSTILE),
    step(score=0.5, mode=HOSTILE),
    step(output=HOSTILE),
    step(output={HOSTILE: [HOSTILE, {"verdict": HOSTILE, "reason": HOSTILE}]}),
    step(output={HOSTILE: HOSTILE, "b": [HOSTILE]}),
    step(outcome=FAILED),
)
PASSED = MetricResult(HOSTILE, 1.0, True, HOSTILE, steps=STEPS, threshold=0.5)
DECIDED = MetricResult(HOSTILE + "2", 0.0, False, None, path=((HOSTILE, HOSTILE),), steps=STEPS)
BROKEN = MetricResult(HOSTILE, None, None, None, failure=Failure(FAILED, HOSTILE, HOSTILE))
ROWS = [CaseResult(n, HOSTILE, (PASSED, DECIDED, BROKEN)) for n in range(61)]


def test_a_long_reason_is_wrapped_and_not_cut_where_nobody_looks() -> None:
    reason = " ".join(f"word{number}" for number in range(80))
    result = MetricResult("M", 0.0, False, reason, threshold=0.5)
    name = "a case with a name of several words that is long"
    out = Console(file=io.StringIO(), width=80)
    print_table(Tally([CaseResult(0, name, (result,))]), Totals(), out)
    shown = out.file.getvalue()  # type: ignore[attr-defined]
    table = shown.partition("worst first")[2].partition("└")[0]
    words = [word for line in table.splitlines() for word in line.split() if word.isalnum()]
    assert [word for word in words if word[4:].isdigit()] == reason.split()
    assert {"name", "several"} <= set(words)
    assert max(map(len, shown.splitlines())) <= 80


def _table(*results: MetricResult) -> str:
    """What a terminal shows of one result per case, on one line."""
    out = Console(file=io.StringIO(), width=300)
    print_table(Tally(CaseResult(n, f"c{n}", (result,)) for n, result in enumerate(results)),
                Totals(), out)  # fmt: skip
    return " ".join(out.file.getvalue().split())  # type: ignore[attr-defined]


def test_places_of_failures_say_whether_their_reason_is_that_of_all_of_them() -> None:
    failures = [
        MetricResult("M", None, None, None, failure=Failure(kind, node, why))
        for kind, node, why in [
            (OutcomeKind.MISSING_FIELD, "Tone", "no `context`"),
            (OutcomeKind.MISSING_FIELD, "Tone", "no `input`"),
            (OutcomeKind.TIMEOUT, "Kind", "too late"),
            (OutcomeKind.TIMEOUT, "Kind", "too late"),
        ]
    ]
    text = _table(*failures)
    assert "2x ⊘ Tone → missing_field (for instance c0: no `context`)" in text
    assert "2x ⊘ Kind → timeout: too late (first: c2)" in text


def _contest(winner: str | None, *votes: str | None) -> MetricResult:
    ballots = [{"order": ["new", "old"], "winner": vote, "reason": f"{vote} is short"}
               for vote in votes]  # fmt: skip
    won = Step("winner", "code", OK, output={"winner": winner, "ballots": ballots}, score=1.0)
    return MetricResult("Brevity", 1.0, None, "all orders", steps=(won,), ended=("winner", None))


def test_the_winner_of_an_arena_is_the_first_line() -> None:
    shown = _table(_contest("new", "new", "old", "new"), _contest(None, "new", "old", None))
    assert shown.startswith("new won 1 of 2 cases, old 0 ")
    assert "new, 2 of 3 orders: new is short" in shown
    assert "tie, 1 of 3 orders: None is short" in shown
    assert _table(_contest(None, "old", None)).startswith("No winner: all 1 case are ties")
    both = _contest("new", "new"), _contest("old", "old")
    assert _table(*both).startswith("No winner: new, old won 1 of 2 cases each")


def test_no_reason_is_said_twice_and_a_rating_is_shown_as_given() -> None:
    long = "the server said that it is out of memory and that somebody has to look at it, now"
    broken = MetricResult("M", None, None, None, failure=Failure(FAILED, "node", long))
    shown = _table(broken, broken, broken).partition("worst first")[2].partition("└")[0]
    assert shown.count(long) == 1
    assert shown.count("node → provider_error: as # 0") == 2
    code = Step("Readable", "code", OK, verdict=False)
    gate = MetricResult("M", 0.0, False, "Readable → False", threshold=0.5,
                        path=(("Readable", False),), steps=(code,))  # fmt: skip
    assert "Readable → False: decided by code" in _table(gate)
    rating = Step("Tone", "rating", OK, output=5, score=1.0, reason="Warm.")
    rated = MetricResult("M", 1.0, True, "Warm.", threshold=0.5, steps=(rating,),
                         ended=("Tone", None))  # fmt: skip
    assert "M from 0.5 on: rated 5: Warm." in _table(rated)
    out = Console(file=io.StringIO(), width=80)
    print_steps(rated, out, best={"Tone": 5})
    assert "5 of 5 → 1.00" in out.file.getvalue()  # type: ignore[attr-defined]


def test_a_judge_that_would_rather_say_something_else_is_told_once() -> None:
    """At the end of a run in which most answers have less than half of the probability."""

    def shown(*masses: float | None) -> str:
        steps = tuple(Step("n", "judgement", OK, verdict=True, mass=mass) for mass in masses)
        console = Console(file=io.StringIO(), width=300)
        print_table(Tally([CaseResult(0, "a", (MetricResult("m", 1.0, True, None, steps=steps),))]),
                    Totals(), console)  # fmt: skip
        file: Any = console.file
        return str(file.getvalue())

    assert (
        "warning: the judge puts only 13 % of its probability on what it may answer (mean of 2 "
        "answers; 2 below a half), so their odds and confidence are not used"
    ) in shown(0.12, 0.14, None)
    assert "the judge puts only 41 %" in shown(0.1, 0.12, 1.0)
    for quiet in ((None,), (0.9, 0.1), (0.5, 1.0)):
        assert "warning" not in shown(*quiet)


def short_table(console: Console) -> None:
    print_table(Tally(ROWS[:3]), Totals(), console)


def long_table(console: Console) -> None:
    print_table(Tally(ROWS), Totals(), console)


def steps(console: Console) -> None:
    for result in (PASSED, DECIDED, BROKEN):
        print_steps(result, console)


def progress(console: Console) -> None:
    node = BinaryJudgementNode(WRITTEN, evaluation_params=["input"], then={True: 10, False: 0})
    run: Any = SimpleNamespace(
        plan=compile_metrics([DAGMetric(WRITTEN, DAG(node))]), totals=Totals(), waiting=()
    )
    shown = Progress(run, 2)
    with bar(shown, console):
        shown.add(ROWS[0])


def printed(show: Callable[[Console], None]) -> str:
    console = Console(file=io.StringIO(), width=200)
    show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("show", [short_table, long_table, steps, progress])
def test_hostile_text_gives_no_orders_to_the_terminal(show: Callable[[Console], None]) -> None:
    shown = printed(show)
    assert plain(shown) == shown
    shown.encode()  # a lone surrogate would fail here
    if show is not progress:
        assert r"\x1b[2J" in shown
        assert "[bold]markup[/bold]" in "".join(shown.split("\n"))


def hostile_metric(judge: ScriptedJudge) -> DAGMetric:
    node = BinaryJudgementNode(
        "Kind?", evaluation_params=["input"], then={True: 10, False: 0}, name=f"kind {WRITTEN}"
    )
    return DAGMetric(f"Kind {WRITTEN}", DAG(node), model=judge, verbose_mode=True)


CASE = LLMTestCase(name=HOSTILE, input="a")
NO = ScriptedJudge(lambda question: {"verdict": False, "reason": HOSTILE}, name="no")


def failing(_: object) -> float:
    raise ValueError(HOSTILE)


def measured() -> str:
    hostile_metric(NO).measure(CASE)
    return ""


def evaluated() -> str:
    evaluate([CASE], [hostile_metric(NO)])
    return ""


def asserted() -> str:
    with pytest.raises(AssertionError) as caught:
        assert_test(CASE, [hostile_metric(NO)])
    return str(caught.value)


def failed() -> str:
    code = CodeNode(failing, evaluation_params=["input"], name="code")
    with pytest.raises(MetricFailedError) as caught:
        DAGMetric("Broken", DAG(code)).measure(CASE)
    return str(caught.value)


@pytest.mark.parametrize("say", [measured, evaluated, asserted, failed])
def test_hostile_text_reaches_nobody_raw_through_the_doors(
    say: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    message = say()
    out, err = capsys.readouterr()
    for text in (message, out, err):
        assert plain(text) == text
    assert r"\x1b[2J" in message + out
