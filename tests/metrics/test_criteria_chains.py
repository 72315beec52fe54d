"""Evaluators of criteria as LangChain has them: chains, templates, principles, texts in prose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dagengine import load_evaluator, load_evaluators
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics.common.named_criteria import as_template
from dagengine.metrics.criteria import (
    Criteria,
    CriteriaEvalChain,
    CriteriaResultOutputParser,
    EvaluatorType,
    LabeledCriteriaEvalChain,
    StringEvaluator,
    supported_default_criteria,
)
from dagengine.prompts.instructions import PromptTemplate


class Prose:
    """A chat model that says the same to everything, and keeps what it was asked."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[str] = []

    def invoke(self, prompt: str) -> Any:
        self.asked.append(prompt)
        return SimpleNamespace(content=self.text)


def test_a_chain_reads_the_letter_at_the_end_of_prose() -> None:
    model = Prose("The meaning of life\nY")
    chain = CriteriaEvalChain.from_llm(model, criteria={"own": "Is it deep?"})
    found = chain.evaluate_strings(prediction="42", input="What is it?")
    assert found == {"reasoning": "The meaning of life", "value": "Y", "score": 1}
    assert len(model.asked) == 1
    assert "own: Is it deep?" in model.asked[0]
    assert "end with the letter alone" in model.asked[0]
    assert "JSON" not in model.asked[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Y", ("", "Y", 1)),
        ("It is good.\nN", ("It is good.", "N", 0)),
        ("N\nBecause it is long", ("Because it is long", "N", 0)),
        ("**Y**\n\nShort and clear", ("Short and clear", "Y", 1)),
        ("N\nAll things considered:\nY", ("N\nAll things considered:", "Y", 1)),
    ],
)
def test_a_text_is_read_from_its_end_and_else_from_its_first_line(
    text: str, found: tuple[str, str, int]
) -> None:
    assert tuple(CriteriaResultOutputParser().parse(text).values()) == found


def test_a_labelled_chain_needs_a_reference_and_another_warns_of_one() -> None:
    judge = ScriptedJudge(lambda question: {"reason": "r", "verdict": "Y"})
    labelled = LabeledCriteriaEvalChain.from_llm(Prose("so\nY"), criteria="correctness")
    assert labelled.requires_reference
    with pytest.raises(ValueError, match="LabeledCriteriaEvalChain requires a reference string"):
        labelled.evaluate_strings(prediction="p", input="i")
    assert labelled.evaluate_strings(prediction="p", input="i", reference="r")["score"] == 1
    plain = load_evaluator("criteria", criteria="coherence", llm=judge)
    assert (plain.requires_input, plain.requires_reference) == (True, False)
    with pytest.warns(UserWarning, match="reads no reference"):
        plain.evaluate_strings(prediction="p", input="i", reference="r")


def test_evaluators_say_what_they_judge_and_are_of_one_kind() -> None:
    chain = load_evaluator(EvaluatorType.CRITERIA, criteria=["depth", "detail"])
    assert chain.evaluation_name == "depth detail"
    assert isinstance(chain, StringEvaluator)
    assert issubclass(CriteriaEvalChain, StringEvaluator)
    assert isinstance(load_evaluator("labeled_criteria"), LabeledCriteriaEvalChain)


def test_several_evaluators_are_loaded_with_settings_of_their_own() -> None:
    config = {"labeled_criteria": {"criteria": "correctness"}}
    first, second = load_evaluators(
        ["criteria", EvaluatorType.LABELED_CRITERIA], criteria="conciseness", config=config
    )
    assert (first.evaluation_name, second.evaluation_name) == ("conciseness", "correctness")


def test_helpfulness_is_judged_where_nothing_is_named() -> None:
    assert load_evaluator("criteria").evaluation_name == "helpfulness"
    described = supported_default_criteria()
    assert list(described) == list(Criteria)
    for criterion in Criteria:
        assert CriteriaEvalChain.resolve_criteria(criterion) == {
            str(criterion): described[criterion]
        }
    assert list(CriteriaEvalChain.resolve_criteria(None)) == ["helpfulness"]


def test_a_principle_of_another_library_is_known_by_what_it_has() -> None:
    principle: Any = SimpleNamespace(name="kind", critique_request="Quote each unkind word.")
    model = Prose("None is.\nY")
    chain = CriteriaEvalChain.from_llm(model, criteria=principle)
    assert chain.evaluate_strings(prediction="Hello!", input="Hi")["score"] == 1
    assert "Quote each unkind word." in model.asked[0]


def theirs(text: str, **known: Any) -> Any:
    """A template as LangChain has it; what `.partial()` puts in stands beside it."""
    return SimpleNamespace(template=text, template_format="f-string", partial_variables=known)


class SystemMessagePromptTemplate(SimpleNamespace):
    pass


class HumanMessagePromptTemplate(SimpleNamespace):
    pass


class AIMessagePromptTemplate(SimpleNamespace):
    pass


def test_templates_of_langchain_are_taken_as_they_are() -> None:
    text = "Grade {output} by {criteria} {{strictly}}, {tone}."
    assert as_template(theirs(text, tone="{kindly}")) == PromptTemplate(
        "Grade {output} by {criteria} {{strictly}}, {{kindly}}."
    )
    chat = SimpleNamespace(
        messages=[
            SystemMessagePromptTemplate(prompt=theirs("You grade by {criteria}.")),
            HumanMessagePromptTemplate(prompt=theirs("Grade {output}.")),
        ],
        partial_variables={"criteria": "wit"},
    )
    assert as_template(chat) == PromptTemplate("Grade {output}.", "You grade by wit.")
    model = Prose("fine\nY")
    chain = CriteriaEvalChain.from_llm(
        model, criteria="depth", prompt=theirs("{criteria}|{input}|{output}")
    )
    chain.evaluate_strings(prediction="{input}", input="i")
    assert model.asked[0].endswith("|i|{input}")


def test_templates_that_cannot_be_taken_are_refused() -> None:
    jinja = SimpleNamespace(template="{{ output }}", template_format="jinja2")
    with pytest.raises(InputError, match="is a jinja2 template"):
        load_evaluator("criteria", prompt=jinja)
    chat = SimpleNamespace(messages=[AIMessagePromptTemplate(prompt=theirs("I am."))])
    with pytest.raises(InputError, match="another role than system or user"):
        load_evaluator("criteria", prompt=chat)
