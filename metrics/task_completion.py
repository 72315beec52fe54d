"""Task completion: how far the outcome does what the user set out to have done."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

from pydantic import AfterValidator, BaseModel, ConfigDict

from dagengine.graph.graph import Graph, is_blank
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Ask, Given, NodeValue
from dagengine.graph.nodes import CodeNode, RatingNode, TaskNode
from dagengine.metrics.common.default_prompts import rating_prompt, task_prompt
from dagengine.metrics.common.prebuilt import MetricSettings, PrebuiltMetric
from dagengine.prompts.answer_bounds import Usually
from dagengine.prompts.answer_types import Text, output_type
from dagengine.question import Options
from dagengine.test_case import ToolCall, read_field

OUTCOME = (
    "In one or two sentences, state as the outcome what was in fact done or delivered, "
    "according to `actual_output` and, if there are any, the tools called and their output. "
    "Say what happened, not whether it is good, and do not count a promise or a claim that the "
    "tools called contradict as done."
)
TASK_AND_OUTCOME = (
    "In one sentence, state as the task what the user of `input` wants to have done, with every "
    f"condition that the user sets and without looking at how it went. {OUTCOME}"
)
COMPLETED = (
    "How far does the outcome complete the task? The best rating is for a task that is done in "
    "every respect, the worst for one of which nothing is done, and those between for the part "
    "that is done. Judge what was done only, not how it is worded."
)

SCALE = (0, 10)


def _given_task(text: str) -> str:
    # A rating of nothing would be a score all the same.
    if is_blank(text):
        raise ValueError("the text is empty; say it in words, also that nothing was done")
    return text


class TaskAndOutcome(BaseModel):
    """What was wanted, and what was done."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    task: Annotated[str, AfterValidator(_given_task), Usually(2000)]
    outcome: Annotated[str, AfterValidator(_given_task), Usually(2000)]


_Outcome = Annotated[Text, AfterValidator(_given_task)]


class TaskCompletionTemplate:
    """The prompts of `TaskCompletionMetric`; override a method to replace one."""

    @staticmethod
    def extract_task_and_outcome(
        input: str, actual_output: str, tools_called: list[ToolCall]
    ) -> str:
        """Asks for `{"task", "outcome"}`; used when the metric is given no task."""
        return task_prompt(
            *(TASK_AND_OUTCOME, TaskAndOutcome),
            input=input,
            actual_output=actual_output,
            tools_called=tools_called,
        )

    @staticmethod
    def extract_outcome(input: str, actual_output: str, tools_called: list[ToolCall]) -> str:
        """Asks for `{"output"}`, the outcome; used when the metric is given a task."""
        return task_prompt(
            *(OUTCOME, output_type(str)),
            input=input,
            actual_output=actual_output,
            tools_called=tools_called,
        )

    @staticmethod
    def generate_rating(task: str, outcome: str) -> str:
        """Asks for `{"reason", "score"}`, a whole number from 0 to 10."""
        return rating_prompt(COMPLETED, SCALE, task=task, outcome=outcome)


class TaskCompletionMetric(PrebuiltMetric):
    """The judge's rating of how well a task was completed.

    `task` describes the task; without it the task is taken from the input. Reads `input`,
    `actual_output` and, where the case has them, `tools_called`; 2 calls. Score: a whole number
    from 0 to 10, divided by 10 (or its expectation, where the judge gives token probabilities).
    """

    title, template = "Task Completion", TaskCompletionTemplate
    judged = (("actual_output", "tools_called"),)

    def __init__(
        self, *common: Any, task: str | None = None, **settings: Unpack[MetricSettings]
    ) -> None:
        self.take_common(common, settings)
        self.task = task

    def graph(self) -> Graph:
        task, outcome = self._extraction() if self.task is None else self._task_as_set(self.task)
        rating = RatingNode(
            COMPLETED,
            inputs=[task, outcome],
            scale=SCALE,
            name="completion",
            wording=self.wording("generate_rating", "task", "outcome"),
            # An expectation is hardly ever perfect: strict mode takes the rating as it stands.
            options=Options(top_logprobs=0 if self.strict_mode else 20),
        )
        return Graph(rating)

    def _extraction(self) -> tuple[BaseNode, BaseNode]:
        extraction = self._task_node(TASK_AND_OUTCOME, "task and outcome", TaskAndOutcome)

        def the_task(both: TaskAndOutcome) -> str:
            return both.task

        def the_outcome(both: TaskAndOutcome) -> str:
            return both.outcome

        return (
            CodeNode(the_task, inputs=[extraction], output_label="task"),
            CodeNode(the_outcome, inputs=[extraction], output_label="outcome"),
        )

    def _task_as_set(self, task: str) -> tuple[BaseNode, BaseNode]:
        def as_given() -> str:
            return task

        return CodeNode(as_given, output_label="task"), self._task_node(
            OUTCOME, "outcome", _Outcome
        )

    def _task_node(self, instructions: str, label: str, answer: Any) -> TaskNode:
        method = "extract_task_and_outcome" if self.task is None else "extract_outcome"
        fields = ("input", "actual_output", "tools_called")
        return TaskNode(
            instructions,
            label,
            evaluation_params=["input", "actual_output"],
            inputs=[ToolsCalledNode()],
            output_type=answer,
            wording=self.wording(method, *fields),
        )


class ToolsCalledNode(BaseNode):
    """The tools that were called; none when the case says nothing about tools."""

    kind = "field"
    whole_case = True

    def __init__(self) -> None:
        super().__init__(output_label="tools_called")

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        return NodeValue(read_field(given.case, "tools_called") or [])
