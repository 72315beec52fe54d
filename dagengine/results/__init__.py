"""What a run leaves behind, added up and shown."""

from dagengine.results.evaluation_result import EvaluationResult, Saves
from dagengine.results.metric_results import CaseResult, MetricResult, PathChance, ResultOdds
from dagengine.results.outcomes import (
    Failure,
    JudgeCall,
    OutcomeKind,
    Step,
    Verdict,
    calls_words,
    implied_output,
    shorten,
    step_output,
)
from dagengine.results.pass_rules import Points
from dagengine.results.summary import Mean, MetricSummary, PointsSummary, Share, Summary
from dagengine.results.usage_totals import Attempt, Spent, Totals, Waiting
from dagengine.unknown import answer_absent

__all__ = [
    "Attempt",
    "CaseResult",
    "EvaluationResult",
    "Failure",
    "JudgeCall",
    "Mean",
    "MetricResult",
    "MetricSummary",
    "OutcomeKind",
    "PathChance",
    "Points",
    "PointsSummary",
    "ResultOdds",
    "Saves",
    "Share",
    "Spent",
    "Step",
    "Summary",
    "Totals",
    "Verdict",
    "Waiting",
    "calls_words",
    "implied_output",
    "shorten",
    "step_output",
]

answer_absent(__name__)
