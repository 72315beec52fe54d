"""The door to goldens: `from dagengine.synthesizer import Synthesizer`."""

from typing import TYPE_CHECKING

from dagengine.elsewhere import absent_names
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

if not TYPE_CHECKING:  # type checkers shall not take any name for one of ours
    __getattr__ = absent_names(__name__)
