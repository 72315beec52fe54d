"""Writes the page of the bodies that the tests send: `benchmarks/results/servers.md`.

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
PAGE = ROOT / "benchmarks" / "results" / "servers.md"
HEAD = """# What servers send

Each row is a body that the tests send over HTTP to a judge (`python docs/make_server_page.py`
writes this page). To choose and start one: [servers](../../docs/servers.md).
*Asked without it* means: asked again without the schema, probabilities or setting that the server
rejects. Numbers count bodies; an empty cell was not tried, and does not mean that it fails."""
KINDS = {
    "answers": "JSON that is nearly right: wrapped, in a code fence, in a call written as text",
    "errors": "error bodies in any shape, also with the status 200; unknown models",
    "limits": "answers that were cut off, also by thinking",
    "log-probabilities": "none, at most 5 alternatives, characters in several tokens",
    "quota": "rate limits, which pass; daily quotas and empty accounts, which do not",
    "refusal": "the model, its provider or a filter declines",
    "schema mode": "no schema, or not all of its keywords",
    "settings": "a temperature or a limit of tokens is rejected",
    "shapes": "the answer is in an unusual place",
    "system role": "templates without system messages",
    "thoughts": "drafts before the answer, which must not count",
    "window": "prompts that are too long",
}
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
    lines = [f"| server | {' | '.join(topics)} |", "|---" + "|---:" * len(topics) + "|"]
    for server in sorted({server for server, _ in counts}, key=str.casefold):
        cells = [str(counts[server, topic] or "") for topic in topics]
        lines.append(f"| [{server}](#{_anchor(server)}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def kinds_table(bodies: list[Body]) -> str:
    """What becomes of a question, by the kind of body that answers it."""
    lines = ["| kind | bodies | what becomes of the question |", "|---|---:|---|"]
    for topic, what in KINDS.items():
        counts = Counter(outcome_of(body) for body in bodies if body["topic"] == topic)
        ends = ", ".join(f"{outcome} ({number})" for outcome, number in counts.most_common())
        lines.append(f"| **{topic}**: {what} | {counts.total()} | {ends} |")
    return "\n".join(lines)


def server_section(server: str, bodies: list[Body]) -> str:
    """What one server sends, and what becomes of it."""
    rows = sorted((body["topic"], _escaped(body["what"]), outcome_of(body)) for body in bodies)
    lines = [f"## {server}", "", "| kind | it sends | what becomes of it |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def list_page() -> str:
    """The page of all bodies, server by server."""
    by_server: dict[str, list[Body]] = {}
    bodies = read_bodies()
    for body in bodies:
        by_server.setdefault(body["server"], []).append(body)
    servers = sorted(by_server, key=str.casefold)
    sections = (server_section(server, by_server[server]) for server in servers)
    return "\n\n".join([HEAD, kinds_table(bodies), counts_table(bodies), *sections]) + "\n"


def _anchor(server: str) -> str:
    """The anchor that the site gives to the heading of a server."""
    return re.sub(r"[^a-z0-9-]", "", server.lower().replace(" ", "-"))


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|").replace("_", "\\_")


def main() -> None:
    """Write the page."""
    PAGE.write_text(list_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
