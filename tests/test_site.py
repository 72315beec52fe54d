"""The site: whole, silent, readable without a network, and easy to search."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import Scheme, Visit, chromium, needs_chromium, visit
from places import ROOT
from playwright.sync_api import Browser

REFERENCE = ROOT / "docs" / "api"
PUBLIC = {
    *("dagengine", "dagengine.data", "dagengine.dataset", "dagengine.judges", "dagengine.metrics"),
    *("dagengine.metrics.dag", "dagengine.models", "dagengine.reliability", "dagengine.results"),
    *("dagengine.store", "dagengine.synthesis", "dagengine.testing", "dagengine.voting"),
}
needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None,
    reason="there is no mkdocs: it comes with the dependency group `docs`",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `python3 dev.py docs` builds it: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_the_reference_has_every_public_name_once() -> None:
    named = [
        name
        for page in REFERENCE.glob("*.md")
        for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(set(named)) == len(named)
    listed = {id(_object(name)) for name in named}
    missing = [
        f"{package}.{name}"
        for package in sorted(PUBLIC)
        for name in importlib.import_module(package).__all__
        if id(getattr(importlib.import_module(package), name)) not in listed
    ]
    assert missing == []


def test_every_page_stands_in_the_navigation() -> None:
    listed = set(re.findall(r"\s(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    assert sorted(pages - listed) == [], "add them to nav: in mkdocs.yml"


def _object(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _violations(page: Visit) -> list[str]:
    """What axe finds that is serious or critical."""
    page.page.evaluate(Axe().axe_script)
    found: list[str] = page.page.evaluate(
        """async () => {
            const found = await axe.run({resultTypes: ['violations']})
            return found.violations.filter(({impact}) => ['serious', 'critical'].includes(impact))
                .flatMap(({id, nodes}) => nodes.slice(0, 3).map(node => `${id}: ${node.html}`))
        }"""
    )
    return found


@needs_mkdocs
@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (400, "light")])
def test_pages_ask_nobody_fit_and_can_be_used_by_all(
    site: Path, browser: Browser, width: int, scheme: Scheme
) -> None:
    for name in ("index", "runs", "api/run", "metrics/g_eval", "coming-from/deepeval"):
        with visit(browser, site / f"{name}.html", width=width, scheme=scheme) as page:
            page.until("document.querySelector('.md-search[aria-label]')")
            assert [url for url in page.requests if not url.startswith("file:")] == []
            assert page.errors == []
            assert _violations(page) == [], name
            assert page.run("return document.documentElement.scrollWidth") <= width, name
