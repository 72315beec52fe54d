"""What a page shows beside the judge's answers: prompts as sent, money, and what people said."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders.recorded_runs import CASES, judge, polite
from playwright.sync_api import Browser
from programs.browser import chromium, needs_chromium, visit

from dagengine import Limits, evaluate
from dagengine.judges import ScriptedJudge
from dagengine.question import Question
from dagengine.record.label_file import LABELS, Label, LabelFile
from dagengine.record.reader import Run, load_run
from dagengine.report.page import write_page
from dagengine.report.page.packed_texts import keys_of, open_prompts, prompts_of

ASKED = ("words", "Tone", "Kind")


def run_with(folder: Path, **more: Any) -> Run:
    """Three cases with a store and a price, and the labels of one person."""
    limits = Limits(prices={"*": (1, 2)})
    given = {"store": folder / "answers.db", "limits": limits, **more}
    evaluate(CASES, [polite()], model=judge(), show=False, out=folder / "run", **given)
    run = load_run(folder / "run")
    case = next(iter(run.rows()))
    common: dict[str, Any] = {
        "who": "Ana",
        "when": "2026-11-22T04:00:00+00:00",
        "index": 0,
        "name": "kind one",
    }
    common |= {"case": case.hash, "metric": "Manners", "definition": None}
    LabelFile(run.folder / LABELS).add(
        [
            Label(id="1", node="Kind", answer=False, note="too <b>short</b>", **common),
            Label(id="2", node="", answer=None, outcome="fail", **common),
        ]
    )
    return run


def unpacked(file: Path) -> dict[str, str]:
    """Every data block of a page but its columns, by id."""
    text = file.read_text(encoding="utf-8")
    found = dict(re.findall(r'<script type="[^"]*" id="([^"]*)">(.*?)</script>', text, re.DOTALL))
    head = found.pop("head")
    return {
        "head": head,
        **{
            name: gzip.decompress(base64.b64decode(data)).decode()
            for name, data in found.items()
            if not name.startswith("column-")
        },
    }


def test_prompts_are_those_that_the_judge_got(tmp_path: Path) -> None:
    sent: list[Question[Any]] = []

    def answer(question: Question[Any]) -> Any:
        sent.append(question)
        return {"verdict": True, "reason": "so"} if question.name == "Kind" else "no verdict"

    metric = polite()
    evaluate(
        CASES[:1], [metric], model=ScriptedJudge(answer, name="s"), show=False,
        out=tmp_path / "run", store=tmp_path / "answers.db",
    )  # fmt: skip
    run = load_run(tmp_path / "run")
    (row,) = run.rows()
    with open_prompts(run) as stored:
        assert stored
        ((*steps,),) = prompts_of(stored, keys_of(row, [metric.name]))
    found = {step.node: prompts for step, prompts in zip(row.metrics[0].steps, steps, strict=True)}
    # That of the node that failed, too, as it was asked first.
    for name in found:
        first = next(question for question in sent if question.name == name)
        assert found[name] == [list(first.messages)]
    assert row.metrics[0].failure
    assert row.metrics[0].failure.node in found


def test_the_page_holds_prompts_as_far_as_there_is_room(tmp_path: Path) -> None:
    run = run_with(tmp_path)
    blocks = unpacked(write_page(run, tmp_path / "page.html"))
    lines = [json.loads(line) for line in blocks["prompts-0"].split("\n")]
    assert len(lines) == len(CASES)
    texts = [
        message["content"]
        for (steps,) in lines
        for step in steps
        for (*p,) in step
        for message in p
    ]
    assert any("dear you" in text for text in texts)
    # The case that failed comes first, as its texts do.
    assert "rude" in json.dumps(lines[0])
    small = unpacked(write_page(run, tmp_path / "small.html", room=1_000))
    assert "texts-0" in small
    assert "prompts-0" not in small
    assert json.loads(small["head"])["prompts"] == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"store": None}, "run with --store to see them here"),
        ({"texts": False}, "left out by --no-texts"),
        ({"redact": ["actual_output"]}, "hidden by --redact actual_output"),
    ],
)
def test_a_page_says_why_it_has_no_prompts(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    run = run_with(tmp_path, **more)
    blocks = unpacked(write_page(run, tmp_path / "page.html"))
    assert json.loads(blocks["head"])["run"]["noPrompts"] == why
    assert "prompts-0" not in blocks
    if "store" not in more:  # nothing that was hidden comes back through the store
        assert not any("dear you" in text for text in blocks.values())


def test_a_store_that_is_gone_is_named(tmp_path: Path) -> None:
    run = run_with(tmp_path)
    (tmp_path / "answers.db").rename(tmp_path / "elsewhere.db")
    head = json.loads(unpacked(write_page(run, tmp_path / "page.html"))["head"])
    assert head["run"]["noPrompts"] == "the store answers.db was moved or deleted"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@needs_chromium
def test_a_case_shows_prompts_money_and_what_people_said(browser: Browser, tmp_path: Path) -> None:
    file = write_page(run_with(tmp_path), tmp_path / "page.html")
    with visit(browser, file, "#case=kind%20one&v=case") as page:
        page.page.wait_for_selector(".walk details")
        kind = page.page.locator(".walk li", has=page.page.get_by_role("button", name="Kind"))
        assert "$0.00012" in (kind.text_content() or "")
        assert "Ana: False ✕ not the same · too <b>short</b>" in (kind.text_content() or "")
        page.page.keyboard.press("]")
        assert "dear you" in (kind.locator(".prompt").last.inner_text())
        assert "Ana: fail" in (
            page.page.locator("section", has_text="People").last.text_content() or ""
        )
        page.at("#state=all&columns=cost,label")
        page.page.wait_for_selector("table.cases .name")
        first = page.page.locator("table.cases tbody tr", has_text="kind one").text_content() or ""
        assert "Ana: fail" in first
        assert "$0.00036" in first
        assert page.errors == []


@needs_chromium
def test_a_case_without_a_store_says_so(browser: Browser, tmp_path: Path) -> None:
    file = write_page(run_with(tmp_path, store=None), tmp_path / "page.html")
    with visit(browser, file, "#case=kind%20one&v=case") as page:
        page.page.wait_for_selector(".walk")
        assert "run with --store to see them here" in (page.page.text_content("main") or "")
        assert page.page.locator(".prompt").count() == 0
