"""What documents and messages name exists: every command, every option."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from folders.places import ROOT

import dagengine
from dagengine.cli.commands import app

SCRIPTS = [(file.name, file.read_text("utf-8")) for file in ROOT.glob("benchmarks/**/*.py")]
COMMAND: Any = typer.main.get_command(app)
PACKAGE = Path(dagengine.__file__).resolve().parent
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
_TYPED = re.compile(r"\bdagengine ([a-z][^`\n]*)")
_SPAN = re.compile(r"`([^`\n]+)`")
# Options of our own scripts stand in their commands, those of other programs here.
_SCRIPT = re.compile(r"\b\w+\.py\b")
_DECLARED = re.compile(r"^    (\w+): Annotated\[", re.MULTILINE)
FOREIGN = {
    *("--durations", "--junitxml", "--lf", "--maxfail", "--pdb", "--reruns", "--sw"),  # pytest
    *("--nthreads", "--port", "--no-dashboard", "--memory-limit", "--death-timeout"),  # Dask
    *("--array", "--cpus-per-task", "--job-name", "--mem", "--nodes", "--ntasks-per-node"),  # Slurm
    *("--time", "--wait"),  # Slurm
    *("--cache-sim", "--tool"),  # valgrind
    *("--max-model-len", "--structured-outputs-config"),  # vLLM
    *("--ctx-size", "--parallel"),  # llama.cpp
    *("--spread", "--browser"),  # of server.py, which throughput.py hands on; of dev.py
}


def words_of(group: Any) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Every command, hidden ones too, with its options."""
    yield (), options_of(group)
    for name, one in getattr(group, "commands", {}).items():
        for words, options in words_of(one):
            yield (name, *words), options


def options_of(command: Any) -> set[str]:
    """The names of a command's options, and those of help."""
    named = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return {name for name in named if name.startswith("--")} | {"--help", "--help-all"}


OPTIONS = dict(words_of(COMMAND))
GROUPS = {words[:-1] for words in OPTIONS if words}


def of_tests() -> set[str]:
    """What the plugin adds to pytest."""
    source = "".join(file.read_text("utf-8") for file in (PACKAGE / "testing").glob("*.py"))
    return set(re.findall(r'"(--evals[a-z-]*)"', source))


def of_scripts(text: str) -> set[str]:
    """The options of the scripts that a page tells to run."""
    named = set(_SCRIPT.findall(text))
    sources = "".join(text for name, text in SCRIPTS if name in named)
    declared = {f"--{name.replace('_', '-')}" for name in _DECLARED.findall(sources)}
    return declared | set(_OPTION.findall(sources))


def texts() -> Iterator[tuple[str, str]]:
    """All pages, and all strings of the program: messages, help and docstrings."""
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")):
        yield page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
    for file in sorted({one.resolve() for one in PACKAGE.glob("**/*.py")}):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{file.name}:{node.lineno}", node.value


@pytest.fixture(scope="module")
def all_texts() -> list[tuple[str, str]]:
    return [(where, text.replace("\\\n", " ")) for where, text in texts()]


def test_every_option_that_is_named_exists(all_texts: list[tuple[str, str]]) -> None:
    ours = set().union(*OPTIONS.values()) | of_tests()
    named = [
        (where, option)
        for where, text in all_texts
        if (options := set(_OPTION.findall(text)) - FOREIGN)
        for option in options - of_scripts(text)
    ]
    assert len(named) > 300
    assert [one for one in named if one[1] not in ours] == []


def test_every_command_that_is_named_exists_and_has_the_options_it_is_given(
    all_texts: list[tuple[str, str]],
) -> None:
    wrong = []
    for where, text in all_texts:
        shown = [span.strip() for span in _SPAN.findall(text)] if where.endswith(".md") else []
        for typed in _TYPED.findall(text):
            certain = f"dagengine {typed.strip()}" in shown
            if problem := _wrong(typed.split(), certain):
                wrong.append(f"{where}: dagengine {typed.strip()}: {problem}")
    assert wrong == []


def _wrong(typed: list[str], certain: bool) -> str:
    """What is wrong with a line that is a command, or at least looks like one."""
    words: tuple[str, ...] = ()
    while typed and words in GROUPS and (*words, typed[0]) in OPTIONS:
        words = (*words, typed.pop(0))
    if not words:
        return "there is no such command" if certain else ""
    return ", ".join(set(_OPTION.findall(" ".join(typed))) - OPTIONS[words] - of_tests())


_BENCHMARK = re.compile(r"(?:PYTHONPATH=(\S+) )?python (benchmarks/[\w/]+\.py)")


def test_a_command_of_a_benchmark_finds_its_file_and_what_that_imports() -> None:
    files = [*ROOT.glob("benchmarks/**/*.md"), *ROOT.glob("docs/**/*.md")]
    files += ROOT.glob("benchmarks/**/*.py")
    commands = {
        found for file in files for found in _BENCHMARK.findall(file.read_text(encoding="utf-8"))
    }
    assert len(commands) > 30
    assert {command: lost for command in commands if (lost := sorted(not_found(*command)))} == {}


def not_found(path: str, script: str) -> set[str]:
    """Modules of benchmarks that a script imports and that Python would not find."""
    if not (ROOT / script).is_file():
        return {script}
    homes = [(ROOT / script).parent, *(ROOT / folder for folder in path.split(":") if folder)]
    ours = [str(file.with_suffix("")) for file in ROOT.glob("benchmarks/**/*.py")]
    lost, seen, waiting = set[str](), set[Path](), [ROOT / script]
    while waiting:
        tree = ast.parse(waiting.pop().read_text(encoding="utf-8"))
        for node in tree.body:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            for name in {name.replace(".", "/") for name in names}:
                files = {home / f"{name}.py" for home in homes if (home / f"{name}.py").is_file()}
                if not files and any(own.endswith(f"/{name}") for own in ours):
                    lost.add(name)
                waiting += files - seen
                seen |= files
    return lost
