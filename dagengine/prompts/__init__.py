"""The words around a question, and the way back from a text to a valid answer."""

from dagengine.prompts.evidence import Evidence, PromptTemplate, messages_for
from dagengine.prompts.parsing import read_answer

__all__ = ["Evidence", "PromptTemplate", "messages_for", "read_answer"]
