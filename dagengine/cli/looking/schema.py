"""`dagengine schema`: the JSON schema of a file that dagengine writes."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Annotated, Any, Literal, get_args

import typer

from dagengine.cli.common.formats import print_document

Name = Literal["run", "rows", "cases", "times", "labels", "tree", "card"]
_OF_RECORD = {"run": "Manifest", "rows": "Row", "cases": "Case", "times": "Times"}


def schema(
    name: Annotated[
        Name, typer.Argument(metavar="|".join(get_args(Name)), help="The file that it is of.")
    ],
    form: Annotated[
        Literal["json"], typer.Option("--format", help="A schema is JSON; nothing else is there.")
    ] = "json",
) -> None:
    """Print the JSON schema of a file: of `run.json`, or of a line of `results.jsonl` (rows).

    `cases`, `times` and `labels` are the lines of the files of these names; `card` is card.json,
    `tree` a tree file. A reader refuses a file with a greater format, and ignores unknown keys.
    """
    print_document(schema_of(name))


def schema_of(name: Name) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a file, named `urn:dagengine:NAME:FORMAT`."""
    from pydantic import TypeAdapter

    from dagengine.record.labels import FORMAT as LABELS
    from dagengine.record.labels import Label, Retraction
    from dagengine.reliability.card.values import FORMAT as CARD
    from dagengine.reliability.card.values import JudgeCard
    from dagengine.results.rows import FORMAT

    folder = files("dagengine.record")
    if name == "tree":
        document: dict[str, Any] = json.loads((folder / "tree.schema.json").read_bytes())
        return document
    if name in _OF_RECORD:
        document = json.loads((folder / "record.schema.json").read_bytes())
        document |= {"$ref": f"#/$defs/{_OF_RECORD[name]}", "title": f"{name}, format {FORMAT}"}
        number = FORMAT
    elif name == "labels":
        document, number = TypeAdapter[Any](Label | Retraction).json_schema(), LABELS
    else:
        document = TypeAdapter(JudgeCard).json_schema(mode="serialization")
        number = CARD
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, **document, "$id": f"urn:dagengine:{name}:{number}"}
