"""Virtual environments of the peers, made when they are first needed.

An environment is named after its requirements: other pins make another one. `uv` makes it if
it is there, else the standard library and pip do.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "dagengine-benchmark-venvs"
READY = "ready"


class UnavailableError(Exception):
    """Raised when an environment cannot be made; the message says why."""


def python_of(requirements: Path, folder: Path = DEFAULT_FOLDER) -> Path:
    """The interpreter of the environment with these requirements; raises UnavailableError."""
    pins = requirements.read_bytes()
    place = folder / f"{requirements.stem}-{hashlib.sha256(pins).hexdigest()[:12]}"
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not (place / READY).exists():
        shutil.rmtree(place, ignore_errors=True)
        for command in _commands(place, python, requirements):
            _run(command)
        (place / READY).touch()
    return python


def _commands(place: Path, python: Path, requirements: Path) -> list[list[str]]:
    beside = Path(sys.executable).parent / "uv"
    uv = shutil.which("uv") or (str(beside) if beside.exists() else None)
    if uv is not None:
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
        return [
            [uv, "venv", "--quiet", "--python", sys.executable, str(place)],
            [*install, "-r", str(requirements)],
        ]
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[sys.executable, "-m", "venv", str(place)], [*install, "-r", str(requirements)]]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        why = lines[-1] if lines else f"status {done.returncode}"
        raise UnavailableError(f"its packages cannot be installed: {why}")
