"""`dagengine help`, `guide`, `schema`: what codes mean, how to begin, the form of files."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from typer import Argument, BadParameter, Option, confirm

from dagengine.cli.common.files import Writes
from dagengine.cli.common.output import print_document, report, say
from dagengine.errors import InputError, did_you_mean
from dagengine.system.safe_files import write_whole
from dagengine.system.terminal_text import text_if

# A copy of docs/troubleshooting.md, which an installed package does not have.
_TEXT = Path(__file__).with_name("troubleshooting.md")
_WIDTH = 78
Name = Literal["run", "rows", "cases", "times", "labels", "tree", "card"]
_OF_RECORD = {"run": "Manifest", "rows": "Row", "cases": "Case", "times": "Times"}


def explain(
    topics: Annotated[
        list[str] | None,
        Argument(
            metavar="TOPIC",
            help="`metrics`, a code of `check` or an outcome; without one, all are listed.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        Option("--write", help="Of `metrics`: write them into this new Python file."),
        Writes(),
    ] = None,
) -> None:
    """Say which metrics suit your application (`metrics`), or explain a code or an outcome.

    `dagengine help metrics` asks you a few questions. Of a code of `check`, or an outcome of a
    case, it says what to do. `dagengine COMMAND --help` shows the options of a command.

    Exit codes: 0; 2 there is no such topic.
    """
    if write is not None and topics != ["metrics"]:
        raise BadParameter("--write is of `dagengine help metrics`")
    outcomes, problems = sections(_TEXT.read_text(encoding="utf-8"))
    if topics == ["metrics"]:
        from dagengine.metrics.recommend import QUESTIONS, Needs, program, recommend

        if write is not None and write.exists():
            raise BadParameter(f"{write} already exists; choose a new file")
        needs = Needs(**{name: confirm(text, default=False, err=True) for name, text in QUESTIONS})
        suggestions = {suggestion.metric: suggestion.why for suggestion in recommend(needs)}
        report(metrics=suggestions)
        say("\nfrom dagengine.metrics import …")
        for metric, why in suggestions.items():
            say(f"  {metric:32} {why}")
        if write is not None:
            write_whole(write, program(needs))
            say(f"{write} has them; try: dagengine check {write}")
    elif topics:
        _explain_codes(topics, {**outcomes, **problems})
    else:
        report(outcomes=outcomes, codes=problems)
        _list("outcomes, why a case has no score", outcomes)
        _list("codes, what `dagengine check` finds", problems)
        say("which metrics suit your application: dagengine help metrics")


def _explain_codes(codes: Iterable[str], explanations: dict[str, str]) -> None:
    wanted: dict[str, str] = {}
    # Outcomes are written with "_" and codes with "-", which nobody has to remember.
    plain = {name.casefold().replace("-", "_"): name for name in reversed(explanations)}
    for code in codes:
        word = code.lstrip("#").casefold()
        name = word if word in explanations else plain.get(word.replace("-", "_"))
        if name is None:
            hint = did_you_mean(word, explanations) or (
                "`dagengine help` lists all; options are in `dagengine COMMAND --help`"
            )
            raise InputError(f"there is no code or outcome {code!r:.80}; {hint}")
        wanted[name] = explanations[name]
    report(explanations=wanted)
    for index, (name, text) in enumerate(wanted.items()):
        say(text_if(index, "\n") + name + "\n")
        for line in _wrap(text):
            say(f"  {line}".rstrip())


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

    from dagengine.record import label_file
    from dagengine.reliability.card import types as card
    from dagengine.results.metric_results import FORMAT

    generated: dict[str, tuple[Any, int]] = {
        "labels": (label_file.Label | label_file.Retraction, label_file.FORMAT),
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
    say(textwrap.fill(", ".join(names), _WIDTH, initial_indent="  ", subsequent_indent="  ",
                      break_on_hyphens=False))  # fmt: skip


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
