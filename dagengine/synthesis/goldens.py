"""Goldens that were made: with their report, as a page to review, and in the folder of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dagengine.data.golden import ConversationalGolden, Golden
from dagengine.data.json_lines import line_of
from dagengine.errors import InputError
from dagengine.record.writer import RunWriter
from dagengine.report.page.drafts import DRAFTS, DraftRecord
from dagengine.results import CaseResult
from dagengine.synthesis.values import Report
from dagengine.system.regular_files import remove, write_whole
from dagengine.system.terminal import plain

AnyGolden = Golden | ConversationalGolden
LINES, PAGE, YIELD = "goldens.jsonl", "goldens.md", "yield.json"


class Goldens(list[Any]):
    """A list of goldens, with the report of how they came about."""

    def __init__(self, goldens: Iterable[AnyGolden], report: Report) -> None:
        super().__init__(goldens)
        self.report = report

    def markdown(self) -> str:
        """The goldens as a page to review: each with its answer, its evidence, and its path."""
        return golden_page(self, self.report)


class GoldenFolder:
    """Beside the record of a run: its goldens, a page to review them, and the yield."""

    def __init__(self, record: RunWriter | None) -> None:
        self._record = record
        self._begun = False
        self._drafts: list[DraftRecord] = []

    def add(self, row: CaseResult) -> None:
        """Write the row of a draft; the first one ends what an earlier run left."""
        if self._record is None:
            return
        self._record.add(row)
        if not self._begun:
            self._begun = True
            for name in (LINES, PAGE, YIELD, DRAFTS):
                remove(self._record.folder / name)

    def save(
        self, goldens: Sequence[AnyGolden], report: Report, drafts: Iterable[DraftRecord]
    ) -> None:
        """Write the goldens so far, and what became of drafts; `drafts` are those of a round."""
        if self._record is None:
            return
        self._drafts += drafts
        lines = [golden.model_dump(mode="json", exclude_none=True) for golden in goldens]
        folder = self._record.folder
        figures = json.dumps({"format": 1, **asdict(report)}, ensure_ascii=False, indent=1)
        texts = {
            LINES: b"".join(map(line_of, lines)).decode(),
            PAGE: golden_page(goldens, report),
            YIELD: f"{figures}\n",
            DRAFTS: b"".join(line_of(draft.model_dump()) for draft in self._drafts).decode(),
        }
        try:
            for name, text in texts.items():
                write_whole(folder / name, text)
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror or error}") from error


def golden_page(goldens: Sequence[AnyGolden], report: Report) -> str:
    """Markdown for a reviewer; foreign texts keep to their line and cannot hide anything."""
    lines = ["# Goldens", "", *(f"- {_line(line)}" for line in report.lines())]
    for number, golden in enumerate(goldens, 1):
        lines += ["", *_sheet(number, golden)]
    return "\n".join(lines) + "\n"


def _sheet(number: int, golden: AnyGolden) -> Iterator[str]:
    origin: dict[str, Any] = (golden.additional_metadata or {}).get("synthesis", {})
    if isinstance(golden, Golden):
        prompt, answer = golden.input, golden.expected_output
    else:
        prompt, answer = golden.scenario, golden.expected_outcome
    yield f"## {number}. {_line(prompt)}"
    yield ""
    yield f"- answer: {_line(answer)}" if answer else "- no expected answer"
    if isinstance(golden, ConversationalGolden) and golden.user_description:
        yield f"- person: {_line(golden.user_description)}"
    for sentence in origin.get("supporting_sentences", ()):
        yield f"- rests on: {_line(sentence)}"
    for passage, text in zip(origin.get("passages", ()), golden.context or (), strict=False):
        yield f"- from {_passage_name(passage)}: {_line(text)}"
    yield f"- {sort_of(origin)}"
    lines = {_line(prompt), _line(answer or "")}
    for node, reply in origin.get("answers", {}).items():
        # A text or a verdict; lists and objects are in the file.
        short = isinstance(reply, str | bool) or (isinstance(reply, dict) and "verdict" in reply)
        if short and (line := _answer_line(reply)) not in lines:
            yield f"- {node}: {line}"


def _passage_name(passage: Mapping[str, Any]) -> str:
    name = _line(passage.get("document", "a context"))
    if "page" in passage:
        name += f" page {passage['page']}"
    if "offset" in passage:
        name += f" at {passage['offset']:,}"
    return f"{name} (SHA-256 {passage['sha256'][:12]}…)"


def sort_of(origin: dict[str, Any]) -> str:
    """Make of a golden: its evolutions, how hard it is, which draft, and the seed."""
    parts: list[str] = []
    # A golden without passages is about what its source is called.
    if "source" in origin and not origin.get("passages"):
        parts.append(f"about {_line(str(origin['source']))}")
    parts.append(" and ".join(origin.get("evolutions", ())) or str(origin.get("kind", "own")))
    if hard := origin.get("difficulty"):
        parts.append(f"{hard['level']} ({hard['answered']} of {hard['judges']} knew it)")
    return ", ".join([*parts, f"draft {origin.get('draft', 0) + 1}", f"seed {origin.get('seed')}"])


def _answer_line(value: Any) -> str:
    if isinstance(value, dict) and "verdict" in value:
        verdict = _answer_line(value["verdict"])
        return _line(f"{verdict}: {value['reason']}") if value.get("reason") else verdict
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _line(str(value))


def _line(text: str) -> str:
    return plain(" ".join(text.split()))
