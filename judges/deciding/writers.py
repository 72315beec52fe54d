"""Who writes for judges that only decide."""

from __future__ import annotations

from typing import Any

from dagengine.errors import InputError
from dagengine.question import Judge


def writer_judge(model: Any) -> Judge:
    """The judge for texts that `writer=` names; raises InputError for one that writes none."""
    from dagengine.judges.resolve import as_judge  # which knows the judges that have writers

    writer = as_judge(model)
    if writer.capabilities.decides:
        raise InputError(f"writer= must be a judge that writes texts; {writer.identity} does not")
    return writer
