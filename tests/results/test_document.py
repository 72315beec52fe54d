"""Pages of HTML beside the report: one document, which loads nothing and hides nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs.hostile import TEXTS
from markupsafe import Markup

import dagengine
from dagengine.results.html_tables import document
from dagengine.system.terminal_text import plain

PACKAGE = Path(dagengine.__file__).parent
PAGES = sorted(page for page in PACKAGE.rglob("*.html") if "node_modules" not in page.parts)


def test_every_template_of_the_package_is_such_a_document() -> None:
    assert {"attack.html", "card.html", "improve.html"} <= {page.name for page in PAGES}
    for page in PAGES:
        begins = page.read_text(encoding="utf-8").startswith('{% extends "document.html" %}')
        assert begins or page.name == "document.html", page


@pytest.mark.parametrize("text", [*TEXTS, "a\u202eb", "\x1b[2J", "<script>alert(1)</script>"])
def test_a_document_has_no_markup_of_texts_and_no_hidden_character(
    tmp_path: Path, text: str
) -> None:
    own = tmp_path / "own.html"
    own.write_text(
        '{% extends "document.html" %}{% block title %}{{ text }}{% endblock %}'
        "{% block body %}<p>{{ text }}|{{ text | marked }}|{{ macro(text) }}</p>{% endblock %}",
        encoding="utf-8",
    )
    marked = Markup("<b>{}</b>").format
    page = document(
        own, {"marked": marked}, text=text, macro=lambda said: Markup(f"<i>{marked(said)}</i>")
    )
    assert page == plain(page)
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert page.count("<b>") == 2
