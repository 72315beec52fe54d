"""Draws the pictures of docs/metrics from the examples on its pages.

python docs/make_metric_pictures.py [FOLDER]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from dagengine.graph import MetricSpec
from dagengine.report import Picture, draw

PAGES = Path(__file__).resolve().parent / "metrics"


def metric_pages() -> list[Path]:
    """The page of every metric: all of the folder but its index."""
    return sorted(page for page in PAGES.glob("*.md") if page.name != "README.md")


def example_names(page: Path) -> dict[str, Any]:
    """Everything that the one example of a page defines, after running it."""
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, page.name, "exec"), names)
    return names


def drawn(page: Path) -> tuple[MetricSpec, Picture]:
    """The metric of a page's example, and its picture as designed."""
    spec: MetricSpec = example_names(page)["metric"].spec()
    return spec, draw(spec)


def main() -> None:
    """Write one SVG per page, beside it or into a folder."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGES
    for page in metric_pages():
        print(drawn(page)[1].save(folder / f"{page.stem}.svg"))


if __name__ == "__main__":
    main()
