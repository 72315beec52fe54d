"""Criteria as metrics and as string evaluators."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest
from folders.places import SEEDS
from servers.openai_server import OpenAIServer, Reply

import dagengine
from dagengine import compile_metrics, evaluate
from dagengine.errors import InputError, MetricFailedError, UnparseableError
from dagengine.judges import BaseLLM, ScriptedJudge
from dagengine.metrics.criteria import (
    PRINCIPLES,
    ConstitutionalPrinciple,
    Criteria,
    CriteriaEvalChain,
    CriteriaMetric,
    Criterion,
    EvaluatorType,
    LastLine,
    PromptTemplate,
    load_evaluator,
)
from dagengine.metrics.dag import DAG, BinaryJudgementNode, DAGMetric
from dagengine.question import Question
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

DOCUMENT = next(iter(sorted(SEEDS.glob("004_*.txt"))), None)

CASE = LLMTestCase(input="What is 2+2?", actual_output="Four.", expected_output="SECRET 4")
PAIR = {"numeric": "Does it contain a number?", "polite": "Is it polite?"}
OWN = "Rubric: {criteria}\nQuestion: {input}\nResponse: {output}\nExplain, then write Y or N."


def said(letter: str) -> ScriptedJudge:
    return ScriptedJudge(lambda question: {"reason": f"so {letter}", "verdict": letter})


def listening(letter: str = "Y") -> tuple[ScriptedJudge, list[Question[Any]]]:
    """A judge, and the questions that it was asked."""
    asked: list[Question[Any]] = []

    def answer(question: Question[Any]) -> Any:
        asked.append(question)
        return f"Because.\n{letter}" if question.parser else {"reason": "r", "verdict": letter}

    return ScriptedJudge(answer), asked


def words(question: Question[Any]) -> str:
    return "\n".join(message["content"] for message in question.messages)


def test_the_default_criteria_have_the_known_names() -> None:
    assert repr(Criteria.CONCISENESS) == "<Criteria.CONCISENESS: 'conciseness'>"
    assert [str(criterion) for criterion in Criteria] == [
        *("conciseness", "relevance", "correctness", "coherence", "harmfulness"),
        *("maliciousness", "helpfulness", "controversiality", "misogyny", "criminality"),
        *("insensitivity", "depth", "creativity", "detail"),
    ]


@pytest.mark.parametrize("criterion", Criteria)
def test_every_default_criterion_is_one_call_with_its_own_question(criterion: Criteria) -> None:
    judge, asked = listening()
    done = evaluate([CASE], [CriteriaMetric(criterion)], model=judge, show=False)
    assert done.totals.calls == 1
    assert f"{criterion}: " in words(asked[0])
    assert done.rows[0].metrics[0].failure is None


@pytest.mark.parametrize(("letter", "score"), [("Y", 1.0), ("N", 0.0)])
def test_a_criterion_that_is_met_scores_one_and_any_other_zero(letter: str, score: float) -> None:
    metric = CriteriaMetric("conciseness", model=said(letter))
    assert metric.measure(CASE) == score
    assert metric.success is bool(score)
    assert metric.reason == f"conciseness → {letter}: so {letter}"
    assert metric.__name__ == "Criteria: conciseness"


@pytest.mark.parametrize(("letter", "score"), [("Y", 0.0), ("N", 1.0)])
def test_an_answer_must_be_free_of_faults(letter: str, score: float) -> None:
    assert CriteriaMetric("harmfulness", model=said(letter)).measure(CASE) == score
    own = Criterion("rude", "Is it rude?", wanted="N")
    assert CriteriaMetric(own, model=said(letter)).measure(CASE) == score


def test_an_evaluator_says_what_the_judge_answered_also_about_faults() -> None:
    evaluator = load_evaluator("criteria", criteria="harmfulness", llm=said("Y"))
    found = evaluator.evaluate_strings(prediction="You fool.", input="Hello")
    assert found == {"reasoning": "so Y", "value": "Y", "score": 1}


def test_the_judge_is_asked_for_its_reason_before_its_letter() -> None:
    judge, asked = listening()
    CriteriaMetric("relevance", model=judge).measure(CASE)
    assert list(asked[0].answer_type.model_fields) == ["reason", "verdict"]
    assert [message["role"] for message in asked[0].messages] == ["system", "user"]


def test_several_criteria_are_met_together_or_not_at_all_and_show_one_by_one() -> None:
    def answer(question: Question[Any]) -> Any:
        return "Y" if question.name == "numeric" else "N"

    done = evaluate([CASE], [CriteriaMetric(PAIR)], model=ScriptedJudge(answer), show=False)
    result = done.rows[0].metrics[0]
    assert (result.score, result.success) == (0.0, False)
    assert [(step.node, step.verdict, step.score) for step in result.steps] == [
        ("numeric", "Y", 1.0),
        ("polite", "N", 0.0),
    ]
    assert done.totals.calls == 2
    assert CriteriaMetric(PAIR, model=said("Y")).measure(CASE) == 1.0


def test_criteria_of_several_kinds_go_together() -> None:
    judge, asked = listening()
    given: list[Any] = [
        "conciseness",
        Criteria.RELEVANCE,
        PRINCIPLES["harmful1"],
        Criterion("own", "Good?"),
    ]
    assert CriteriaMetric(given, model=judge).measure(CASE) == 1.0
    assert {q.name for q in asked} == {"conciseness", "relevance", "harmful1", "own"}


def test_a_sentence_is_a_criterion_and_its_own_name() -> None:
    judge, asked = listening()
    text = "The answer is polite towards everybody, whatever was said to it before that."
    metric = CriteriaMetric(text, model=judge)
    assert metric.measure(CASE) == 1.0
    assert f"Criterion: {text}\n" in words(asked[0])
    assert asked[0].name == "The answer is polite towards everybody, whatever was said t…"


@pytest.mark.anyio
async def test_several_criteria_are_judged_at_the_same_time() -> None:
    arrived, all_there = [], anyio.Event()

    async def answer(question: Question[Any]) -> str:
        arrived.append(question.name)
        if len(arrived) == len(Criteria):
            all_there.set()
        await all_there.wait()
        return "N" if question.name in ("harmfulness", "maliciousness") else "Y"

    metric = CriteriaMetric(list(Criteria), model=ScriptedJudge(answer))
    with anyio.fail_after(120):
        assert await metric.a_measure(CASE) == 0.0
    assert sorted(arrived) == sorted(Criteria)


def test_the_same_criterion_in_two_metrics_is_asked_once() -> None:
    metrics = [CriteriaMetric("relevance"), CriteriaMetric(["relevance", "coherence"])]
    done = evaluate([CASE], metrics, model=said("Y"), show=False)
    assert done.totals.calls == 2


def test_strict_mode_asks_for_every_criterion_and_a_threshold_of_one() -> None:
    metric = CriteriaMetric("coherence", threshold=0.1, strict_mode=True, model=said("Y"))
    assert metric.measure(CASE) == 1.0
    assert (metric.threshold, metric.success) == (1.0, True)


def test_a_reason_can_be_left_out_and_be_written_by_the_judge() -> None:
    metric = CriteriaMetric("coherence", include_reason=False, model=said("Y"))
    metric.measure(CASE)
    assert metric.reason is None

    def answer(question: Question[Any]) -> Any:
        return "N" if question.name == "coherence" else "In short: no."

    metric = CriteriaMetric("coherence", judged_reason=True, model=ScriptedJudge(answer))
    metric.measure(CASE)
    assert metric.reason == "In short: no."


@pytest.mark.parametrize("prompt", [None, OWN])
def test_without_labels_the_reference_is_never_shown(prompt: str | None) -> None:
    judge, asked = listening()
    metric = CriteriaMetric(list(Criteria), prompt=prompt, model=judge)
    metric.measure(CASE)
    evaluator = CriteriaEvalChain(metric)
    with pytest.warns(UserWarning, match="reads no reference"):
        evaluator.evaluate_strings(prediction="p", input="i", reference="SECRET 5")
    assert len(asked) == 2 * len(Criteria)
    assert not [question for question in asked if "SECRET" in words(question)]
    assert compile_metrics([metric]).fields == ("actual_output", "input")


def test_labelled_criteria_read_the_reference() -> None:
    judge, asked = listening()
    CriteriaMetric("correctness", reference=True, model=judge).measure(CASE)
    assert "BEGIN expected_output>>>\nSECRET 4\n" in words(asked[0])


def test_a_missing_field_is_a_typed_outcome_before_any_call() -> None:
    judge, asked = listening()
    metric = CriteriaMetric("correctness", reference=True, model=judge)
    cases = [LLMTestCase(input="i", actual_output="o"), LLMTestCase(input="i"), CASE]
    results = [row.metrics[0] for row in evaluate(cases, [metric], show=False)]
    assert [result.outcome for result in results] == [
        *(OutcomeKind.MISSING_FIELD, OutcomeKind.MISSING_FIELD, OutcomeKind.OK)
    ]
    assert "`expected_output`" in str(results[0].failure)
    assert len(asked) == 1


def test_an_evaluator_names_what_is_missing_before_any_call() -> None:
    judge, asked = listening()
    labelled = load_evaluator("labeled_criteria", criteria="correctness", llm=judge)
    with pytest.raises(InputError, match="needs reference="):
        labelled.evaluate_strings(prediction="p", input="i")
    with pytest.raises(InputError, match="needs input="):
        load_evaluator("criteria", criteria="coherence", llm=judge).evaluate_strings(prediction="p")
    assert not asked


def test_a_principle_is_honoured_when_the_critique_finds_nothing() -> None:
    judge, asked = listening("N")
    own = ConstitutionalPrinciple("brevity", "Quote every needless word.", "Cut them.")
    assert CriteriaMetric(own, model=judge).measure(CASE) == 0.0
    assert "Quote every needless word." in words(asked[0])
    assert "Cut them." not in words(asked[0])


def test_there_are_54_principles_and_they_cannot_be_changed() -> None:
    assert len(PRINCIPLES) == 54
    assert len({principle.critique_request for principle in PRINCIPLES.values()}) == 54
    for name, principle in PRINCIPLES.items():
        assert principle.name == name
        assert principle.critique_request
        assert principle.revision_request
    with pytest.raises(TypeError):
        PRINCIPLES["harmful1"] = PRINCIPLES["harmful2"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("concisness", "did you mean 'conciseness'"),
        ("tasty", "use one of conciseness, "),
        ("concise ness", "did you mean 'conciseness'"),
        (" ", "use one of conciseness, "),
        ([], "no criterion"),
        ({}, "no criterion"),
        (["relevance", "relevance"], "given twice"),
        ({"empty": " "}, "description of criterion 'empty'"),
        ({"": "Is it?"}, "name of criterion ''"),
        ({"number": 3}, "must be a text"),
        (3, "not a criterion"),
        ([3], "not a criterion"),
        (Criterion("c", "d", wanted="yes"), "must want Y or N"),  # type: ignore[arg-type]
        (ConstitutionalPrinciple("p", ""), "description of criterion 'p'"),
    ],
)
def test_a_wrong_criterion_is_a_typed_error_that_helps(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CriteriaMetric(given)


@pytest.mark.parametrize(
    "prompt", [OWN, dagengine.PromptTemplate(OWN), PromptTemplate.from_template(OWN)]
)
def test_a_prompt_of_ones_own_is_all_that_the_judge_sees(prompt: Any) -> None:
    judge, asked = listening("N")
    metric = CriteriaMetric(PAIR, prompt=prompt, model=judge)
    assert metric.measure(CASE) == 0.0
    assert metric.result is not None
    assert [step.reason for step in metric.result.steps] == ["Because.", "Because."]
    rubric = "Rubric: polite: Is it polite?"
    assert words(asked[1]) == (
        f"{rubric}\nQuestion: What is 2+2?\nResponse: Four.\nExplain, then write Y or N."
    )


def test_a_prompt_may_leave_the_input_out_and_have_a_system_message() -> None:
    judge, asked = listening()
    prompt = dagengine.PromptTemplate("{output} {reference}", system="Y or N: {criteria}")
    metric = CriteriaMetric("relevance", prompt=prompt, reference=True, model=judge)
    metric.measure(CASE)
    assert asked[0].messages[0]["content"].startswith("Y or N: relevance: ")
    assert asked[0].messages[1]["content"] == "Four. SECRET 4"
    assert compile_metrics([metric]).fields == ("actual_output", "expected_output")


def test_placeholders_inside_the_judged_text_are_not_filled_in() -> None:
    judge, asked = listening()
    case = LLMTestCase(input="{reference}", actual_output="{criteria}", expected_output="SECRET")
    CriteriaMetric({"own": "{output}?"}, prompt=OWN, model=judge).measure(case)
    assert words(asked[0]).startswith(
        "Rubric: own: {output}?\nQuestion: {reference}\nResponse: {criteria}\n"
    )


@pytest.mark.parametrize(
    ("prompt", "reference", "message"),
    [
        ("{criteria} {output} {answer}", False, r"refers to \{answer\}"),
        ("{criteria} {output} {}", False, r"refers to \{\}"),
        ("{criteria} {input}", False, r"must contain \{output\}"),
        ("{output}", False, r"must contain \{criteria\}"),
        ("{criteria} {output}", True, r"must contain \{reference\}"),
        ("{criteria} {output} {reference}", False, "labeled_criteria"),
        ('{criteria} {output} {"json": 1', False, "cannot be filled in"),
        ("{criteria} {output:>9}", False, "format or conversion"),
        (7, False, "must be a PromptTemplate or a text"),
    ],
)
def test_a_prompt_that_cannot_work_is_refused(prompt: Any, reference: bool, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CriteriaMetric("correctness", prompt=prompt, reference=reference)


@pytest.mark.parametrize(
    ("text", "reason", "verdict"),
    [
        ("It is short.\n\nN", "It is short.", "N"),
        ("It is short.\nY\n", "It is short.", "Y"),
        ("Good.\n**Y**", "Good.", "Y"),
        ("Good.\n'y'", "Good.", "Y"),
        ("Bad.\nno.", "Bad.", "N"),
        ("Bad.\nVerdict: N", "Bad.\nVerdict:", "N"),
        ("Bad.\n**Verdict:** N", "Bad.\nVerdict:**", "N"),
        ("Fine. All is well. Y", "Fine. All is well.", "Y"),
        ("Is it right? Yes", "Is it right?", "Y"),
        ("Y\nWait, it repeats itself.\nN", "Y\nWait, it repeats itself.", "N"),
        ("Y", "", "Y"),
    ],
)
def test_a_text_that_ends_in_a_letter_is_read(text: str, reason: str, verdict: str) -> None:
    assert LastLine()(text) == {"reason": reason, "verdict": verdict}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "It is good",
        "I cannot say whether Y or N",
        "[Y/N]",
        'It is "Y" or "N"',
        "**Y** or **N**",
        "Solve for x and y",
        "The axes are: x, y",
        "It ends in a plan: y",
        "Y, because it is short",
        "Certainly",
    ],
)
def test_a_text_that_does_not_end_in_a_letter_is_not_guessed(text: str) -> None:
    with pytest.raises(UnparseableError) as caught:
        LastLine()(text)
    assert caught.value.raw == text


def test_a_text_without_a_letter_is_asked_for_again_and_fails_in_the_end() -> None:
    texts = ["Y or N", "Y or N", "All right.\nY"]
    metric = CriteriaMetric(
        "relevance", prompt=OWN, model=ScriptedJudge(lambda question: texts.pop(0))
    )
    assert metric.measure(CASE) == 1.0
    assert not texts
    never = load_evaluator(
        "criteria", criteria="relevance", prompt=OWN, llm=ScriptedJudge(lambda question: "Y or N")
    )
    with pytest.raises(MetricFailedError, match="unparseable"):
        never.evaluate_strings(prediction="p", input="i")


@pytest.mark.parametrize("text", ["maybe", "yes and no", ""])
def test_a_structured_answer_that_is_neither_letter_is_never_a_score(text: str) -> None:
    metric = CriteriaMetric("relevance", model=ScriptedJudge(lambda question: {"verdict": text}))
    result = evaluate([CASE], [metric], show=False).rows[0].metrics[0]
    assert (result.score, result.outcome) == (None, OutcomeKind.UNPARSEABLE)


def test_evaluators_go_by_name_and_by_member() -> None:
    for kind in ("labeled_criteria", EvaluatorType.LABELED_CRITERIA):
        assert load_evaluator(kind, criteria="correctness").metric.reference
    for kind in ("criteria", EvaluatorType.CRITERIA):
        assert not load_evaluator(kind, criteria="conciseness").metric.reference
    with pytest.raises(InputError, match="'criteria', 'labeled_criteria', 'pairwise"):
        load_evaluator("criterion", criteria="correctness")


def test_an_evaluator_of_several_criteria_explains_each_of_them() -> None:
    def answer(question: Question[Any]) -> Any:
        number = question.name == "numeric"
        return {"reason": "a four" if number else "curt", "verdict": "Y" if number else "N"}

    evaluator = load_evaluator("criteria", criteria=PAIR, llm=ScriptedJudge(answer))
    found = evaluator.evaluate_strings(prediction="4", input="2+2")
    assert found == {
        "reasoning": "numeric: Y: a four\n\npolite: N: curt",
        "value": "N",
        "score": 0,
    }


@pytest.mark.anyio
async def test_evaluations_made_at_once_keep_apart_and_the_sync_door_works_inside_a_loop() -> None:
    async def answer(question: Question[Any]) -> Any:
        good = "good text" in words(question)
        for _ in range(1 if good else 5):
            await anyio.lowlevel.checkpoint()
        return {"reason": "good" if good else "bad", "verdict": "Y" if good else "N"}

    evaluator = load_evaluator("criteria", criteria="relevance", llm=ScriptedJudge(answer))
    found: dict[str, Any] = {}

    async def one(text: str) -> None:
        found[text] = await evaluator.aevaluate_strings(prediction=text, input="i")

    async with anyio.create_task_group() as group:
        for text in ("good text", "bad text"):
            group.start_soon(one, text)
    assert found["good text"] == {"reasoning": "good", "value": "Y", "score": 1}
    assert found["bad text"] == {"reasoning": "bad", "value": "N", "score": 0}
    assert evaluator.evaluate_strings(prediction="good text", input="i") == found["good text"]
    assert evaluator.metric.result is None


def test_criteria_stand_under_a_verdict_of_a_tree() -> None:
    root = BinaryJudgementNode(
        "Is it a sum?",
        evaluation_params=["input"],
        then={True: CriteriaMetric(PAIR), False: 10},
        name="sum",
    )
    metric = DAGMetric("tree", DAG(root_node=root))
    for letter, score in (("Y", 1.0), ("N", 0.0)):

        def answer(question: Question[Any], letter: str = letter) -> Any:
            return True if question.name == "sum" else letter

        done = evaluate([CASE], [metric], model=ScriptedJudge(answer), show=False)
        assert done.rows[0].metrics[0].score == score


def test_criteria_can_be_drawn_and_have_no_findings() -> None:
    metric = CriteriaMetric(PAIR, reference=True)
    assert "numeric" in metric.picture().mermaid
    assert compile_metrics([metric]).warnings == ()


class Message:
    """What chat models of another library return."""

    def __init__(self, content: Any) -> None:
        self.content = content


class ChatAnthropic:
    """A chat model of another library; its `generate` takes something else than a text."""

    def __init__(self, temperature: float = 0.0, blocks: bool = False) -> None:
        self.blocks = blocks

    def generate(self, messages: list[list[Any]]) -> None:
        raise TypeError(f"not a list of lists: {messages!r}")

    async def ainvoke(self, prompt: str) -> Message:
        assert "conciseness: " in prompt
        text = '{"reason": "It says more than four.", "verdict": "N"}'
        return Message([{"type": "text", "text": text}] if self.blocks else text)


@pytest.mark.parametrize("blocks", [False, True])
def test_a_chat_model_of_another_library_judges(blocks: bool) -> None:
    evaluator = load_evaluator("criteria", llm=ChatAnthropic(blocks=blocks), criteria="conciseness")
    found = evaluator.evaluate_strings(prediction="Well, four.", input="2+2?")
    assert found == {"reasoning": "It says more than four.", "value": "N", "score": 0}


def test_a_model_class_of_ones_own_judges_by_text() -> None:
    class Own(BaseLLM):
        def generate(self, prompt: str) -> str:
            return "It is short.\nY"

        def get_model_name(self) -> str:
            return "own"

    evaluator = load_evaluator("criteria", llm=Own(), criteria="conciseness", prompt=OWN)
    found = evaluator.evaluate_strings(prediction="4", input="2+2?")
    assert found == {"reasoning": "It is short.", "value": "Y", "score": 1}


def published() -> list[str]:
    """The Python snippets of the document, with only their import lines changed."""
    assert DOCUMENT is not None
    text = DOCUMENT.read_text(encoding="utf-8").replace("\\_", "_")
    found = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ours = "from dagengine.metrics.criteria import"
    chat = f"from {__name__} import ChatAnthropic"
    found = [re.sub(r"^from .*chat_models import ChatAnthropic", chat, code) for code in found]
    return [re.sub(r"^from langchain\S* import", ours, code, flags=re.MULTILINE) for code in found]


def graded(body: dict[str, Any]) -> Reply:
    """Says Y to the labelled question and to whatever is mathematical, else N."""
    text = "\n".join(message["content"] for message in body["messages"])
    if "Respond Y or N based on" in text:
        return Reply("The expected response was 17.\n\nN")
    met = "Washington" in text or "mathematical" in text
    return Reply(f'{{"reason": "because", "verdict": "{"Y" if met else "N"}"}}')


@pytest.mark.skipif(DOCUMENT is None, reason=f"no seed documents in {SEEDS} (set DAGENGINE_SEEDS)")
def test_the_published_snippets_run_as_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    with OpenAIServer(graded) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        for code in published():
            exec(compile(code, "snippet", "exec"), names)
    shown = capsys.readouterr().out.splitlines()
    no, yes = (
        f"{{'reasoning': 'because', 'value': '{value}', 'score': {score}}}"
        for value, score in (("N", 0), ("Y", 1))
    )
    assert shown[:3] == [no, "With ground truth: 1", yes]
    assert shown[3] == "Multi-criteria evaluation"
    assert shown[4].endswith("'value': 'N', 'score': 0}")
    assert re.fullmatch(r"\d+ available principles", shown[5])
    assert shown[6] == no
    assert "It says more than four." in shown[7]
    assert shown[8] == ("{'reasoning': 'The expected response was 17.', 'value': 'N', 'score': 0}")
    assert len(server.requests) == 9  # the multi-criteria one makes four
    assert {body["model"] for body in server.requests} == {"gpt-4o"}
