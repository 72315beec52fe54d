"""Judges: what answers a question. None of them knows what a graph is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagengine.unknown import answer_absent

if TYPE_CHECKING:
    from dagengine.judges.batches.anthropic_batch import AnthropicBatchJudge as AnthropicBatchJudge
    from dagengine.judges.batches.openai_batch import FileBatchJudge as FileBatchJudge
    from dagengine.judges.batches.openai_batch import OpenAIBatchJudge as OpenAIBatchJudge
    from dagengine.judges.custom import BaseLLM as BaseLLM
    from dagengine.judges.custom import CustomJudge as CustomJudge
    from dagengine.judges.deciding.decision_judge import DecisionJudge as DecisionJudge
    from dagengine.judges.deciding.decision_judge import LabelJudge as LabelJudge
    from dagengine.judges.embedding import EmbeddingJudge as EmbeddingJudge
    from dagengine.judges.lexical import LexicalJudge as LexicalJudge
    from dagengine.judges.local.gguf import GGUFJudge as GGUFJudge
    from dagengine.judges.openai import OpenAIJudge as OpenAIJudge
    from dagengine.judges.provider import ProviderJudge as ProviderJudge
    from dagengine.judges.resolve import as_judge as as_judge
    from dagengine.judges.resolve import open_judges as open_judges
    from dagengine.judges.scripted import Noise as Noise
    from dagengine.judges.scripted import RecordedJudge as RecordedJudge
    from dagengine.judges.scripted import Recording as Recording
    from dagengine.judges.scripted import ScriptedJudge as ScriptedJudge
    from dagengine.judges.scripted import SimulatedJudge as SimulatedJudge

_HOME = {
    "AnthropicBatchJudge": "batches.anthropic_batch",
    "BaseLLM": "custom",
    "CustomJudge": "custom",
    "DecisionJudge": "deciding.decision_judge",
    "EmbeddingJudge": "embedding",
    "FileBatchJudge": "batches.openai_batch",
    "GGUFJudge": "local.gguf",
    "LabelJudge": "deciding.decision_judge",
    "LexicalJudge": "lexical",
    "Noise": "scripted",
    "OpenAIBatchJudge": "batches.openai_batch",
    "OpenAIJudge": "openai",
    "ProviderJudge": "provider",
    "RecordedJudge": "scripted",
    "Recording": "scripted",
    "ScriptedJudge": "scripted",
    "SimulatedJudge": "scripted",
    "as_judge": "resolve",
    "open_judges": "resolve",
}

__all__ = list(_HOME)

answer_absent(__name__, {name: f"{__name__}.{home}" for name, home in _HOME.items()})
