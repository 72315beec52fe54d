"""Code that documents name, as `metrics.py:function` or `package.module:function`."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from dagengine.errors import DagengineError, InputError
from dagengine.unknown import module_words


def load_module(path: Path) -> ModuleType:
    """Run a Python file; raises InputError that names the line when it fails.

    It may import the files beside it, as a script may.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; choose a Python file in it")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    # Named after the whole path: two files may share their last part.
    name = "dagengine_user_" + re.sub(r"\W", "_", str(path.resolve()))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the file may do anything
        own = spec.origin
        lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
        line = f" line {lines[-1].lineno}" if lines else ""
        kind = "" if isinstance(error, DagengineError) else f"{type(error).__name__}: "
        raise InputError(f"{path}{line}: {kind}{module_words(error) or error}") from None
    finally:
        sys.path.remove(folder)
    return module


class Code:
    """The code beside one document, or installed.

    `folder` is where names of files start (None, in writing: the folder of the first file with
    code). Reading runs the code, and only with `allow_code`.
    """

    def __init__(
        self, folder: str | Path | None = None, *, allow_code: bool = False, **_: bool
    ) -> None:
        self.folder = None if folder is None else Path(folder).resolve()
        self._allowed = allow_code
        self._known: dict[str, Any] = {}

    def name_of(self, thing: Any, where: str) -> str:
        """The name of a function or a class in documents; raises InputError if it has none."""
        title = getattr(thing, "__qualname__", "")
        module = sys.modules.get(getattr(thing, "__module__", None) or "")
        named = None if module is None else _lookup(module, title)
        # A file that is loaded twice, as one with a judge, has every function twice.
        codes = [getattr(each, "__code__", None) for each in (named, thing)]
        same = type(named) is type(thing) and codes[0] == codes[1]
        if not title or module is None or not same:
            raise InputError(
                f"{where} is {title or thing!r:.80}, which no file can name: write a function or a "
                "class at module level (no lambda, no object, none inside of a function)"
            )
        file, name = Path(getattr(module, "__file__", None) or "").resolve(), module.__name__
        if not _is_installed(name):
            self.folder = self.folder or file.parent
            if not file.is_relative_to(self.folder):
                raise InputError(
                    f"{where} is in {file}, outside of the folder of the document, {self.folder}: "
                    "write the document beside its code"
                )
            name = file.relative_to(self.folder).as_posix()
        self._known[f"{name}:{title}"] = thing
        return f"{name}:{title}"

    def read(self, name: str, where: str) -> Any:
        """The function or class of a name; raises InputError if it is not there, or not allowed."""
        if name not in self._known:
            if not self._allowed:
                raise InputError(
                    f"{where} names code, {name!r:.80}, and reading it would run that code: if you "
                    "trust it, allow it (--allow-code; in Python allow_code=True)"
                )
            file, _, title = name.partition(":")
            value = _lookup(self._module(file, where), title)
            if not callable(value):
                raise InputError(f"{where}: {file:.80} has no function or class {title!r:.80}")
            self._known[name] = value
        return self._known[name]

    def _module(self, file: str, where: str) -> ModuleType:
        if _is_installed(file):
            try:
                return importlib.import_module(file)
            except ImportError as error:
                raise InputError(f"{where}: {error}") from None
        path = (self.folder or Path()) / file
        # A document that was sent to somebody shall run nothing but what came with it.
        inside = self.folder is not None and path.is_relative_to(self.folder) and "\0" not in file
        if not inside or not file.endswith(".py") or path.resolve() != path:
            raise InputError(
                f"{where} names {file!r:.80}, which is neither installed nor a Python file in the "
                "folder of the document (no links, no '..', no absolute path)"
            )
        module: ModuleType = self._known.get(file) or load_module(path)
        self._known[file] = module
        return module


def _lookup(module: ModuleType, name: str) -> Any:
    """The thing that a dotted name of a module leads to; None if it leads nowhere."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _is_installed(module: str) -> bool:
    """Whether a module is of Python, of an installed package, or of dagengine."""
    top = module.partition(".")[0]
    if not top.isidentifier() or module.endswith(".py") or top in ("__main__", "dagengine"):
        return top == "dagengine"
    spec = importlib.util.find_spec(top)
    origin = getattr(spec, "origin", None) or ""
    folders = [Path(path).resolve() for path in sysconfig.get_paths().values()]
    inside = any(Path(origin).resolve().is_relative_to(folder) for folder in folders)
    return inside or origin in ("built-in", "frozen")
