"""Verdicts that quote: what judges may do wrong, what becomes of it, and where the quotes are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dagengine import assert_test
from dagengine.errors import InputError
from dagengine.evaluation import evaluate
from dagengine.graph import BinaryJudgementNode, CodeNode, MapNode, NodeValue, RatingNode, TaskNode
from dagengine.judges.scripted import ScriptedJudge
from dagengine.metrics import (
    CriteriaMetric,
    DAGMetric,
    ExactMatchMetric,
    FaithfulnessMetric,
    GEval,
    HallucinationMetric,
    ToolCorrectnessMetric,
)
from dagengine.metrics.dag import DAG
from dagengine.prompts.quotes import Quote, nearly
from dagengine.question import Answer, Capabilities, FirstMatch, Question
from dagengine.results import MetricResult, OutcomeKind, Step
from dagengine.test_case import LLMTestCase
from dagengine.voting import quoted, voted

OUTPUT = "The shop closes at 5 pm. It is shut on  “Sunday”, as the sign says."
CONTEXT = ["Open from 9 to 5 pm.", "On Sunday the shop is shut."]
CASE = LLMTestCase(
    input="When does the shop close?",
    actual_output=OUTPUT,
    expected_output="At five. Not on Sunday.",
    retrieval_context=CONTEXT,
    context=CONTEXT,
)


class Scripted:
    """A scripted judge that keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[Question[Any]] = []
        self._answers = list(answers)

    def __call__(self, question: Question[Any]) -> Any:
        self.asked.append(question)
        answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
        return answer(question) if callable(answer) else answer


def tree(**settings: Any) -> DAGMetric:
    usual: dict[str, Any] = {
        "evaluation_params": ["actual_output", "input"],
        "quote": "required",
        "name": "Right",
    }
    node = BinaryJudgementNode("Is it right?", then={True: 10, False: 0}, **{**usual, **settings})
    return DAGMetric("Tree", DAG(node))


def judged(metric: Any, script: Any, case: LLMTestCase = CASE, **more: Any) -> MetricResult:
    """The result of one case, which never costs an exception."""
    result = evaluate([case], [metric], model=ScriptedJudge(script), show=False, **more)
    (only,) = result.rows[0].metrics
    return only


def step(result: MetricResult, name: str) -> Step:
    return next(part for part in result.steps if part.node == name)


def said(text: str, piece: str = "actual_output", **more: Any) -> dict[str, Any]:
    return {"quotes": [{"piece": piece, "text": text}], "absent": "", "verdict": False, **more}


def test_a_true_quote_is_in_the_step_with_its_piece_and_its_place() -> None:
    script = Scripted(said("shut on 'Sunday'"))
    result = judged(tree(), script)
    (quote,) = step(result, "Right").quotes
    ((start, end),) = quote.places
    assert OUTPUT[start:end] == "shut on  “Sunday"
    assert (quote.piece, quote.is_supported, len(script.asked)) == ("actual_output", True, 1)


WRONG: dict[str, Any] = {
    "other words": said("closes at six"),
    "another case of letters": said("the SHOP closes"),
    "words in another order": said("at 5 pm closes"),
    "of another piece": said("When does the shop close?"),
    "an unknown piece": said("closes at 5 pm", "retrieval_context"),
    "the criterion": said("Is it right?"),
    "the rules": said("using only the material"),
    "a fence": said("<<<BEGIN actual_output>>>"),
    "a label": said("actual_output"),
    "its own reason": said("I looked at it", reason="I looked at it"),
    "a part of a word": said("hop"),
    "nothing": said(""),
    "marks alone": said("“”…"),
    "an ellipsis alone": said("…"),
    "parts in the wrong order": said("Sunday … closes"),
    "three parts": said("shop … 5 … Sunday"),
    "letters of two parts": said("T … g"),
    "no quote": {"quotes": [], "absent": "", "verdict": False},
    "no field": {"verdict": False},
    "null": {"quotes": None, "absent": None, "verdict": False},
    "blank absence": {"quotes": [], "absent": "  ", "verdict": False},
    "one of two": {
        "quotes": [
            {"piece": "actual_output", "text": "closes at six"},
            {"piece": "input", "text": "When will it open?"},
        ],
        "verdict": False,
    },
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_quote_is_asked_for_once_more_and_then_unsupported(wrong: str) -> None:
    script = Scripted(WRONG[wrong])
    result = judged(tree(), script)
    assert result.failure is not None
    assert result.failure.kind is OutcomeKind.UNSUPPORTED
    assert len(script.asked) == 2
    complaint = script.asked[1].messages[-1]["content"]
    assert result.failure.message.partition("; nearest")[0] in complaint


@pytest.mark.parametrize("wrong", WRONG)
def test_a_judge_that_quotes_rightly_when_asked_again_counts(wrong: str) -> None:
    script = Scripted(WRONG[wrong], said("closes at 5 pm"))
    result = judged(tree(), script)
    assert (result.score, len(script.asked)) == (0.0, 2)
    assert step(result, "Right").quotes[0].is_supported


def test_a_verdict_without_support_may_be_kept_and_its_quote_is_marked() -> None:
    script = Scripted(said("closes at six"))
    result = judged(tree(unsupported="keep"), script)
    assert (result.score, len(script.asked)) == (0.0, 2)
    assert step(result, "Right").quotes == (Quote("closes at six", "actual_output"),)


def test_a_long_quote_is_not_compared_with_all_of_the_material() -> None:
    pytest.importorskip("rapidfuzz")
    text = "abcde " * 200
    assert nearly(f"{text[:990]}x", text)
    assert nearly(f"{text[:1_000]}x", text) is None


def test_a_person_is_told_which_words_a_quote_is_nearest_to() -> None:
    pytest.importorskip("rapidfuzz")
    script = Scripted(said("The shop closed at 5 pm"))
    result = judged(tree(), script)
    assert result.failure is not None
    assert result.failure.message.endswith("; nearest is 'The shop closes at 5 pm'")
    assert "nearest" not in script.asked[1].messages[-1]["content"]  # not what depends on packages


def test_one_true_quote_is_enough_after_the_second_answer() -> None:
    two = {
        "quotes": [
            {"piece": "actual_output", "text": "closes at six"},
            {"piece": "actual_output", "text": "closes at 5 pm"},
        ],
        "verdict": False,
    }
    result = judged(tree(), Scripted(two))
    assert result.score == 0.0
    assert [quote.is_supported for quote in step(result, "Right").quotes] == [False, True]


def test_the_name_of_the_only_piece_that_may_be_quoted_does_not_matter() -> None:
    metric = tree(evaluation_params=["actual_output"])
    result = judged(metric, Scripted(said("closes at 5 pm", "the text")))
    assert step(result, "Right").quotes[0].piece == "actual_output"
    assert judged(metric, Scripted(said("When does", "input"))).score is None


def test_what_the_material_does_not_say_is_named_and_not_quoted() -> None:
    answer = {"quotes": [], "absent": "the hours on Monday", "verdict": False}
    script = Scripted(answer)
    result = judged(tree(), script)
    (quote,) = step(result, "Right").quotes
    assert (quote.text, quote.absent, len(script.asked)) == ("the hours on Monday", True, 1)
    assert quote.as_dict() == {"text": "the hours on Monday", "absent": True}


def test_if_any_allows_no_quote_and_no_false_one() -> None:
    silent = Scripted({"quotes": [], "verdict": True})
    assert judged(tree(quote="if_any"), silent).score == 1.0
    assert "absent" not in silent.asked[0].answer_type.model_fields
    lying = Scripted({**said("closes at six"), "verdict": True})
    result = judged(tree(quote="if_any"), lying)
    assert result.failure is not None
    assert result.failure.kind is OutcomeKind.UNSUPPORTED


def test_quotes_come_before_reason_and_verdict_in_the_schema() -> None:
    script = Scripted(said("closes at 5 pm"))
    judged(tree(), script)
    assert list(script.asked[0].answer_type.model_fields) == [
        "quotes",
        "absent",
        "reason",
        "verdict",
    ]
    assert "Quote only from `actual_output` and `input`" in script.asked[0].messages[-1]["content"]


def test_a_node_without_quotes_asks_what_it_asked_before() -> None:
    plain, quoting = Scripted({"verdict": True}), Scripted(said("closes at 5 pm"))
    judged(tree(quote=None), plain)
    judged(tree(), quoting)
    before, after = plain.asked[0], quoting.asked[0]
    assert list(before.answer_type.model_fields) == ["reason", "verdict"]
    assert "uote" not in before.messages[-1]["content"]
    assert before.key != after.key


def test_a_text_judge_quotes_in_lines_of_its_own() -> None:
    parser = FirstMatch(((r"(?m)^Verdict: no", False), (r"(?m)^Verdict: yes", True)))
    script = Scripted(
        "QUOTE actual_output: closes at 5 pm\n"
        "**QUOTE** input: Verdict: yes\n"
        "It is early.\nVerdict: no",
        "QUOTE `actual_output`: closes at 5 pm\nIt is early.\nVerdict: no",
    )
    result = judged(tree(parser=parser), script)
    assert (result.score, len(script.asked)) == (0.0, 2)
    assert [quote.text for quote in step(result, "Right").quotes] == ["closes at 5 pm"]
    assert "`QUOTE name of the piece: words`" in script.asked[0].messages[-1]["content"]
    result = judged(tree(parser=parser), Scripted("ABSENT: hours on Monday\nVerdict: yes"))
    assert step(result, "Right").quotes == (Quote("hours on Monday", absent=True),)


def numbered(*items: Mapping[str, Any]) -> dict[str, Any]:
    return {"verdicts": {str(place): item for place, item in enumerate(items, 1)}}


def test_each_verdict_of_a_list_quotes_its_own_piece() -> None:
    first = said("9 to 5 pm", "context (1 of 2)", verdict="yes", reason="r")
    second = said("shop is shut", "context (2 of 2)", verdict="no", reason="r")
    crossed = said("shop is shut", "context (2 of 2)", verdict="no", reason="r")
    script = Scripted(numbered(crossed, second), numbered(first, second))
    result = judged(HallucinationMetric(quote="required"), script)
    assert (result.score, len(script.asked)) == (0.5, 2)
    assert (
        script.asked[1]
        .messages[-1]["content"]
        .startswith("That answer cannot be used: verdict 1: no piece that may be quoted is called")
    )
    (judged_items,) = [part.item_quotes for part in result.steps if part.item_quotes]
    assert [[quote.piece for quote in own] for own in judged_items] == [
        ["context (1 of 2)"],
        ["context (2 of 2)"],
    ]


def test_a_complaint_names_the_verdict_by_its_number() -> None:
    wrong = said("is not there", "context (2 of 2)", verdict="no", reason="r", number=2)
    right = said("9 to 5 pm", "context (1 of 2)", verdict="yes", reason="r", number=1)
    script = Scripted({"verdicts": [wrong, right]})
    judged(HallucinationMetric(quote="required"), script)
    assert "verdict 2: the quote 'is not there'" in script.asked[1].messages[-1]["content"]


def test_items_asked_one_by_one_are_called_as_in_the_case() -> None:
    def script(question: Question[Any]) -> Any:
        text = "9 to 5 pm" if "9 to 5 pm" in question.messages[-1]["content"] else "shop is shut"
        return {**said(text, "chunk"), "verdict": True}

    node = MapNode(
        "Is it about hours?", "retrieval_context", "hours", answer=bool, item_label="chunk",
        quote="required", evaluation_params=["input"],
    )  # fmt: skip
    score = CodeNode(lambda hours: NodeValue(1.0, score=1.0), inputs=[node], name="score")
    result = judged(DAGMetric("Map", DAG(score)), script)
    assert result.failure is None, result.failure
    assert [[quote.piece for quote in own] for own in step(result, "hours").item_quotes] == [
        ["retrieval_context (1 of 2)"],
        ["retrieval_context (2 of 2)"],
    ]


def test_items_that_were_left_out_are_asked_one_by_one_and_keep_their_names() -> None:
    first = said("9 to 5 pm", "context (1 of 2)", verdict="yes", reason="r")

    def script(question: Question[Any]) -> Any:
        if getattr(question.answer_type, "count", 0) == 2:
            return {"verdicts": {"1": first}}
        alone = said("shop is shut", "piece of context 1", verdict="no", reason="r")
        return numbered(alone)

    result = judged(HallucinationMetric(quote="required"), script)
    assert result.score == 0.5, result.failure
    (quotes,) = [part.item_quotes for part in result.steps if part.item_quotes]
    assert [own[0].piece for own in quotes] == ["context (1 of 2)", "context (2 of 2)"]


def test_faithfulness_shows_the_context_and_takes_quotes_from_it_alone() -> None:
    script = Scripted(
        {"truths": ["The shop is open from 9 to 5."]},
        {"statements": [{"text": "It closes at 5 pm.", "factual": True}]},
    )

    def answer(question: Question[Any]) -> Any:
        fields = question.answer_type.model_fields
        if "verdicts" not in fields:
            script.asked.append(question)
            return script._answers[0 if "truths" in fields else 1]
        script.asked.append(question)
        text = "from 9 to 5 pm" if len(script.asked) > 3 else "It closes at 5 pm."
        return numbered(said(text, "retrieval_context (1 of 2)", verdict="yes", reason="r"))

    result = judged(FaithfulnessMetric(quote="required"), answer)
    assert (result.score, len(script.asked)) == (1.0, 4)
    content = script.asked[-1].messages[1]["content"]
    assert "Quote only from `retrieval_context`, and never" in content
    assert CONTEXT[0] in content


@pytest.mark.parametrize(
    "metric",
    [
        GEval("G", None, ["Look."], ["actual_output"], quote="required"),
        CriteriaMetric("conciseness", quote="required"),
        DAGMetric(
            "R",
            DAG(RatingNode("How good?", ["actual_output"], name="rating", quote="required")),
        ),
    ],
    ids=lambda metric: metric.name,
)
def test_ratings_and_criteria_quote(metric: Any) -> None:
    def script(question: Question[Any]) -> Any:
        field = "score" if "score" in question.answer_type.model_fields else "verdict"
        answer = said("closes at 5 pm")
        answer.pop("verdict")
        return {**answer, field: 7 if field == "score" else "Y"}

    result = judged(metric, script)
    assert result.failure is None, result.failure
    assert [quote.text for part in result.steps for quote in part.quotes] == ["closes at 5 pm"]


def test_a_whole_metric_quotes_by_a_copy_and_the_original_stays() -> None:
    metric = tree(quote=None)
    script = Scripted(said("closes at 5 pm"))
    assert step(judged(quoted(metric), script), "Right").quotes
    assert not step(judged(metric, Scripted({"verdict": True})), "Right").quotes
    with pytest.raises(InputError, match="no node that judges the material"):
        quoted(ExactMatchMetric())
    with pytest.raises(InputError, match=r"no node 'Wrong' that judges the mat.*; it has 'Right'"):
        quoted(metric, nodes=["Wrong"])


def test_votes_count_verdicts_without_support_as_answers_that_cannot_be_read() -> None:
    script = Scripted(said("closes at six"), said("closes at six"), said("closes at 5 pm"))
    result = judged(voted(tree(), votes=3), script)
    assert result.score == 0.0
    part = step(result, "Right")
    assert None in part.votes
    assert part.quotes[0].is_supported


class Deciding:
    """A judge that only decides, with a writer."""

    def __init__(self, writer: Any) -> None:
        self.identity, self.writer, self.shows = f"deciding {id(self)}", writer, "case"
        self.capabilities = Capabilities(decides=True, elastic=True)
        self.asked = 0

    async def answer(self, question: Question[Any]) -> Answer[Any]:
        self.asked += 1
        fields = {"reason": "no 0.9, yes 0.1", "verdict": False}
        value = question.answer_type.model_validate(fields)
        return Answer(value, odds=((True, 0.1), (False, 0.9)))


def test_the_writer_of_a_judge_that_only_decides_gives_the_quotes() -> None:
    script = Scripted({"quotes": [{"piece": "actual_output", "text": "closes at 5 pm"}]})
    judge = Deciding(ScriptedJudge(script))
    result = evaluate([CASE], [tree()], model=judge, show=False)[0].metrics[0]
    part = step(result, "Right")
    assert (result.score, judge.asked, len(script.asked)) == (0.0, 1, 1)
    assert part.odds == ((True, 0.1), (False, 0.9))
    assert part.quotes[0].is_supported
    content = script.asked[0].messages[-1]["content"]
    assert "Its verdict is `False`" in content


def test_a_judge_that_only_decides_needs_a_writer_to_quote() -> None:
    result = evaluate([CASE], [tree()], model=Deciding(None), show=False)[0].metrics[0]
    assert result.failure is not None
    assert "writer" in result.failure.message


def test_quotes_are_in_the_rows_and_are_read_back(tmp_path: Path) -> None:
    from dagengine.data.result_files import read_rows

    judged(tree(), Scripted(said("shop … Sunday")), out=tmp_path, page=False)
    (row,) = read_rows(tmp_path / "results.jsonl")
    (quote,) = step(row.metrics[0], "Right").quotes
    assert [OUTPUT[start:end] for start, end in quote.places] == ["shop", "Sunday"]
    line = json.loads((tmp_path / "results.jsonl").read_text())
    assert line["metrics"][0]["steps"][0]["quotes"][0]["piece"] == "actual_output"


def test_a_quote_of_a_hidden_field_is_hidden(tmp_path: Path) -> None:
    script = Scripted(said("It is shut on “Sunday”, as the sign says"))
    judged(tree(), script, out=tmp_path, page=False, redact=["actual_output"])
    text = (tmp_path / "results.jsonl").read_text()
    assert "as the sign says" not in text
    assert "quotes" in text


def test_a_stored_answer_is_not_asked_again_for_its_quotes(tmp_path: Path) -> None:
    from dagengine.store.answer_journal import Store

    script = Scripted(said("closes at six"))
    for calls in (2, 2):
        result = evaluate(
            [CASE], [tree()], model=ScriptedJudge(script, "s"), show=False,
            store=Store(tmp_path / "answers.db"),
        )[0].metrics[0]  # fmt: skip
        assert result.failure is not None
        assert (result.failure.kind, len(script.asked)) == (OutcomeKind.UNSUPPORTED, calls)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a word": (lambda: tree(quote="requierd"), "did you mean 'required'"),
    "a number": (lambda: tree(quote=1), "quote takes 'required' or 'if_any', got 1"),
    "unsupported": (lambda: tree(unsupported="drop"), "unsupported takes 'fail' or 'keep'"),
    "alone": (lambda: tree(quote=None, unsupported="keep"), "for verdicts with quote"),
    "text": (lambda: tree(quote_from="input"), "quote_from takes a list"),
    "no verdict": (
        lambda: MapNode("m", "retrieval_context", "o", quote="required"),
        "only verdicts quote",
    ),
    "code": (
        lambda: ToolCorrectnessMetric(quote="required").spec(),
        "no verdict that could quote",
    ),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_settings_that_cannot_be_are_refused_before_anything_is_asked(refused: str) -> None:
    make, message = REFUSED[refused]
    with pytest.raises(InputError, match=message):
        make()


def test_nodes_that_give_no_verdict_have_no_such_setting() -> None:
    with pytest.raises(TypeError, match="TaskNode has no argument 'quote'"):
        TaskNode("t", "o", evaluation_params=["input"], quote="required")  # type: ignore[call-arg]


def test_a_failed_test_says_on_which_words_the_verdict_stands() -> None:
    metric = tree()
    metric.model = ScriptedJudge(Scripted(said("closes at 5 pm")))
    with pytest.raises(AssertionError) as failed:
        assert_test(CASE, [metric])
    assert "quote     “closes at 5 pm” (actual_output)" in str(failed.value)
