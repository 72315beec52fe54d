"""G-Eval: a judge rates a case by evaluation steps, which it may write itself first.

It follows Liu et al. (2023, "G-Eval: NLG Evaluation using GPT-4 with Better Human Alignment",
https://arxiv.org/abs/2303.16634). There are steps from the criterion, a form to fill in, and the
expectation over the score token's probabilities if the judge gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagengine.errors import InputError
from dagengine.graph.examples_and_quotes import Unsupported
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Ask, Given, NodeValue
from dagengine.graph.nodes import RatingNode
from dagengine.metrics.common.g_eval_prompts import (
    ALL_MET,
    NOT_MET,
    RATED,
    STRICT_SCALE,
    GEvalTemplate,
    Rubric,
    StepwiseMetric,
    given_steps,
    one_message,
    rating_instructions,
    scale_of,
    step_list,
    strict_instructions,
    without_backticks,
)
from dagengine.prompts.answer_types import rating_type
from dagengine.prompts.evidence import Evidence, fence
from dagengine.prompts.instructions import messages_for
from dagengine.prompts.quotes import QuoteMode
from dagengine.question import DEFAULT_OPTIONS, Decision, Message, Option, Options, Parser
from dagengine.test_case import LLMTestCaseParams
from dagengine.unknown import answer_absent

__all__ = ["GEval", "GEvalTemplate", "RatedMetric", "RatingForm", "Rubric", "StepRatingNode"]

_STRICT_MODE = "raw (strict mode asks for 0 or 1)"


@dataclass(frozen=True, slots=True)
class RatingForm:
    """What a rating is based on: steps, scale and prompt.

    `steps` are None if a node brings them; `own` replaces the built-in prompt. `ends` are the
    lowest and the highest score of a scale without a rubric (None: 0 to 10).
    """

    work: str
    text: str
    parameters: str
    steps: tuple[str, ...] | None
    rubric: tuple[Rubric, ...]
    strict: bool
    own: Callable[..., str] | None = None
    parser: Parser | None = None
    top_logprobs: int = 20
    ends: tuple[int, int] | None = None

    @property
    def scale(self) -> tuple[int, int]:
        """The lowest and the highest score."""
        return STRICT_SCALE if self.strict else self.ends or scale_of(self.rubric)

    def instructions(self, steps: Sequence[str]) -> str:
        """The same for a judge that gives no reason; the levels say what the scores stand for."""
        return RATED.format(work=self.work, evaluation_steps=step_list(steps))

    def meaning(self, number: int) -> str | None:
        """The meaning of one point of the scale; None if it has none."""
        if self.strict and number == 0:
            return NOT_MET
        if self.strict:
            return self.rubric[-1].expected_outcome if self.rubric else ALL_MET
        for span in self.rubric:
            if span.score_range[0] <= number <= span.score_range[1]:
                return span.expected_outcome
        return None

    def messages(
        self,
        steps: Sequence[str],
        evidence: Sequence[Evidence],
        solve: Callable[[str, Sequence[Evidence]], tuple[str, Sequence[Evidence]]],
    ) -> tuple[Message, ...]:
        """The prompt: the evidence, then the evaluation steps and the rubric.

        `solve` adds solved examples to the step and the evidence.
        """
        rubric = "\n".join(map(str, self.rubric)) or None
        if self.own is not None:
            scoring = {} if self.strict else {"rubric": rubric, "score_range": self.scale}
            prompt = self.own(
                evaluation_steps=step_list(steps),
                test_case_content=fence(evidence),
                parameters=self.parameters,
                **scoring,
            )
            return one_message(prompt)
        if self.strict:
            best = self.rubric[-1].expected_outcome if self.rubric else None
            text = strict_instructions(self.work, step_list(steps), best)
        else:
            text = rating_instructions(self.work, step_list(steps), rubric, self.scale)
        return messages_for(*solve(text, evidence))


class StepRatingNode(RatingNode):
    """A rating by evaluation steps, given or read from another node."""

    def __init__(
        self,
        form: RatingForm,
        evaluation_params: Iterable[str] = (),
        inputs: Iterable[BaseNode] = (),
    ) -> None:
        super().__init__(
            form.text,
            evaluation_params,
            scale=form.scale,
            inputs=inputs,
            name="rating",
            parser=form.parser,
            options=DEFAULT_OPTIONS if form.strict else Options(top_logprobs=form.top_logprobs),
        )
        self.form = form

    @property
    def text(self) -> str:
        return without_backticks(self.criteria)

    @property
    def prompted(self) -> bool:
        return self.form.own is not None

    def levels(self) -> list[Option]:
        if not self.form.strict and not self.form.rubric:  # no point has a meaning of its own
            return super().levels()
        return [Option(point, self.form.meaning(int(point))) for point in self.points.steps]

    def material(self, given: Given) -> list[Evidence]:
        """The evidence to rate."""
        return Given(given.fields, ()).evidence()

    def quotable(self, given: Given) -> list[Evidence]:
        return self.material(given)

    def fields(self, given: Given) -> tuple[tuple[str, Any], ...]:
        """The fields of the case that are rated, as a decision names them."""
        return given.fields

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        steps = given_steps(given, self.form.steps)
        messages = self.form.messages(steps, self.material(given), self.with_solved)
        shape = rating_type(*self.form.scale)
        decision = Decision(
            "score", self.form.instructions(steps), tuple(self.levels()), given.case,
            self.fields(given),
        )  # fmt: skip
        answer, quotes = await self.judged(ask, given, messages, shape, decision)
        if self.form.strict:
            # Strict mode wants 0 or 1: without tokens there is no expectation in between.
            return replace(self.rating_in(replace(answer, tokens=None), quotes), mode=_STRICT_MODE)
        return self.rating_in(answer, quotes)


class RatedMetric(StepwiseMetric):
    """A metric by evaluation steps that ends in a rating."""

    def __init__(
        self,
        name: str,
        criteria: str | None = None,
        evaluation_steps: Sequence[str] | None = None,
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        rubric: Iterable[Rubric] | None = None,
        threshold: float | None = 0.5,
        model: Any = None,
        strict_mode: bool = False,
        async_mode: bool = True,
        verbose_mode: bool = False,
        evaluation_template: type[Any] | None = None,
        *,
        parser: Parser | None = None,
        top_logprobs: int = 20,
        scale: tuple[int, int] | None = None,
        quote: QuoteMode | None = None,
        unsupported: Unsupported = "fail",
    ) -> None:
        super().__init__(
            name,
            criteria,
            evaluation_steps,
            evaluation_params,
            threshold=threshold,
            model=model,
            strict_mode=strict_mode,
            async_mode=async_mode,
            verbose_mode=verbose_mode,
            evaluation_template=evaluation_template,
            quote=quote,
            unsupported=unsupported,
        )
        self.parser = parser
        self.top_logprobs = top_logprobs
        self.rubric = tuple(sorted(rubric or (), key=lambda part: part.score_range))
        scale_of(self.rubric)
        self.scale = None
        if scale is not None and self.rubric:
            raise InputError(f"{name}: the rubric has a scale of its own; leave scale= out")
        if scale is not None:
            try:
                self.scale = scale_of([Rubric(scale, "a score")])
            except (InputError, TypeError):
                raise InputError(
                    f"{name}: scale= takes two whole numbers from 0 on, the lower one first, for "
                    f"instance (0, 9); got {scale!r:.80}"
                ) from None
        self.evaluation_params = self.fields_read(self.evaluation_params)

    def fields_read(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """The case fields that the judge sees; raises InputError for names that cannot be used."""
        return named

    def form(self) -> RatingForm:
        """The basis of the rating: steps, rubric, scale and prompts."""
        steps = self.steps
        kind = "strict_evaluation" if self.strict_mode else "evaluation"
        return RatingForm(
            work=self.template.work,
            text=self.text,
            parameters=self.parameters,
            steps=None if steps is None else tuple(steps),
            rubric=self.rubric,
            strict=self.strict_mode,
            own=self.own_prompt(f"generate_{kind}_results"),
            parser=self.parser,
            top_logprobs=self.top_logprobs,
            ends=self.scale,
        )


class GEval(RatedMetric):
    """A rating of one case by any criterion.

    `criteria` says in plain words what to judge, or `evaluation_steps` says how, step by step.
    `evaluation_params` names the case fields that the judge sees. Once per run, the judge writes
    the steps from the criterion. Then it rates each case with one call, on the scale from 0 to 10,
    on `scale`, or on that of `rubric`. Score: (rating - lowest) / (highest - lowest), from 0 to 1.
    If the judge gives token probabilities, the rating is the expectation over them (the result's
    `mode` says so). `strict_mode` asks for 0 or 1 only. `parser` reads the rating of a judge that
    answers in prose (`FirstMatch(..., field="score")`); then you also need an `evaluation_template`
    with the prompt. Raises InputError for settings that cannot be combined. Source: Liu et al.
    2023, https://arxiv.org/abs/2303.16634.
    """

    def fields_read(self, named: tuple[str, ...]) -> tuple[str, ...]:
        if not named:
            raise InputError(f"{self.name}: evaluation_params must name the fields that are judged")
        return named

    def spec(self) -> MetricSpec:
        """The actual output is judged where it is shown, else all that is shown."""
        fields = self.evaluation_params
        judged = ("actual_output",) if "actual_output" in fields else fields
        return replace(super().spec(), judged=(judged,))

    def graph(self) -> Graph:
        return Graph(StepRatingNode(self.form(), self.evaluation_params, self.steps_nodes()))


answer_absent(__name__)
