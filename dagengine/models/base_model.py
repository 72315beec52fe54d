"""The base class of a caller's model under the name that published examples give it."""

from dagengine.judges.custom import BaseLLM as DeepEvalBaseLLM

__all__ = ["DeepEvalBaseLLM"]
