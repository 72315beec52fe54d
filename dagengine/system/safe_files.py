"""Files of dagengine's own, opened safely: regular files, never links, pipes or devices.

Run folders, stores and recordings travel. In one that somebody else made, a link leads to a file
of the reader's (a shell profile, a key), and a pipe is never at its end. So a file in them is a
regular file, or it is refused in a sentence. Commands refuse what is named for output as well,
before anything is asked. Data sets may be anything.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, cast

from dagengine.errors import InputError

# What commands leave in their folders; `improve` leaves a run, too.
LEFT_BY = {"attack.json": "attack", "card.json": "benchmark", "improve.json": "improve"}
LEFT_BY |= {"yield.json": "synthesize", "alerts.jsonl": "watch", "run.json": "run"}
# What other commands read of a run.
OF_RUN = frozenset(["results.jsonl", "cases.jsonl", "times.jsonl", "labels.jsonl", "sent.jsonl"])
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# A system that lacks one of these has no such danger, or no such files.
_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_SAFE = sum(getattr(os, flag, 0) for flag in _FLAGS)


# By path, whether something was lost there when it was first written; None: nobody asks.
_written: ContextVar[dict[Path, bool] | None] = ContextVar("written", default=None)


@contextmanager
def noting_writes() -> Iterator[dict[Path, bool]]:
    """Collect the files that are written inside, and whether each replaced something."""
    written: dict[Path, bool] = {}
    token = _written.set(written)
    try:
        yield written
    finally:
        _written.reset(token)


def _note(path: Path) -> None:
    written = _written.get()
    if written is not None and path not in written:
        with suppress(FileNotFoundError, NotADirectoryError):
            written[path] = os.lstat(path).st_size > 0
            return
        written[path] = False


def require_regular(path: Path) -> None:
    """Raise InputError for a link, a folder, a pipe or a device; nothing may be there at all."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise InputError(f"{path} cannot be opened: {error.strerror or error}") from error
    except ValueError as error:  # NUL in a name
        raise InputError(f"{path!s:.80} is not a file name: {error}") from None
    _require(path, mode)


def _require(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        raise InputError(
            f"{path} is {kind}, not a regular file; put the file itself in its place, or name "
            "another one"
        )


def is_there(path: Path) -> bool:
    """Return whether anything has this name, also a link that leads nowhere."""
    return os.path.lexists(path)


def require_own_folder(folder: Path, written: Collection[str]) -> None:
    """Raise InputError for another command's folder, where files named `written` are to come."""
    for name, command in LEFT_BY.items():
        if name not in written and is_there(folder / name):
            raise InputError(
                f"{folder} is the folder of `dagengine {command}` (it has {name}); choose another "
                "folder"
            )


def open_to_read(path: Path) -> BinaryIO:
    """Open a regular file; raises InputError for anything else, OSError as `open` does."""
    return os.fdopen(descriptor(path, os.O_RDONLY), "rb")


def open_to_write(path: Path, *, emptied: bool = True) -> BinaryIO:
    """Open or make a regular file, unbuffered, and write at its end unless it is `emptied`."""
    if emptied:
        _note(path)
    file = descriptor(path, os.O_RDWR | os.O_CREAT | (0 if emptied else os.O_APPEND))
    if emptied:
        os.ftruncate(file, 0)
    return cast(BinaryIO, os.fdopen(file, "r+b", buffering=0))


def ends_whole(file: BinaryIO) -> bool:
    """Return whether a file ends with a whole line; a kill may have cut its last one off."""
    if not file.seek(0, os.SEEK_END):
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def write_all(file: BinaryIO, line: bytes) -> None:
    """Write a whole line to an unbuffered file; raises OSError if only a part of it got there."""
    unwritten = memoryview(line)
    while unwritten:  # the system may take less than it is given
        unwritten = unwritten[file.write(unwritten) :]


def descriptor(path: Path, flags: int, mode: int = 0o666) -> int:
    """The descriptor of a regular file, for the caller to close; raises as `open_to_read`."""
    require_regular(path)
    file = os.open(path, flags | _SAFE, mode)
    try:
        _require(path, os.fstat(file).st_mode)  # what was put there since
    except BaseException:
        os.close(file)
        raise
    return file


def read_whole(path: Path) -> bytes:
    """All bytes of a regular file; raises InputError for anything else, and when it has none."""
    try:
        with open_to_read(path) as file:
            return file.read()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def file_sha256(path: Path) -> str | None:
    """SHA-256 (hex) of a plain file; None for a pipe, which can be read only once."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file as `new_file` does; lone surrogates in text become the escapes of JSON."""
    with new_file(path) as file:
        file.write(data.encode(errors="backslashreplace") if isinstance(data, str) else data)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that is never seen half-written: at its end it takes the place of an earlier one.

    Nothing is written through a link, a pipe or a device in its place: it is replaced, too. Folders
    are made. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    created = False
    try:
        with os.fdopen(descriptor(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            created = True
            yield file
        _note(path)
        new.replace(path)
    except BaseException as error:
        if created:
            new.unlink(missing_ok=True)
        elif isinstance(error, OSError):
            error.filename = str(path)  # the one that the caller knows
        raise


def remove(path: Path) -> None:
    """Remove a file of before, whose place what is written now takes; raises OSError."""
    _note(path)
    path.unlink(missing_ok=True)


def private_folders() -> Iterator[Path]:
    """Folders for what dagengine makes for itself: nobody else may look into them, or write there.

    The first is in the user's cache, the next among temporary files, and the last is new. One that
    is somebody else's, or open to others, is left out.
    """
    for folder in _private_places():
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Without user ids (Windows), what is below a user's folder is the user's.
            if hasattr(os, "geteuid"):
                status = os.lstat(folder)
                mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
                if not mine or stat.S_IMODE(status.st_mode) & 0o077:
                    continue
            yield folder
    yield Path(tempfile.mkdtemp(prefix="dagengine-"))


# One after the other: where the cache will do, it need not be known where temporary files go.
def _private_places() -> Iterator[Path]:
    configured = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    with suppress(RuntimeError):  # a user without a home
        yield (
            Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
        ) / "dagengine"
    if hasattr(os, "getuid"):
        yield Path(tempfile.gettempdir(), f"dagengine-{os.getuid()}")
