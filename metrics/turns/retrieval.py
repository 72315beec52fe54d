"""Retrieval in conversations: metrics of single answers, for every reply that has contexts."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from dagengine.graph.graph import Graph, Judged
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.common.turns import at_least_two
from dagengine.metrics.contextual_precision import (
    ContextualPrecisionMetric,
    ContextualPrecisionTemplate,
)
from dagengine.metrics.contextual_recall import ContextualRecallMetric, ContextualRecallTemplate
from dagengine.metrics.contextual_relevancy import (
    ContextualRelevancyMetric,
    ContextualRelevancyTemplate,
)
from dagengine.metrics.faithfulness import FaithfulnessMetric, FaithfulnessTemplate
from dagengine.metrics.turns.each_turn import mean_of_each, replies_with_context

TurnFaithfulnessTemplate = FaithfulnessTemplate
TurnContextualPrecisionTemplate = ContextualPrecisionTemplate
TurnContextualRecallTemplate = ContextualRecallTemplate
TurnContextualRelevancyTemplate = ContextualRelevancyTemplate


class _TurnMetric(PrebuiltMetric):
    """The mean of a metric of single answers over the replies that have contexts."""

    single: ClassVar[type[PrebuiltMetric]]
    judged: Judged = (("turns",),)
    of_window: ClassVar[bool] = False
    outcome: ClassVar[bool] = False

    def __init__(
        self,
        threshold: float | None = 0.5,
        model: Any = None,
        *common: Any,
        window_size: int = 10,
        **settings: Any,
    ) -> None:
        super().__init__(threshold, model, *common, **settings)
        self.window_size = at_least_two(window_size)

    def _single(self, **settings: Any) -> PrebuiltMetric:
        """The metric of single answers; `settings` are those that it shares with this one."""
        return self.single(**settings)

    def graph(self) -> Graph:
        metric = self._single(
            evaluation_template=self.evaluation_template, verdicts_per_call=self.verdicts_per_call
        )
        cases = replies_with_context(
            self.window_size, of_window=self.of_window, outcome=self.outcome
        )
        return Graph(mean_of_each(cast(CodeNode, metric.graph().root_nodes[0]), cases))


class TurnFaithfulnessMetric(_TurnMetric):
    """The faithfulness of the replies of a conversation to what was retrieved, on average.

    A reply is judged as by `FaithfulnessMetric`, which has the other two settings, by the contexts
    of a window: at most `window_size` turns, the last of which is the reply (InputError below 2).
    Reads `turns`; 3 calls per reply that has contexts, all replies in parallel. Score: the mean of
    their scores, from 0 to 1; a conversation without such a reply has no score.
    """

    title = "Turn Faithfulness"
    of_window = True

    def __init__(
        self,
        threshold: float | None = 0.5,
        model: Any = None,
        *common: Any,
        truths_extraction_limit: int | None = None,
        penalize_ambiguous_claims: bool = False,
        window_size: int = 10,
        **settings: Any,
    ) -> None:
        super().__init__(threshold, model, *common, window_size=window_size, **settings)
        self.truths_extraction_limit = truths_extraction_limit
        self.penalize_ambiguous_claims = penalize_ambiguous_claims
        self._single()  # says what is wrong with the settings

    def _single(self, **settings: Any) -> PrebuiltMetric:
        return FaithfulnessMetric(
            truths_extraction_limit=self.truths_extraction_limit,
            penalize_ambiguous_claims=self.penalize_ambiguous_claims,
            **settings,
        )


class TurnContextualPrecisionMetric(_TurnMetric):
    """How high the contexts are ranked that help towards the expected outcome, on average.

    A reply is judged as by `ContextualPrecisionMetric`, by what was retrieved for it: its contexts
    and those of the user's turns right before it, in this order of turns. The judge sees at most
    `window_size` turns, the last of which is the reply (InputError below 2). Reads `turns` and
    `expected_outcome`; 1 call per reply that has contexts, all in parallel. Score: the mean of
    their scores, from 0 to 1; a conversation without such a reply has no score.
    """

    title, single = "Turn Contextual Precision", ContextualPrecisionMetric
    outcome = True


class TurnContextualRecallMetric(_TurnMetric):
    """The share of the expected outcome that retrieved contexts bear out, on average.

    A reply is judged as by `ContextualRecallMetric`, by what was retrieved for it: its contexts and
    those of the user's turns right before it. The judge sees at most `window_size` turns, the last
    of which is the reply (InputError below 2). Reads `turns` and `expected_outcome`; 1 call per
    reply that has contexts, all in parallel. Score: the mean of their scores, from 0 to 1; a
    conversation without such a reply has no score.
    """

    title, single = "Turn Contextual Recall", ContextualRecallMetric
    judged = (("turns",), ("expected_outcome",))
    outcome = True


class TurnContextualRelevancyMetric(_TurnMetric):
    """The share of the retrieved contexts that is about what the user wants, on average.

    A reply is judged as by `ContextualRelevancyMetric`, by what was retrieved for it: its contexts
    and those of the user's turns right before it. The judge sees at most `window_size` turns, the
    last of which is the reply (InputError below 2). Reads `turns`; 1 call per context, all in
    parallel. Score: the mean over the replies that have contexts, from 0 to 1; a conversation
    without such a reply has no score.
    """

    title, single = "Turn Contextual Relevancy", ContextualRelevancyMetric
