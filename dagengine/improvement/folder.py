"""What an improvement leaves in its folder: a record, a page, a patch, pictures, a run."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from dagengine.errors import DagengineError, InputError, MissingExtraError, require_format
from dagengine.evaluation import a_evaluate
from dagengine.improvement import improvement_report
from dagengine.improvement.improvement_report import FORMAT, Candidate, Improvement
from dagengine.improvement.source_patch import patch, program
from dagengine.loading import TREE, Target, split_target
from dagengine.metrics.common.base import BaseMetric
from dagengine.reliability.statistics.intervals import Interval
from dagengine.report.pictures.drawing import draw
from dagengine.results.html_tables import document
from dagengine.system.safe_files import is_there, read_whole, remove, write_whole
from dagengine.test_case import TestCase
from dagengine.trees import document_of, text_of

RECORD, PAGE, PATCH, PROGRAM, IMPROVED, ANSWERS = (
    "improve.json", "improve.html", "metrics.patch", "improved.py", "improved.json", "answers.db",
)  # fmt: skip
WRITTEN = (RECORD, PAGE, PATCH, PROGRAM, IMPROVED, "before.svg", "after.svg")


@dataclass
class PatchFolder:
    """The folder of one improvement."""

    path: Path

    @property
    def store(self) -> Path:
        """Default path of its store."""
        return self.path / ANSWERS

    def looks(self, sha256: str, *, beside: bool = False) -> list[str]:
        """The metrics, by hash, for which the sealed part was opened, here or in folders beside.

        Only in those `beside` if that is asked for.
        """
        own = self.path.resolve()
        records = sorted(own.parent.glob(f"*/{RECORD}"))
        looks = (_looks(path, sha256) for path in records if not beside or path.parent != own)
        return list(dict.fromkeys(chain.from_iterable(looks)))

    def look(self, sha256: str, definition: str) -> int:
        """Note that the sealed part is opened for a metric; returns how often it was for others."""
        earlier = [look for look in self.looks(sha256) if look != definition]
        looks = list(dict.fromkeys([*_looks(self.path / RECORD, sha256), definition]))
        self.record({"format": FORMAT, "sealed_part": {"sha256": sha256, "looks": looks}})
        return len(earlier)

    async def leave(
        self,
        result: Improvement,
        target: str,
        metric: BaseMetric,
        cases: Sequence[TestCase],
        settings: Mapping[str, Any],
    ) -> str | None:
        """Write everything; returns the command that applies the change, or the file that has it.

        The run in the folder is that of the new metric on the cases that it was asked about, from
        the store.
        """
        hint = self.change(target, metric, result.accepted, result.metric)
        pictures: dict[str, str] = {}
        for name, version in (("before", metric), ("after", result.metric)):
            pictures[name] = ""
            with suppress(MissingExtraError):  # nothing to draw with: the page has no pictures
                svg = draw(version.spec()).layout("svg")
                self.write(f"{name}.svg", svg.decode())
                pictures[name] = f"data:image/svg+xml;base64,{b64encode(svg).decode()}"
        looks = _looks(self.path / RECORD, result.split.sha256)
        record = {f.name: getattr(result, f.name) for f in fields(result) if f.name != "metric"}
        self.record(
            {
                "format": FORMAT,
                "sealed_part": {"sha256": result.split.sha256, "looks": looks},
                "headline": improvement_report.headline(result),
                "next": improvement_report.step(result, hint),
                **to_jsonable_python(record, fallback=str),
            }
        )
        self.write(PAGE, page(result, hint, pictures))
        numbers = result.split.tried
        if result.sealed is not None:
            numbers = tuple(sorted((*result.split.without(0), *result.split.sealed)))
        sealed = {"sealed part": result.split.sha256}
        terms = {"limits": None, "identifier": "improve", "hyperparameters": sealed}
        run = await a_evaluate(
            [cases[number] for number in numbers], [result.metric], show=False,
            **{**settings, **terms},
        )  # fmt: skip
        assert run.record is not None
        run.record.save(self.path, run.rows, page=True)  # beside the record of the improvement
        return hint

    def change(
        self, target: str, metric: BaseMetric, accepted: Sequence[Candidate], improved: BaseMetric
    ) -> str | None:
        """Write the change as data or as a patch, else as a program; returns how it is applied.

        The one place that knows what a metric is written in. None without a change.
        """
        for name in (PATCH, PROGRAM, IMPROVED):
            remove(self.path / name)
        if not accepted:
            return None
        path, own = split_target(target)
        source: str | Path = path.resolve()
        if path.suffix == TREE:
            source, new = Target.absolute(target), self.path / IMPROVED
            with suppress(DagengineError):  # votes: no document holds them
                self.write(IMPROVED, text_of(document_of(improved, path.parent)))
                return f"cp {new} {path}" if own is None else str(new)
        elif text := patch(path, metric, accepted, improved):
            self.write(PATCH, text)
            return f"git apply {self.path / PATCH}"
        self.write(PROGRAM, program(source, metric, accepted))
        return f"{self.path / PROGRAM}:improved"

    def record(self, record: Mapping[str, Any]) -> None:
        """Write the record of the folder."""
        self.write(RECORD, json.dumps(record, ensure_ascii=False, indent=1) + "\n")

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder; raises InputError where it cannot."""
        path = self.path / name
        try:
            write_whole(path, text)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _looks(record: Path, sha256: str) -> list[str]:
    """The metrics, by hash, for which a record says that this sealed part was opened."""
    try:
        record_data = json.loads(read_whole(record)) if is_there(record) else {"sealed_part": {}}
        require_format(record_data, FORMAT, str(record))
        sealed = record_data["sealed_part"]
        return list(map(str, sealed["looks"])) if sealed.get("sha256") == sha256 else []
    except InputError:
        raise
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return []  # it is no record of an improvement


def page(result: Improvement, left: str | None, pictures: Mapping[str, str]) -> str:
    """The page; equal improvements give equal pages."""
    candidates = [candidate for candidate in result.candidates if not candidate.skipped]
    ends = [abs(end) for candidate in candidates for end in _ends(candidate)]
    half = max([0.1, *ends])
    return document(
        Path(__file__).with_name("improve.html"),
        {"at": lambda share: f"{50 + 48 * max(-1.0, min(1.0, share / half)):.2f}%"},
        result=result, left=left, pictures=pictures, half=half, ends=_ends,
        findings=improvement_report,
    )  # fmt: skip


def _ends(candidate: Candidate) -> tuple[float, ...]:
    """The ends of a gain's interval, if it has one."""
    interval = getattr(candidate.gain, "interval", None)
    return (interval.low, interval.high) if isinstance(interval, Interval) else ()
