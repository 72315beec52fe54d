"""What a run says of itself, from its first moment on: ready to be written into a folder."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self

from dagengine.compiler.plan import Plan
from dagengine.data.cases import AsyncCases, Cases
from dagengine.errors import InputError
from dagengine.gateway.limits import Limits
from dagengine.question import Judge
from dagengine.record.columns import COLUMNS
from dagengine.record.definition import judges_of, metrics_of
from dagengine.record.hiding import Hiding
from dagengine.record.values import DataRecord, Manifest
from dagengine.record.writer import CASES, MANIFEST, ROWS, TIMES, RunWriter
from dagengine.redaction import public_value
from dagengine.results import CaseResult, Spent, Totals
from dagengine.system.regular_files import file_sha256


class Judging(Protocol):
    """What a record asks of whatever judges: an engine, or the coordinator of a cluster."""

    @property
    def plan(self) -> Plan: ...

    @property
    def judges(self) -> Sequence[Judge]: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def store(self) -> str | None: ...

    @property
    def totals(self) -> Totals: ...

    @property
    def spent(self) -> tuple[Spent, ...]: ...


def manifest_of(
    run: Judging,
    data: DataRecord,
    settings: Mapping[str, Any],
    *,
    texts: bool = True,
    redact: Sequence[str] = (),
    command: str | None = None,
) -> Manifest:
    """Manifest of a run that starts now."""
    return Manifest(
        dagengine=importlib.metadata.version("dagengine"),
        python=platform.python_version(),
        started=datetime.now(UTC),
        command=command,
        metrics=metrics_of(run.plan, trees=True),
        judges=judges_of(run.plan, run.judges, run.limits.prices),
        data=data,
        limits=dataclasses.asdict(run.limits),
        settings=public_value({key: value for key, value in settings.items() if value is not None}),
        store=run.store,
        texts=texts,
        redacted=hidden_fields(redact),
    )


def hidden_fields(redact: Sequence[str]) -> tuple[str, ...]:
    """The fields to hide; raises InputError for a single text, and for something that is not a
    field.
    """
    if isinstance(redact, str):
        raise InputError(f"redact takes a list of fields: redact=[{redact!r}]")
    return Hiding(tuple(redact)).fields


def data_of(cases: Cases | AsyncCases, **read: Any) -> DataRecord:
    """Origin of the cases; of a file its hash. `read` is how its columns were understood."""
    if isinstance(cases, AsyncCases):
        return DataRecord()
    count = cases.count()
    if not cases.name:
        return DataRecord(cases=count)
    return DataRecord(file=cases.name, sha256=file_sha256(Path(cases.name)), cases=count, **read)


def require_apart(data: DataRecord, folder: str | Path) -> None:
    """Raise InputError when the cases are read from a file that the run is about to write."""
    for name in (ROWS, CASES, TIMES, COLUMNS, MANIFEST):
        # By what names lead to: a link to the data would be emptied like the data itself.
        if data.file and os.path.realpath(data.file) == os.path.realpath(Path(folder) / name):
            raise InputError(
                f"{data.file} would be overwritten by the {name} of the run; choose another folder"
            )


@dataclass(frozen=True, slots=True)
class Recording:
    """A run that is over, as far as its rows do not tell."""

    manifest: Manifest
    totals: Totals
    spent: tuple[Spent, ...]

    @classmethod
    def of(cls, run: Judging, manifest: Manifest) -> Self:
        """End of a run that is over."""
        over = manifest.model_copy(update={"ended": datetime.now(UTC)})
        return cls(over, run.totals, run.spent)

    def save(self, folder: str | Path, rows: Iterable[CaseResult], /) -> None:
        """Write the folder of the run; raises InputError if it cannot be written."""
        with RunWriter(folder, self.manifest, lambda: (self.totals, self.spent)) as writer:
            for row in rows:
                writer.add(row)
