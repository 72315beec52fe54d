"""The judge of a run that names none: from the environment, else from a file of settings.

A file names the environment variable that holds a key, never the key itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, PositiveInt, TypeAdapter

from dagengine.errors import InputError, JudgeSetupError, did_you_mean, nearest
from dagengine.redaction import public_value
from dagengine.system.safe_files import write_whole

MODEL, BASE_URL, KEY_FROM = "DAGENGINE_JUDGE", "DAGENGINE_BASE_URL", "DAGENGINE_API_KEY_FROM"
_NAMES = (MODEL, BASE_URL, KEY_FROM)
_KEY = "DAGENGINE_API_KEY"
_OURS = "DAGENGINE_"
BUILT_IN = "gpt-4o"


@dataclass(frozen=True, slots=True)
class Tuning:
    """What `dagengine judge check` found out about a judge; None is the default, or not known.

    `max_in_flight` and `call_timeout` (seconds) are limits of a run. `read_speed` and `write_speed`
    are tokens per second of all calls together. `parameters` go into the body of every request.
    """

    max_in_flight: int | None = None
    call_timeout: float | None = None
    read_speed: float | None = None
    write_speed: float | None = None
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DefaultJudge:
    """A model, the server that has it (None: the provider's own), and where its key is.

    `key_from` is the environment variable with the key; `source` says where the settings are.
    """

    model: str = BUILT_IN
    base_url: str | None = None
    key_from: str | None = None
    source: str = "nothing else is set"
    tuning: Tuning = Tuning()

    def key(self) -> str | None:
        """The key; raises JudgeSetupError if its environment variable is not set."""
        if self.key_from is None:
            # Our key is for the server that base_url names; providers have variables of their own.
            return os.environ.get(_KEY) if self.base_url else None
        if not os.environ.get(self.key_from):
            raise JudgeSetupError(
                f"no API key: set {self.key_from} ({self.source} names this variable)"
            )
        return os.environ[self.key_from]


def _parameters(text: str) -> Mapping[str, Any]:
    parameters = json.loads(text)
    if not isinstance(parameters, dict) or public_value(parameters) != parameters:
        raise ValueError
    return parameters


_positive = TypeAdapter(Annotated[FiniteFloat, Field(gt=0)]).validate_strings
_READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "max_in_flight": (TypeAdapter(PositiveInt).validate_strings, "a whole number from 1 on"),
    "call_timeout": (_positive, "a positive number of seconds"),
    "read_speed": (_positive, "a positive number of tokens per second"),
    "write_speed": (_positive, "a positive number of tokens per second"),
    "parameters": (_parameters, "a JSON object without secrets"),
}
_TUNED = {f"{_OURS}{name.upper()}": name for name in _READERS}
_SETTINGS = (*_NAMES, *_TUNED)


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
    environment: Mapping[str, Any] = os.environ
    files = filter(Path.is_file, (project_file(), user_file()))
    settings_of_files = ((str(path), read_settings(path)) for path in files)
    for source, settings in chain([("the environment", environment)], settings_of_files):
        if settings.get(MODEL) or settings.get(BASE_URL):
            # What was measured is saved beside its judge; the environment has none of it.
            tuned = dict[str, Any](zip(_TUNED.values(), map(settings.get, _TUNED), strict=True))
            model = settings.get(MODEL) or BUILT_IN
            url, key_from = settings.get(BASE_URL), settings.get(KEY_FROM)
            return DefaultJudge(model, url, key_from, source, Tuning(**tuned))
    return DefaultJudge()


def _require_known(environment: Mapping[str, str]) -> None:
    """Raise InputError for a variable that nothing reads, but that looks like one of ours."""
    suffixes = [name.removeprefix(_OURS) for name in (*_NAMES, _KEY)]
    for name in sorted(environment):
        if name in _TUNED:
            raise InputError(
                f"{name} is a setting of .dagengine.env, not of the environment: "
                "`dagengine judge check --save` writes it beside its judge"
            )
        suffix = name.removeprefix(_OURS)
        if name.startswith(_OURS) and suffix not in suffixes:
            # Only what is nearly one of ours: tests have variables with our prefix, too.
            near = nearest(suffix, suffixes, cutoff=0.75)
            if near:
                hint = f"did you mean {_OURS}{near}?"
                raise InputError(f"unknown environment variable {name}; {hint}")


def judge_settings(model: str | None, base_url: str | None) -> DefaultJudge:
    """Settings of the judge that a run names; those of the default only if it names nothing.

    Raises InputError as `default_judge` does.
    """
    chosen = default_judge() if model is None else DefaultJudge(model or BUILT_IN)
    return chosen if base_url is None else DefaultJudge(chosen.model, base_url)


def read_settings(path: Path) -> dict[str, Any]:
    """The `NAME=value` lines of a file; raises InputError for a line that is not valid."""
    settings: dict[str, Any] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        name, sign, text = map(str.strip, line.partition("="))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not sign or name not in _SETTINGS:
            usage = f"write NAME=value, where NAME is {', '.join(_SETTINGS)}"
            hint = did_you_mean(name, _SETTINGS) or usage
            raise InputError(f"{path}, line {number}: {name!r:.60} is not a setting; {hint}")
        parse, meaning = _READERS.get(_TUNED.get(name, ""), (str, ""))
        try:
            settings[name] = parse(text)
        except ValueError:
            raise InputError(f"{path}, line {number}: {name} must be {meaning}") from None
    return settings


def write_settings(path: Path, judge: DefaultJudge) -> None:
    """Write a file of settings; raises InputError for a value of several lines."""
    values: dict[str, Any] = dict(
        zip(_NAMES, (judge.model, judge.base_url, judge.key_from), strict=True)
    )
    for name, field in _TUNED.items():
        if (value := getattr(judge.tuning, field)) is not None:
            values[name] = json.dumps(value)
    lines = [f"{name}={value}\n" for name, value in values.items() if value is not None]
    if "".join(lines).splitlines(keepends=True) != lines:
        raise InputError(f"{path}: a setting must be one line of text")
    write_whole(path, "".join(lines))
