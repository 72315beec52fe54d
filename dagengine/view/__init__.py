"""Runs in a browser: pages over folders, what changed between them, labels written back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagengine.unknown import answer_absent

if TYPE_CHECKING:
    from dagengine.view.compared_runs import OpenRun as OpenRun
    from dagengine.view.server import Served as Served
    from dagengine.view.server import application as application
    from dagengine.view.server import open_runs as open_runs
    from dagengine.view.server import serve as serve

__all__ = ["OpenRun", "Served", "application", "open_runs", "serve"]

# Only the server needs the optional packages: a walk or a queue is imported without them.
_HOMES = dict.fromkeys(__all__, "dagengine.view.server") | {
    "OpenRun": "dagengine.view.compared_runs"
}
answer_absent(__name__, _HOMES)
