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
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, sync_playwright

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
    # One process draws all pages, wherever they are from: a new one for each takes longer.
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
)
# What axe finds by some rules, or by those that it runs by itself. Of texts that look alike, up to
# the root, the longest is examined for its contrast: with all of them that is most of the work.
_VIOLATIONS = """async rules => {
    const looks = new Map(), numbers = new Map();
    const lookOf = element => {
        if (!element) return 0;
        if (looks.has(element)) return looks.get(element);
        const style = getComputedStyle(element);
        const look = [
            style.color, style.backgroundColor, style.backgroundImage, style.opacity,
            style.mixBlendMode, style.filter, style.textShadow, style.position,
            style.fontSize, style.fontWeight, lookOf(element.parentElement),
        ].join();
        if (!numbers.has(look)) numbers.set(look, numbers.size + 1);
        looks.set(element, numbers.get(look));
        return numbers.get(look);
    };
    const longest = new Map();
    for (const element of document.querySelectorAll('body, body *')) {
        if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
        const texts = [...element.childNodes].filter(node => node.nodeType === Node.TEXT_NODE);
        const text = texts.map(node => node.data).join('').trim();
        if (!text && !element.matches('input, textarea, select')) continue;
        const length = text.match(/[\\p{L}\\p{N}]/gu)?.length ?? 0;  // signs alone are not examined
        const look = lookOf(element);
        if (length > (longest.get(look)?.length ?? -1)) longest.set(look, {length, element});
    }
    const marked = [...longest.values()].map(({element}) => element);
    for (const element of marked) element.setAttribute('data-look', '');
    axe.configure({rules: [{id: 'color-contrast', selector: '[data-look]'}]});
    const {violations} = await axe.run({
        ...(rules.length ? {runOnly: rules} : {}),
        resultTypes: ['violations'],
        // Only this rule reads style sheets, and those of files cannot be loaded again.
        preload: rules.includes('css-orientation-lock'),
    });
    for (const element of marked) element.removeAttribute('data-look');
    return violations.map(({id, impact, nodes}) =>
        `${id} (${impact}): ${nodes[0].html.slice(0, 200)}`);
}"""
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
        self.page.evaluate("fragment => { location.hash = fragment; }", fragment)
        self.settled()
        if not self.page.query_selector("h1"):
            self.page.wait_for_selector("h1")
            self.settled()

    def settled(self) -> None:
        """Wait until what was drawn listens to keys, too.

        The page does that in a timer after the next frame, and may draw again for it. A frame alone
        comes before such timers if the machine is busy.
        """
        self.page.evaluate(
            """async () => {
                for (let round = 0; round < 3; round++) {
                    await new Promise(requestAnimationFrame);
                    await new Promise(done => setTimeout(done));
                }
            }"""
        )

    def until(self, condition: str) -> None:
        """Wait until a JavaScript expression holds; fails after a minute."""
        held = self.page.evaluate(
            # Page.wait_for_function evaluates text in the page, which the pages forbid.
            f"""async () => {{
                const end = Date.now() + 60_000;
                while (!({condition})) {{
                    if (Date.now() > end) return false;
                    await new Promise(done => setTimeout(done, 10));
                }}
                return true;
            }}"""
        )
        assert held, f"{self.page.url}: this did not come to hold: {condition}"

    def run(self, script: str, value: Any = None) -> Any:
        """Run JavaScript with `value`, which travels as JSON: lone surrogates survive."""
        text = json.dumps(value)
        return self.page.evaluate(f"text => {{ const value = JSON.parse(text); {script} }}", text)

    def load_axe(self) -> None:
        """Have `axe` in the page."""
        if not self.run("return 'axe' in window"):
            self.page.evaluate(Axe().axe_script)

    def violations(self, *rules: str) -> list[str]:
        """What axe finds by these rules, or by those that it runs by itself."""
        self.load_axe()
        broken: list[str] = self.page.evaluate(_VIOLATIONS, rules)
        return broken


@contextmanager
def tab(
    browser: Browser,
    *,
    width: int = 1280,
    height: int = 900,
    scheme: Scheme = "light",
    offline: bool = True,
) -> Iterator[Visit]:
    """The one tab of a browser, empty at the beginning.

    A tab of its own for each page would take a second more, in which its process starts.
    """
    (context,) = browser.contexts or [browser.new_context()]
    context.set_default_timeout(120_000)  # also where every processor is busy
    context.set_offline(offline)
    page, *_ = context.pages or [context.new_page()]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    opened = Visit(page)

    def asked(request: Request) -> None:
        opened.requests.append(request.url)

    def failed(error: Error) -> None:
        opened.errors.append(str(error))

    def said(message: ConsoleMessage) -> None:
        if message.type != "log":
            opened.errors.append(message.text)

    page.on("request", asked)
    page.on("pageerror", failed)
    page.on("console", said)
    try:
        yield opened
    except BaseException:
        context.close()  # the next tab has nothing of one that broke
        raise
    page.remove_listener("request", asked)
    page.remove_listener("pageerror", failed)
    page.remove_listener("console", said)
    page.evaluate("localStorage.clear(); sessionStorage.clear()")
    page.goto("about:blank")


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
    with tab(browser, width=width, height=height, scheme=scheme) as opened:
        opened.page.goto(file.resolve().as_uri() + fragment)
        opened.page.wait_for_selector("h1")
        opened.settled()
        yield opened
