"""Whether the replies of a conversation keep to topics, and to what was retrieved for them."""

from dagengine.metrics.turns.retrieval import (
    TurnContextualPrecisionMetric,
    TurnContextualRecallMetric,
    TurnContextualRelevancyMetric,
    TurnFaithfulnessMetric,
)
from dagengine.metrics.turns.topic_adherence import TopicAdherenceMetric

__all__ = [
    "TopicAdherenceMetric",
    "TurnContextualPrecisionMetric",
    "TurnContextualRecallMetric",
    "TurnContextualRelevancyMetric",
    "TurnFaithfulnessMetric",
]
