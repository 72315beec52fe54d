"""The trace of a case beside its verdicts: both lead to each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders.days import days
from playwright.sync_api import Browser
from programs.browser import chromium, needs_chromium, visit

from dagengine import evaluate
from dagengine.graph import MapNode
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode
from dagengine.record.reader import load_run
from dagengine.report.page import write_page
from dagengine.results.summary import Share
from dagengine.test_case import LLMTestCase, Span

MARKUP = "<img src=x onerror='window.hacked = 1'>"


def share(verdicts: list[Any]) -> float:
    return float(sum(verdict.verdict for verdict in verdicts) / len(verdicts))


def needed() -> DAGMetric:
    """One question for every call of a tool."""
    each = MapNode("Is it needed?", "tools", "each", answer=bool, item_label="call", name="Each")
    return DAGMetric("Needed", DAG(CodeNode(share, inputs=[each], name="share")), threshold=1)


def solved() -> DAGMetric:
    root = BinaryJudgementNode(
        "Is it solved?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="End"
    )
    return DAGMetric("Solved", DAG(root))


def spans() -> list[Span]:
    """An agent with two tools, 60 steps of no interest, and two whose parents go in a circle."""
    root = Span(span_id="a0", kind="agent", name="agent", input="hello", output="done", seconds=2)
    rates: dict[str, Any] = {"input": {"of": "USD"}, "output": "1.1"}
    broken: dict[str, Any] = {"error": "no answer", "input": {"of": MARKUP}}
    return [
        root,
        Span(span_id="b1", parent_id="a0", kind="tool", name="rates", **rates),
        *(Span(span_id=f"c{n}", parent_id="a0", name=f"step {n}") for n in range(60)),
        Span(span_id="b2", parent_id="c59", kind="tool", name=MARKUP, **broken),
        Span(span_id="d1", parent_id="d2", name="circle"),
        Span(span_id="d2", parent_id="d1", name="circle too"),
    ]


def judged(folder: Path, **more: Any) -> Path:
    case = LLMTestCase(name="one", input="hello", actual_output="done", spans=spans())
    judge = ScriptedJudge(lambda asked: "no answer" not in str(asked.messages), name="s")
    evaluate([case], [needed(), solved()], model=judge, show=False, out=folder, **more)
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@needs_chromium
def test_a_verdict_leads_to_its_span_and_a_span_to_its_verdicts(
    browser: Browser, tmp_path: Path
) -> None:
    file = judged(tmp_path / "run")
    with visit(browser, file, "#case=one&under=Needed&v=case", width=400, scheme="dark") as page:
        tree = page.page.get_by_role("tree")
        chosen = tree.locator("[aria-selected=true]")
        # The span whose verdict failed is in sight, whatever is folded.
        assert MARKUP in chosen.inner_text()
        assert "False" in chosen.inner_text()
        assert tree.get_by_role("treeitem").count() == 40
        assert "no answer" in page.page.locator(".span0").inner_text()
        # A verdict leads to its span.
        items = page.page.locator(".items button")
        listed = items.count()
        page.page.get_by_role("button", name="1 True: 1").click()
        # Drawn a frame later: until then the last one leads to the span that is shown already.
        page.until(f"document.querySelectorAll('.items button').length > {listed}")
        items.last.click()
        page.until("location.hash.includes('span=b1')")
        page.settled()
        assert chosen.get_attribute("aria-level") == "2"
        assert "rates" in chosen.inner_text()
        assert '"of": "USD"' in page.page.locator(".span0").inner_text()
        assert "span=b1" in page.page.url
        # A span leads to its verdicts, here by keys: the root has one of the other metric.
        chosen.focus()
        page.page.keyboard.press("ArrowUp")
        page.settled()
        assert "the input of the case" in page.page.locator(".span0").inner_text()
        page.page.locator(".span0 button", has_text="Solved: End").click()
        page.settled()
        assert "under=Solved" in page.page.url
        assert page.page.locator(".walk .now").inner_text().count("End") == 1
        page.page.get_by_role("button", name="25 more spans").click()
        page.settled()
        assert tree.get_by_role("treeitem").count() == 65
        assert page.violations() == []
        assert page.page.evaluate("document.documentElement.scrollWidth") == 400
        assert page.run("return window.hacked ?? null") is None
        assert page.errors == []


@needs_chromium
def test_days_are_a_filter_and_say_what_all_traces_are_like(
    browser: Browser, tmp_path: Path
) -> None:
    file = write_page(load_run(days(tmp_path / "run")), tmp_path / "page.html")
    with visit(browser, file, width=400, scheme="dark") as page:
        section = page.page.locator(".days")
        assert "Solved = False" in section.inner_text()
        drawn = [mark.get_attribute("aria-label") for mark in section.locator("g").all()]
        # Of the last day one of four passed, which was judged for itself; the others count double.
        assert [mark and mark.split(" (")[0] for mark in drawn] == [
            "2026-11-03: 100 %", "2026-11-04: 100 %", "2026-11-06: 17 %",
        ]  # fmt: skip
        assert (drawn[-1] or "").endswith("4 cases judged, 1 alarm")
        section.locator("g").last.focus()
        page.page.keyboard.press("Enter")
        page.settled()
        assert page.page.locator("h1").inner_text() == "4 of 12 cases are of 2026-11-06"
        section.get_by_role("button", name="errors 6").click()
        page.settled()
        assert "2 of 12" in page.page.locator("h1").inner_text()
        # Within a stratum all count alike: Wilson's interval of 1 of 2.
        share = Share.of(1, 2)
        assert share is not None
        low, high = round(100 * share.low), round(100 * share.high)
        wanted = f"50 % ({low} % to {high} %)"
        assert wanted in (section.locator("g").last.get_attribute("aria-label") or "")
        section.locator("summary").click()
        assert section.locator("tr.cur").inner_text().split("\t")[:2] == ["2026-11-06", "2"]
        assert page.violations() == []
        assert page.page.evaluate("document.documentElement.scrollWidth") == 400
        assert page.errors == []


def test_what_is_hidden_of_spans_is_hidden_wherever_they_are_named(tmp_path: Path) -> None:
    judged(tmp_path / "run", redact=["spans.input", "spans.span_id"])
    run = load_run(tmp_path / "run")
    (row,) = run.rows()
    (case,) = run.cases()
    steps = [step for result in row.metrics for step in result.steps if step.spans]
    assert steps
    assert {span for step in steps for span in step.spans} == {"[hidden by --redact spans.span_id]"}
    assert "USD" not in json.dumps([row.as_dict(), case])
