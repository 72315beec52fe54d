"""The gallery: trees without a warning, cases that come out as expected, pages that show both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from folders.made_once import gallery_made_once
from make_gallery import FOLDERS, PAGES, better, counts, index, page, picture, rows, running

from dagengine.compiler import check
from dagengine.loading import load_metrics

REDRAW = "out of date: python docs/make_gallery.py"
every_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@pytest.fixture(scope="module", autouse=True)
def followed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with gallery_made_once(tmp_path_factory):
        yield


def texts(svg: str) -> list[str]:
    """What a picture says, whatever its place."""
    return sorted(re.sub(r"<[^>]*>", "", text) for text in re.findall(r"<text.*?</text>", svg))


@every_folder
def test_an_example_has_cases_of_both_kinds_that_come_out_as_expected(folder: Path) -> None:
    (metric,) = load_metrics(str(folder / "metrics.py"))
    assert check(metric.spec())[0] == []
    expected = [row["expected"] for row in rows(folder)]
    assert {True, False} == set(expected)
    assert [row["success"] for row in rows(folder)] == expected
    kept = (PAGES / f"{folder.name}.md").read_text(encoding="utf-8")
    assert kept == page(folder), REDRAW
    fresh = {"": picture(folder).layout("svg").decode(), "-counts": _read(counts(folder))}
    for kind, svg in fresh.items():
        assert texts(_read(PAGES / f"{folder.name}{kind}.svg")) == texts(svg), REDRAW


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def test_a_page_names_the_node_that_gave_the_score_not_the_last_that_ran() -> None:
    assert "- Numbers → False, 0.0: number\n" in _read(PAGES / "translation.md")
    assert "- All borne out, 0.0: number; invented\n" in _read(PAGES / "extraction.md")


def test_a_planted_fault_is_found_by_labels_and_mended() -> None:
    (folder,) = (folder for folder in FOLDERS if (folder / "labelled.jsonl").exists())
    search = json.loads(_read(better(folder) / "improve.json"))
    (change,) = (row for row in search["candidates"] if not row["refused"])
    assert (change["rung"], change["where"]) == ("criterion", "Insults")
    assert search["headline"].startswith("✓ New wording for Insults")
    assert "harsh words about the product" in _read(better(folder) / "metrics.patch")


def test_the_gallery_leads_to_twelve_examples() -> None:
    assert len(FOLDERS) == 12
    assert _read(PAGES / "README.md") == index(), REDRAW
    assert _read(PAGES / "run.md") == running(), REDRAW
    pictures = {f"{folder.name}{kind}" for folder in FOLDERS for kind in ("", "-counts")}
    assert {kept.stem for kept in PAGES.glob("*.svg")} == pictures
