"""Writes the pages of the gallery, each from its folder under examples/gallery.

python docs/make_gallery.py

A folder holds metrics.py (its docstring is the page's title and text), cases.jsonl (with what a
person expects of each case) and judge.py (a stand-in for a model).
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

from dagengine import evaluate
from dagengine.loading import load_cases, load_judge, load_metrics
from dagengine.report import Picture, draw
from dagengine.results import EvaluationResult

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples" / "gallery"
PAGES = HERE / "gallery"
FOLDERS = sorted(folder for folder in EXAMPLES.iterdir() if (folder / "metrics.py").exists())


def run(folder: Path) -> EvaluationResult:
    """The example judged by its stand-in."""
    metrics = load_metrics(str(folder / "metrics.py"))
    judge = load_judge(f"{folder / 'judge.py'}:judge", None)
    return evaluate(load_cases(folder / "cases.jsonl"), metrics, model=judge, show=False)


def title_and_text(folder: Path) -> tuple[str, str]:
    """What the docstring of an example says."""
    said = ast.get_docstring(ast.parse((folder / "metrics.py").read_text(encoding="utf-8"))) or ""
    title, _, text = said.partition("\n\n")
    return title, text


def page(folder: Path, result: EvaluationResult) -> str:
    """The page of an example."""
    name, (title, text) = folder.name, title_and_text(folder)
    code = (folder / "metrics.py").read_text(encoding="utf-8").split('"""\n\n', 1)[1]
    rows, agreed = _rows(folder, result)
    home = f"examples/gallery/{name}"
    return f"""# {title}

{text}

![The tree of this example]({name}.svg)

## The tree

```python
{code.strip()}
```

## The cases

| case | expected | score | ended at |
|---|---|---|---|
{rows}

The stand-in for a model, plain Python in `{home}/judge.py`, judges {agreed} cases as a person
would. That says nothing about your model: judge with that.

## Run it

In the checkout. Leave `--judge` out, and the model that you [set](../judges.md) is asked:

```console
dagengine run {home}/metrics.py --data {home}/cases.jsonl \\
    --judge {home}/judge.py:judge --out out/{name}
```

`out/{name}/report.html` is the page of the run. How far your model can be trusted with this tree:

```console
dagengine benchmark {home}/metrics.py --data {home}/cases.jsonl \\
    --labels additional_metadata.passes --out out/{name}-card
```
"""


def _rows(folder: Path, result: EvaluationResult) -> tuple[str, str]:
    """A line of the table per case, and how many of them came out as expected."""
    lines = (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    expected = [json.loads(line)["additional_metadata"]["passes"] for line in lines]
    shown, equal = [], 0
    for row, passes in zip(result.rows, expected, strict=True):
        (found,) = row.metrics
        equal += found.success == passes
        node, verdict = found.path[-1] if found.path else ("", "")
        end = f"{node} → {verdict}" if node else found.steps[-1].node
        wanted = "passes" if passes else "fails"
        shown.append(f"| {row.case} | {wanted} | {found.score} | {end} |")
    return "\n".join(shown), f"{equal} of {len(expected)}"


def picture(folder: Path) -> Picture:
    """The tree of an example."""
    (metric,) = load_metrics(str(folder / "metrics.py"))
    return draw(metric.spec())


def index() -> str:
    """The page that leads to all others."""
    rows = []
    for folder in FOLDERS:
        title, text = title_and_text(folder)
        rows.append(
            f"- [{title}]({folder.name}.md): {' '.join(text.split()).split('. ')[0].rstrip('.')}."
        )
    listed = "\n".join(rows)
    return f"""# Gallery

Trees for real tasks, small enough to read in a minute. Each comes with cases, a stand-in for a
model, and its picture. Take one that is near to yours and change its questions.

{listed}
"""


def main() -> None:
    """Write every page and its picture."""
    PAGES.mkdir(exist_ok=True)
    (PAGES / "README.md").write_text(index(), encoding="utf-8")
    for folder in FOLDERS:
        text = page(folder, run(folder))
        (PAGES / f"{folder.name}.md").write_text(text, encoding="utf-8")
        picture(folder).save(PAGES / f"{folder.name}.svg")


if __name__ == "__main__":
    main()
