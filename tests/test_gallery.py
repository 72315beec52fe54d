"""The gallery: trees without a warning, cases that come out as expected, pages that show both."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from make_gallery import FOLDERS, PAGES, index, page, picture, run

from dagengine.compiler import check
from dagengine.loading import load_metrics

REDRAW = "out of date: python docs/make_gallery.py"
every_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def texts(svg: str) -> list[str]:
    """What a picture says, whatever its place."""
    return sorted(re.findall(r"<text[^>]*>([^<]*)</text>", svg))


@every_folder
def test_an_example_has_cases_of_both_kinds_that_come_out_as_expected(folder: Path) -> None:
    (metric,) = load_metrics(str(folder / "metrics.py"))
    assert check(metric.spec())[0] == []
    result = run(folder)
    lines = (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    expected = [json.loads(line)["additional_metadata"]["passes"] for line in lines]
    assert {True, False} == set(expected)
    assert [row.metrics[0].success for row in result.rows] == expected
    assert (PAGES / f"{folder.name}.md").read_text(encoding="utf-8") == page(folder, result), REDRAW
    kept = (PAGES / f"{folder.name}.svg").read_text(encoding="utf-8")
    assert texts(kept) == texts(picture(folder).layout("svg").decode()), REDRAW


def test_the_gallery_leads_to_ten_examples() -> None:
    assert len(FOLDERS) == 10
    assert (PAGES / "README.md").read_text(encoding="utf-8") == index(), REDRAW
    assert {kept.stem for kept in PAGES.glob("*.svg")} == {folder.name for folder in FOLDERS}
