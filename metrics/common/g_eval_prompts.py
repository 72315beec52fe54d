"""Ratings by evaluation steps (G-Eval): their scale, their words, and who writes the steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dagengine.errors import InputError, UnsupportedError
from dagengine.graph.node_values import Ask, Given, NodeValue
from dagengine.graph.nodes import TaskNode
from dagengine.judges import as_judge, open_judges
from dagengine.metrics.common.base import wait_for
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.prompts.answer_bounds import Usually
from dagengine.prompts.decisions import writer_of
from dagengine.prompts.instructions import in_one_text, with_bounds
from dagengine.question import Message, Question
from dagengine.system.terminal_text import text_if
from dagengine.test_case import LLMTestCaseParams, field_name
from dagengine.unknown import Answering

FULL_SCALE, STRICT_SCALE = (0, 10), (0, 1)


@dataclass(frozen=True, slots=True)
class Rubric:
    """The meaning of the scores from `score_range[0]` to `score_range[1]`, both included.

    Raises InputError unless the range is two whole numbers from 0 on, the lower one first.
    """

    score_range: tuple[int, int]
    expected_outcome: str

    def __post_init__(self) -> None:
        low_high = tuple(self.score_range)
        object.__setattr__(self, "score_range", low_high)
        whole = all(isinstance(end, int) and not isinstance(end, bool) for end in low_high)
        if len(low_high) != 2 or not whole or not 0 <= low_high[0] <= low_high[1]:
            raise InputError(
                f"score_range is {self.score_range!r}: use two whole numbers from 0 on, the "
                "lower one first, for instance (0, 2)"
            )
        if not str(self.expected_outcome).strip():
            raise InputError(f"the rubric for {low_high} needs a text as expected_outcome")

    def __str__(self) -> str:
        low, high = self.score_range
        return f"{low if low == high else f'{low} to {high}'}: {self.expected_outcome}"


def scale_of(rubric: Sequence[Rubric]) -> tuple[int, int]:
    """The scale that a rubric spans (0 to 10 without one); raises InputError if it is not valid."""
    if not rubric:
        return FULL_SCALE
    for lower, upper in pairwise(rubric):
        if upper.score_range[0] <= lower.score_range[1]:
            raise InputError(
                f"the rubric's ranges {lower.score_range} and {upper.score_range} overlap"
            )
    low, high = rubric[0].score_range[0], rubric[-1].score_range[1]
    if low == high:
        raise InputError(f"the rubric has only the score {low}: a scale needs at least two scores")
    return low, high


_WRITE_STEPS = (
    "You write the steps by which somebody else will judge {work}. You see none of it now. "
    "Break the criterion that the user states down into three to six steps. Each step is one "
    "or two plain sentences that say what to look at, what speaks for the work and what "
    "against it. Together the steps cover the whole criterion and nothing beyond it. The judge "
    "will have this material, to be called by these names: {parameters}."
)
_RATE = (
    "Rate {work} by the evaluation steps below, using only the material. Take the steps in "
    "their order and see what each of them finds. First give your reason: in a few sentences, "
    "the findings that decided, and what in the material shows them. Then give your score, {scale}."
)
RATED = "Rate {work} by all of these evaluation steps together:\n{evaluation_steps}"
ALL_MET, NOT_MET = "every step is met completely", "some step is not met completely"
_LISTED = "\n\nEvaluation steps:\n"
_ALL_OR_NOTHING = (
    "which is 1 if every step is met completely and 0 if any of them is not; nothing lies between"
)


def step_list(steps: Iterable[str]) -> str:
    """Evaluation steps as a prompt shows them."""
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


def steps_instructions(work: str, parameters: str) -> str:
    """The system text of the question for evaluation steps."""
    return _WRITE_STEPS.format(work=work, parameters=parameters)


def rating_instructions(
    work: str, evaluation_steps: str, rubric: str | None, score_range: tuple[int, int]
) -> str:
    """The step of a rating."""
    low, high = score_range
    scale = f"a whole number from {low} (worst) to {high} (best)"
    meaning = text_if(rubric, f"\n\nWhat the scores stand for:\n{rubric}")
    return f"{_RATE.format(work=work, scale=scale)}{_LISTED}{evaluation_steps}{meaning}"


def strict_instructions(work: str, evaluation_steps: str, best: str | None = None) -> str:
    """The step of a rating in strict mode; `best` says what 1 stands for."""
    meaning = text_if(best, f"\n\n1 stands for: {best}")
    return f"{_RATE.format(work=work, scale=_ALL_OR_NOTHING)}{_LISTED}{evaluation_steps}{meaning}"


class GEvalTemplate(Answering):
    """The prompts of `GEval`; override a method to replace one.

    Methods are called by keyword. `test_case_content` is fenced: text of the case cannot
    leave its block.
    """

    work: ClassVar[str] = "a piece of work"

    @classmethod
    def generate_evaluation_steps(cls, criteria: str, parameters: str) -> str:
        """Asks for `{"steps": [...]}`."""
        return f"{steps_instructions(cls.work, parameters)}\n\nCriterion: {criteria}"

    @classmethod
    def generate_evaluation_results(
        cls,
        evaluation_steps: str,
        test_case_content: str,
        parameters: str,
        rubric: str | None = None,
        score_range: tuple[int, int] = FULL_SCALE,
    ) -> str:
        """Asks for `{"reason", "score"}`, the score in the range."""
        text = rating_instructions(cls.work, evaluation_steps, rubric, score_range)
        return in_one_text(test_case_content, text)

    @classmethod
    def generate_strict_evaluation_results(
        cls, evaluation_steps: str, test_case_content: str, parameters: str
    ) -> str:
        """Asks for `{"reason", "score"}` in strict mode: the score is 0 or 1."""
        return in_one_text(test_case_content, strict_instructions(cls.work, evaluation_steps))


STEPS_LABEL = "evaluation steps"
# Frames between a warning about settings and the caller who makes the metric.
_CALLER = 4


def _step_text(step: str) -> str:
    if not step.strip():
        raise ValueError("a step is empty")
    return step.strip()


_Step = Annotated[str, AfterValidator(_step_text), Usually(1000)]


class EvaluationSteps(BaseModel):
    """The answer to the question for evaluation steps."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    steps: Annotated[list[_Step], Field(min_length=1, max_length=20)]


class StepsNode(TaskNode):
    """Asks for evaluation steps. It reads no field of a case, so it runs once per run."""

    def __init__(self, criteria: str, messages: tuple[Message, ...]) -> None:
        super().__init__(criteria, STEPS_LABEL, output_type=EvaluationSteps)
        self._messages = messages

    @property
    def text(self) -> str:
        return without_backticks(self.instructions)

    def steps_question(self) -> Question[EvaluationSteps]:
        """The one question that this node asks."""
        messages = with_bounds(self._messages, EvaluationSteps, self.options)
        return Question(messages, EvaluationSteps, self.options, name=self.title)

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        answer = await ask(self.steps_question())
        return NodeValue(list(answer.value.steps))


# The steps are the rubric. Written again for every case, ten cases would be judged by ten rubrics;
# so the node that writes them reads no case, and runs once for a whole run.
def given_steps(given: Given, own: Sequence[str] | None) -> Sequence[str]:
    """The steps that a node brings, else those given to the metric."""
    return dict(given.inputs).get(STEPS_LABEL) or own or ()


def without_backticks(text: str) -> str:
    """A criterion as pictures and checks see it: its backticks are prose, not references."""
    return text.replace("`", "'")


def one_message(prompt: str) -> tuple[Message, ...]:
    """The whole prompt that a caller's template gives, as messages."""
    return ({"role": "user", "content": prompt},)


class StepwiseMetric(PrebuiltMetric):
    """What metrics by evaluation steps share: criterion or steps, and what they look at.

    `criteria` or `evaluation_steps` is given; with both, only the steps are used, and there is a
    warning. From a criterion the judge writes the steps once per run, before the first case.
    `generate_steps` returns them as a list to pass as `evaluation_steps`. That saves the question
    and makes runs comparable. Raises InputError if the settings cannot be combined.
    """

    template: ClassVar[type[GEvalTemplate]] = GEvalTemplate

    def __init__(
        self,
        name: str,
        criteria: str | None,
        evaluation_steps: Sequence[str] | None,
        evaluation_params: Iterable[str | LLMTestCaseParams] | None,
        **settings: Any,
    ) -> None:
        super().__init__(settings.pop("threshold", None), name=name, **settings)
        if isinstance(evaluation_params, str):
            raise InputError(
                f"{name}: evaluation_params must be a list, for instance ['actual_output']"
            )
        self.criteria = criteria
        self.steps: Sequence[str] | None = self._checked_steps(evaluation_steps)
        self.evaluation_params = tuple(dict.fromkeys(map(field_name, evaluation_params or ())))

    def _checked_steps(self, steps: Sequence[str] | None) -> list[str] | None:
        if self.criteria is None and steps is None:
            raise InputError(
                f"{self.name}: give criteria or evaluation_steps (neither given); without steps, "
                "the judge writes them from the criteria"
            )
        if not isinstance(self.criteria, str | None) or isinstance(steps, str):
            raise InputError(
                f"{self.name}: criteria is one text and evaluation_steps a list with one text per "
                f"step; the order is {type(self).__name__}(name, criteria, evaluation_steps, …)"
            )
        texts = [self.criteria or ""] if steps is None else list(steps)
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            setting = "criteria" if steps is None else "evaluation_steps"
            raise InputError(
                f"{self.name}: {setting} must not be empty, and each step must be a text"
            )
        if steps is not None and self.criteria is not None:
            message = "criteria and evaluation_steps are both given; only the steps are used"
            warnings.warn(f"{self.name}: {message}", stacklevel=_CALLER)
        return None if steps is None else texts

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.name

    @property
    def evaluation_steps(self) -> Sequence[str] | None:
        """The steps given, else those that the judge wrote for the last `measure`."""
        steps = self.result.steps if self.steps is None and self.result else ()
        return next((step.output for step in steps if step.node == STEPS_LABEL), self.steps)

    @evaluation_steps.setter
    def evaluation_steps(self, steps: Sequence[str] | None) -> None:
        self.steps = steps

    @property
    def parameters(self) -> str:
        """The names of the material, as prompts list them."""
        return ", ".join(map("`{}`".format, self.evaluation_params))

    @property
    def text(self) -> str:
        """The metric's words: its steps, or the criterion that they are made from."""
        steps = self.steps
        return (self.criteria or "") if steps is None else step_list(steps)

    def own_prompt(self, method: str) -> Callable[..., str] | None:
        """The method of `evaluation_template` where it replaces the built-in one."""
        own = getattr(self.evaluation_template, method, None)
        built_in = getattr(self.template, method)
        # A class method is bound anew by each class that inherits it: the functions are compared.
        inherited = getattr(own, "__func__", own) is getattr(built_in, "__func__", built_in)
        return None if inherited else own

    def steps_nodes(self) -> list[StepsNode]:
        """The node that brings the steps, or nothing if they are given."""
        return [] if self.steps is not None else [self._steps_node()]

    def _steps_node(self) -> StepsNode:
        criteria, parameters = self.criteria or "", self.parameters
        own = self.own_prompt("generate_evaluation_steps")
        if own is not None:
            prompt = own(criteria=criteria, parameters=parameters)
            return StepsNode(criteria, one_message(prompt))
        system = steps_instructions(self.template.work, parameters)
        user = one_message(f"Criterion: {criteria}")
        return StepsNode(criteria, ({"role": "system", "content": system}, *user))

    def generate_steps(self, model: Any = None) -> list[str]:
        """`a_generate_steps` for callers without an event loop (it works inside one, too)."""
        return wait_for(lambda: self.a_generate_steps(model))

    async def a_generate_steps(self, model: Any = None) -> list[str]:
        """The steps given, or those that the judge makes of the criterion.

        `model` is the judge where the metric names none. Raises JudgeError when the judge
        gives no steps. The metric stays as it is.
        """
        if self.steps is not None:
            return list(self.steps)
        judge = as_judge(model if self.model is None else self.model)
        writer = writer_of(judge)
        if writer is None:
            raise UnsupportedError(f"{judge.identity} writes no steps: give it a writer=")
        from dagengine.gateway.gateway import Gateway  # metrics with steps of their own need none

        async with open_judges([writer]):
            answer = await Gateway().ask(writer, self._steps_node().steps_question())
        return list(answer.value.steps)
