"""What every command says of itself: examples whose options exist, by -h as by --help."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from dagengine.cli.commands import app
from dagengine.cli.common.collector import collector_at_rest, collector_at_work

ROOT: Any = typer.main.get_command(app)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command that help lists."""
    for name, one in getattr(group, "commands", {}).items():
        if getattr(one, "commands", None):
            yield from commands(one, (*path, name))
        elif not one.hidden:
            yield (*path, name)


@pytest.mark.parametrize("words", list(commands(ROOT)), ids=" ".join)
def test_a_command_shows_examples_whose_options_exist(words: tuple[str, ...]) -> None:
    command = ROOT
    for word in words:
        command = command.commands[word]
    shown = (command.epilog or "").split("\n\n")
    assert shown[0] == "Examples:"
    assert len(shown) > 1
    for line in shown[1:]:
        given = shlex.split(line.strip("`"))
        assert given[: len(words) + 1] == ["dagengine", *words]
        context = command.context_class(command, info_name=words[-1])
        command.make_parser(context).parse_args(given[len(words) + 1 :])  # refuses what is unknown


def test_help_has_a_short_name() -> None:
    short, long = (CliRunner().invoke(app, ["diff", word]).output for word in ("-h", "--help"))
    assert "Examples" in short
    assert short == long


def test_the_collector_rests_until_a_command_has_imported_what_it_needs() -> None:
    usual = gc.get_threshold()
    collector_at_work()
    assert gc.get_threshold() == usual  # nobody's program but a command is touched
    with collector_at_rest():
        assert gc.get_threshold()[0] > usual[0]
        collector_at_work()
        assert usual[0] <= gc.get_threshold()[0] <= 50_000
    assert gc.get_threshold() == usual
    gc.unfreeze()
