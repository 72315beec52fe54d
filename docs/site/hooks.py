"""Where the site's Markdown differs from the one that code hosts show."""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"`[^`]*`")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Code in tables: hosts want its bars escaped, the site wants them as they are."""
    return "\n".join(
        _CODE.sub(lambda found: found[0].replace(r"\|", "|"), line) if line[:1] == "|" else line
        for line in markdown.split("\n")
    )
