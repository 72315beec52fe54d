"""Metrics as data: written without loss, read without trust."""

from dagengine.trees.reading import metrics_of, read_document
from dagengine.trees.schema import SCHEMA, load_module
from dagengine.trees.writing import Written, document_of, text_of
from dagengine.unknown import answer_absent

__all__ = [
    "SCHEMA", "Written", "document_of", "load_module", "metrics_of", "read_document", "text_of",
]  # fmt: skip

answer_absent(__name__)
