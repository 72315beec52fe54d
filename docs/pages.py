"""Runs the blocks of a page as a reader would: in order, as printed, in a folder of their own.

What a block is, its first line says:

    ```python                               is run; all blocks of a page share their names
    ```python title="metrics.py"            is written into that file; so is any other language
    ```python title="judge.py, at the end"  is added to that file
    ```console                              commands, one after another; a \\ continues a line
    ```text title="prints"                  is what the block before printed; … stands for anything
    ```text title="fails"                   the same, and the last command's exit code is not 0

Other blocks are only shown.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from typer.testing import CliRunner

from dagengine.cli.commands import app

_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r'title="([^"]+)"')
_ADDED = ", at the end"
# What a reader's own settings could change.
_FOREIGN = re.compile(r"^(DAGENGINE_|OPENAI_|AZURE_|ANTHROPIC_|CI$|GITHUB_|PYTEST_|COV)")
# Plugins that are here and not with a reader; some take a second to load.
_UNUSED = "cacheprovider xdist hypothesispytest randomly asyncio trio timeout rerunfailures"
_PROGRAMS = {
    "python": (sys.executable,),
    "pytest": (sys.executable, "-m", "pytest", *(f"-pno:{name}" for name in _UNUSED.split())),
}


@dataclass(frozen=True)
class Block:
    """A block of a page: its language, its title, its text, and the line it begins in."""

    language: str
    title: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    return [
        Block(
            found[1],
            title[1] if (title := _TITLE.search(found[2])) else "",
            found[3],
            page[: found.start()].count("\n") + 1,
        )
        for found in _BLOCK.finditer(page)
    ]


def alike(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; … stands for anything, in a line or for lines."""

    def lines(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))

    parts = map(re.escape, lines(shown).split("…"))
    return re.fullmatch(".*".join(parts), lines(printed), re.DOTALL) is not None


def at_address(page: str, pages: str, pictures: str) -> str:
    """A page of the project's folder for another place, such as a package index.

    Its links lead to files below the address `pages`, its pictures to those below `pictures`.
    """
    shown = re.sub(r'(!\[[^\]]*\]\(|src=")(?!https?:)', rf"\1{pictures}", page)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{pages}", shown)


def start_program(
    command: list[str], folder: Path, environment: dict[str, str]
) -> CompletedProcess[str]:
    """Run a command in a process of its own, to its end."""
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@dataclass
class Reader:
    """Somebody who follows pages in a folder.

    `instead` says what to write for parts of commands that need what is not there, such as the
    address of a server.
    """

    folder: Path
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    names: dict[str, Any] = field(default_factory=dict[str, Any])
    settings: dict[str, str] = field(default_factory=dict[str, str])
    printed: str = ""
    code: int = 0
    start: Callable[[list[str], Path, dict[str, str]], CompletedProcess[str]] = start_program

    def read(self, page: str, name: str = "page") -> None:
        """Follow a page; raises AssertionError where it does not do as it says."""
        for block in blocks(page):
            with _said(f"{name}, line {block.line}"):
                self.follow(block)

    def follow(self, block: Block) -> None:
        """Do what one block says."""
        if block.title in ("prints", "fails"):
            failed = block.title == "fails"
            assert bool(self.code) == failed, f"exit code {self.code}:\n{self.printed}"
            assert alike(block.text, self.printed), f"it printed:\n{self.printed}"
            self.code = 0
            return
        assert self.code == 0, f"the block before ended with {self.code}:\n{self.printed}"
        if block.title and "." in block.title:
            self.write(block)
        elif block.language == "python":
            self.printed = self.run(block)
        elif block.language == "console":
            self.printed = "".join(self.commands(block.text))

    def write(self, block: Block) -> None:
        """Write or lengthen a file."""
        path = self.folder / block.title.removesuffix(_ADDED)
        path.parent.mkdir(parents=True, exist_ok=True)
        begun = path.read_text(encoding="utf-8") if block.title.endswith(_ADDED) else ""
        path.write_text(begun + block.text, encoding="utf-8")

    def run(self, block: Block) -> str:
        """Run Python; returns what it printed."""
        # Messages that quote code and tests that look into it find the lines where they stand.
        code = compile("\n" * block.line + block.text, "page", "exec")
        out = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), self._settled():
            exec(code, self.names)
        return out.getvalue()

    @contextlib.contextmanager
    def _settled(self) -> Iterator[None]:
        """The reader's settings, and the modules of the folder, while a block runs."""
        before, path = dict(os.environ), list(sys.path)
        os.environ.update(self.settings)
        sys.path.insert(0, str(self.folder))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
            sys.path[:] = path
            here = {file.stem for file in self.folder.glob("*.py")}
            for name in here & set(sys.modules):
                del sys.modules[name]

    def commands(self, text: str) -> Iterator[str]:
        """Run commands; yields what each printed."""
        for line in text.replace("\\\n", " ").splitlines():
            for part, other in self.instead.items():
                line = line.replace(part, other)
            words = shlex.split(line, comments=True)
            if not words:
                continue
            assert self.code == 0, f"a command ended with {self.code}:\n{self.printed}"
            if words[0] == "export":
                name, _, value = words[1].partition("=")
                self.settings[name] = value
                continue
            self.code, self.printed = self._command(words)
            yield self.printed

    def _command(self, words: list[str]) -> tuple[int, str]:
        """Exit code of a command, and what it printed; our own run in this process, for speed."""
        unset = dict.fromkeys(filter(_FOREIGN.match, os.environ))
        changed = {**unset, "COLUMNS": "100", "NO_COLOR": "1", **self.settings}
        if words[0] == "dagengine":
            with contextlib.chdir(self.folder):
                own = CliRunner().invoke(app, words[1:], env=changed)
            if own.exception and not isinstance(own.exception, SystemExit):
                raise own.exception
            return own.exit_code, own.output
        env = {k: v for k, v in {**os.environ, **changed}.items() if v is not None}
        done = self.start([*_PROGRAMS[words[0]], *words[1:]], self.folder, env)
        return done.returncode, done.stdout + (done.stderr or "")


@contextlib.contextmanager
def _said(where: str) -> Iterator[None]:
    """Name the place in what goes wrong there."""
    try:
        yield
    except BaseException as error:
        error.add_note(where)
        raise
