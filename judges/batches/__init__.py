"""Judges that are asked in batches: the batch APIs of providers, and files for offline engines."""

from dagengine.judges.batches.anthropic_batch import AnthropicBatchJudge
from dagengine.judges.batches.file_batch import FileBatchJudge
from dagengine.judges.batches.openai_batch import OpenAIBatchJudge

__all__ = ["AnthropicBatchJudge", "FileBatchJudge", "OpenAIBatchJudge"]
