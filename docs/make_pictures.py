"""Makes the pictures of the README and of the tutorial from what they show.

python docs/make_pictures.py

The pictures of pages are taken with Chromium (Debian's, or DAGENGINE_CHROMIUM).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pages import Reader, blocks

from dagengine import evaluate
from dagengine.loading import load_judge, load_metrics
from dagengine.report import Picture, draw

HERE = Path(__file__).resolve().parent
# Each picture of the tutorial, and the file that a reader sees it in.
DRAWN = {
    "1-tree.svg": "tree.svg",
    "2-counts.svg": "first/support-answer-counts.svg",
    "3-counts.svg": "second/support-answer-counts.svg",
}
TAKEN = {"2-page.png": "first/report.html", "5-card.png": "card/card.html"}
TUTORIAL = sorted((HERE / "tutorial").glob("*.md"))
MADE_OF = HERE / "tutorial" / "pictures.json"
README_MADE_OF = HERE / "pictures.json"
"""What the pictures of pages were made of, so that one sees when they are out of date."""
MAIN = HERE.parent / "examples" / "meeting_summary"


def main_job() -> tuple[Picture, dict[str, str]]:
    """The path of one case of the main job as a picture, and what README's pictures were made of.

    The path is that of a summary whose body comes before its intro.
    """
    cases, judge = str(MAIN / "cases.jsonl"), load_judge(f"{MAIN / 'judge.py'}:judge", None)
    (metric,) = load_metrics(str(MAIN / "metrics.py"))
    rows = evaluate(cases, [metric], model=judge, show=False).rows
    picture = next(
        draw(metric.spec(), result=row.metrics[0], case=row.case)
        for row in rows
        if row.case == "festival logistics, body before intro"
    )
    shown = [[row.case, row.metrics[0].score, row.metrics[0].path] for row in rows]
    return picture, {"path.png": _digest(picture.mermaid), "page.png": _digest(shown)}


def _digest(shown: Any) -> str:
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]


def made_of(folder: Path) -> dict[str, str]:
    """A digest of what each picture of a page shows, for a folder in which the tutorial ran.

    It is rows and figures: words and looks change more often, and mislead nobody.
    """
    rows = (folder / "first" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    shown = [
        [row["case"], [[one["score"], one["path"], one["reason"]] for one in row["metrics"]]]
        for row in map(json.loads, rows)
    ]
    card = (folder / "card" / "card.md").read_text(encoding="utf-8").partition("\n|")[0]
    parts = {"2-page.png": shown, "5-card.png": re.findall(r"\d+\.\d+", card)}
    return {name: _digest(part) for name, part in parts.items()}


def take(page: Path, picture: Path, size: tuple[int, int] = (1100, 760), scale: int = 1) -> None:
    """A picture of the beginning of a page, in pixels; `scale` is those of the screen for one."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("DAGENGINE_CHROMIUM") or shutil.which("chromium")
    width, height = size
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        shown = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="light",
            device_scale_factor=scale,
        )
        shown.goto(page.resolve().as_uri())
        shown.wait_for_selector("h1, svg")
        shown.wait_for_timeout(300)
        shown.screenshot(path=picture)
        browser.close()


def readme(folder: Path) -> None:
    """The pictures of the README: a path, a page and a card, as wide as a code host shows them."""
    picture, made = main_job()
    drawn = folder / "path.svg"
    picture.save(drawn)
    svg = drawn.read_text(encoding="utf-8")
    ((width, legend),) = re.findall(
        r'width="(\d+)".*translate\(24 (\d+)\)" class="legend"', svg, re.S
    )
    take(drawn, HERE / "path.png", (int(width), int(legend) - 2), 2)
    command = ("run", MAIN / "metrics.py", "--data", MAIN / "cases.jsonl")
    judge = ("--judge", f"{MAIN / 'judge.py'}:judge", "--out", folder / "out")
    subprocess.run([sys.executable, "-m", "dagengine", *command, *judge], check=True)
    take(folder / "out" / "report.html", HERE / "page.png", (1100, 620), 2)
    subprocess.run([sys.executable, MAIN.parent / "benchmark.py", folder / "card"], check=True)
    take(folder / "card" / "card.html", HERE / "card.png", (830, 226), 2)
    README_MADE_OF.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def tutorial(folder: Path) -> None:
    """The pictures of the tutorial: its pages are followed in a folder of their own."""
    reader = Reader(folder)
    for one in TUTORIAL:
        for block in blocks(one.read_text(encoding="utf-8")):
            if not block.title.startswith("needs"):
                reader.follow(block)
    for name, source in DRAWN.items():
        shutil.copy(folder / source, HERE / "tutorial" / name)
    for name, source in TAKEN.items():
        take(folder / source, HERE / "tutorial" / name)
    MADE_OF.write_text(json.dumps(made_of(folder), indent=1) + "\n", encoding="utf-8")


def home(folder: Path) -> Path:
    """The picture of the home page, which is followed in a folder of its own."""
    Reader(folder).read((HERE / "index.md").read_text(encoding="utf-8"), "index.md")
    return folder / "out" / "support-answer-counts.svg"


def drawn_pages() -> list[Path]:
    """The pages of nodes and how-tos that show a tree of their own: that of their `metric`."""
    pages = [*(HERE / "nodes").glob("*.md"), *(HERE / "how-to").glob("*.md")]
    return sorted(one for one in pages if f"]({one.stem}.svg)" in one.read_text("utf-8"))


def main() -> None:
    """Make all pictures anew."""
    with tempfile.TemporaryDirectory() as place:
        readme(Path(place))
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(home(Path(place)), HERE / "home.svg")
    with tempfile.TemporaryDirectory() as place:
        tutorial(Path(place))
    for one in drawn_pages():
        with tempfile.TemporaryDirectory() as place:
            reader = Reader(Path(place))
            reader.read(one.read_text(encoding="utf-8"), one.name)
            draw(reader.names["metric"].spec()).save(one.with_suffix(".svg"))


if __name__ == "__main__":
    main()
