"""The words around a question, and the way back from a text to a valid answer."""

from dagengine.prompts.evidence import Evidence
from dagengine.prompts.instructions import PromptTemplate, messages_for
from dagengine.prompts.parsing import read_answer
from dagengine.unknown import answer_absent

__all__ = ["Evidence", "PromptTemplate", "messages_for", "read_answer"]

answer_absent(__name__)
