"""A run as build servers show it: JUnit XML, and the summary on the page of a GitHub workflow.

Test reporters read the XML, which has a test per case and metric.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from dagengine.report.tables import headline_of
from dagengine.report.tally import Tally
from dagengine.results.html import cell, number, table
from dagengine.results.passing import SIGNS
from dagengine.results.rows import CaseResult
from dagengine.results.summary import Summary
from dagengine.results.totals import Totals, cost_line
from dagengine.system.regular_files import new_file
from dagengine.system.terminal import plain

VARIABLE = "GITHUB_STEP_SUMMARY"
_PLACES = 8
_FORBIDDEN = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: str | Path, rows: Iterable[CaseResult], summary: Summary) -> None:
    """Write the rows, whose `summary` is known, one by one; raises as `new_file`.

    A result below its threshold is a failure, one without a score an error.
    """
    with new_file(Path(path)) as file:
        xml = XMLGenerator(file, "utf-8", short_empty_elements=True)
        # Readers of JUnit expect the counts before the first test: so the summary is known already.
        counts = {
            "tests": str(sum(tally.cases for tally in summary)),
            "failures": str(sum(tally.failed for tally in summary)),
            "errors": str(sum(tally.no_score for tally in summary)),
        }
        xml.startDocument()
        xml.startElement("testsuites", _attributes(counts))
        xml.startElement("testsuite", _attributes({"name": "dagengine", **counts}))
        for row in rows:
            for result in row.metrics:
                name = {"classname": result.metric, "name": f"{row.index} {row.case}"}
                xml.startElement("testcase", _attributes(name))
                if kind := {"failed": "failure", "no_score": "error"}.get(result.state):
                    score = "" if result.score is None else f"score {result.score:.4g} at "
                    why = {"message": f"{score}{result.end}", "type": str(result.outcome)}
                    xml.startElement(kind, _attributes(why))
                    xml.characters(_clean(result.why))
                    xml.endElement(kind)
                xml.endElement("testcase")
        xml.endElement("testsuite")
        xml.endElement("testsuites")
        xml.endDocument()


def _attributes(texts: dict[str, str]) -> AttributesImpl:
    return AttributesImpl(dict(zip(texts, map(_clean, texts.values()), strict=True)))


def _clean(text: str) -> str:
    """Text that XML may hold, with what hides in it made visible."""
    return _FORBIDDEN.sub("�", plain(text))


def add_step_summary(tally: Tally, totals: Totals, standings: Sequence[str] = ()) -> None:
    """Append the summary to the file that the variable names; nothing without it."""
    name = os.environ.get(VARIABLE)
    if name:
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(step_summary(tally, totals, standings))


def step_summary(tally: Tally, totals: Totals, standings: Sequence[str] = ()) -> str:
    """The headline, the judges' `standings`, the figures and where cases failed.

    It is HTML that holds no Markdown.
    """
    summary = tally.summing.result()
    figures = [
        [_code(counts.metric), str(counts.cases), number(counts.mean), str(counts.passed),
         str(counts.failed), str(counts.no_score)]
        for counts in summary
    ]  # fmt: skip
    spots = [
        [str(group.cases), SIGNS[group.end.state], _code(str(group.end)), _code(group.reason)]
        for group in tally.places.ranking()[:_PLACES]
    ]
    parts = [
        f"<h3>{cell(headline_of(summary))}</h3>",
        *(f"<p>{cell(line)}</p>" for line in standings),
        table(("metric", "cases", "mean", "passed", "failed", "no score"), figures),
        table(("cases", "", "ended at", "reason of the first"), spots) if spots else "",
        f"<p>{cell(cost_line(totals))}</p>",
    ]
    return "".join(parts) + "\n\n"


def _code(text: str) -> str:
    """Text that is shown as it is: no link, no mention, no mark-up."""
    return f"<code>{cell(text)}</code>"
