"""One file that holds a run and the page to look at it: `report.html`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import cache
from html import escape
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from dagengine.record.costs import StepCosts
from dagengine.record.prompts import keys_of, open_prompts
from dagengine.record.run import Run
from dagengine.regular_files import require_regular
from dagengine.report.page.about import run_record
from dagengine.report.page.columns import Columns, MetricColumns
from dagengine.report.page.days import alarms_of
from dagengine.report.page.drafts import drafts_of, kept_of
from dagengine.report.page.layouts import layouts
from dagengine.report.page.lines import headline, plain_lines
from dagengine.report.page.people import People
from dagengine.report.page.prompts import PromptBlocks
from dagengine.report.page.texts import Texts, packed
from dagengine.report.pictures.graphs import MetricGraph
from dagengine.report.tally import Tally

FORMAT = 1
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
    target.parent.mkdir(parents=True, exist_ok=True)
    # What a text of a case holds in lone surrogates is an escape in JSON already.
    target.write_text("".join(_parts(run, rows, room)), encoding="utf-8", errors="replace")
    return target


def write_run_page(run: Run) -> Path | None:
    """Write `report.html` into the folder of a run that has ended; None for a very long run."""
    counts = run.manifest.counts
    if counts is None or counts.cases > LONGEST:
        return None
    path = run.folder / "report.html"
    require_regular(path)
    return write_page(run, path)


def page_of(head: str, body: str, *, title: str, connect: str = "'none'") -> Iterator[str]:
    """The page around data blocks: `head` is JSON text, `body` what is behind it.

    The content security policy allows this script and this style, by their hashes, and no
    connection but to `connect`.
    """
    script, style = _built("page.js"), _built("page.css")
    policy = (
        f"default-src 'none'; script-src '{_sha(script)}'; style-src '{_sha(style)}'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">\n'
        f"<style>{style}</style></head><body>\n"
        '<div id="page"></div>\n'
        f'<script type="application/json" id="head">{_inert(head)}</script>\n'
    )
    yield body
    yield f"<script>{script}</script>\n</body></html>\n"


def served_page(run: Run, server: Mapping[str, Any], *, rows: int = ROWS, room: int = ROOM) -> str:
    """The page of a run as a server hands it out; `server` is what it tells the page of itself."""
    return "".join(_parts(run, rows, room, server))


def _parts(
    run: Run, rows: int, room: int, server: Mapping[str, Any] | None = None
) -> Iterator[str]:
    graphs = [MetricGraph.of(metric) for metric in run.manifest.metrics]
    names = [metric.name for metric in run.manifest.metrics]
    costs = StepCosts(run.manifest)
    columns = Columns([MetricColumns(graph, costs) for graph in graphs], people=People.of_run(run))
    texts, tally = Texts(graphs, costs, room, rows), Tally()
    # A server reads the prompts of a case when somebody looks at them.
    with open_prompts(run) if server is None else nullcontext() as stored:
        prompts = PromptBlocks(stored)
        for row, case in run.with_cases():
            tally.add(row)
            fields = None if case is None else _fields(case)
            states = columns.add(row, row.hash, (case or {}).get("tags") or [])
            texts.add(row, fields, states)
            prompts.add(keys_of(row, names))
        blocks, starts, slots = texts.close()
        asked, asked_starts = prompts.close(slots, room - sum(map(len, blocks)))
    record = run_record(run, tally.rows, kept=sum(slot >= 0 for slot in slots))
    record["days"] = columns.groups.days
    record["alarms"] = alarms_of(run, columns.day_of)
    record["metrics"] = []
    for metric in columns.metrics:
        drawn, nested = layouts(metric.graph, metric.counted(), tally.rows)
        record["metrics"].append({**metric.graph.as_dict(), "layouts": drawn, "nested": nested})
    if (drafts := drafts_of(run)) is not None:
        record["drafts"] = [draft.model_dump(exclude_none=True) for draft in drafts]
    placed = {"blocks": starts, "prompts": asked_starts}
    head = json.dumps({"format": FORMAT, "run": record, **placed, "server": server})
    lines = plain_lines(run, tally)
    first = headline(run, tally) if drafts is None else kept_of(drafts)
    index = [("index", packed(columns.as_dict(slots)))]
    data = chain(index, _named("texts", blocks), _named("prompts", asked))
    body = _noscript(first, lines) + "".join(
        f'<script type="text/plain" id="{name}">{block}</script>\n' for name, block in data
    )
    title = f"{record['name']}: {first}"
    yield from page_of(head, body, title=title, connect="'none'" if server is None else "'self'")


def _named(name: str, blocks: list[str]) -> Iterator[tuple[str, str]]:
    yield from ((f"{name}-{number}", block) for number, block in enumerate(blocks))


def _fields(case: dict[str, Any]) -> dict[str, Any]:
    """The fields of a case as a line of a data set has them."""
    return {name: value for name, value in case.items() if name not in ("index", "hash", "type")}


def _inert(text: str) -> str:
    """JSON text that neither ends a script element nor opens a comment in it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def _noscript(title: str, lines: list[tuple[str, str]]) -> str:
    paragraphs = "".join(f"<p>{escape(term)}: {escape(text)}</p>" for term, text in lines)
    needs = "<p>This page needs JavaScript.</p>"
    return f"<noscript><main><h1>{escape(title)}</h1>{paragraphs}{needs}</main></noscript>\n"


@cache
def _built(name: str) -> str:
    return files("dagengine.report.page").joinpath(name).read_text(encoding="utf-8")


def _sha(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
