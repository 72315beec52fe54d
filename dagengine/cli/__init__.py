"""The command line: one module per command."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` takes time, and the handler below does not stand yet
if TYPE_CHECKING:
    from typing import Any

    from dagengine.cli.commands import app as app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point; an interrupt while the commands are being imported is no traceback, either."""
    try:
        from dagengine.cli.commands import main as run_command

        run_command()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dagengine.cli.commands import app

    return app
