"""Metrics: small modules that build a graph."""

from dagengine.metrics.agent.argument_correctness import ArgumentCorrectnessMetric
from dagengine.metrics.agent.goal_accuracy import GoalAccuracyMetric
from dagengine.metrics.agent.plan_adherence import PlanAdherenceMetric
from dagengine.metrics.agent.spans import RecoveryMetric, ResultUseMetric, ToolChoiceMetric
from dagengine.metrics.agent.step_efficiency import StepEfficiencyMetric
from dagengine.metrics.agent.tool_use import ToolUseMetric
from dagengine.metrics.answer_relevancy import AnswerRelevancyMetric
from dagengine.metrics.arena_g_eval import ArenaGEval
from dagengine.metrics.bias import BiasMetric
from dagengine.metrics.classic import (
    BleuMetric,
    EditSimilarityMetric,
    ExactMatchMetric,
    JsonMatchMetric,
    PatternMatchMetric,
    RougeMetric,
)
from dagengine.metrics.common.base import BaseArenaMetric, BaseConversationalMetric, BaseMetric
from dagengine.metrics.common.g_eval_prompts import Rubric
from dagengine.metrics.common.rubric_items import RubricItem
from dagengine.metrics.contextual_precision import ContextualPrecisionMetric
from dagengine.metrics.contextual_recall import ContextualRecallMetric
from dagengine.metrics.contextual_relevancy import ContextualRelevancyMetric
from dagengine.metrics.conversation_completeness import ConversationCompletenessMetric
from dagengine.metrics.conversation_relevancy import (
    ConversationRelevancyMetric,
    TurnRelevancyMetric,
)
from dagengine.metrics.conversational_dag import ConversationalDAGMetric
from dagengine.metrics.conversational_g_eval import ConversationalGEval
from dagengine.metrics.criteria import CriteriaMetric
from dagengine.metrics.dag import DAGMetric, DeepAcyclicGraph
from dagengine.metrics.factual_correctness import FactualCorrectness
from dagengine.metrics.faithfulness import FaithfulnessMetric
from dagengine.metrics.g_eval import GEval, GEvalTemplate
from dagengine.metrics.hallucination import HallucinationMetric
from dagengine.metrics.json_correctness import JsonCorrectnessMetric
from dagengine.metrics.knowledge_retention import KnowledgeRetentionMetric
from dagengine.metrics.prompt_alignment import PromptAlignmentMetric
from dagengine.metrics.ragas import RagasMetric
from dagengine.metrics.role_adherence import RoleAdherenceMetric
from dagengine.metrics.rubrics import RubricMetric
from dagengine.metrics.safety.misuse import MisuseMetric
from dagengine.metrics.safety.non_advice import NonAdviceMetric
from dagengine.metrics.safety.pii_leakage import PIILeakageMetric
from dagengine.metrics.safety.role_violation import RoleViolationMetric
from dagengine.metrics.summarization import SummarizationMetric
from dagengine.metrics.task_completion import TaskCompletionMetric
from dagengine.metrics.tool_correctness import ToolCorrectnessMetric
from dagengine.metrics.toxicity import ToxicityMetric
from dagengine.metrics.turns.retrieval import (
    TurnContextualPrecisionMetric,
    TurnContextualRecallMetric,
    TurnContextualRelevancyMetric,
    TurnFaithfulnessMetric,
)
from dagengine.metrics.turns.topic_adherence import TopicAdherenceMetric
from dagengine.test_case import ToolCallParams
from dagengine.unknown import answer_absent

__all__ = [
    "AnswerRelevancyMetric",
    "ArenaGEval",
    "ArgumentCorrectnessMetric",
    "BaseArenaMetric",
    "BaseConversationalMetric",
    "BaseMetric",
    "BiasMetric",
    "BleuMetric",
    "ContextualPrecisionMetric",
    "ContextualRecallMetric",
    "ContextualRelevancyMetric",
    "ConversationCompletenessMetric",
    "ConversationRelevancyMetric",
    "ConversationalDAGMetric",
    "ConversationalGEval",
    "CriteriaMetric",
    "DAGMetric",
    "DeepAcyclicGraph",
    "EditSimilarityMetric",
    "ExactMatchMetric",
    "FactualCorrectness",
    "FaithfulnessMetric",
    "GEval",
    "GEvalTemplate",
    "GoalAccuracyMetric",
    "HallucinationMetric",
    "JsonCorrectnessMetric",
    "JsonMatchMetric",
    "KnowledgeRetentionMetric",
    "MisuseMetric",
    "NonAdviceMetric",
    "PIILeakageMetric",
    "PatternMatchMetric",
    "PlanAdherenceMetric",
    "PromptAlignmentMetric",
    "RagasMetric",
    "RecoveryMetric",
    "ResultUseMetric",
    "RoleAdherenceMetric",
    "RoleViolationMetric",
    "RougeMetric",
    "Rubric",
    "RubricItem",
    "RubricMetric",
    "StepEfficiencyMetric",
    "SummarizationMetric",
    "TaskCompletionMetric",
    "ToolCallParams",
    "ToolChoiceMetric",
    "ToolCorrectnessMetric",
    "ToolUseMetric",
    "TopicAdherenceMetric",
    "ToxicityMetric",
    "TurnContextualPrecisionMetric",
    "TurnContextualRecallMetric",
    "TurnContextualRelevancyMetric",
    "TurnFaithfulnessMetric",
    "TurnRelevancyMetric",
]

answer_absent(__name__)
