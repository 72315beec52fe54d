"""The base class of a caller's model under the name that published examples give it."""

from typing import TYPE_CHECKING

from dagengine.elsewhere import absent_names
from dagengine.judges.custom import BaseLLM as DeepEvalBaseLLM

__all__ = ["DeepEvalBaseLLM"]

if not TYPE_CHECKING:  # type checkers shall not take any name for one of ours
    __getattr__ = absent_names(__name__)
