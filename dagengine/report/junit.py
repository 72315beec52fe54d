"""A run as JUnit XML, which test reporters of build servers read: a test per case and metric."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from dagengine.regular_files import new_file
from dagengine.results.rows import CaseResult, MetricResult
from dagengine.results.summary import Summary
from dagengine.terminal import plain

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
        xml.startElement("testsuites", AttributesImpl(counts))
        xml.startElement("testsuite", AttributesImpl({"name": "dagengine", **counts}))
        for row in rows:
            for result in row.metrics:
                _case(xml, row, result)
        xml.endElement("testsuite")
        xml.endElement("testsuites")
        xml.endDocument()


def _case(xml: XMLGenerator, row: CaseResult, result: MetricResult) -> None:
    name = {"classname": _clean(result.metric), "name": _clean(f"{row.index} {row.case}")}
    xml.startElement("testcase", AttributesImpl(name))
    kind = {"failed": "failure", "no_score": "error"}.get(result.state)
    if kind is not None:
        score = "" if result.score is None else f"score {result.score:.4g} at "
        attributes = {"message": _clean(f"{score}{result.end}"), "type": str(result.outcome)}
        xml.startElement(kind, AttributesImpl(attributes))
        xml.characters(_clean(result.why))
        xml.endElement(kind)
    xml.endElement("testcase")


def _clean(text: str) -> str:
    """Text that XML may hold, with what hides in it made visible."""
    return _FORBIDDEN.sub("�", plain(text))
