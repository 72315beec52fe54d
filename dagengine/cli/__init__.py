"""The command line: one module per command."""

from dagengine.cli.commands import app, main

__all__ = ["app", "main"]
