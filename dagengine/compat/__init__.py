"""Names of other libraries: where each is here, and what is done in its place."""

from __future__ import annotations

from dagengine.compat.names import ARGUMENTS as ARGUMENTS
from dagengine.compat.names import answer_member as answer_member
from dagengine.compat.names import answer_module as answer_module
from dagengine.compat.names import answer_name as answer_name
from dagengine.unknown import answer_absent

__all__ = ["ARGUMENTS", "answer_member", "answer_module", "answer_name"]

answer_absent(__name__)
