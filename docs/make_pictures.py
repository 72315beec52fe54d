"""Makes the pictures of the README and of the tutorial from what they show.

python docs/make_pictures.py [FOLDER]

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

from dagengine.report import draw

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
"""What the pictures of pages were made of, so that one sees when they are out of date."""


def readme_names() -> dict[str, Any]:
    """Everything that the first two Python snippets of the README define."""
    text = (HERE.parent / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:2]:
        exec(compile(block, "README.md", "exec"), names)
    return names


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
    return {
        name: hashlib.sha256(json.dumps(part).encode()).hexdigest()[:16]
        for name, part in parts.items()
    }


def take(page: Path, picture: Path) -> None:
    """A picture of the beginning of a page."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("DAGENGINE_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        shown = browser.new_page(viewport={"width": 1100, "height": 760}, color_scheme="light")
        shown.goto(page.resolve().as_uri())
        shown.wait_for_selector("h1")
        shown.wait_for_timeout(300)
        shown.screenshot(path=picture)
        browser.close()


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


def card(folder: Path) -> None:
    """The beginning of the card of the meeting summaries, as its example makes it."""
    example = HERE.parent / "examples" / "benchmark.py"
    subprocess.run([sys.executable, example, folder], check=True)
    take(folder / "card.html", HERE / "card.png")


def home(folder: Path) -> Path:
    """The picture of the home page, which is followed in a folder of its own."""
    Reader(folder).read((HERE / "index.md").read_text(encoding="utf-8"), "index.md")
    return folder / "out" / "support-answer-counts.svg"


def drawn_pages() -> list[Path]:
    """The pages of nodes and how-tos that show a tree of their own: that of their `metric`."""
    pages = [*(HERE / "nodes").glob("*.md"), *(HERE / "how-to").glob("*.md")]
    return sorted(one for one in pages if f"]({one.stem}.svg)" in one.read_text("utf-8"))


def main() -> None:
    """Write `path.svg`, the way of the case whose headings are swapped, and all others."""
    names = readme_names()
    swapped = names["result"].rows[1].metrics[0]
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    print(draw(names["metric"].spec(), result=swapped).save(folder / "path.svg"))
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(home(Path(place)), HERE / "home.svg")
    with tempfile.TemporaryDirectory() as place:
        tutorial(Path(place))
    with tempfile.TemporaryDirectory() as place:
        card(Path(place))
    for one in drawn_pages():
        with tempfile.TemporaryDirectory() as place:
            reader = Reader(Path(place))
            reader.read(one.read_text(encoding="utf-8"), one.name)
            draw(reader.names["metric"].spec()).save(one.with_suffix(".svg"))


if __name__ == "__main__":
    main()
