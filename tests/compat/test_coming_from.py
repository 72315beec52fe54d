"""The pages for those who come from elsewhere: every name in their tables is here."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from folders.places import ROOT

PAGES = sorted((ROOT / "docs" / "coming-from").glob("*.md"))
HOMES: list[ModuleType] = [
    importlib.import_module(f"dagengine{name}")
    for name in (
        *(
            "",
            ".deepeval_configs",
            ".dataset",
            ".judges",
            ".loading",
            ".metrics",
            ".metrics.criteria",
        ),
        *(".metrics.conversational_dag", ".metrics.dag", ".metrics.g_eval", ".models"),
        *(".results", ".scorer", ".synthesizer", ".test_case", ".voting", ".errors"),
    )
]
NAME = re.compile(r"(?<![\w.])(?:dagengine(?:\.\w+)+|[A-Z]\w*[a-z]\w*)")
# Words in code that are values or arguments, not names.
NO_NAMES = frozenset({"None", "True", "False"})
# Names of others in the left column that say where something comes from there.
THEIRS = re.compile(r"\b(?:deepeval|langchain|ragas|promptfoo|inspect|Chat[A-Z]\w+)\b")


def rows(page: Path) -> Iterator[tuple[str, str]]:
    """Both cells of every row in the tables of names."""
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if len(cells) == 2 and cells[0] not in ("there", "---"):
            yield cells[0], cells[1]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def is_here(name: str) -> bool:
    if not name.startswith("dagengine."):
        return any(name in dir(home) or name in vars(home) for home in HOMES)
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return hasattr(importlib.import_module(module), last)
    return True


def named(page: Path) -> list[str]:
    """Names of ours: what the right column says, and the left one where that is "the same"."""
    found: list[str] = []
    for there, here in rows(page):
        cells = [here, there] if here.startswith("the same") else [here]
        texts = [text for cell in cells for text in code(cell) if not THEIRS.search(text)]
        found += [name for text in texts for name in NAME.findall(text) if name not in NO_NAMES]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_in_the_tables_of_a_page_is_here(page: Path) -> None:
    names = named(page)
    assert len(names) >= 3
    assert [name for name in names if not is_here(name)] == []


def test_there_are_six_pages_and_silent_changes_come_first() -> None:
    assert len(PAGES) == 6
    for page in PAGES:
        first = re.search(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert first is not None
        assert first[1] == "What changes numbers silently"
