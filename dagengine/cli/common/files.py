"""The files of a command: no file is both read and written, and output files are writable.

An option says what it does to its file by a mark in its annotation, `Reads` or `Writes`. The
guard goes over the marks of a command, so that no pair of options is listed anywhere.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from dagengine.cli.common.output import say
from dagengine.errors import InputError
from dagengine.system.file_locks import one_writer
from dagengine.system.safe_files import LEFT_BY, OF_RUN, require_own_folder, require_regular
from dagengine.system.terminal_text import replaced_line, wrap_lines

Given = Mapping[str, Any]
"""What a command was given, by the names of its parameters."""
Marks: TypeAlias = "Mapping[str, Reads | Writes]"
"""What a command does to the files of its parameters."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Marks an option whose file is read: a path, paths, `FILE.py:NAME`, or a judge's name.

    One that names `metrics` may name a tree file, which may run code or choose judges only if the
    command is told so.
    """

    metrics: bool = False


@dataclass(frozen=True, slots=True)
class Writes:
    """Marks an option whose file is written.

    `files` gives the files of an option that names a folder, or several files. Where a file is
    also read (`opened`), whoever opens it says what is wrong with it.
    """

    files: Callable[[Path, Given], Iterable[Path]] = lambda path, given: (path,)
    opened: bool = False


def within(*names: str, unless: Sequence[str] = (), opened: bool = False) -> Writes:
    """Marks an option whose folder gets files of these names, unless one of `unless` is given."""

    def files(folder: Path, given: Given) -> Iterable[Path]:
        return () if any(map(given.get, unless)) else [folder / name for name in names]

    return Writes(files, opened)


@dataclass(frozen=True, slots=True)
class _File:
    option: str
    path: Path
    mark: Reads | Writes


def guard(marks: Marks, labels: Mapping[str, str], given: Given) -> None:
    """Check the files of a command before it opens any of them.

    `marks` and `labels` (what messages call an option) are by parameter. Raises InputError when
    a file that is written is also named by another option, and for a file that cannot be
    written.
    """
    read, written = list[_File](), list[_File]()
    for name, mark in marks.items():
        side = written if isinstance(mark, Writes) else read
        side += (_File(labels[name], path, mark) for path in _paths(mark, given.get(name), given))
    for first, second in itertools.combinations(read + written, 2):
        # Two files that are only read may be one, and an option with several may name one twice.
        alike = (first.option, first.mark) == (second.option, second.mark)
        if isinstance(second.mark, Writes) and not alike and _same(first.path, second.path):
            paths = " and ".join(map(str, dict.fromkeys((first.path, second.path))))
            raise InputError(
                f"{first.option} and {second.option} are the same file, {paths}: its content would "
                "be lost; choose another file for one of them"
            )
    for file in written:
        if isinstance(file.mark, Writes):
            folder, name = file.path.parent, file.path.name
            names = {each.path.name for each in written if each.path.parent == folder}
            if name in LEFT_BY.keys() | OF_RUN:
                require_own_folder(folder, names)
            if not file.mark.opened:
                require_writable(file.path)


def say_replaced(written: Mapping[Path, bool], marks: Marks, given: Given) -> None:
    """Say which files of before a command has replaced; those that it continued are not."""
    continued = {
        path
        for name, mark in marks.items()
        if isinstance(mark, Writes) and mark.opened
        for path in _paths(mark, given.get(name), given)
    }
    if line := replaced_line(written, continued):
        say(wrap_lines(line, 2), err=True)


def _paths(mark: Reads | Writes, value: Any, given: Given) -> Iterator[Path]:
    """The files that one option names."""
    if value is None:
        return
    if isinstance(value, list | tuple):
        for part in value:
            yield from _paths(mark, part, given)
    elif isinstance(value, str):
        from dagengine.loading import TREE, names_a_file, split_target

        if names_a_file(value) or value.endswith(TREE):
            yield split_target(value)[0]
    elif isinstance(mark, Writes):
        yield from mark.files(value, given)
    else:
        yield value


def _same(first: Path, second: Path) -> bool:
    """Whether two paths lead to one file, also through links; pipes and devices never clash."""
    with suppress(OSError):
        kinds = (first.stat().st_mode, second.stat().st_mode)
        return all(map(stat.S_ISREG, kinds)) and first.samefile(second)
    return os.path.realpath(first) == os.path.realpath(second)


def require_writable(path: Path) -> None:
    """Raise InputError when a file cannot be written; leaves it, and all folders, as they are."""
    with name_in_errors(path):
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a file; choose the name of a file")
        require_regular(path)
        if path.exists():
            with path.open("ab"):
                return
    folder = next(above for above in path.absolute().parents if above.exists())
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: {folder} is a file, not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written: the folder {folder} is not writable")


@contextmanager
def sole(path: Path) -> Iterator[None]:
    """Be the only command that makes a file; raises InputError if another one does."""
    with ExitStack() as lock:
        with name_in_errors(path):
            lock.enter_context(one_writer(path))
        yield


@contextmanager
def name_in_errors(path: Path) -> Iterator[None]:
    """Name the file in what the file system raises, which a full disk does not do by itself."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
