"""The door to goldens: `from dagengine.synthesizer import Synthesizer`."""

from dagengine.synthesis import (
    ContextConstructionConfig,
    Evolution,
    EvolutionConfig,
    Quota,
    StylingConfig,
    Synthesizer,
)
from dagengine.unknown import answer_absent

__all__ = [
    "ContextConstructionConfig",
    "Evolution",
    "EvolutionConfig",
    "Quota",
    "StylingConfig",
    "Synthesizer",
]

answer_absent(__name__)
