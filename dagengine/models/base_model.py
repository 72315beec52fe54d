"""The base class of a caller's model under the name that published examples give it."""

from dagengine.judges.custom import BaseLLM as DeepEvalBaseLLM
from dagengine.unknown import answer_absent

__all__ = ["DeepEvalBaseLLM"]

answer_absent(__name__)
