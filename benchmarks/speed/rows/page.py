"""How fast the page of a run is, and how large: real texts, in a real browser.

    PYTHONPATH=benchmarks/recorded python benchmarks/speed/rows/page.py [--cases 10000] [--repeat 5]

Judges the items of recorded data sets, each with a judge's recorded words as reasons, so that the
texts are as long and as different as texts are; where there are more cases than items, items come
again. Then it writes the page and opens it in Chromium. Every figure is the time until what was
asked for is drawn, the median of some rounds; `open` is a new browser page each time. The page
must ask for nothing and complain of nothing.
"""

from __future__ import annotations

import itertools
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from playwright.sync_api import Browser, Page, sync_playwright
from recordings import Folder, data_directory, how_to_get
from rich.console import Console
from rich.table import Table

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode
from dagengine.prompts.evidence import as_text
from dagengine.question import Question
from dagengine.record.reader import load_run
from dagengine.report.page import write_page
from dagengine.test_case import LLMTestCase

ITEMS = ("alpaca_eval", "pandalm", "wikieval_rag_chain")
WORDS = (
    "mtbench_gpt4",
    "prometheus_gpt4x3",
    "pandalm",
    "position_bias_rep3",
    "factcc_explanations",
)
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
# Resolves when the browser has drawn twice, so that what was changed is on the screen.
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def cases(directory: Path, count: int) -> Iterator[LLMTestCase]:
    """Recorded items as cases, again from the beginning when they are used up."""
    items = [
        (as_text(item["input"]), as_text(next(iter(item["responses"].values()))["text"]))
        for name in ITEMS
        for item in Folder(directory / name).items().values()
        if item.get("responses") and item.get("input")
    ]
    for place, (asked, answered) in zip(range(count), itertools.cycle(items), strict=False):
        yield LLMTestCase(name=f"item {place}", input=asked, actual_output=answered)


def judge(directory: Path) -> ScriptedJudge:
    """A judge that says what judges said, about whatever it is asked."""
    said = [
        as_text(call["text"])
        for name in WORDS
        for row in Folder(directory / name).judgements()
        for call in row["calls"]
        if call.get("text")
    ]
    turn = itertools.count()

    def answer(question: Question[Any]) -> Any:
        place = next(turn) * 7919
        verdicts = question.answer_type.model_json_schema()["properties"]["verdict"]
        choices = verdicts.get("enum") or [True, False]
        # Mostly the first answer, as in a run that mostly passes.
        chosen = choices[0] if place % 10 < 8 else choices[place % len(choices)]
        return {"verdict": chosen, "reason": said[place % len(said)]}

    return ScriptedJudge(answer, name="recorded words")


def metric(name: str) -> DAGMetric:
    """A tree of three nodes."""
    tone = NonBinaryJudgementNode(
        "How does it read?",
        evaluation_params=["actual_output"],
        then={"clear": 10, "wordy": 6, "muddled": 2},
        name="Reading",
    )
    whole = BinaryJudgementNode(
        "Does it answer everything that was asked?",
        evaluation_params=["input", "actual_output"],
        then={True: tone, False: 3},
        name="Whole",
    )
    right = BinaryJudgementNode(
        "Is all of it right?",
        evaluation_params=["input", "actual_output"],
        then={True: whole, False: 0},
        name="Right",
    )
    return DAGMetric(name, DAG(root_node=right))


@dataclass
class Clock:
    """Times of one page, in milliseconds."""

    page: Page

    def until(self, act: str, drawn: str) -> float:
        """From an act in the page until an expression holds and the page is drawn."""
        script = f"""async () => {{
            const start = performance.now();
            {act};
            while (!({drawn})) {{
                if (performance.now() - start > 60000) throw new Error(`never came: {act}`);
                await new Promise(done => setTimeout(done, 1));
            }}
            await {DRAWN};
            return performance.now() - start;
        }}"""
        return float(self.page.evaluate(script))


TITLE = "document.querySelector('h1').textContent"
EDGE = "document.querySelector('.treebox .e[aria-label*=\"answer of Right\"]')"
NAMES = "[...document.querySelectorAll('.name')].map(name => name.textContent).join()"
STEPS: dict[str, tuple[str, str]] = {
    "filter": (
        f"window.before = {TITLE};"
        f" {EDGE}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))",
        f"{TITLE} !== window.before",
    ),
    "sort": (
        f"window.before = {NAMES}; document.querySelectorAll('table.cases th button')[0].click()",
        f"{NAMES} !== window.before",
    ),
    "search, first": (
        f"window.before = {TITLE}; location.hash = '#q=the'",
        f"{TITLE} !== window.before",
    ),
    "search, next": (
        f"window.before = {TITLE}; location.hash = '#q=clearly'",
        f"{TITLE} !== window.before",
    ),
}


def watched(page: Page) -> list[str]:
    """What the page asks for and complains of, as it comes."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda said: found.append(said.text))
    page.on("request", lambda asked: found.append(asked.url))
    return found


def measured(browser: Browser, file: Path, repeat: int) -> dict[str, list[float]]:
    """Milliseconds by what was done."""
    found: dict[str, list[float]] = {"open": [], **{name: [] for name in STEPS}}
    for _ in range(repeat):
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        wrong = watched(page)
        start = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_selector("table.cases .name")
        page.evaluate(DRAWN)
        found["open"].append(1000 * (time.perf_counter() - start))
        page.get_by_role("button", name="Its graph").click()
        page.wait_for_selector(".treebox .e")
        clock = Clock(page)
        for name, (act, drawn) in STEPS.items():
            found[name].append(clock.until(act, drawn))
        if [line for line in wrong if line != file.as_uri()]:
            sys.exit(f"the page asked or complained: {wrong}")
        page.close()
    return found


def kept_of(file: Path) -> int:
    """How many cases have their texts in the page."""
    found = re.search(r'"kept": (\d+)', file.read_text(encoding="utf-8"))
    return int(found[1]) if found else 0


def timed(work: Callable[[], Any]) -> float:
    """Seconds of some work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(
    count: Annotated[int, typer.Option("--cases")] = 10_000,
    metrics: int = 3,
    repeat: int = 5,
    keep: Annotated[Path | None, typer.Option(help="where the page is to stay")] = None,
) -> None:
    """Judge, write the page, open it, and print what that took."""
    directory = data_directory()
    if not (directory / ITEMS[0]).is_dir():
        sys.exit(how_to_get(directory))
    browser_file = shutil.which("chromium")
    if browser_file is None:
        sys.exit("there is no chromium")
    with tempfile.TemporaryDirectory() as folder:
        file = (keep or Path(folder) / "report.html").absolute()
        run = Path(folder) / "run"
        names = [f"Metric {place + 1}" for place in range(metrics)]
        evaluate(
            cases(directory, count),
            [metric(name) for name in names],
            model=judge(directory),
            show=False,
            out=run,
        )
        wrote = timed(lambda: write_page(load_run(run), file))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_file, args=list(FLAGS))
            found = measured(browser, file, repeat)
            browser.close()
        results = sum(path.stat().st_size for path in run.iterdir())
        size, kept = file.stat().st_size, kept_of(file)
    table = Table(title=f"The page of {count:,} cases and {metrics} metrics", title_justify="left")
    for name in ("what", "median", "worst"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for name, times in found.items():
        table.add_row(name, f"{statistics.median(times):,.0f} ms", f"{max(times):,.0f} ms")
    out = Console()
    out.print(table)
    sizes = f"{size / 1e6:.1f} MB, of {results / 1e6:.1f} MB of the run"
    out.print(f"{sizes}; {kept:,} cases with texts; written in {wrote:.1f} s")


if __name__ == "__main__":
    typer.run(main)
