"""Rubrics: points by a formula of one's own, what is no rubric, and what judges may say."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dagengine import Limits, attack, compile_metrics, evaluate
from dagengine.cli.commands import app
from dagengine.errors import InputError
from dagengine.estimate.estimator import estimate
from dagengine.graph.examples_and_quotes import Example
from dagengine.improvement.search_plan import changeable
from dagengine.judges import ScriptedJudge
from dagengine.metrics import RubricItem, RubricMetric
from dagengine.prompts.instructions import parts_of
from dagengine.question import Question
from dagengine.results import EvaluationResult, MetricResult, OutcomeKind
from dagengine.test_case import LLMTestCase
from dagengine.voting import voted

FIELD = "additional_metadata.rubrics"
Verdicts = Callable[[str, LLMTestCase | str], str]


def criteria_in(question: Question[Any]) -> list[str]:
    """The criteria that a question is about."""
    _, evidence = parts_of(question.messages)
    return [piece.text for piece in evidence if piece.label.startswith("criterion ")]


def output_in(question: Question[Any]) -> str:
    _, evidence = parts_of(question.messages)
    return next(piece.text for piece in evidence if piece.label == "actual_output")


class RubricJudge:
    """Gives each criterion the verdict of a mapping or a function, and notes the questions."""

    def __init__(self, verdicts: Mapping[str, str] | Callable[[str, str], str]) -> None:
        self.verdict = verdicts if callable(verdicts) else lambda text, _: verdicts[text]
        self.asked: list[list[str]] = []

    def __call__(self, question: Question[Any]) -> Any:
        criteria, output = criteria_in(question), output_in(question)
        self.asked.append(criteria)
        said = [{"verdict": self.verdict(c, output), "reason": f"as {c}"} for c in criteria]
        several = "verdicts" in question.answer_type.model_fields
        return {"verdicts": {str(n): v for n, v in enumerate(said, 1)}} if several else said[0]


def case(number: int = 0, rubric: Any = None, tags: Sequence[str] = ()) -> LLMTestCase:
    return LLMTestCase(
        input="Can I send it back?",
        actual_output=f"answer {number}",
        tags=list(tags) or None,
        additional_metadata=None if rubric is None else {"rubrics": rubric},
    )


def judged(
    metric: RubricMetric, judge: Any, cases: Sequence[LLMTestCase] | None = None
) -> EvaluationResult:
    limits = Limits(attempts=1)
    return evaluate(
        cases or [case()], [metric], model=ScriptedJudge(judge), limits=limits, show=False
    )


def one(criteria: Any, verdicts: Mapping[str, str], **settings: Any) -> MetricResult:
    judge = RubricJudge(verdicts)
    return judged(RubricMetric("R", criteria, **settings), judge).rows[0].metrics[0]


# The formula of HealthBench, written for this test: None without positive points.
def health_bench(points: Sequence[float], met: Sequence[bool]) -> float | None:
    possible = sum(p for p in points if p > 0)
    return (
        sum(p for p, yes in zip(points, met, strict=True) if yes) / possible if possible else None
    )


def random_rubrics(count: int) -> list[tuple[list[dict[str, Any]], list[bool]]]:
    draw = random.Random(7)
    made = []
    for number in range(count):
        rubric = [
            {
                "criterion": f"case {number} says {place}",
                "points": 7 if place == 0 else draw.choice([-10, -8, -3, 1, 2, 5, 9]),
                "tags": draw.sample(["axis:accuracy", "axis:context", "level:example", "x"], 2),
            }
            for place in range(draw.randint(2, 28))
        ]
        made.append((rubric, [draw.random() < 0.5 for _ in rubric]))
    return made


@pytest.mark.parametrize("per_call", [1, 7, "all"])
@pytest.mark.filterwarnings("ignore:.*criteria in one call")
def test_points_are_those_of_the_formula_of_health_bench_by_tag_too(per_call: Any) -> None:
    rubrics = random_rubrics(200)
    truth = {
        item["criterion"]: met
        for rubric, every in rubrics
        for item, met in zip(rubric, every, strict=True)
    }
    metric = RubricMetric("HealthBench", FIELD, per_call=per_call)
    judge = RubricJudge(lambda text, _: "met" if truth[text] else "unmet")
    cases = [
        case(n, rubric, [["theme:a", "theme:b"][n % 2]]) for n, (rubric, _) in enumerate(rubrics)
    ]
    done = judged(metric, judge, cases)
    unclipped = []
    by_tag: dict[str, list[float]] = {}
    for (rubric, met), row in zip(rubrics, done.rows, strict=True):
        result = row.metrics[0]
        expected = health_bench([item["points"] for item in rubric], met)
        assert expected is not None
        assert result.points is not None
        assert result.points.share == pytest.approx(expected, abs=1e-12)
        assert result.score == pytest.approx(min(max(expected, 0), 1), abs=1e-12)
        unclipped.append(expected)
        for tag in {tag for item in rubric for tag in item["tags"]}:
            own = [(i["points"], m) for i, m in zip(rubric, met, strict=True) if tag in i["tags"]]
            share = health_bench([p for p, _ in own], [m for _, m in own])
            won = result.points.tags.get(tag)
            assert (share is None) == (won is None)
            if share is not None and won is not None:
                assert won[0] / won[1] == pytest.approx(share, abs=1e-12)
                by_tag.setdefault(tag, []).append(share)
    counts = {1: 1, 7: 7, "all": 99}
    assert max(map(len, judge.asked)) <= counts[per_call]
    assert sum(map(len, judge.asked)) == sum(len(rubric) for rubric, _ in rubrics)
    figures = done.summary()["HealthBench"].points
    assert figures is not None
    mean = sum(unclipped) / len(unclipped)
    assert figures.share.mean == pytest.approx(mean, abs=1e-12)
    assert figures.clipped == pytest.approx(min(max(mean, 0), 1), abs=1e-12)
    for tag, shares in by_tag.items():
        assert figures.tags[tag].mean == pytest.approx(sum(shares) / len(shares), abs=1e-12)
        assert figures.tags[tag].cases == len(shares)
    theme = done.summary().tags["theme:a"][0].points
    assert theme is not None
    assert theme.share.mean == pytest.approx(sum(unclipped[::2]) / 100, abs=1e-12)


A, B, FAULT = RubricItem("a", 5), RubricItem("b", 3), RubricItem("fault", -8)
TONE = RubricItem("tone", 2, levels={"rude": 0, "neutral": 0.5, "warm": 1})
COLD = RubricItem("cold", -4, levels={"no": 0, "rather": 0.5, "very": 1})
MUST, MUST_NOT = RubricItem("must", gate=True), RubricItem("must not", -1, gate=True)


@pytest.mark.parametrize(
    ("criteria", "verdicts", "settings", "share", "score"),
    [
        ([A, B], {"a": "met", "b": "unmet"}, {}, 5 / 8, 5 / 8),
        ([A, FAULT], {"a": "met", "fault": "met"}, {}, -3 / 5, 0),
        ([A, TONE], {"a": "met", "tone": "neutral"}, {}, 6 / 7, 6 / 7),
        ([A, COLD], {"a": "met", "cold": "rather"}, {}, 3 / 5, 3 / 5),
        ([FAULT, RubricItem("worse", -2)], {"fault": "unmet", "worse": "met"}, {}, 0.8, 0.8),
        ([FAULT], {"fault": "met"}, {}, 0, 0),
        ([A, RubricItem("told", 0)], {"a": "met", "told": "unmet"}, {}, 1, 1),
        ([A, A], {"a": "met"}, {}, 1, 1),
        (["a", {"requirement": "b", "weight": 3}], {"a": "unmet", "b": "met"}, {}, 0.75, 0.75),
        ([A, B], {"a": "met", "b": "unmet"}, {"strict_mode": True}, 5 / 8, 0),
        ([A, MUST], {"a": "met", "must": "met"}, {}, 1, 1),
        ([A, MUST], {"a": "met", "must": "unmet"}, {}, 0, 0),
        ([A, MUST_NOT], {"a": "met", "must not": "met"}, {}, 0, 0),
        ([A, MUST_NOT], {"a": "met", "must not": "unmet"}, {}, 1, 1),
        ([FAULT, MUST], {"must": "unmet"}, {}, 0, 0),
        ([MUST, MUST_NOT], {"must": "met", "must not": "unmet"}, {}, None, 1),
        ([MUST, MUST_NOT], {"must": "met", "must not": "met"}, {}, None, 0),
        ([A, B], {"a": "met", "b": "cannot tell"}, {"unsure": "skip"}, 1, 1),
        ([A, B], {"a": "met", "b": "cannot tell"}, {"unsure": "unmet"}, 5 / 8, 5 / 8),
        ([A, FAULT], {"a": "met", "fault": "cannot tell"}, {"unsure": "unmet"}, 1, 1),
        ([A, FAULT], {"a": "met", "fault": "cannot tell"}, {"unsure": "worst"}, -0.6, 0),
        ([A, TONE], {"a": "met", "tone": "cannot tell"}, {"unsure": "worst"}, 5 / 7, 5 / 7),
        ([A, COLD], {"a": "met", "cold": "cannot tell"}, {"unsure": "worst"}, 0.2, 0.2),
        ([A, MUST], {"a": "met", "must": "cannot tell"}, {"unsure": "worst"}, 0, 0),
        ([A, MUST], {"a": "met", "must": "cannot tell"}, {"unsure": "unmet"}, 0, 0),
        ([A, MUST_NOT], {"a": "met", "must not": "cannot tell"}, {"unsure": "unmet"}, 1, 1),
        ([A, MUST_NOT], {"a": "met", "must not": "cannot tell"}, {"unsure": "worst"}, 0, 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("per_call", [1, 2, "all"])
@pytest.mark.filterwarnings("ignore:.*occurs 2 times")
def test_points_and_score_of_a_rubric(
    criteria: Any, verdicts: Any, settings: Any, share: float | None, score: float, per_call: Any
) -> None:
    result = one(criteria, verdicts, per_call=per_call, **settings)
    assert result.failure is None
    assert result.score == pytest.approx(score, abs=1e-12)
    points = result.points
    # A rubric of gates alone has no points.
    if share is None:
        assert points is None or points.possible == 0
    else:
        assert points is not None
        assert points.share == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(
    ("criteria", "verdicts", "settings", "kind", "words"),
    [
        ([], {}, {}, "skipped", "no criterion with points"),
        ([RubricItem("a", 0)], {}, {}, "skipped", "no criterion with points"),
        ([A, FAULT], {"a": "cannot tell", "fault": "unmet"}, {"unsure": "skip"}, "judge_refused",
         "cannot tell any criterion with points to win"),
        ([FAULT], {"fault": "cannot tell"}, {"unsure": "skip"}, "judge_refused", "cannot tell"),
        ([A], {"a": "cannot tell"}, {"unsure": "fail"}, "judge_refused", "whether 'a' is met (as"),
        ([A], {"a": "cannot tell"}, {}, "unparseable", "cannot tell"),
    ],
)  # fmt: skip
def test_a_rubric_without_a_score_says_why(
    criteria: Any, verdicts: Any, settings: Any, kind: str, words: str
) -> None:
    result = one(criteria, verdicts, **settings)
    assert result.score is None
    assert result.failure is not None
    assert result.failure.kind == kind
    assert words in result.failure.message


NAN, HUGE = float("nan"), 1e10


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"criterion": "a", "points": NAN}, "points must be a number from -1e"),
        ({"criterion": "a", "points": HUGE}, "points must be a number from -1e"),
        ({"criterion": "a", "points": True}, "points must be a number"),
        ({"criterion": "a", "points": "5"}, "points must be a number"),
        ({"criterion": " "}, "must be a text that says something"),
        ({"points": 5}, "without a text: write 'criterion'"),
        ({"criterion": "a", "requirement": "b"}, "which are the same"),
        ({"criterion": "a", "points": 1, "weight": 1}, "which are the same"),
        ({"criterion": "a", "pionts": 5}, "did you mean 'points'?"),
        ({"criterion": "a", "tags": "safety"}, "tags must be a list of texts"),
        ({"criterion": "a", "levels": {"only": 1}}, "two labels or more"),
        ({"criterion": "a", "levels": {"low": 0, "high": 2}}, "from 0 to 1, got 2"),
        ({"criterion": "a", "levels": {"low": 0, "cannot tell": 1}}, "is no label of a level"),
        ({"criterion": "a", "options": [{"label": "low"}, "high"]}, "options are"),
        ({"criterion": "a", "choices": "low"}, "choices are two labels or more"),
        ({"criterion": "a", "gate": "yes"}, "gate must be True or False"),
        ({"criterion": "a", "gate": True, "points": 5}, "a gate has no points and no levels"),
        ({"criterion": "a", "gate": True, "levels": {"low": 0, "high": 1}}, "has levels"),
        (5, "a criterion is a RubricItem, a dict or a text, got 5"),
    ],
)  # fmt: skip
def test_what_is_no_criterion_is_an_error_of_the_metric_and_of_a_case_before_any_call(
    item: Any, words: str
) -> None:
    with pytest.raises(InputError, match="criterion number 2") as raised:
        RubricMetric("R", ["first", item])
    assert words in str(raised.value)
    judge = RubricJudge({})
    cases = [case(n, ["fine"]) for n in range(41)] + [case(41, ["fine", item])]
    with pytest.raises(InputError, match=r"case 41: `additional_metadata\.rubrics`: ") as raised:
        judged(RubricMetric("R", FIELD), judge, cases)
    assert words in str(raised.value)
    assert judge.asked == []


@pytest.mark.parametrize(
    ("criteria", "settings", "words"),
    [
        ("The answer is polite.", {}, "polite"),
        ([A, MUST], {"unsure": "skip"}, "unsure='skip' leaves a gate neither open nor closed"),
        ([A], {"unsure": "skipp"}, "did you mean 'skip'?"),
        ([A], {"per_call": 0}, "per_call is a whole number from 1 on, or 'all'"),
        ([A], {"per_call": "every"}, "per_call is a whole number"),
        ({"criterion": "a"}, {}, "a rubric is a list of criteria"),
    ],
)
def test_what_is_no_rubric_is_an_error(criteria: Any, settings: Any, words: str) -> None:
    with pytest.raises(InputError) as raised:
        compile_metrics([RubricMetric("R", criteria, **settings)])
    assert words in str(raised.value)


def test_criteria_behind_the_first_cases_that_are_none_cost_their_row_alone() -> None:
    judge = RubricJudge(lambda text, _: "met")

    def cases() -> Any:
        yield from (case(n, ["fine"]) for n in range(3))
        yield case(3, [{"criterion": "a", "points": NAN}])

    done = judged(RubricMetric("R", FIELD), judge, cases())
    kinds = [row.metrics[0].outcome for row in done.rows]
    assert kinds == [OutcomeKind.OK] * 3 + [OutcomeKind.INVALID_CASE]
    assert len(judge.asked) == 3


def test_a_rubric_in_the_cell_of_a_table_is_json_and_a_case_without_one_lacks_a_field() -> None:
    text = '[{"text": "a", "choices": ["no", "partly", "yes"], "points": 4}]'
    done = judged(RubricMetric("R", FIELD), RubricJudge({"a": "partly"}), [case(0, text), case(1)])
    assert done.rows[0].metrics[0].score == 0.5
    assert done.rows[1].metrics[0].outcome == OutcomeKind.MISSING_FIELD


def test_equal_criteria_count_as_often_as_they_stand_are_asked_once_and_warned_of() -> None:
    with pytest.warns(UserWarning, match="'a' occurs 2 times"):
        metric = RubricMetric("R", [A, RubricItem("a", 3), B], per_call="all")
    judge = RubricJudge({"a": "met", "b": "unmet"})
    result = judged(metric, judge).rows[0].metrics[0]
    assert judge.asked == [["a", "b"]]
    assert result.points is not None
    assert (result.points.won, result.points.possible) == (8, 11)


def test_criteria_with_other_levels_are_asked_for_in_other_questions_at_the_same_time() -> None:
    steep = RubricItem("steep", levels={"rude": 0, "neutral": 0.1, "warm": 1})
    judge = RubricJudge({"a": "met", "b": "met", "tone": "warm", "steep": "neutral"})
    result = judged(RubricMetric("R", [A, TONE, B, steep], per_call="all"), judge)
    assert sorted(judge.asked) == [["a", "b"], ["tone", "steep"]]
    assert result.rows[0].metrics[0].score == pytest.approx((5 + 3 + 2 + 0.1) / 11)


def test_gates_are_asked_first_and_a_closed_one_ends_the_case() -> None:
    judge = RubricJudge({"must": "unmet", "must not": "unmet"})
    metric = RubricMetric("R", [A, MUST, RubricItem("b", 3, tags=["t"]), MUST_NOT])
    result = judged(metric, judge).rows[0].metrics[0]
    assert sorted(judge.asked) == [["must"], ["must not"]]
    assert result.path == (("gate", "closed"),)
    assert result.points is not None
    assert result.points.model_dump() == {"won": 0, "possible": 8, "tags": {"t": (0, 3)}}
    assert "unmet: must (as must)" in (result.reason or "")


SLOPPY: dict[str, Callable[[dict[str, Any]], Any]] = {
    "missing": lambda said: {n: v for n, v in said.items() if n != "7"},
    "doubled": lambda said: [{**v, "number": int(n)} for n, v in [*said.items(), ("7", said["7"])]],
    "additional": lambda said: said | {"51": said["50"]},
    "additional in a list": lambda said: [
        {**v, "number": n} for n, v in enumerate([*said.values(), said["1"]], 1)
    ],
}


@pytest.mark.parametrize("sloppy", SLOPPY)
@pytest.mark.filterwarnings("ignore:.*criteria in one call")
def test_one_verdict_too_few_or_too_many_of_fifty_costs_one_question(sloppy: str) -> None:
    texts = [f"criterion {n}" for n in range(50)]
    inner = RubricJudge(lambda text, _: "met" if int(text.split()[1]) % 2 else "unmet")

    def judge(question: Question[Any]) -> Any:
        answer = inner(question)
        return {"verdicts": SLOPPY[sloppy](answer["verdicts"])} if "verdicts" in answer else answer

    done = judged(RubricMetric("R", texts, per_call="all"), judge)
    assert done.rows[0].metrics[0].score == 0.5
    assert done.totals.calls == 2


def test_an_edited_criterion_leaves_the_stored_answers_of_the_others(tmp_path: Path) -> None:
    judge = RubricJudge(lambda text, _: "met")
    for criteria in ([A, B], [A, RubricItem("b, in words", 3)]):
        evaluate(
            [case()], [RubricMetric("R", criteria)], model=ScriptedJudge(judge, name="script"),
            store=tmp_path / "answers.db", show=False,
        )  # fmt: skip
    assert sorted(judge.asked) == [["a"], ["b"], ["b, in words"]]


def test_points_are_hidden_from_the_judge_unless_they_are_to_be_shown() -> None:
    seen: list[str] = []
    for shown in (False, True):
        judge = RubricJudge({"fault": "unmet", "fault (-8 points)": "unmet"})
        result = judged(RubricMetric("R", [FAULT], show_points=shown), judge).rows[0].metrics[0]
        assert result.score == 1
        seen += judge.asked[0]
    assert seen == ["fault", "fault (-8 points)"]


def test_calls_are_those_of_the_plan() -> None:
    cases = [
        case(n, [f"{n} says {k}" for k in range(10)] + [{"criterion": f"{n}!", "gate": True}])
        for n in range(40)
    ]
    metric = RubricMetric("R", FIELD)
    forecast = estimate(compile_metrics([metric]), cases, items=5)
    done = judged(metric, RubricJudge(lambda text, _: "met"), cases)
    assert done.totals.calls == 440 == forecast.asked.most
    no_gates = [case(n, [f"{n} says {k}" for k in range(10)]) for n in range(40)]
    forecast = estimate(compile_metrics([metric]), no_gates, items=5)
    assert forecast.asked.least == forecast.asked.most == 400


def test_what_costs_points_comes_first_in_a_reason_with_signs() -> None:
    criteria = [RubricItem("names the period", 7), FAULT, B, TONE]
    verdicts = {"names the period": "met", "fault": "met", "b": "unmet", "tone": "neutral"}
    reason = one(criteria, verdicts).reason or ""
    first, second, *more = reason.splitlines()
    assert first == "\N{MINUS SIGN}8 fault · 0 of 3 b · 1 of 2 tone → neutral · 1 more"
    assert second == "0 of 12 points = 0"
    assert more[0] == "\N{MINUS SIGN}8 fault (as fault)"
    kept = one([A, FAULT], {"a": "met", "fault": "cannot tell"}, unsure="unmet").reason or ""
    assert "1 of the faults count as not there" in kept


def test_quotes_examples_and_votes_are_those_of_other_lists() -> None:
    metric = RubricMetric(
        "R", [A, B], quote="required", examples=[Example({"criterion": "x"}, "met")]
    )

    def judge(question: Question[Any]) -> Any:
        assert "solved example 1 of 1" in question.messages[-1]["content"]
        met = "met" if "a" in criteria_in(question) else "unmet"
        quote = {"piece": "actual_output", "text": "answer"}
        return {"quotes": [quote], "absent": "", "reason": "r", "verdict": met}

    result = judged(metric, judge).rows[0].metrics[0]
    assert result.score == 5 / 8
    quotes = next(step.item_quotes for step in result.steps if step.node == "verdicts")
    assert [own[0].text for own in quotes] == ["answer", "answer"]
    several: Any = voted(RubricMetric("R", [A, B]), 3)
    votes = judged(several, RubricJudge({"a": "met", "b": "unmet"}))
    assert votes.rows[0].metrics[0].score == 5 / 8


def test_a_thousand_criteria_in_one_case_are_judged() -> None:
    texts = [f"criterion {n}" for n in range(1_000)]
    done = judged(RubricMetric("R", texts, per_call=20), RubricJudge(lambda text, _: "met"))
    assert done.rows[0].metrics[0].score == 1
    assert done.totals.calls == 50


def test_what_changed_between_runs_is_told_by_criterion_whatever_their_order(
    tmp_path: Path,
) -> None:
    named, other = RubricItem("Names the period", 3, name="period"), RubricItem("a", 5)
    edited = RubricItem("Names the period in days", 3, name="period")
    verdicts = {"a": "met", "Names the period": "met", "Names the period in days": "unmet"}
    for folder, criteria in (("old", [other, named]), ("new", [edited, other])):
        evaluate(
            [case()], [RubricMetric("R", criteria)], out=tmp_path / folder, show=False,
            model=ScriptedJudge(RubricJudge(verdicts), name="script"),
        )  # fmt: skip
    ended = CliRunner().invoke(app, ["diff", str(tmp_path / "old"), str(tmp_path / "new")])
    squeezed = re.sub(r"[│\s]", "", ended.output)
    assert "period:met" in squeezed
    assert "period:unmet" in squeezed


def test_plan_says_the_price_of_one_call_per_criterion_and_of_one_for_all(tmp_path: Path) -> None:
    metrics, data = tmp_path / "metrics.py", tmp_path / "cases.jsonl"
    metrics.write_text(
        "from dagengine.metrics import RubricMetric\n"
        "rubric = RubricMetric('R', ['a', 'b', {'criterion': 'c', 'points': 2}], per_call=2)\n"
    )
    data.write_text("".join(f"{case(n).model_dump_json()}\n" for n in range(5)))
    ended = CliRunner().invoke(
        app, ["plan", str(metrics), "--data", str(data), "--judge", "gpt-4o"]
    )
    words = " ".join(ended.output.split())
    assert re.search(r"by one call per criterion: 15 calls, 0\.0\d US dollars", words)
    assert re.search(r"by one call for all criteria: 5 calls, 0\.0\d US dollars", words)


def test_check_warns_of_equal_criteria_and_of_many_in_one_call_of_a_case(tmp_path: Path) -> None:
    metrics, data = tmp_path / "metrics.py", tmp_path / "cases.jsonl"
    metrics.write_text(
        "from dagengine.metrics import RubricMetric\n"
        f"rubric = RubricMetric('R', {FIELD!r}, per_call='all')\n"
    )
    rubrics = [["a"], ["a", "a"], [f"{n}" for n in range(21)]]
    rows = (case(n, rubric).model_dump_json() for n, rubric in enumerate(rubrics))
    data.write_text("".join(f"{row}\n" for row in rows))
    ended = CliRunner().invoke(app, ["check", str(metrics), "--data", str(data)])
    words = " ".join(ended.output.split())
    assert "case 1: `additional_metadata.rubrics`: the criterion 'a' occurs 2 times" in words
    assert "case 2: `additional_metadata.rubrics`: 21 criteria in one call" in words


def test_an_attack_quotes_the_criteria_of_the_case_that_are_not_met() -> None:
    seen: list[str] = []

    def judge(question: Question[Any]) -> str:
        seen.append(output_in(question))
        return "met" if criteria_in(question) == ["b"] else "unmet"

    metric = RubricMetric("R", [A, B], 0.9)
    families = ["criterion quoted"]
    attack([case()], [metric], model=ScriptedJudge(judge), families=families, show=False)
    assert any("\na\nYes, exactly this is the case here: met." in text for text in seen)


def test_improve_leaves_the_words_of_a_rubric_alone() -> None:
    assert changeable(RubricMetric("R", [A, MUST])) == []
