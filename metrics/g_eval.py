"""G-Eval: a judge rates a case by evaluation steps, which it may write itself first.

After Liu et al. 2023, "G-Eval: NLG Evaluation using GPT-4 with Better Human Alignment"
(https://arxiv.org/abs/2303.16634): steps from the criterion, a form to fill in, and the
expectation over the score token's probabilities where the judge gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dagengine.errors import InputError, JudgeError
from dagengine.evaluation import sync
from dagengine.gateway import Gateway
from dagengine.graph import Graph
from dagengine.judges import as_judge, open_judges
from dagengine.metrics.prebuilt import PrebuiltMetric
from dagengine.node import Ask, BaseNode, Given, NodeValue
from dagengine.nodes import RatingNode, TaskNode
from dagengine.prompts import Evidence, fenced, messages_for, rating_type
from dagengine.question import DEFAULT_OPTIONS, Message, Options, Question
from dagengine.test_case import LLMTestCaseParams, field_name
from dagengine.weighting import expected_score

STEPS_LABEL = "evaluation steps"
FULL_SCALE, STRICT_SCALE = (0, 10), (0, 1)
_STRICT_MODE = "raw (strict mode asks for 0 or 1)"

_WRITE_STEPS = (
    "You write the steps by which somebody else will judge {work}. You see none of it now. "
    "Break the criterion that the user states down into three to six steps. Each step is one "
    "or two plain sentences that say what to look at, what speaks for the work and what "
    "against it. Together the steps cover the whole criterion and nothing beyond it. The judge "
    "will have this material, to be called by these names: {parameters}."
)
_RATE = (
    "You rate {work} by the evaluation steps below, using only the material. Take the steps in "
    "their order and see what each of them finds. First give your reason: in a few sentences, "
    "the findings that decided, and what in the material shows them. Then give your score, {scale}."
)
_LISTED = "\n\nEvaluation steps:\n"
_ALL_OR_NOTHING = (
    "which is 1 if every step is met completely and 0 if any of them is not; nothing lies between"
)


class MissingFieldError(JudgeError):
    """Raised when a part of a case lacks what the metric reads; no question was asked."""

    kind = "missing_field"


@dataclass(frozen=True, slots=True)
class Rubric:
    """What the scores from `score_range[0]` to `score_range[1]`, both included, stand for.

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
            raise InputError(f"the rubric for {low_high} does not say what it stands for")

    def __str__(self) -> str:
        low, high = self.score_range
        return f"{low if low == high else f'{low} to {high}'}: {self.expected_outcome}"


def scale_of(rubric: Sequence[Rubric]) -> tuple[int, int]:
    """The scale that a rubric spans (0 to 10 without one); raises InputError if it is none."""
    if not rubric:
        return FULL_SCALE
    for lower, upper in pairwise(rubric):
        if upper.score_range[0] <= lower.score_range[1]:
            raise InputError(
                f"the rubric's ranges {lower.score_range} and {upper.score_range} overlap"
            )
    low, high = rubric[0].score_range[0], rubric[-1].score_range[1]
    if low == high:
        raise InputError(f"the rubric has the one score {low}: a scale needs at least two")
    return low, high


def numbered(steps: Iterable[str]) -> str:
    """Evaluation steps as a prompt shows them."""
    return "\n".join(f"{place}. {step}" for place, step in enumerate(steps, 1))


def steps_instructions(work: str, parameters: str) -> str:
    """The system text of the question for evaluation steps."""
    return _WRITE_STEPS.format(work=work, parameters=parameters)


def rating_instructions(
    work: str, evaluation_steps: str, rubric: str | None, score_range: tuple[int, int]
) -> str:
    """The system text of a rating."""
    low, high = score_range
    scale = f"a whole number from {low} (worst) to {high} (best)"
    meaning = f"\n\nWhat the scores stand for:\n{rubric}" if rubric else ""
    return f"{_RATE.format(work=work, scale=scale)}{_LISTED}{evaluation_steps}{meaning}"


def strict_instructions(work: str, evaluation_steps: str, best: str | None = None) -> str:
    """The system text of a rating in strict mode; `best` says what 1 stands for."""
    meaning = f"\n\n1 stands for: {best}" if best else ""
    return f"{_RATE.format(work=work, scale=_ALL_OR_NOTHING)}{_LISTED}{evaluation_steps}{meaning}"


class GEvalTemplate:
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
        return f"{text}\n\n{test_case_content}"

    @classmethod
    def generate_strict_evaluation_results(
        cls, evaluation_steps: str, test_case_content: str, parameters: str
    ) -> str:
        """Asks for `{"reason", "score"}` in strict mode: the score is 0 or 1."""
        return f"{strict_instructions(cls.work, evaluation_steps)}\n\n{test_case_content}"


def _stated(step: str) -> str:
    if not step.strip():
        raise ValueError("a step is empty")
    return step.strip()


_Step = Annotated[str, AfterValidator(_stated), Field(json_schema_extra={"maxLength": 1000})]


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
        return _without_backticks(self.instructions)

    def steps_question(self) -> Question[EvaluationSteps]:
        """The one question that this node asks."""
        return Question(self._messages, EvaluationSteps, self.options, name=self.title)

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        answer = await ask(self.steps_question())
        return NodeValue(list(answer.value.steps))


@dataclass(frozen=True, slots=True)
class RatingForm:
    """What a rating goes by.

    `steps` are None where a node brings them; `own` makes a prompt in place of the built-in.
    """

    work: str
    text: str
    parameters: str
    steps: tuple[str, ...] | None
    rubric: tuple[Rubric, ...]
    strict: bool
    own: Callable[..., str] | None = None

    @property
    def scale(self) -> tuple[int, int]:
        """The lowest and the highest score."""
        return STRICT_SCALE if self.strict else scale_of(self.rubric)

    def messages(self, steps: Sequence[str], evidence: Sequence[Evidence]) -> tuple[Message, ...]:
        """The prompt: steps and rubric are instructions, evidence is the user message."""
        rubric = "\n".join(map(str, self.rubric)) or None
        if self.own is not None:
            more = {} if self.strict else {"rubric": rubric, "score_range": self.scale}
            prompt = self.own(
                evaluation_steps=numbered(steps),
                test_case_content=fenced(evidence),
                parameters=self.parameters,
                **more,
            )
            return ({"role": "user", "content": prompt},)
        if self.strict:
            best = self.rubric[-1].expected_outcome if self.rubric else None
            return messages_for(strict_instructions(self.work, numbered(steps), best), evidence)
        text = rating_instructions(self.work, numbered(steps), rubric, self.scale)
        return messages_for(text, evidence)


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
            options=DEFAULT_OPTIONS if form.strict else Options(top_logprobs=20),
        )
        self.form = form

    @property
    def text(self) -> str:
        return _without_backticks(self.criteria)

    def material(self, given: Given) -> list[Evidence]:
        """What is rated."""
        return Given(given.fields, ()).evidence()

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        low, high = self.scale
        steps = dict(given.inputs).get(STEPS_LABEL) or self.form.steps or ()
        messages = self.form.messages(steps, self.material(given))
        shape = rating_type(low, high)
        answer = await ask(Question(messages, shape, self.options, name=self.title))
        found = cast(Any, answer.value)
        rating, mode = float(found.score), _STRICT_MODE
        if not self.form.strict:
            rating, mode = expected_score(answer, found.score, low, high)
        score = (rating - low) / (high - low)
        return NodeValue(rating, reason=found.reason, score=score, mode=mode)


def _without_backticks(text: str) -> str:
    """A criterion as pictures and checks see it: its backticks are prose, not references."""
    return text.replace("`", "'")


class StepwiseMetric(PrebuiltMetric):
    """What metrics by evaluation steps share: criterion or steps, and what they look at.

    Exactly one of `criteria` and `evaluation_steps` is given. From a criterion the judge
    writes the steps once per run, before the first case; `generate_steps` gives them back
    as a list to pass as `evaluation_steps`, which saves the question and makes runs
    comparable. Raises InputError when the settings do not fit together.
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
        threshold = settings.pop("threshold", None)
        super().__init__(**settings)
        self.name = name
        self.threshold = 1.0 if self.strict_mode else threshold
        if isinstance(evaluation_params, str):
            raise InputError(f"{name}: evaluation_params is a list, for instance ['actual_output']")
        self.criteria = criteria
        self.evaluation_steps = self._checked_steps(evaluation_steps)
        self.evaluation_params = tuple(
            dict.fromkeys(field_name(param) for param in evaluation_params or ())
        )

    def _checked_steps(self, steps: Sequence[str] | None) -> list[str] | None:
        if (self.criteria is None) == (steps is None):
            which = "neither" if steps is None else "both"
            raise InputError(
                f"{self.name}: give either criteria or evaluation_steps ({which} given); the "
                "steps are what is judged by, and without any they are made from the criteria"
            )
        if isinstance(steps, str):
            raise InputError(f"{self.name}: evaluation_steps is a list with one text per step")
        texts = [self.criteria or ""] if steps is None else list(steps)
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            which = "criteria" if steps is None else "evaluation_steps"
            raise InputError(f"{self.name}: {which} must not be empty, and each step is a text")
        return None if steps is None else texts

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def parameters(self) -> str:
        """The names of the material, as prompts list them."""
        return ", ".join(f"`{param}`" for param in self.evaluation_params)

    @property
    def text(self) -> str:
        """The metric's words: its criterion, or its steps."""
        return self.criteria or numbered(self.evaluation_steps or ())

    def own_prompt(self, method: str) -> Callable[..., str] | None:
        """The method of `evaluation_template` where it replaces the built-in one."""
        own = getattr(self.evaluation_template, method, None)
        built_in = getattr(self.template, method)
        same = getattr(own, "__func__", own) is getattr(built_in, "__func__", built_in)
        return None if same else own

    def steps_nodes(self) -> list[StepsNode]:
        """The node that brings the steps, or nothing where they are given."""
        if self.evaluation_steps is not None:
            return []
        return [self._steps_node()]

    def _steps_node(self) -> StepsNode:
        criteria, parameters = self.criteria or "", self.parameters
        own = self.own_prompt("generate_evaluation_steps")
        if own is not None:
            prompt = own(criteria=criteria, parameters=parameters)
            return StepsNode(criteria, ({"role": "user", "content": prompt},))
        system = steps_instructions(self.template.work, parameters)
        return StepsNode(
            criteria,
            (
                {"role": "system", "content": system},
                {"role": "user", "content": f"Criterion: {criteria}"},
            ),
        )

    def generate_steps(self, model: Any = None) -> list[str]:
        """`a_generate_steps` for callers without an event loop (it works inside one, too)."""
        return sync(lambda: self.a_generate_steps(model))

    async def a_generate_steps(self, model: Any = None) -> list[str]:
        """The steps given, or those that the judge makes of the criterion.

        `model` is the judge where the metric names none. Raises JudgeError when the judge
        gives no steps. The metric stays as it is.
        """
        if self.evaluation_steps is not None:
            return list(self.evaluation_steps)
        judge = as_judge(model if self.model is None else self.model)
        async with open_judges([judge]):
            answer = await Gateway().ask(judge, self._steps_node().steps_question())
        return list(answer.value.steps)


class RatedMetric(StepwiseMetric):
    """A metric by evaluation steps that ends in a rating."""

    def __init__(
        self,
        name: str,
        criteria: str | None,
        evaluation_steps: Sequence[str] | None,
        evaluation_params: Iterable[str | LLMTestCaseParams] | None,
        rubric: Iterable[Rubric] | None,
        **settings: Any,
    ) -> None:
        super().__init__(name, criteria, evaluation_steps, evaluation_params, **settings)
        self.rubric = tuple(sorted(rubric or (), key=lambda part: part.score_range))
        scale_of(self.rubric)

    def form(self) -> RatingForm:
        """What the rating goes by."""
        steps = self.evaluation_steps
        kind = "strict_evaluation" if self.strict_mode else "evaluation"
        return RatingForm(
            work=self.template.work,
            text=self.text,
            parameters=self.parameters,
            steps=None if steps is None else tuple(steps),
            rubric=self.rubric,
            strict=self.strict_mode,
            own=self.own_prompt(f"generate_{kind}_results"),
        )


class GEval(RatedMetric):
    """A rating of one case by any criterion.

    `criteria` says in everyday words what is judged, or `evaluation_steps` how, step by
    step; `evaluation_params` names the fields of the case that the judge sees. The judge
    writes steps from the criterion once per run, then rates each case with one call, on the
    scale from 0 to 10 or the one that `rubric` spans: score = (rating - lowest) / (highest
    - lowest), where the rating is the expectation over the token probabilities if the judge
    gives them (the result's `mode` tells). `strict_mode` asks for 0 or 1 only.
    """

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
    ) -> None:
        super().__init__(
            name,
            criteria,
            evaluation_steps,
            evaluation_params,
            rubric,
            threshold=threshold,
            model=model,
            strict_mode=strict_mode,
            async_mode=async_mode,
            verbose_mode=verbose_mode,
            evaluation_template=evaluation_template,
        )
        if not self.evaluation_params:
            raise InputError(f"{name}: evaluation_params must name the fields that are judged")

    def graph(self) -> Graph:
        return Graph(StepRatingNode(self.form(), self.evaluation_params, self.steps_nodes()))
