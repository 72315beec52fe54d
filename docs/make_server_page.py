"""Writes the tables of `docs/servers.md` from the bodies that the tests send.

    python docs/make_server_page.py

Each file of `tests/judges/wire/bodies` is what some server sends, and what becomes of it. A test
sends all of them, and another holds the page to them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BODIES = ROOT / "tests" / "judges" / "wire" / "bodies"
PAGE = ROOT / "docs" / "servers.md"
BEGIN, END = "<!-- servers: begin -->", "<!-- servers: end -->"
Body = dict[str, Any]


def read_bodies() -> list[Body]:
    """All bodies, in the order of their files."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(BODIES.glob("*.json"))]


def outcome_of(body: Body) -> str:
    """What becomes of a question that gets a body, in words."""
    expected = body["expect"]
    if expected["outcome"] != "ok":
        return f"`{expected['outcome']}`"
    score = "a score without weights" if expected.get("mode") == "raw" else "a score"
    calls = expected["calls"]
    most = calls if isinstance(calls, int) else calls[1]
    if "times" in body:
        return f"{score}, after it is asked again"
    if "when" in body:
        return f"{score}, asked without it"
    return score if most == 1 else f"{score}, asked twice"


def counts_table(bodies: list[Body]) -> str:
    """How many bodies of each kind each server has."""
    counts = Counter((body["server"], body["topic"]) for body in bodies)
    topics = sorted({topic for _, topic in counts})
    lines = ["| server | " + " | ".join(topics) + " |", "|---" + "|---:" * len(topics) + "|"]
    for server in sorted({server for server, _ in counts}, key=str.casefold):
        cells = [str(counts[server, topic] or "") for topic in topics]
        lines.append(f"| [{server}](#{_anchor(server)}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def server_section(server: str, bodies: list[Body]) -> str:
    """What one server sends, and what becomes of it."""
    rows = sorted((body["topic"], _escaped(body["what"]), outcome_of(body)) for body in bodies)
    lines = [f"### {server}", "", "| | it sends | what becomes of it |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def page_tables() -> str:
    """Everything on the page that is made from the bodies."""
    bodies = read_bodies()
    by_server: dict[str, list[Body]] = {}
    for body in bodies:
        by_server.setdefault(body["server"], []).append(body)
    sections = [
        server_section(server, by_server[server]) for server in sorted(by_server, key=str.casefold)
    ]
    return "\n\n".join([counts_table(bodies), "## What each of them sends", *sections])


def _anchor(server: str) -> str:
    """The anchor that the site gives to the heading of a server."""
    return re.sub(r"[^a-z0-9-]", "", server.lower().replace(" ", "-"))


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|").replace("_", "\\_")


def main() -> None:
    """Put the tables into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{page_tables()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
