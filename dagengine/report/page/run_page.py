"""One file that holds a run and the page to look at it: `report.html`."""

from __future__ import annotations

import base64
import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from dagengine.record.case_costs import StepCosts
from dagengine.record.hidden_fields import fields_in
from dagengine.record.parquet_columns import BlockBuilder
from dagengine.record.reader import Run
from dagengine.report.page.packed_columns import MetricKinds, PackedColumns
from dagengine.report.page.packed_texts import (
    RowKeys,
    Texts,
    keys_of,
    open_prompts,
    pack,
    people_of,
    prompt_blocks,
)
from dagengine.report.page.run_facts import (
    DraftRecord,
    alarms_of,
    drafts_of,
    headline,
    outcome_sentence,
    plain_lines,
    run_record,
)
from dagengine.report.tally import Tally
from dagengine.system.safe_files import require_regular, write_whole

FORMAT = 2
"""The format of the packed data; the front end of the same version reads it."""
ROWS = 30_000
"""A run of more rows keeps only the texts of cases that failed or have no score."""
ROOM = 23_500_000
"""Characters that all texts of a page may take."""
LONGEST = 100_000
"""Rows of a run beyond which no page is made by itself: its index alone would be too much."""


def write_page(run: Run, path: str | Path, *, rows: int = ROWS, room: int = ROOM) -> Path:
    """Write the page of a run as one file that needs no other and no network.

    If there are more than `rows` rows, or if the texts would take more than `room` characters, not
    all texts are in it. Every score and path is, and the texts of failed cases come first. The page
    says so.
    """
    target = Path(path)
    # What a text of a case holds in lone surrogates is an escape in JSON already.
    write_whole(target, page_text(run, rows=rows, room=room).encode(errors="replace"))
    return target


def write_run_page(run: Run) -> Path | None:
    """Write `report.html` into the folder of a run that has ended; None for a very long run."""
    counts = run.manifest.counts
    if counts is None or counts.cases > LONGEST:
        return None
    path = run.folder / "report.html"
    require_regular(path)
    return write_page(run, path)


def page_of(head: str, body: str, *, title: str, connect: str = "'none'") -> str:
    """The page around data blocks: `head` is JSON text, `body` what is behind it.

    The content security policy allows this script and this style, by their hashes, and no
    connection but to `connect`.
    """
    # JSON text that neither ends a script element nor opens a comment in it
    inert = head.replace("<", "\\u003c").replace(">", "\\u003e")
    script, style = _asset("page.js"), _asset("page.css")
    policy = (
        f"default-src 'none'; script-src '{_sha(script)}'; style-src '{_sha(style)}'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">\n'
        f"<style>{style}</style></head><body>\n"
        '<div id="page"></div>\n'
        f'<script type="application/json" id="head">{inert}</script>\n'
        f"{body}<script>{script}</script>\n</body></html>\n"
    )


def head_of(record: Mapping[str, Any], server: Mapping[str, Any] | None, **placed: Any) -> str:
    """The head of a page: its run, its server, and where its data is (see `Head` in the page)."""
    return json.dumps({"format": FORMAT, "run": record, "server": server, **placed})


def page_text(
    run: Run, server: Mapping[str, Any] | None = None, *, rows: int = ROWS, room: int = ROOM
) -> str:
    """The page of a run; a `server` that hands it out tells the page of itself."""
    metrics = run.manifest.metrics
    builder, columns, tally = BlockBuilder(run.manifest), PackedColumns(metrics), Tally()
    graphs = [kinds.graph for kinds in columns.kinds]
    texts = Texts(graphs, StepCosts(run.manifest), room, rows)
    people, labels = people_of(run), dict[int, list[dict[str, Any]]]()
    # A server reads the prompts of a case when somebody looks at them.
    with open_prompts(run) if server is None else nullcontext() as stored:
        keys: list[RowKeys] = []
        for position, (row, case) in enumerate(run.with_cases()):
            tally.add(row)
            builder.add(builder.line(row, None, -1))
            if builder.full:
                columns.extend(builder.take())
            if own := people.get(row.hash):
                labels[position] = own
            texts.add(row, case and fields_in(case))
            if stored is not None:
                keys.append(keys_of(row, run.manifest.metric_names))
        columns.extend(builder.take())
        blocks, starts, slots = texts.close()
        left = room - sum(map(len, blocks))
        asked, asked_starts = prompt_blocks(stored, keys, slots, left)
    drafts = drafts_of(run)
    record = _full_record(run, columns, tally, drafts, kept=len(slots) - slots.count(-1))
    head = head_of(record, server, chunk=max(1, tally.rows), blocks=starts, prompts=asked_starts)
    lines = plain_lines(run, tally)
    first = headline(run, tally) if drafts is None else outcome_sentence(drafts)
    parts = {"index": pack({**columns.as_dict(), "said": labels})}
    for name, data in ("slot", array("i", slots).tobytes()), *columns.take(tally.rows).items():
        parts[f"column-{name}"] = pack(data)
    for name, packed in ("texts", blocks), ("prompts", asked):
        parts |= {f"{name}-{number}": block for number, block in enumerate(packed)}
    paragraphs = "".join(f"<p>{escape(term)}: {escape(text)}</p>" for term, text in lines)
    body = (
        f"<noscript><main><h1>{escape(first)}</h1>{paragraphs}"
        "<p>This page needs JavaScript.</p></main></noscript>\n"
    )
    for name, block in parts.items():
        body += f'<script type="text/plain" id="{name}">{block}</script>\n'
    title = f"{record['name']}: {first}"
    return page_of(head, body, title=title, connect="'none'" if server is None else "'self'")


def _full_record(
    run: Run, columns: PackedColumns, tally: Tally, drafts: Sequence[DraftRecord] | None, kept: int
) -> dict[str, Any]:
    """The run as the front end has it; `kept` rows have their texts."""
    record = run_record(run, tally.rows, kept)
    record["days"] = len({*columns.days} - {None})
    record["alarms"] = alarms_of(run, columns.day_of)
    record["metrics"] = list(map(MetricKinds.as_drawn, columns.kinds))
    for metric, summed in zip(record["metrics"], tally.summing.result(), strict=False):
        if summed.points is not None:
            means = {"unclipped": summed.points.share, **summed.points.tags}
            metric["points"] = [
                (name, mean.mean, mean.low, mean.high, mean.cases) for name, mean in means.items()
            ]
    if drafts is not None:
        record["drafts"] = [draft.model_dump(exclude_none=True) for draft in drafts]
    return record


@cache
def _asset(name: str) -> str:
    return files("dagengine.report.page").joinpath(name).read_text(encoding="utf-8")


def _sha(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
