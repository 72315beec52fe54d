"""Contrasts of the page's colours, computed from its style sheet (WCAG 2.2, 1.4.3, 1.4.11)."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

STYLE = files("dagengine.report.page").joinpath("page.css").read_text(encoding="utf-8")
TEXT = {  # a colour of text, and the grounds that it stands on
    "ink": ("bg", "panel", "mark-bg", "fail-bg", "none-bg", "node"),
    "soft": ("bg", "panel", "mark-bg", "node"),
    "mark": ("bg", "panel", "mark-bg"),
    "on-mark": ("mark",),
    "fail": ("bg", "panel", "fail-bg", "node"),
    "none": ("bg", "panel", "none-bg", "node"),
}
MARKS = {"edge": ("bg",), "mark": ("bg",), "fail": ("bg", "flow")}


def _themes() -> dict[str, dict[str, str]]:
    """The colours by name, of the light and of the dark theme; dark ones replace light ones."""
    blocks = re.findall(r":root\{([^}]*)\}", STYLE)
    light, dark, paper = (dict(re.findall(r"--([\w-]+):\s*(#\w+)", block)) for block in blocks)
    return {"light": light, "dark": {**light, **dark}, "paper": {**light, **paper}}


def _luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    whole = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    parts = [int(whole[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_formula_gives_the_known_contrast_of_black_and_white() -> None:
    assert _contrast("#000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", ["light", "dark", "paper"])
def test_every_text_has_a_contrast_of_four_and_a_half(theme: str) -> None:
    colours = _themes()[theme]
    for text, grounds in TEXT.items():
        for ground in grounds:
            assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


@pytest.mark.parametrize("theme", ["light", "dark", "paper"])
def test_every_mark_has_a_contrast_of_three(theme: str) -> None:
    colours = _themes()[theme]
    for mark, grounds in MARKS.items():
        for ground in grounds:
            assert _contrast(colours[mark], colours[ground]) >= 3, (mark, ground)
