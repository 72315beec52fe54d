"""The cases of a run as lines of `cases.jsonl`: what was judged, field by field."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from dagengine.results import CaseResult, step_output


def case_line(row: CaseResult) -> dict[str, Any]:
    """Index, hash and type of a row's case, then its fields; absent ones are left out."""
    case = row.test_case
    kind = None if case is None else type(case).__name__
    return {"index": row.index, "hash": row.hash, "type": kind, **_fields(case)}


def _fields(case: BaseModel | None) -> dict[str, Any]:
    """The fields of a case as plain data; the caller's own objects as their text."""
    if case is None:
        return {}
    try:
        fields = case.model_dump(exclude_none=True)
        json.dumps(fields.get("additional_metadata"), default=str)
    except (TypeError, ValueError, RecursionError):  # circles, keys that are no text
        return {name: step_output(value) for name, value in case if value is not None}
    return fields
