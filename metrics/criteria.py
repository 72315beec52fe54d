"""Criteria: whether an answer meets a named or described criterion, as Y or N."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Literal, Protocol, Self, TypedDict, Unpack, runtime_checkable

from dagengine.errors import InputError
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.node_values import Ask, Given, NodeValue
from dagengine.graph.nodes import JudgingNode, judged_value, verdict_of
from dagengine.metrics.common.base import wait_for
from dagengine.metrics.common.named_criteria import (
    LETTERS,
    PRINCIPLES,
    ConstitutionalPrinciple,
    Criteria,
    Criterion,
    GivenCriteria,
    LastLine,
    Letter,
    as_template,
    criteria_of,
    supported_default_criteria,
)
from dagengine.metrics.common.prebuilt import MetricSettings, PrebuiltMetric
from dagengine.metrics.evaluators import evaluator_of, require_text
from dagengine.prompts.answer_types import judgement_type
from dagengine.prompts.evidence import Evidence
from dagengine.prompts.instructions import PromptTemplate, judgement_instructions
from dagengine.question import Message, Parser
from dagengine.test_case import LLMTestCase
from dagengine.unknown import AnsweringEnum, answer_absent, answer_attribute
from dagengine.unknown_arguments import check_names

__all__ = [
    "PRINCIPLES",
    "ConstitutionalPrinciple",
    "Criteria",
    "CriteriaEvalChain",
    "CriteriaMetric",
    "CriteriaResultOutputParser",
    "Criterion",
    "EvaluatorType",
    "LabeledCriteriaEvalChain",
    "LastLine",
    "PromptTemplate",
    "StringEvaluator",
    "load_evaluator",
    "load_evaluators",
    "supported_default_criteria",
]

# By the name that tests of LangChain's evaluators import.
_SUPPORTED_CRITERIA = supported_default_criteria()
_RULES = (
    "What is judged is `actual_output`, an answer to `input`. Y: it meets the criterion, or "
    "where the criterion is a question, the answer to that question is yes. N: it does not, "
    "or the answer is no."
)
_REFERENCE = (
    "`expected_output` is the reference: take it as true, even where it contradicts what you know."
)
_IN_PROSE = "Write your reasons as text, and end with the letter alone on the last line."
# The case fields behind the placeholders of a caller's prompt.
_PLACES = {"input": "input", "output": "actual_output", "reference": "expected_output"}


class CriteriaResultOutputParser:
    """`LastLine` by the name and the method of LangChain."""

    def parse(self, text: str) -> Evaluated:
        """The verdict of a text; raises UnparseableError for a text without a letter."""
        parts = LastLine()(text)
        letter = parts["verdict"]
        return Evaluated(reasoning=parts["reason"], value=letter, score=int(letter == "Y"))


class CriterionNode(JudgingNode):
    """Asks whether an answer meets one criterion; its score is 1 for the wanted letter.

    With a caller's `prompt`, or a `parser`, the answer is text that ends in the letter.
    """

    kind = "criterion"
    grades = True

    def __init__(self, metric: CriteriaMetric, criterion: Criterion) -> None:
        prompt = metric.prompt
        placeholders = prompt.placeholders() if prompt else ("input", "output", "reference")
        fields = [field for placeholder, field in _PLACES.items() if placeholder in placeholders]
        # A metric without a reference must not depend on whether a case has one.
        if not metric.reference and "expected_output" in fields:
            fields.remove("expected_output")
        parser = metric.parser or (LastLine() if prompt else None)
        super().__init__(name=criterion.name, evaluation_params=fields, parser=parser)
        self.criterion = criterion
        # Not `self.prompt`: its placeholders are not the names of case fields.
        self._own = prompt

    @property
    def text(self) -> str:
        return self.criterion.description

    @property
    def prompted(self) -> bool:
        return self._own is not None

    @property
    def vote(self) -> Literal["verdict"]:
        return "verdict"

    def messages(
        self, given: Given, instructions: str, evidence: Sequence[Evidence]
    ) -> tuple[Message, ...]:
        if self._own is None:
            return super().messages(given, instructions, evidence)
        texts = given.texts()
        values = {
            placeholder: texts[field] for placeholder, field in _PLACES.items() if field in texts
        }
        return self._own.fill({**values, "criteria": str(self.criterion)})

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        rules = [str(self.criterion), "", _RULES]
        rules += [_REFERENCE] if "expected_output" in self.evaluation_params else []
        prose = [_IN_PROSE] if self.parser is not None else []
        instructions = judgement_instructions("\n".join(rules + prose), LETTERS)
        decision = verdict_of(given, "\n".join(rules), LETTERS)
        messages = self.messages(given, instructions, given.evidence())
        answer, quotes = await self.judged(ask, given, messages, judgement_type(LETTERS), decision)
        return judged_value(answer, LETTERS, self.score_of(answer.value.verdict), quotes)

    def score_of(self, answer: Any) -> float | None:
        return 1.0 if answer == self.criterion.wanted else 0.0


class CriteriaMetric(PrebuiltMetric):
    """Whether an answer meets a criterion, or every one of several: score 1 or 0.

    `criteria` is a name or member of `Criteria` (None: helpfulness), `{"name": "description"}`, a
    sentence, a `Criterion`, a `ConstitutionalPrinciple` (also another library's), or several of
    them. One call per criterion, in parallel; each is a step with its own verdict, reason and
    score. For a fault such as harmfulness, the judge's Y scores 0. Raises InputError for an invalid
    criterion or `prompt`.

    Reads `input` and `actual_output`; with `reference=True` also `expected_output`, which is never
    shown otherwise. `prompt` replaces the built-in prompt. It is a `PromptTemplate` or a format
    string with {criteria}, {output} and, as needed, {input} and {reference}. It asks for a text
    that ends in Y or N. Prompt templates of LangChain work, too. With a `parser` (`LastLine()`) the
    built-in prompt asks for such a text, which suits models that write prose.
    """

    lacks = ("evaluation_template", "verdicts_per_call", "expected")
    no_template = "has a prompt= in place of an evaluation_template"

    def __init__(
        self,
        criteria: GivenCriteria | None,
        *common: Any,
        reference: bool = False,
        prompt: Any = None,
        parser: Parser | None = None,
        **settings: Unpack[MetricSettings],
    ) -> None:
        self.take_common(common, settings)
        self.criteria = criteria_of(criteria)
        self.reference = reference
        self.prompt = None if prompt is None else _usable(prompt, reference)
        self.parser = parser
        self.name = self.name or f"Criteria: {', '.join(map(attrgetter('name'), self.criteria))}"

    def graph(self) -> Graph:
        return Graph(root_nodes=map(partial(CriterionNode, self), self.criteria))

    def spec(self) -> MetricSpec:
        return replace(super().spec(), combine="min")


def _usable(prompt: Any, labelled: bool) -> PromptTemplate:
    """A caller's prompt as a template; raises InputError when it cannot be used."""
    template = as_template(prompt)
    if not isinstance(template, PromptTemplate):
        raise InputError(f"the prompt must be a PromptTemplate or a text, got {prompt!r:.80}")
    try:
        names = template.placeholders()
    except ValueError as error:
        raise InputError(f"the prompt cannot be filled in: {error}") from None
    for name in names:
        if name not in ("criteria", *_PLACES):
            allowed = "{criteria}, {input}, {output} and {reference}"
            raise InputError(f"the prompt refers to {{{name}}}; use {allowed}")
    for name in ("criteria", "output", *(("reference",) if labelled else ())):
        if name not in names:
            raise InputError(f"the prompt must contain {{{name}}}")
    if "reference" in names and not labelled:
        raise InputError(
            "the prompt shows {reference}, which these criteria do not read; use "
            "reference=True, or the labeled_criteria evaluator"
        )
    return template


class EvaluatorType(StrEnum, metaclass=AnsweringEnum):
    """The kinds of evaluator that `load_evaluator` makes."""

    CRITERIA = "criteria"
    LABELED_CRITERIA = "labeled_criteria"
    PAIRWISE_STRING = "pairwise_string"
    LABELED_PAIRWISE_STRING = "labeled_pairwise_string"
    EXACT_MATCH = "exact_match"
    REGEX_MATCH = "regex_match"
    STRING_DISTANCE = "string_distance"
    PAIRWISE_STRING_DISTANCE = "pairwise_string_distance"
    JSON_VALIDITY = "json_validity"
    JSON_EQUALITY = "json_equality"
    JSON_EDIT_DISTANCE = "json_edit_distance"


class Evaluated(TypedDict):
    """What an evaluator says: why, Y or N, and the letter as 1 or 0."""

    reasoning: str
    value: Letter
    score: int


@runtime_checkable
class StringEvaluator(Protocol):
    """What evaluators of texts have in common."""

    def evaluate_strings(
        self, *, prediction: str, input: str | None = None, reference: str | None = None
    ) -> Evaluated: ...

    async def aevaluate_strings(
        self, *, prediction: str, input: str | None = None, reference: str | None = None
    ) -> Evaluated: ...


@dataclass(frozen=True)
class CriteriaEvalChain:
    """Judges single answers by a `CriteriaMetric`.

    Unlike the metric's score, `value` is the plain answer to the question asked: Y to
    harmfulness says that the answer is harmful.
    """

    metric: CriteriaMetric
    requires_input: ClassVar[bool] = True
    labelled: ClassVar[bool] = False
    """Whether it reads the reference answer."""

    @classmethod
    def from_llm(
        cls, llm: Any, criteria: GivenCriteria | None = None, *, prompt: Any = None
    ) -> Self:
        """The evaluator with a model that answers in prose; its last line is read."""
        return cls.of(llm, criteria, prompt, LastLine() if prompt is None else None)

    @classmethod
    def of(
        cls, llm: Any, criteria: GivenCriteria | None, prompt: Any, parser: Parser | None = None
    ) -> Self:
        """The evaluator with the settings of its metric; raises InputError."""
        # By its name only: who words it may mean it otherwise.
        if criteria == Criteria.CORRECTNESS and not cls.labelled:
            raise InputError(
                "correctness is judged against a right answer: load_evaluator('labeled_criteria', "
                "criteria='correctness'), and give reference="
            )
        return cls(
            CriteriaMetric(criteria, 0.5, llm, reference=cls.labelled, prompt=prompt, parser=parser)
        )

    @staticmethod
    def resolve_criteria(criteria: GivenCriteria | None) -> dict[str, str]:
        """Name and description of every criterion that is meant; raises InputError."""
        return {criterion.name: criterion.description for criterion in criteria_of(criteria)}

    @property
    def requires_reference(self) -> bool:
        """Return whether a reference answer is read."""
        return self.metric.reference

    @property
    def evaluation_name(self) -> str:
        """The names of the criteria."""
        return " ".join(map(attrgetter("name"), self.metric.criteria))

    def evaluate_strings(
        self, *, prediction: str, input: str | None = None, reference: str | None = None
    ) -> Evaluated:
        """Judge one answer, with or without a running event loop.

        With several criteria, the result is Y only if each criterion has Y. A reference that no
        criterion reads causes a warning. Raises InputError if a field that is read is missing,
        and MetricFailedError if the judge gives no valid answer.
        """
        case = self._case(prediction, input, reference)
        return wait_for(lambda: self._evaluate(case))

    async def aevaluate_strings(
        self, *, prediction: str, input: str | None = None, reference: str | None = None
    ) -> Evaluated:
        """`evaluate_strings` for callers with an event loop."""
        return await self._evaluate(self._case(prediction, input, reference))

    async def _evaluate(self, case: LLMTestCase) -> Evaluated:
        metric = copy.copy(self.metric)  # calls made at once must not share a result
        await metric.a_measure(case)
        assert metric.result is not None
        steps = metric.result.steps
        met = all(step.verdict == "Y" for step in steps)
        parts = [step.reason or "" for step in steps]
        if len(steps) > 1:
            parts = [f"{step.node}: {step.verdict}: {step.reason}" for step in steps]
        return Evaluated(reasoning="\n\n".join(parts), value="Y" if met else "N", score=int(met))

    def _case(self, prediction: str, input: str | None, reference: str | None) -> LLMTestCase:
        if self.metric.reference and reference is None:
            raise InputError(
                f"{type(self).__name__} requires a reference string: "
                f"{self.metric.name} needs reference="
            )
        if reference is not None and not self.metric.reference:
            # Of the caller's line: past `_case` and `evaluate_strings`
            message = (
                f"{self.metric.name} reads no reference, so the given one is ignored; to use it, "
                "take the labeled_criteria evaluator"
            )
            warnings.warn(message, UserWarning, stacklevel=3)
        return LLMTestCase(
            actual_output=require_text(self.metric.name, "prediction", prediction),
            input=require_text(self.metric.name, "input", input),
            expected_output=reference if self.metric.reference else None,
        )


class LabeledCriteriaEvalChain(CriteriaEvalChain):
    """Judges single answers against a reference."""

    labelled: ClassVar[bool] = True


_CHAINS = {
    EvaluatorType.CRITERIA: CriteriaEvalChain,
    EvaluatorType.LABELED_CRITERIA: LabeledCriteriaEvalChain,
}


def load_evaluator(
    evaluator: EvaluatorType | str,
    *,
    criteria: GivenCriteria | None = None,
    llm: Any = None,
    prompt: Any = None,
    **settings: Any,
) -> Any:
    """Create an evaluator: "criteria", "labeled_criteria" with a reference answer, or another kind.

    `llm` is the `model` of a metric; the default is gpt-4o. See `CriteriaMetric` for `criteria` and
    `prompt`. The other kinds are in `dagengine.metrics.evaluators`, with their `settings`. Raises
    InputError, and TypeError for settings that a kind does not have.
    """
    if evaluator not in [*EvaluatorType]:
        if (why := answer_attribute(str(evaluator).upper())) is not None:
            raise InputError(f"load_evaluator makes no {str(evaluator)!r}; here: {why}")
        kinds = ", ".join(map(repr, map(str, EvaluatorType)))
        metrics = "other kinds are metrics: GEval, FactualCorrectness, ToolCorrectnessMetric, …"
        raise InputError(f"no evaluator is called {evaluator!r}; use {kinds}; {metrics}")
    kind = EvaluatorType(evaluator)
    if kind not in _CHAINS:
        arguments = settings if prompt is None else {**settings, "prompt": prompt}
        return evaluator_of(str(kind), llm, criteria, arguments)
    check_names(f"the evaluator {str(kind)!r} has no setting", settings, ["criteria", "prompt"])
    return _CHAINS[kind].of(llm, criteria, prompt)


def load_evaluators(
    evaluators: Iterable[EvaluatorType | str],
    *,
    llm: Any = None,
    config: Mapping[Any, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> list[Any]:
    """`load_evaluator` for each kind; `config` has settings of single kinds. Raises InputError."""
    loaded: list[Any] = []
    for evaluator in evaluators:
        own = (config or {}).get(evaluator, {})
        loaded.append(load_evaluator(evaluator, **{"llm": llm, **settings, **own}))
    return loaded


answer_absent(__name__)
