"""`dagengine explain`, `guide`, `schema`: what codes mean, how to begin, the form of files."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from typer import Argument, Option

from dagengine.cli.common.formats import print_document, report
from dagengine.cli.common.streams import say
from dagengine.errors import InputError, did_you_mean

# A copy of docs/troubleshooting.md, which an installed package does not have.
_TEXT = Path(__file__).with_name("troubleshooting.md")
_WIDTH = 78
Name = Literal["run", "rows", "cases", "times", "labels", "tree", "card"]
_OF_RECORD = {"run": "Manifest", "rows": "Row", "cases": "Case", "times": "Times"}


def explain(
    codes: Annotated[
        list[str] | None,
        Argument(
            metavar="CODE", help="A code of `check` or an outcome; without one, all are listed."
        ),
    ] = None,
) -> None:
    """Explain a code of `check` or an outcome of a case, and say what to do.

    Exit codes: 0; 2 there is no such code.
    """
    outcomes, problems = sections(_TEXT.read_text(encoding="utf-8"))
    if not codes:
        report(outcomes=outcomes, codes=problems)
        _list("outcomes, why a case has no score", outcomes)
        _list("codes, what `dagengine check` finds", problems)
        return
    explanations = {**outcomes, **problems}
    wanted: dict[str, None] = {}
    plain = {name.casefold().replace("-", "_"): name for name in reversed(explanations)}
    for code in codes:
        word = code.lstrip("#").casefold()
        # Outcomes are written with "_" and codes with "-", which nobody has to remember.
        name = word if word in explanations else plain.get(word.replace("-", "_"))
        if name is None:
            hint = did_you_mean(word, explanations) or "`dagengine explain` lists all"
            raise InputError(f"there is no code or outcome {code!r:.80}; {hint}")
        wanted[name] = None
    report(explanations={name: explanations[name] for name in wanted})
    for index, name in enumerate(wanted):
        say("\n" * bool(index) + name + "\n")
        say("\n".join(f"  {line}".rstrip() for line in _wrap(explanations[name])))


def guide() -> None:
    """Print the guide for coding agents: SKILL.md, with templates that run."""
    text = _TEXT.with_name("SKILL.md").read_text(encoding="utf-8")
    report(guide=text)
    say(text.rstrip("\n"))


def schema(
    name: Annotated[
        Name, Argument(metavar="|".join(get_args(Name)), help="The file that it is of.")
    ],
    form: Annotated[Literal["json"], Option("--format", help="Always JSON.")] = "json",
) -> None:
    """Print the JSON schema of a file: of `run.json`, or of a line of `results.jsonl` (rows).

    `cases`, `times` and `labels` are the lines of the files of these names; `card` is card.json,
    `tree` a tree file. A reader refuses a file with a greater format, and ignores unknown keys.
    """
    print_document(read_schema(name))


def read_schema(name: Name) -> dict[str, Any]:
    """Give the JSON schema (draft 2020-12) of a file, named `urn:dagengine:NAME:FORMAT`."""
    from pydantic import TypeAdapter

    from dagengine.record import labels
    from dagengine.reliability.card import values as card
    from dagengine.results.rows import FORMAT

    generated: dict[str, tuple[Any, int]] = {
        "labels": (labels.Label | labels.Retraction, labels.FORMAT),
        "card": (card.JudgeCard, card.FORMAT),
    }
    if name in generated:
        kind, number = generated[name]
        document = TypeAdapter[Any](kind).json_schema(mode="serialization")
    else:
        file, number = {"tree": "tree.schema.json"}.get(name, "record.schema.json"), FORMAT
        document = json.loads(files("dagengine.record").joinpath(file).read_bytes())
    if name in _OF_RECORD:
        document |= {"$ref": f"#/$defs/{_OF_RECORD[name]}", "title": f"{name}, format {FORMAT}"}
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **document, "$id": f"urn:dagengine:{name}:{number}"}


def sections(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of outcomes and of codes, by name, of the page on messages."""
    outcomes, problems = text.split("\n## ")[1:3]
    return _sections(outcomes), _sections(problems)


def _sections(part: str) -> dict[str, str]:
    headed = (section.partition("\n") for section in part.split("\n### ")[1:])
    return {name.strip(): text.strip() for name, _, text in headed}


def _list(title: str, names: dict[str, str]) -> None:
    say(f"{title}:")
    lines = textwrap.wrap(", ".join(names), _WIDTH - 2, break_on_hyphens=False)
    say("\n".join(f"  {line}" for line in lines))


def _wrap(text: str) -> Iterator[str]:
    """The lines of a text in Markdown for a terminal; links are their words."""
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    for index, block in enumerate(re.split(r"\n\s*\n", plain)):
        if index:
            yield ""
        if block.startswith("```"):
            yield from block.splitlines()[1:-1]
            continue
        for item in re.split(r"\n(?=[-*] )", block):
            indent = "  " * item.startswith(("- ", "* "))
            words = " ".join(item.split())
            yield from textwrap.wrap(
                words, _WIDTH - 2, subsequent_indent=indent, break_on_hyphens=False
            )
