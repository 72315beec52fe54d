"""Stored answers that a run should know of: those that its judges lost, and those of other code."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dagengine.errors import InputError
from dagengine.question import Judge, judge_name
from dagengine.redaction import public_value

_MARK = re.compile(r" \(digest [0-9a-f]{16}\)")  # as of `judges.identity`


def lost_answers(judge: str, stored: Mapping[str, int], in_use: Collection[str]) -> int:
    """Number of stored answers of the same model and endpoint that the run does not use.

    None are lost if the judge has answers of its own.
    """
    if judge in in_use and stored.get(judge):
        return 0
    alike = {name for name in stored if _MARK.sub("", name) == _MARK.sub("", judge)}
    return sum(stored[name] for name in alike.difference(in_use))


def require_apart(judges: Collection[tuple[Judge, str]]) -> None:
    """Raise InputError where judges that are apart in a run have one name in its store.

    Only of those that know what tells them apart (`store_hint`).
    """
    times = Counter(name for name, _ in {(name, judge.identity) for judge, name in judges})
    for judge, name in judges:
        hint = getattr(judge, "store_hint", "")
        if hint and times[name] > 1:
            raise InputError(
                f"{times[name]} judges {judge_name(name)!r} of this run have one name in the "
                f"store, where they would share answers: {hint}"
            )


def code_of(judge: Judge) -> tuple[str, str] | None:
    """The file, and a digest, of the code that a judge's own name stands for; None without any.

    Of data, for instance a script or the settings of a model, that of the data.
    """
    code: Any = getattr(judge, "named_code", judge)
    while isinstance(code, partial):
        code = code.func
    kind = code if inspect.isroutine(code) else type(code)
    file, text = "its content", ""
    if isinstance(code, Mapping | BaseModel):
        # LangChain's metadata are versions of libraries.
        fields = code if isinstance(code, Mapping) else {**vars(code), "metadata": None}
        text = re.sub(r" at 0x\w+", "", repr(sorted(public_value(fields).items(), key=repr)))
    elif str(kind.__module__).partition(".")[0] != "dagengine":
        with suppress(OSError, TypeError):  # it has no source
            file, text = inspect.getfile(kind), "".join(inspect.findsource(kind)[0])
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return (Path(file).name, digest) if text else None
