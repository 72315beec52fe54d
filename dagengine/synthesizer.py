"""The door to goldens: `from dagengine.synthesizer import Synthesizer`."""

from dagengine.synthesis import (
    ContextConstructionConfig,
    Evolution,
    EvolutionConfig,
    Quota,
    StylingConfig,
    Synthesizer,
)

__all__ = [
    "ContextConstructionConfig",
    "Evolution",
    "EvolutionConfig",
    "Quota",
    "StylingConfig",
    "Synthesizer",
]
