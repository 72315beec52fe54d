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
    except BaseException as error:
        # Python 3.11 makes another error of an interrupt in `__set_name__` of a class.
        if KeyboardInterrupt not in (type(error), type(error.__cause__)):
            raise
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        import signal  # here, since it takes time

        # The command is done, and its exit code counts while Python puts its things away.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # After an interrupt in `exec`, which makes dataclasses, `python -m` ends by the signal and
        # not with the exit code. The next `exec` clears that.
        exec("")


def __getattr__(name: str) -> Any:
    if name != "app":
        from dagengine.unknown import absent_names

        return absent_names(__name__)(name)
    from dagengine.cli.commands import app

    return app
