"""Data sets in, rows of results out: every format, lazily."""

from typing import TYPE_CHECKING

from dagengine.data.cases import AsyncCases, Cases, read_cases
from dagengine.data.golden import ConversationalGolden, Golden
from dagengine.data.result_rows import RowWriter, read_rows
from dagengine.elsewhere import absent_names

__all__ = [
    "AsyncCases",
    "Cases",
    "ConversationalGolden",
    "Golden",
    "RowWriter",
    "read_cases",
    "read_rows",
]

if not TYPE_CHECKING:  # type checkers shall not take any name for one of ours
    __getattr__ = absent_names(__name__)
