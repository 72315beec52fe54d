"""Data sets in, rows of results out: every format, lazily."""

from dagengine.data.cases import AsyncCases, Cases, read_cases
from dagengine.data.golden import ConversationalGolden, Golden
from dagengine.data.result_files import RowWriter, read_rows
from dagengine.unknown import answer_absent

__all__ = [
    "AsyncCases",
    "Cases",
    "ConversationalGolden",
    "Golden",
    "RowWriter",
    "read_cases",
    "read_rows",
]

answer_absent(__name__)
