"""Goldens from documents: generators as graphs, quotas, documents read."""

from dagengine.synthesis.generation import Goldens
from dagengine.synthesis.generators import from_contexts, from_scratch, of_conversations
from dagengine.synthesis.synthesis_types import (
    ContextConstructionConfig,
    Evolution,
    EvolutionConfig,
    Quota,
    Report,
    StylingConfig,
)
from dagengine.synthesis.synthesizer import Synthesizer
from dagengine.unknown import answer_absent

__all__ = [
    "ContextConstructionConfig",
    "Evolution",
    "EvolutionConfig",
    "Goldens",
    "Quota",
    "Report",
    "StylingConfig",
    "Synthesizer",
    "from_contexts",
    "from_scratch",
    "of_conversations",
]

answer_absent(__name__)
