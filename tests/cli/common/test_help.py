"""What every command says of itself: examples whose options exist, by -h as by --help."""

from __future__ import annotations

import functools
import gc
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from dagengine.cli.commands import app
from dagengine.cli.common import commands_and_help
from dagengine.cli.common.judge_access import collector_at_rest, collector_at_work

ALL = ("--help", "--help-all")
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
    assert command.epilog
    for line in command.epilog.splitlines():
        given = shlex.split(line)
        assert given[: len(words) + 1] == ["dagengine", *words]
        context = command.context_class(command, info_name=words[-1])
        command.make_parser(context).parse_args(given[len(words) + 1 :])  # refuses what is unknown


@pytest.mark.parametrize("words", [(), *commands(ROOT)], ids=" ".join)
def test_help_fits_80_columns_and_names_every_option_once(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*words, ALL[bool(words)]], env={"COLUMNS": "200"}).output
    assert max(map(len, shown.splitlines())) <= 80
    command = functools.reduce(lambda group, word: group.commands[word], words, ROOT)
    text = shown.partition(":\n")[2]  # the lists, after what the command is for
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            assert len(re.findall(rf"^  (?:-\w, )?{param.opts[-1]}\b(?!-)", text, re.M)) == 1


def test_long_help_is_in_groups_and_every_name_of_a_group_is_one() -> None:
    shown = CliRunner().invoke(app, ["run", "--help-all"]).output
    for title in ("Cases:", "Judge:", "Limits:", "Output:", "Several machines:", "Examples:"):
        assert f"\n{title}\n" in shown
    named = {name for names in commands_and_help._COMMANDS.values() for name in names.split()}
    assert named == set(ROOT.commands) - {name for name, c in ROOT.commands.items() if c.hidden}
    params = {
        param.name
        for words in commands(ROOT)
        for param in functools.reduce(lambda group, word: group.commands[word], words, ROOT).params
    }
    assert {
        name for names in commands_and_help._OPTIONS.values() for name in names.split()
    } <= params


@pytest.mark.parametrize("words", list(commands(ROOT)), ids=" ".join)
def test_every_option_has_a_text_and_the_line_of_usage_no_braces(words: tuple[str, ...]) -> None:
    command = functools.reduce(lambda group, word: group.commands[word], words, ROOT)
    command.read_texts()
    assert [param.name for param in command.params if not (param.help or param.hidden)] == []
    usage = CliRunner().invoke(app, [*words, "--help"]).output.splitlines()[0]
    assert not re.search(r"[{}]|\[\[(?!METRICS)|\.{4,}", usage)


@pytest.mark.parametrize("words", [(), ("store",), ("judge",)])
def test_a_group_shows_all_that_it_has_by_either_word(words: tuple[str, ...]) -> None:
    shown = [CliRunner().invoke(app, [*words, option]) for option in ALL]
    assert shown[0].output == shown[1].output
    assert [done.exit_code for done in shown] == [0, 0]


def test_only_an_attack_has_options_of_attacks() -> None:
    for words in commands(ROOT):
        shown = CliRunner().invoke(app, [*words, "--help-all"]).output
        assert ("\nAttack:\n" in shown) == (words == ("attack",))


def test_every_option_that_other_names_stand_for_is_one() -> None:
    params = [
        functools.reduce(lambda group, word: group.commands[word], words, ROOT).params
        for words in commands(ROOT)
    ]
    names = {name for some in params for param in some for name in param.opts}
    assert set(commands_and_help._OPTION_NAMES) <= names


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("run", "--model", "gpt-4o"), "'--model': write --judge MODEL. The judge: an OpenAI"),
        (("run", "--resume"), "'--resume': write --store. A file that keeps every answer."),
        (("run", "--max-cost", "2"), "'--max-cost': write --budget."),
        (("run", "-o", "out"), "'-o': write --out."),
        (("benchmark", "--repeat", "3"), "'--repeat': write --times."),
        (("run", "--jugde", "gpt-4o"), "'--jugde'; did you mean '--judge'?"),
        # Nothing is like it but the dashes.
        (("diff", "--model", "gpt-4o"), "there is no option '--model' "),
    ],
)
def test_an_option_of_another_name_is_told_what_to_write(
    words: tuple[str, ...], meant: str
) -> None:
    done = CliRunner().invoke(app, [*words], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert meant in done.output


def test_what_other_words_stand_for_is_a_command_with_these_options() -> None:
    calls = [call.partition("dagengine ")[2] for call in commands_and_help._CALLS_INSTEAD]
    for call in [*commands_and_help._COMMAND_NAMES, *calls]:
        name, *words = call.split()
        options = {option for param in ROOT.commands[name].params for option in param.opts}
        assert {word for word in words if word.startswith("--")} <= options, call


def test_the_text_of_an_option_is_what_stands_below_its_field() -> None:
    done = CliRunner().invoke(app, ["run", "m.py", "--output", "x"], env={"COLUMNS": "400"})
    assert "there is no option '--output': write --out. Output folder of the run." in done.output
    shown = CliRunner().invoke(app, ["labels", "plan", "--help"], env={"COLUMNS": "80"}).output
    assert re.search(r"DIR +The folder of a run\.", shown)


def test_what_is_not_listed_is_not_proposed() -> None:
    done = CliRunner().invoke(app, ["xyzzy"], env={"COLUMNS": "400"})
    assert "there are attack, " in done.output
    assert "unset-ollama" not in done.output


def test_a_long_example_can_be_pasted() -> None:
    shown = CliRunner().invoke(app, ["run", "--help"]).output
    pasted = shown.partition("Examples:\n")[2].replace("\\\n", " ")
    lines = [shlex.split(line) for line in pasted.splitlines()]
    assert lines == list(map(shlex.split, ROOT.commands["run"].epilog.splitlines()))


@pytest.mark.parametrize("words", [(), ("store",), ("judge",)], ids=" ".join)
def test_without_a_command_the_help_is_shown(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words])
    assert done.exit_code == 2
    assert done.stdout == CliRunner().invoke(app, [*words, "--help"]).stdout
    assert len(done.stdout.splitlines()) > 8


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


@pytest.mark.parametrize("words", list(commands(ROOT)), ids=" ".join)
def test_help_shows_the_options_of_the_first_day_and_says_how_many_more_there_are(
    words: tuple[str, ...],
) -> None:
    short, long = (CliRunner().invoke(app, [*words, word]).output for word in ALL)
    options = re.compile(r"^  (?:-\w, )?--[\w-]+", re.M)
    listed, every = (options.findall(text) for text in (short, long))
    assert len(listed) <= 16
    assert set(listed) <= set(every)
    hint = f"\n{len(every) - len(listed)} more options: "
    assert (hint in short) == (len(listed) < len(every))
    assert hint not in long
    required = re.search(r"(?s)Usage: (.*?)\n\n", long)
    assert required is not None
    assert "--data" not in required[1] or "--data" in short


def test_every_option_of_the_first_day_is_one_of_a_long_command() -> None:
    names = set()
    for words in commands(ROOT):
        params = functools.reduce(lambda group, word: group.commands[word], words, ROOT).params
        listed = {param.name for param in params if param.param_type_name == "option"}
        if len(listed) >= commands_and_help._MANY:
            names |= listed
    assert names | {"help"} >= set(commands_and_help._FIRST_DAY.split())
