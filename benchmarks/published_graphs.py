"""The graphs that make published figures of recorded calls, and the nodes that only they need.

Parsing, weighting and combining happens here; who answers is no concern of a graph. Where a
source kept its prompts they are the question, where it did not, the name of the item is.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel
from recordings import WHOLE_TEXT

from dagengine import PromptTemplate
from dagengine.errors import UnparseableError
from dagengine.metrics.dag import (
    BaseNode,
    CodeNode,
    Judgement,
    MapNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.metrics.prebuilt import share
from dagengine.node import Ask, Asking, Given, NodeValue
from dagengine.prompts import Evidence, output_type, rating_type
from dagengine.question import Answer, FirstMatch, Options, Parser, Question, TokenChoice
from dagengine.statistics import majority_share
from dagengine.weighting import expected_score

T = TypeVar("T", bound=BaseModel)


# Nodes and parsers for what these sources recorded.


def number(pattern: str, field: str) -> FirstMatch:
    """Reads the number that a pattern's group finds."""
    return FirstMatch(((pattern, None),), field=field)


class PlainRatingNode(RatingNode):
    """A rating whose answer is plain text that begins with the number.

    `RatingNode` weights the score of a JSON answer only; here the first token is the score,
    and the engine's weighting is shown it as the score of a JSON answer.
    """

    kind = "plain rating"

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        low, high = self.scale
        answer = await ask(self.question(given, self.criteria, rating_type(low, high)))
        found = cast(Any, answer.value)
        rating, mode = expected_score(_as_json(answer, found.score), found.score, low, high)
        return NodeValue(rating, found.reason, score=(rating - low) / (high - low), mode=mode)


def _as_json(answer: Answer[Any], score: int) -> Answer[Any]:
    if answer.tokens is None:
        return answer
    around = TokenChoice('{"score": ', ()), TokenChoice("}", ())
    tokens = (around[0], answer.tokens[0], around[1])
    return replace(answer, raw=f'{{"score": {score}}}', tokens=tokens)


class FirstTokenNode(Asking):
    """The mean of the values of tokens, weighted by their probability as first token.

    score = Σ value · p / Σ p over the tokens that have a value; whatever else the judge might
    have begun with does not count. With the values 0 and 1 it is how strongly the judge
    prefers one answer over another (Dubois et al. 2024, https://arxiv.org/abs/2404.04475).
    """

    kind = "first token"
    grades = True

    def __init__(self, criteria: str, values: Mapping[str, float], **common: Any) -> None:
        options = Options(temperature=1.0, max_tokens=1, top_logprobs=5)
        super().__init__(parser=WHOLE_TEXT, options=options, **common)
        self.criteria = criteria
        self.values = values

    @property
    def text(self) -> str:
        return self.criteria

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        answer = await ask(self.question(given, self.criteria, output_type(str)))
        shares = self._shares(answer)
        total = math.fsum(shares.values())
        if not total:
            raise UnparseableError(f"none of {list(self.values)} may begin it", raw=answer.raw)
        score = math.fsum(self.values[token] * part for token, part in shares.items()) / total
        return NodeValue(score, reason=answer.raw, score=score, mode="weighted")

    def _shares(self, answer: Answer[Any]) -> dict[str, float]:
        first = answer.tokens[0].alternatives if answer.tokens else ()
        return {token: math.exp(log) for token, log in first if token in self.values}


class PlainMapNode(MapNode):
    """One question per item, with a prompt and a parser for judges that answer in prose.

    The prompt may refer to the item by its label and to the case fields that are read.
    """

    def __init__(self, *args: Any, each: PromptTemplate, parser: Parser, **common: Any) -> None:
        super().__init__(*args, **common)
        self.parser = parser
        self.each = each

    def _question(self, system: str, evidence: Sequence[Evidence], shape: type[T]) -> Question[T]:
        messages = self.each.fill({piece.label: piece.text for piece in evidence})
        return Question(messages, shape, self.options, self.parser, name=self.title)


@dataclass(frozen=True)
class TextList:
    """Reads a JSON list of texts with prose around it, or what is whole of a broken one."""

    field: str = "output"

    def __call__(self, text: str, /) -> Mapping[str, Any]:
        start, end = text.find("["), text.rfind("]")
        if start < 0:
            raise UnparseableError("there is no list in the answer", raw=text)
        try:
            return {self.field: json.loads(text[start : end + 1])}
        except ValueError:
            whole = re.findall(r'"(?:[^"\\]|\\.)*"', text[start:])
            return {self.field: [json.loads(item) for item in whole]}


def scaled_to(low: float, high: float) -> Callable[[float], float]:
    """Where a number stands between two others, from 0 to 1."""

    def scaled(value: float) -> float:
        return (value - low) / (high - low)

    return scaled


# WikiEval: a chain of calls, and ratings with probabilities.

SCALES = {"1-5": (1, 5), "1-10": (1, 10), "0-1": (0, 1)}


def faithfulness_graph() -> BaseNode:
    """The statements of the answer, a verdict on each, and the share of supported ones."""
    statements = TaskNode(
        "List the statements that the answer makes.",
        output_label="statements",
        evaluation_params=["name"],
        output_type=list[str],
        prompt=PromptTemplate("the statements of {name}"),
        parser=TextList(),
    )
    verdicts = PlainMapNode(
        "Can the statement be inferred from the context?",
        statements,
        "verdicts",
        answer=("1", "0"),
        item_label="statement",
        evaluation_params=["name"],
        each=PromptTemplate("{name}: {statement}"),
        parser=number(r"Verdict:\s*([01])", "verdict"),
    )
    return CodeNode(supported, inputs=[statements, verdicts])


def supported(statements: list[str], verdicts: list[Judgement]) -> NodeValue:
    """The share of statements that the context supports."""
    return share(statements, verdicts, ("1",), what="statements", passed="supported", empty=1.0)


def rating_graph(scale: str) -> BaseNode:
    """A rating on one scale, weighted by the probabilities of its first token."""
    return PlainRatingNode(
        "How relevant is the answer?",
        ["name"],
        scale=SCALES[scale],
        prompt=PromptTemplate(f"{{name}} from {scale}"),
        # On the scale from 0 to 1 the source weighted what stands before the decimal point.
        parser=number(r"^(\d+)", "score"),
    )


# LLM-Rubric: nothing but the probabilities of four answers.

QUESTIONS = ("Q0", "Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8")


def rubric_graphs() -> dict[str, BaseNode]:
    """Two graphs per question: the answer as it stands, and the expected answer."""
    graphs: dict[str, BaseNode] = {}
    for question in QUESTIONS:
        prompt = PromptTemplate(f"{question} of {{name}}")
        graphs[f"argmax {question}"] = stated(prompt, r"^([1-4])$", 1, 4, ["name"])
        graphs[f"expected {question}"] = PlainRatingNode(
            question, ["name"], scale=(1, 4), prompt=prompt, parser=number(r"^(\d)$", "score")
        )
    return graphs


def stated(
    prompt: PromptTemplate,
    pattern: str,
    low: float,
    high: float,
    reads: Sequence[str],
    options: Options = Options(),  # noqa: B008 - a frozen value
) -> BaseNode:
    """A number of any kind read from prose, scored by its place on the scale."""
    rating = TaskNode(
        "Rate it.",
        output_label="rating",
        evaluation_params=reads,
        output_type=float,
        prompt=prompt,
        parser=number(pattern, "output"),
        options=options,
    )
    return CodeNode(scaled_to(low, high), inputs=[rating])


# AlpacaEval: one answer against a baseline, in an order that the instruction decides.

BASELINE, MODEL = "A", "B"
SHOWN = {"m": 0, "M": 1}
"""How the prompt calls the answers: m is shown first, M second."""

TOKEN, RANKS = "the better one of {name} as one token", "the ranks in {name}"
"""What stands in for the prompts of the judge that writes one token, and of the one that ranks."""


class Ranked(BaseModel):
    """One answer's place in a ranking."""

    model: Literal["m", "M"]
    rank: Literal[1, 2]


class Ranking(BaseModel):
    """What the judge that explains itself answers, as a function call."""

    concise_explanation: str
    ordered_models: list[Ranked]


def preference_graph(compare: Callable[[str], BaseNode]) -> BaseNode:
    """How far the model's answer is preferred; nobody is asked about two equal answers."""
    order = CodeNode(
        shown_order,
        evaluation_params=["contestants.A.input"],
        then={"AB": compare("AB"), "BA": compare("BA")},
        name="order",
    )
    answers = [f"contestants.{name}.actual_output" for name in (BASELINE, MODEL)]
    return CodeNode(equal, evaluation_params=answers, then={True: 5, False: order})


def equal(first: str, second: str) -> bool:
    """Whether two answers are the same text."""
    return first == second


def shown_order(instruction: str) -> str:
    """The order of presentation, drawn by AlpacaEval with the instruction as the seed."""
    drawn = random.Random(f"is_switched_outputs{instruction}0")
    return "BA" if drawn.choices([False, True])[0] else "AB"


def token_preference(order: str) -> BaseNode:
    """The preference in the probabilities of m and M as the only token of the answer."""
    values = {token: float(order[place] == MODEL) for token, place in SHOWN.items()}
    return FirstTokenNode(
        "Which answer is better?",
        values,
        name=f"preference {order}",
        evaluation_params=["name"],
        prompt=PromptTemplate(TOKEN),
    )


def ranked_preference(order: str) -> BaseNode:
    """The preference in a ranking: whatever rank m has decides, as AlpacaEval reads it."""
    ranking = TaskNode(
        "Rank both answers.",
        output_label=f"ranking {order}",
        evaluation_params=["name"],
        output_type=Ranking,
        prompt=PromptTemplate(RANKS),
    )
    first, second = (10 if name == MODEL else 0 for name in order)
    return CodeNode(first_wins, inputs=[ranking], then={True: first, False: second})


def first_wins(ranking: Ranking) -> bool:
    """Whether the answer shown first has rank 1; the other one's rank is not looked at."""
    return next(entry.rank for entry in ranking.ordered_models if entry.model == "m") == 1


# MT-Bench is read by `stated`. Prometheus: a rubric score after the feedback, asked three times.

TIMES = range(3)


def agreement_graph() -> BaseNode:
    """Three ratings of one answer, and the share of the one given most often."""
    ratings = [
        RatingNode(
            "Rate the answer by the rubric.",
            ["input"],
            scale=(1, 5),
            output_label=f"rating {sample}",
            prompt=PromptTemplate("{input}"),
            parser=number(r"\[RESULT\]\s*(\d+)", "score"),
            options=Options(sample=sample),
        )
        for sample in TIMES
    ]
    return CodeNode(lambda *votes: majority_share(votes), inputs=ratings, name="agreement")


# PandaLM: first answer, second answer or tie, against the majority of three people.

_VERDICTS = {"A": 10, "tie": 5, "B": 0}


def verdict_graph() -> BaseNode:
    """One question; an answer that names no response is a tie, as the source counts it."""
    return NonBinaryJudgementNode(
        "Which response is better?",
        name="verdict",
        evaluation_params=["name"],
        then=_VERDICTS,
        prompt=PromptTemplate("{name}"),
        parser=FirstMatch(((r"^1\b", "A"), (r"^2\b", "B"), (r"", "tie"))),
    )
