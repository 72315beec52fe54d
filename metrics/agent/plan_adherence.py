"""Plan adherence: whether an agent did what it had planned."""

from __future__ import annotations

from dagengine.graph.graph import Graph
from dagengine.graph.node_values import Given, Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion, task_prompt
from dagengine.metrics.common.extraction import Extracted, ExtractionNode, the_list
from dagengine.metrics.common.prebuilt import PrebuiltMetric, share
from dagengine.prompts.evidence import as_text
from dagengine.test_case import ToolCall

PLAN = (
    "List the steps of the plan that the agent made before or while it worked, each as one short "
    "self-contained sentence, in the order of the plan. A plan is what the agent says that it is "
    "going to do: in the `reasoning` of its tool calls, or in `actual_output`. What it did without "
    "having said so is no part of a plan, nor is what it only offers to the user. Of a plan that "
    "was changed on the way, list the last form."
)
CARRIED_OUT = ItemQuestion(
    "The step is one of the plan that the agent made, which has the steps in `plan` in this order. "
    "Did the agent carry it out? yes: a call in `tools_called` or a part of `actual_output` does "
    "what the step says, at its place among the other steps; no: it was left out, replaced by "
    "something else, only announced, or done where its place in the plan matters and is another.",
    "step",
)


class Plan(Extracted):
    """What an agent planned to do."""

    plan: list[str]


class PlanAdherenceTemplate:
    """The prompts of `PlanAdherenceMetric`; override a method to replace one."""

    @staticmethod
    def extract_plan(actual_output: str, tools_called: list[ToolCall]) -> str:
        """Asks for `{"plan": [...]}`."""
        return task_prompt(PLAN, Plan, actual_output=actual_output, tools_called=tools_called)

    @staticmethod
    def generate_verdicts(
        steps: list[str], plan: list[str], actual_output: str, tools_called: list[ToolCall]
    ) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`, one per step."""
        return CARRIED_OUT.prompt(
            steps, actual_output=actual_output, tools_called=tools_called, plan=plan
        )


class PlanAdherenceMetric(PrebuiltMetric):
    """The share of the steps of its own plan that an agent carried out.

    The plan is taken from the `reasoning` of the tool calls and from the answer. Reads
    `actual_output` and `tools_called`; 2 calls. Score: carried out / steps of the plan, 1 when the
    agent states no plan. What it did beside the plan does not count.
    """

    title, template = "Plan Adherence", PlanAdherenceTemplate
    judged = (("actual_output", "tools_called"),)

    def graph(self) -> Graph:
        fields = ["actual_output", "tools_called"]
        extracted = PlanNode(
            PLAN,
            "plan of the agent",
            fields[0],
            Plan,
            self.wording("extract_plan", *fields),
            empty=True,
            beside=fields[1:],
        )
        plan = the_list(extracted, "plan")
        steps = CodeNode(as_they_are, inputs=[plan], output_label="steps")
        wording = self.wording("generate_verdicts", "steps", "plan", *fields)
        verdicts = self.judge_items(CARRIED_OUT, steps, "adherence", wording, fields, inputs=[plan])
        return self.score_graph(carried_out_share, [plan, verdicts])


class PlanNode(ExtractionNode):
    """Lists the steps of a plan, which may be in the answer or in the reasoning of the calls."""

    def source(self, given: Given) -> str:
        return "\n".join(as_text(value) for _, value in given.fields)


def as_they_are(plan: list[str]) -> list[str]:
    return plan


def carried_out_share(plan: list[str], verdicts: list[Judgement]) -> NodeValue:
    if not plan:
        return NodeValue(1.0, score=1.0, reason="Nothing to judge: the agent states no plan.")
    what, passed = "steps of the plan", "carried out"
    return share(plan, verdicts, ("yes",), what=what, passed=passed, empty=1.0)
