"""Whether an agent works well: its calls, their arguments, its plan, the goals it reaches."""

from dagengine.metrics.agent.argument_correctness import ArgumentCorrectnessMetric
from dagengine.metrics.agent.goal_accuracy import GoalAccuracyMetric
from dagengine.metrics.agent.plan_adherence import PlanAdherenceMetric
from dagengine.metrics.agent.spans import RecoveryMetric, ResultUseMetric, ToolChoiceMetric
from dagengine.metrics.agent.step_efficiency import StepEfficiencyMetric
from dagengine.metrics.agent.tool_use import ToolUseMetric

__all__ = [
    "ArgumentCorrectnessMetric",
    "GoalAccuracyMetric",
    "PlanAdherenceMetric",
    "RecoveryMetric",
    "ResultUseMetric",
    "StepEfficiencyMetric",
    "ToolChoiceMetric",
    "ToolUseMetric",
]
