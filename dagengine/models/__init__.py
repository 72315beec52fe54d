"""Judges by the import paths that evaluation libraries share."""

from typing import TYPE_CHECKING

from dagengine.elsewhere import absent_names
from dagengine.models.base_model import DeepEvalBaseLLM
from dagengine.models.providers import (
    AmazonBedrockModel,
    AnthropicModel,
    AzureOpenAIModel,
    GeminiModel,
    GPTModel,
    LocalModel,
    OllamaModel,
    OpenAIModel,
)

__all__ = [
    "AmazonBedrockModel",
    "AnthropicModel",
    "AzureOpenAIModel",
    "DeepEvalBaseLLM",
    "GPTModel",
    "GeminiModel",
    "LocalModel",
    "OllamaModel",
    "OpenAIModel",
]

if not TYPE_CHECKING:  # type checkers shall not take any name for one of ours
    __getattr__ = absent_names(__name__)
