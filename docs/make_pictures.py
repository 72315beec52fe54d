"""Draws the picture of the README from the README's own code.

python docs/make_pictures.py [FOLDER]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from dagengine.report import draw

HERE = Path(__file__).resolve().parent


def readme_names() -> dict[str, Any]:
    """Everything that the first two Python snippets of the README define."""
    text = (HERE.parent / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:2]:
        exec(compile(block, "README.md", "exec"), names)
    return names


def main() -> None:
    """Write `path.svg`: the way of the case whose headings are swapped."""
    names = readme_names()
    swapped = names["result"].rows[1].metrics[0]
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    print(draw(names["metric"].spec(), result=swapped).save(folder / "path.svg"))


if __name__ == "__main__":
    main()
