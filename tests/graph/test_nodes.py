"""Nodes that ask in words of their own: ratings in prose and by labels, questions per item."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from servers.openai_server import Json, OpenAIServer, Reply

from dagengine import PromptTemplate, a_evaluate, compile_metrics, evaluate
from dagengine.errors import GraphError, InputError
from dagengine.graph.node_values import Given
from dagengine.judges import OpenAIJudge, RecordedJudge, Recording, ScriptedJudge
from dagengine.metrics import GEval
from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    CodeNode,
    DAGMetric,
    Judgement,
    MapNode,
    RatingNode,
    TaskNode,
)
from dagengine.question import Answer, EveryMatch, FirstMatch, Judge, Options, Question, TokenChoice
from dagengine.results import MetricResult, OutcomeKind
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio

CASE = LLMTestCase(name="it", input="Why?", actual_output="So.", context=["a {b}", "c"])
PROSE = FirstMatch(((r"Score: (\S+)", None),), field="score")
GRADES = {"poor": 1, "fair": 2, "good": 4}


def metric(root: BaseNode) -> DAGMetric:
    return DAGMetric("m", DAG(root), threshold=None)


async def result(root: BaseNode, judge: Judge, case: LLMTestCase = CASE) -> MetricResult:
    done = await a_evaluate([case], [metric(root)], model=judge, show=False)
    return done.rows[0].metrics[0]


def choice(token: str, shares: Mapping[str, float] | None = None) -> TokenChoice:
    """A token with alternatives given as probabilities."""
    return TokenChoice(token, tuple((t, math.log(p)) for t, p in (shares or {token: 1.0}).items()))


def recorded(*tokens: TokenChoice) -> RecordedJudge:
    """A judge that always writes these tokens."""
    text = "".join(token.token for token in tokens)
    return RecordedJudge({"q": Recording(text, tokens)}, key=lambda question: "q")


def rating(scale: Any = (0, 10), parser: Any = PROSE, **more: Any) -> RatingNode:
    return RatingNode("How good is it?", ["actual_output"], scale=scale, parser=parser, **more)


async def test_a_rating_in_prose_is_weighted_by_the_token_that_the_parser_found() -> None:
    tokens = choice("An 8? No. Score: "), choice("8", {"8": 0.5, "6": 0.5}), choice(" of 10")
    found = await result(rating(), recorded(*tokens))
    assert found.score == pytest.approx(0.7)
    assert found.mode == "weighted"


async def test_a_rating_in_prose_of_two_tokens_is_put_together() -> None:
    first, second = choice("1", {"1": 0.5, "8": 0.5}), choice("0", {"0": 0.5, ".": 0.25, "/": 0.25})
    found = await result(rating(), recorded(choice("Score: "), first, second))
    # Nothing after the `1` says that it ends there: what might have is not how prose goes on.
    assert found.score == pytest.approx(0.9)
    assert found.mode == "weighted"


async def test_a_rating_in_prose_of_a_token_and_more_counts_as_it_stands() -> None:
    found = await result(rating(), recorded(choice("Score"), choice(": 8")))
    assert found.score == 0.8
    assert found.mode == "raw (the score is not exactly one token of the answer)"


async def test_a_rating_whose_parser_does_not_say_where_counts_as_it_stands() -> None:
    def parser(text: str, /) -> Mapping[str, Any]:
        return {"reason": "", "score": text.partition("Score: ")[2]}

    found = await result(rating(parser=parser), recorded(choice("Score: "), choice("7")))
    assert found.score == 0.7
    assert found.mode == "raw (it is not known where the answer states the score)"


async def test_a_rating_in_prose_outside_its_scale_is_no_score() -> None:
    found = await result(rating(), recorded(choice("Score: "), choice("11")))
    assert (found.score, found.outcome) == (None, OutcomeKind.UNPARSEABLE)


async def test_a_rating_for_which_no_probabilities_are_asked_counts_as_it_stands() -> None:
    tokens = choice("Score: "), choice("8", {"8": 0.5, "6": 0.5})
    found = await result(rating(options=Options()), recorded(*tokens))
    assert (found.score, found.mode) == (0.8, "raw (the judge gave no token probabilities)")


async def test_labels_are_asked_for_in_the_order_given_and_scored_by_their_numbers() -> None:
    asked: list[Question[Any]] = []

    def fair(question: Question[Any]) -> str:
        asked.append(question)
        return "Fair."

    found = await result(rating(GRADES, parser=None), ScriptedJudge(fair))
    assert found.score == pytest.approx((2 - 1) / (4 - 1))
    (question,) = asked
    assert '- "poor"\n- "fair"\n- "good"' in question.messages[-1]["content"]
    schema = question.answer_type.model_json_schema()
    assert list(schema["properties"]) == ["reason", "score"]
    assert schema["properties"]["score"]["enum"] == ["poor", "fair", "good"]


async def test_an_answer_that_is_no_label_is_asked_for_again() -> None:
    answers = iter(["excellent", "good"])
    found = await result(rating(GRADES, parser=None), ScriptedJudge(lambda _: next(answers)))
    assert found.score == 1
    assert found.steps[-1].output == 4.0


async def test_labels_given_by_a_server_are_weighted() -> None:
    def entry(token: str, shares: dict[str, float] | None = None) -> Json:
        tops = [{"token": t, "logprob": math.log(p)} for t, p in (shares or {token: 1.0}).items()]
        return {"token": token, "logprob": 0.0, "top_logprobs": tops}

    shares = {"good": 0.5, "poor": 0.5}
    tokens = [entry('{"reason": "good", "score": "'), entry("good", shares), entry('"}')]
    prose = [entry("It is good. Score: "), entry("good", shares)]

    def respond(body: Json) -> Reply:
        assert body["top_logprobs"] == 20
        parts = tokens if "response_format" in body else prose
        return Reply("".join(part["token"] for part in parts), logprobs=parts)

    with OpenAIServer(respond) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        found = [await result(rating(GRADES, parser), judge) for parser in (None, PROSE)]
    assert [(one.score, one.mode) for one in found] == [(0.5, "weighted")] * 2  # (4/2 + 1/2 - 1)/3


async def test_a_word_that_is_no_label_is_read_by_its_alternatives_or_not_at_all() -> None:
    few = "weighted (only 20 % of the probability is on labels of the scale)"
    for mass, mode in ((0.3, "weighted"), (0.1, few)):
        shares = {"neither": 1 - 2 * mass, "good": mass, "poor": mass}
        found = await result(rating(GRADES), recorded(choice("Score: "), choice("neither", shares)))
        assert (found.score, found.mode) == (0.5, mode)
    missing = await result(rating(GRADES), recorded(choice("Score: "), choice("neither")))
    assert missing.outcome is OutcomeKind.UNPARSEABLE
    assert missing.failure is not None
    assert "'neither', not one of 'poor', 'fair', 'good'" in missing.failure.message


async def test_labels_of_a_single_number_are_refused_before_anything_is_asked() -> None:
    with pytest.raises(InputError, match="one point"):
        rating({"good": 1, "fine": 1})


async def test_a_strict_rating_is_never_weighted() -> None:
    class Talkative(ScriptedJudge):
        """Gives token probabilities although nobody asked."""

        async def answer(self, question: Question[Any]) -> Answer[Any]:
            raw = '{"reason": "r", "score": 1}'
            tokens = choice(raw[:-2]), choice("1", {"1": 0.5, "0": 0.5}), choice("}")
            return Answer(question.answer_type.model_validate_json(raw), raw, tokens)

    settings: Any = {"evaluation_steps": ["Look."], "evaluation_params": ["input"]}
    metrics = [GEval("strict", strict_mode=True, **settings), GEval("usual", **settings)]
    done = await a_evaluate([CASE], metrics, model=Talkative({}), show=False)
    strict, usual = done.rows[0].metrics
    assert (strict.score, strict.mode) == (1, "raw (strict mode asks for 0 or 1)")
    assert usual.mode != strict.mode


async def test_readers_see_the_number_of_a_label() -> None:
    half = CodeNode(lambda grade: grade / 8, inputs=[rating(GRADES, None, output_label="grade")])
    assert (await result(half, ScriptedJudge({"grade": "good"}))).score == 0.5


# One question per item of a list.


def all_true(judgements: list[Judgement]) -> float:
    return float(all(one.verdict == "yes" for one in judgements))


def mapped(over: Any = "context", **more: Any) -> MapNode:
    return MapNode("Is it true?", over, "each", answer=("yes", "no"), **more)


async def prompts(node: MapNode, answer: str = "Verdict: yes") -> list[Any]:
    """The messages of all questions that a node asks, sorted by the last one."""
    asked: list[Any] = []

    def script(question: Question[Any]) -> str:
        asked.append(question.messages)
        return answer

    found = await result(CodeNode(all_true, inputs=[node]), ScriptedJudge(script))
    assert found.score == 1
    return sorted(asked, key=lambda messages: messages[-1]["content"])


async def test_a_prompt_of_ones_own_has_the_item_and_what_else_is_read() -> None:
    node = mapped(
        evaluation_params=["input"],
        item_label="fact",
        prompt=PromptTemplate("{input} - {fact}", system="Be brief."),
        parser=FirstMatch(((r"Verdict: (\w+)", None),)),
    )
    assert [[message["content"] for message in asked] for asked in await prompts(node)] == [
        ["Be brief.", "Why? - a {b}"],
        ["Be brief.", "Why? - c"],
    ]


async def test_a_wording_of_ones_own_has_the_item_first_and_not_the_list() -> None:
    seen: list[Given] = []

    def wording(given: Given) -> str:
        seen.append(given)
        return f"Is {given.inputs[0][1]!r} true?"

    node = mapped(evaluation_params=["input"], wording=wording)
    asked = await prompts(node, answer="yes")
    assert [messages[-1]["content"] for messages in asked] == ["Is 'a {b}' true?", "Is 'c' true?"]
    assert {given.inputs for given in seen} == {(("item", "a {b}"),), (("item", "c"),)}
    assert {given.fields for given in seen} == {(("input", "Why?"),)}


async def test_without_a_prompt_of_ones_own_items_are_evidence() -> None:
    for asked, text in zip(await prompts(mapped(), answer="yes"), ("a {b}", "c"), strict=True):
        assert asked[1]["content"].startswith(f"<<<BEGIN item>>>\n{text}\n<<<END item>>>\n\n")


async def test_outputs_per_item_are_read_by_a_parser() -> None:
    each = MapNode(
        "List its words.",
        "context",
        "words",
        answer=list[str],
        prompt=PromptTemplate("{item}"),
        parser=EveryMatch(r"(?m)^- (.+)$"),
    )
    count = CodeNode(lambda lists: sum(map(len, lists)) / 10, inputs=[each])
    assert (await result(count, ScriptedJudge({"words": "Here:\n- a\n- b"}))).score == 0.4


def problems(node: MapNode) -> list[tuple[str, str]]:
    with pytest.raises(GraphError) as caught:
        compile_metrics([metric(CodeNode(all_true, inputs=[node]))])
    return [(problem.code, problem.message) for problem in caught.value.problems]


@pytest.mark.parametrize("name", ["context", "items", "input"])
async def test_a_prompt_per_item_knows_neither_the_list_nor_what_is_not_read(name: str) -> None:
    assert problems(mapped(prompt=PromptTemplate(f"{{item}} {{{name}}}"))) == [
        ("label-unknown", f"the prompt refers to {{{name}}}")
    ]


async def test_a_prompt_per_item_that_leaves_the_item_out_is_warned_of() -> None:
    facts = TaskNode("List facts.", "facts", evaluation_params=["input"], output_type=list[str])
    node = mapped(facts, prompt=PromptTemplate("{input}"), evaluation_params=["input"])
    (warning,) = compile_metrics([metric(CodeNode(all_true, inputs=[node]))]).warnings
    assert (warning.code, "'item'" in warning.message) == ("unused-output", True)
    used = mapped(facts, prompt=PromptTemplate("{item}"))
    assert compile_metrics([metric(CodeNode(all_true, inputs=[used]))]).warnings == ()


async def test_a_list_in_prose_is_what_the_pattern_finds_and_never_empty() -> None:
    facts = TaskNode(
        "List facts.",
        "facts",
        evaluation_params=["input"],
        output_type=list[str],
        parser=EveryMatch(r"\d\. (\w+)"),
    )
    count = CodeNode(lambda found: len(found) / 10, inputs=[facts])
    assert (await result(count, ScriptedJudge({"facts": "1. one 2. two"}))).score == 0.2
    none = await result(count, ScriptedJudge({"facts": "None."}))
    assert none.outcome is OutcomeKind.UNPARSEABLE


async def test_a_list_may_come_without_an_object_around_it() -> None:
    facts = TaskNode("List facts.", "facts", evaluation_params=["input"], output_type=list[str])
    count = CodeNode(lambda found: len(found) / 10, inputs=[facts])
    text = f"Sure [as asked]:\n```json\n{json.dumps(['a', 'b', 'c'])}\n```"
    assert (await result(count, recorded(choice(text)))).score == 0.3


def test_code_that_was_written_for_the_whole_case_is_told_what_it_gets() -> None:
    node = CodeNode(lambda case: len(case.actual_output) > 3, evaluation_params=["actual_output"])
    metric = DAGMetric("Short", DAG(node))
    cases = [LLMTestCase(input="a", actual_output="text")]
    (row,) = evaluate(cases, [metric], show=False)
    failure = row["Short"].failure
    assert failure is not None
    assert failure.kind == OutcomeKind.CODE_ERROR
    assert "takes the values of evaluation_params, in this order, and not the case" in str(failure)
    assert "(test_nodes.py line" in str(failure)
