"""Judges by the import paths that evaluation libraries share."""

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
from dagengine.unknown import answer_absent

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

answer_absent(__name__)
