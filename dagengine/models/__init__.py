"""Judges by the import paths that evaluation libraries share."""

from dagengine.models.base_model import DeepEvalBaseLLM

__all__ = ["DeepEvalBaseLLM"]
