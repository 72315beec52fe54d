"""Writes the pages of the gallery, each from its folder under examples/gallery.

python docs/make_gallery.py

A folder holds metrics.py (its docstring is the page's title and text), cases.jsonl (with what a
person expects of each case) and judge.py (a stand-in for a model). One with labelled.jsonl has a
fault that `dagengine improve` finds by these labels. What a page shows is what the commands leave
that it prints, or that the page on running an example prints.
"""

from __future__ import annotations

import ast
import atexit
import json
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from pages import Block, Reader

from dagengine.loading import load_metrics
from dagengine.report import Picture, draw

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples" / "gallery"
PAGES = HERE / "gallery"
RUNNING = PAGES / "run.md"
FOLDERS = sorted(folder for folder in EXAMPLES.iterdir() if (folder / "metrics.py").exists())

# The example whose judge card the page on running shows.
CARD = EXAMPLES / "support"

RUN = """\
dagengine run {home}/metrics.py --data {home}/cases.jsonl \\
    --judge {home}/judge.py:judge --out out/{name}
"""
BENCHMARK = """\
dagengine benchmark {home}/metrics.py --data {home}/cases.jsonl \\
    --judge {home}/judge.py:judge --labels additional_metadata.passes --out out/{name}-card
"""
IMPROVE = """\
dagengine improve {home}/metrics.py --data {home}/labelled.jsonl \\
    --judge {home}/judge.py:judge --labels additional_metadata.passes --times 1 \\
    --out out/{name}-better
"""


@cache
def left(folder: Path) -> Path:
    """What the commands on the page of an example leave in `out/`, until this process ends.

    They are followed once: tests of the gallery and the site show the same runs and cards.
    """
    out = tempfile.TemporaryDirectory()
    atexit.register(out.cleanup)
    reader = Reader(HERE.parent, {"out/": f"{Path(out.name).as_posix()}/"})
    card = [BENCHMARK] if folder == CARD else []
    for commands in (RUN, *card, *([IMPROVE] if _has_labels(folder) else [])):
        reader.follow(Block("console", "", _named(commands, folder), 0))
        assert reader.code == 0, reader.printed
    return Path(out.name)


def _has_labels(folder: Path) -> bool:
    return (folder / "labelled.jsonl").exists()


def _named(text: str, folder: Path) -> str:
    return text.format(home=f"examples/gallery/{folder.name}", name=folder.name)


def rows(folder: Path) -> list[dict[str, Any]]:
    """What the run of an example left for each case, and whether a person lets it pass."""
    kept = (left(folder) / folder.name / "results.jsonl").read_text(encoding="utf-8").splitlines()
    cases = (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        json.loads(row)
        | json.loads(row)["metrics"][0]
        | {"expected": json.loads(case)["additional_metadata"]["passes"]}
        for row, case in zip(kept, cases, strict=True)
    ]


def title_and_text(folder: Path) -> tuple[str, str]:
    """What the docstring of an example says."""
    said = ast.get_docstring(ast.parse((folder / "metrics.py").read_text(encoding="utf-8"))) or ""
    title, _, text = said.partition("\n\n")
    return title, text


def page(folder: Path) -> str:
    """The page of an example."""
    name, (title, text) = folder.name, title_and_text(folder)
    code = (folder / "metrics.py").read_text(encoding="utf-8").split('"""\n\n', 1)[1]
    ends, agreed = _ends(rows(folder))
    return f"""# {title}

{text}

![The tree]({name}.svg)

```python
{code.strip()}
```

## The cases

{agreed} end as expected:

{ends}

![Cases on each path]({name}-counts.svg)

`out/{name}/report.html` is [the page](../page.md) of the [run](run.md).
{_better(folder) if _has_labels(folder) else ""}"""


def running() -> str:
    """Return the page on running an example."""
    return f"""# Run an example

Each folder of `examples/gallery` in a checkout has a tree (`metrics.py`), cases (`cases.jsonl`)
and a stand-in for a model (`judge.py`). Here it is [{title_and_text(CARD)[0]}]({CARD.name}.md).

```console
{_named(RUN, CARD).strip()}
```

A stand-in says nothing about your model. Without `--judge`, the [set](../judges.md) model is asked.

`out/{CARD.name}/report.html` is [the page of the run](../page.md).

## How far to trust it

```console
{_named(BENCHMARK, CARD).strip()}
```

This asks everything twenty times, and compares with what people expect.

`out/{CARD.name}-card/card.html` is [the judge card](../benchmark.md).
"""


def better(folder: Path) -> Path:
    """The folder of the search that made an example better."""
    return left(folder) / f"{folder.name}-better"


def _better(folder: Path) -> str:
    """What the search left that made an example better."""
    search = json.loads((better(folder) / "improve.json").read_text(encoding="utf-8"))
    (change,) = (row for row in search["candidates"] if not row["refused"])
    labelled = len(search["split"]["sealed"]) + sum(map(len, search["split"]["folds"]))
    new = change["detail"]["criterion"]
    return f"""
## Make it better

`labelled.jsonl` has {labelled} labelled cases:

```console
{_named(IMPROVE, folder).strip()}
```

**{search["headline"]}**

It is "{new}" (in a stand-in's words).
`out/{folder.name}-better/metrics.patch` is the change.

`out/{folder.name}-better/improve.html` is [the page of the search](../improve.md).
"""


def _ends(found: list[dict[str, Any]]) -> tuple[str, str]:
    """A line per end and score, and how many cases came out as expected."""
    ends: dict[str, list[str]] = {}
    for row in found:
        node, verdict = row.get("ended") or row["path"][-1]
        end = node if verdict is None else f"{node} → {verdict}"
        ends.setdefault(f"{end}, {row['score']}", []).append(row["case"])
    equal = sum(row["success"] == row["expected"] for row in found)
    lines = (f"- {end}: {'; '.join(cases)}" for end, cases in ends.items())
    return "\n".join(lines), f"{equal} of {len(found)}"


def picture(folder: Path) -> Picture:
    """The tree of an example."""
    (metric,) = load_metrics(str(folder / "metrics.py"))
    return draw(metric.spec())


def counts(folder: Path) -> Path:
    """The picture of its tree that the run of an example left, with how many took which way."""
    (found,) = (left(folder) / folder.name).glob("*-counts.svg")
    return found


def index() -> str:
    """The page that leads to all others."""
    rows = []
    for folder in FOLDERS:
        title, text = title_and_text(folder)
        first = re.split(r"(?<=[.?]) ", " ".join(text.split()))[0]
        rows.append(f"[{title}]({folder.name}.md) | {first} | ![{title}]({folder.name}.svg)")
    listed = "\n".join(rows)
    return f"""# Gallery

Trees for real tasks, with cases, pictures and the page of the run. Take the closest to your task,
change its questions, and [run it](run.md).

example | what it decides | tree
---|---|---
{listed}
"""


def main() -> None:
    """Write every page and its picture."""
    PAGES.mkdir(exist_ok=True)
    (PAGES / "README.md").write_text(index(), encoding="utf-8")
    RUNNING.write_text(running(), encoding="utf-8")
    for folder in FOLDERS:
        (PAGES / f"{folder.name}.md").write_text(page(folder), encoding="utf-8")
        picture(folder).save(PAGES / f"{folder.name}.svg")
        shutil.copy(counts(folder), PAGES / f"{folder.name}-counts.svg")


if __name__ == "__main__":
    main()
