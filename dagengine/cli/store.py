"""The commands of a store: show, prune, export, merge."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from dagengine.cli.common.commands_and_help import Commands
from dagengine.cli.common.files import Reads, Writes, name_in_errors
from dagengine.cli.common.output import report, say, wants_json
from dagengine.errors import InputError
from dagengine.system.safe_files import new_file
from dagengine.system.terminal_text import plain

app = Commands("store", "Inspect and maintain a store of answers (`run --store`).")

_STORE = Argument(metavar="STORE", help="The file of `run --store`.")
ReadStore = Annotated[Path, _STORE, Reads()]
ChangedStore = Annotated[Path, _STORE, Writes(opened=True)]
JudgeName = Annotated[
    str | None, Option(metavar="NAME", help="Only answers of this judge; `*` is a wildcard.")
]
NodeName = Annotated[
    str | None, Option(metavar="NAME", help="Only answers for this node; `*` is a wildcard.")
]


@app.command()
def show(
    path: ReadStore,
    judge: JudgeName = None,
    node: NodeName = None,
    limit: Annotated[
        int, Option(min=0, help="Show this number of answers in full, the latest first.")
    ] = 0,
) -> None:
    """Show the contents of a store; with --limit, --judge or --node also questions and answers."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dagengine.store.maintenance import AnswerSelection, groups, latest, open_to_look, size

    limit = limit or (10 if judge or node else 0)
    with open_to_look(path) as db:
        held = groups(db)
        listed = latest(db, AnswerSelection(judge, node), limit)
    out, table = Console(), Table("judge", "node")
    for name in ("answers", "first", "last"):
        table.add_column(name, justify="right", no_wrap=True)
    total = 0
    for group in held:
        total += group.answers
        table.add_row(
            Text(plain(group.judge)), Text(plain(group.node)), f"{group.answers:,}",
            f"{group.first:%Y-%m-%d}", f"{group.last:%Y-%m-%d}",
        )  # fmt: skip
    details = [record.as_dict() for record in listed]
    report(answers=total, bytes=size(path), groups=held, latest=details)
    head = f"{path}: {total:,} answers, {size(path) / 1e6:,.1f} MB"
    out.print(Text(plain(head)), highlight=False)
    if held:
        out.print(table)
    for record in listed:
        asked, answered, *_ = record.answer["usage"]
        say(f"\n--- {record.node}, {record.created:%Y-%m-%d %H:%M:%S}, {record.judge}")
        say(f"    {record.key[:16]}, {record.question.options}, {asked} + {answered} tokens")
        for message in record.question.messages:
            say(f"[{message['role']}]\n{message['content']}")
        say(f"[answer, {record.answer['mode']}]\n{record.answer['raw']}")


@app.command()
def prune(
    path: ChangedStore,
    judge: JudgeName = None,
    node: NodeName = None,
    older_than: Annotated[
        float | None, Option(min=0, metavar="DAYS", help="Only answers older than this.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only count the answers; remove nothing.")
    ] = False,
    compact: Annotated[
        bool, Option("--compact", help="Also shrink the file (rewrites it).")
    ] = False,
) -> None:
    """Remove answers by judge, node and age. Their questions will be asked again."""
    from dagengine.store.maintenance import AnswerSelection, count
    from dagengine.store.maintenance import prune as remove

    if judge is None and node is None and older_than is None:
        raise typer.BadParameter("select the answers to remove: --judge, --node or --older-than")
    try:
        before = None if older_than is None else datetime.now(UTC) - timedelta(days=older_than)
    except (OverflowError, ValueError):
        raise InputError(
            f"--older-than takes a number of days; {older_than:g} is too many"
        ) from None
    chosen = AnswerSelection(judge, node, before)
    if dry_run:
        number, what = count(path, chosen), "would be removed"
    else:
        number, what = remove(path, chosen, compact=compact), "removed"
    report(answers=number, dry_run=dry_run)
    say(f"{number:,} answers {what} from {path}")


@app.command()
def export(
    path: ReadStore,
    out: Annotated[
        Path | None, Option(help="The file to write. Default: standard output."), Writes()
    ] = None,
) -> None:
    """Export every question and answer as JSON lines.

    On a terminal, hidden characters are written as JSON escapes.
    """
    from dagengine.data.written_lines import line_of
    from dagengine.store.maintenance import open_to_look, records

    def terminal_line(row: Any) -> bytes:
        # All of it is in ASCII if anything in it is hidden, which is JSON as well.
        text = json.dumps(row, ensure_ascii=False)
        return line_of(row) if plain(text) == text else f"{json.dumps(row)}\n".encode()

    with open_to_look(path) as db:
        rows = (record.as_dict() for record in records(db))
        if out is not None:
            with name_in_errors(out), new_file(out) as file:
                file.writelines(map(line_of, rows))
            say(f"written: {out}")
        elif wants_json():
            report(answers=[*rows])
        else:
            line = terminal_line if sys.stdout.isatty() else line_of
            sys.stdout.buffer.writelines(map(line, rows))
            sys.stdout.buffer.flush()


@app.command()
def merge(
    path: ChangedStore,
    others: Annotated[list[Path], Argument(metavar="OTHER...", help="The stores to add."), Reads()],
) -> None:
    """Add the answers of other stores. Existing answers are kept."""
    from dagengine.store.maintenance import merge as add

    added = {str(addition): add(path, addition) for addition in others}
    report(added=added)
    for addition, number in added.items():
        say(f"{number:,} answers of {addition} added to {path}")
