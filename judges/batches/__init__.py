"""Judges that are asked in batches: the batch APIs of providers, and files for offline engines."""

from dagengine.judges.batches.anthropic_batch import AnthropicBatchJudge
from dagengine.judges.batches.openai_batch import FileBatchJudge, OpenAIBatchJudge

__all__ = ["AnthropicBatchJudge", "FileBatchJudge", "OpenAIBatchJudge"]
