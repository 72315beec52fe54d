"""Runs in a browser: pages over folders, what changed between them, labels written back."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dagengine.unknown import absent_names

if TYPE_CHECKING:
    from dagengine.view.compared_runs import OpenRun as OpenRun
    from dagengine.view.server import Served as Served
    from dagengine.view.server import application as application
    from dagengine.view.server import open_runs as open_runs
    from dagengine.view.server import serve as serve

__all__ = ["OpenRun", "Served", "application", "open_runs", "serve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        return absent_names(__name__)(name)
    # Only the server needs the optional packages: a walk or a queue is imported without them.
    home = "compared_runs" if name == "OpenRun" else "server"
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
