"""Chromium for tests of pages: one that asks nobody, with what a page did along the way."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = os.environ.get("DAGENGINE_CHROMIUM") or shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None,
    reason="there is no Chromium: install Debian's `chromium`, or set DAGENGINE_CHROMIUM to one",
)
_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
Scheme = Literal["light", "dark"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. It has the event loop of this thread: no async test beside it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=list(_QUIET), timeout=120_000
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A page that is open, with what it asked for and complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def at(self, fragment: str) -> None:
        """Go to another address of the same page, and wait until it is shown."""
        self.page.evaluate("fragment => { location.hash = fragment }", fragment)
        self.settled()
        self.page.wait_for_selector("h1")
        self.settled()

    def settled(self) -> None:
        """Wait until what was drawn listens to keys, too: two frames."""
        self.page.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def until(self, condition: str) -> None:
        """Wait until a JavaScript expression holds; fails after a minute."""
        deadline = 60_000
        while not self.page.evaluate(f"() => Boolean({condition})"):
            self.page.wait_for_timeout(20)
            deadline -= 20
            assert deadline > 0, f"this did not come to hold: {condition}"

    def run(self, script: str, value: Any = None) -> Any:
        """Run JavaScript with `value`, which travels as JSON: lone surrogates survive."""
        text = json.dumps(value)
        return self.page.evaluate(f"text => {{ const value = JSON.parse(text); {script} }}", text)


@contextmanager
def visit(
    browser: Browser,
    file: Path,
    fragment: str = "",
    *,
    width: int = 1280,
    height: int = 900,
    scheme: Scheme = "light",
) -> Iterator[Visit]:
    """Open a file, and wait for its headline."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
    )
    context.set_default_timeout(120_000)  # also where every processor is busy
    try:
        found = Visit(context.new_page())
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("pageerror", lambda error: found.errors.append(str(error)))
        found.page.on(
            "console",
            lambda said: found.errors.append(said.text) if said.type != "log" else None,
        )
        found.page.goto(file.resolve().as_uri() + fragment)
        found.page.wait_for_selector("h1")
        found.settled()
        yield found
    finally:
        context.close()
