"""The judge of a run that names none: from the environment, else from a file of settings.

A file names the environment variable that holds a key, never the key itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dagengine.errors import InputError, JudgeSetupError, did_you_mean

MODEL, BASE_URL, KEY_FROM = "DAGENGINE_JUDGE", "DAGENGINE_BASE_URL", "DAGENGINE_API_KEY_FROM"
_NAMES = (MODEL, BASE_URL, KEY_FROM)
_KEY = "DAGENGINE_API_KEY"
_OURS = "DAGENGINE_"
BUILT_IN = "gpt-4o"


@dataclass(frozen=True, slots=True)
class DefaultJudge:
    """A model, the server that has it (None: the provider's own), and where its key is.

    `key_from` is the environment variable with the key; `source` says where the settings are.
    """

    model: str = BUILT_IN
    base_url: str | None = None
    key_from: str | None = None
    source: str = "nothing else is set"

    def key(self) -> str | None:
        """The key; raises JudgeSetupError if its environment variable is not set."""
        if self.key_from is None:
            return os.environ.get(_KEY) if self.base_url else None
        if not os.environ.get(self.key_from):
            raise JudgeSetupError(
                f"no API key: set {self.key_from} ({self.source} names this variable)"
            )
        return os.environ[self.key_from]


def project_file() -> Path:
    """The settings of a project: `.dagengine.env` in the folder that one works in."""
    return Path.cwd() / ".dagengine.env"


def user_file() -> Path:
    """The settings of a user, in the folder for settings (XDG_CONFIG_HOME, else ~/.config)."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "dagengine" / "judge.env"


def default_judge() -> DefaultJudge:
    """The first of environment, project and user that names a judge or a server, else gpt-4o.

    Raises InputError for a variable whose name is probably misspelt, and, with the line, for a
    file of settings that cannot be read.
    """
    _require_known(os.environ)
    for source, found in _places():
        if found.get(MODEL) or found.get(BASE_URL):
            model = found.get(MODEL) or BUILT_IN
            return DefaultJudge(model, found.get(BASE_URL), found.get(KEY_FROM), source)
    return DefaultJudge()


def _require_known(environment: Mapping[str, str]) -> None:
    """Raise InputError for a variable that nothing reads, but that looks like one of ours."""
    known = {name.removeprefix(_OURS): name for name in (*_NAMES, _KEY)}
    for name in sorted(environment):
        rest = name.removeprefix(_OURS)
        if name.startswith(_OURS) and rest not in known:
            near = did_you_mean(rest, known, cutoff=0.75)
            if near:
                meant = next(full for part, full in known.items() if repr(part) in near)
                raise InputError(f"unknown environment variable {name}; did you mean {meant}?")


def _places() -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "the environment", os.environ
    for path in (project_file(), user_file()):
        if path.is_file():
            yield str(path), read_settings(path)


def read_settings(path: Path) -> dict[str, str]:
    """The `NAME=value` lines of a file; raises InputError for a line that is not valid."""
    found: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        name, sign, value = (part.strip() for part in line.partition("="))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not sign or name not in _NAMES:
            hint = (
                did_you_mean(name, _NAMES) or f"write NAME=value, where NAME is {', '.join(_NAMES)}"
            )
            raise InputError(f"{path}, line {number}: {name!r:.60} is not a setting; {hint}")
        found[name] = value
    return found


def write_settings(path: Path, judge: DefaultJudge) -> None:
    """Write a file of settings; raises InputError for a value of several lines."""
    values = dict(zip(_NAMES, (judge.model, judge.base_url, judge.key_from), strict=True))
    lines = [f"{name}={value}\n" for name, value in values.items() if value is not None]
    if any(len(line.splitlines()) > 1 for line in lines):
        raise InputError(f"{path}: a setting must be one line of text")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
