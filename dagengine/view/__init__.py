"""Runs in a browser: pages over folders, what changed between them, labels written back."""

from dagengine.view.opened import OpenRun
from dagengine.view.server import Served, application, open_runs, serve

__all__ = ["OpenRun", "Served", "application", "open_runs", "serve"]
