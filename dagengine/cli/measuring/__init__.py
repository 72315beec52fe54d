"""Commands that measure judges, and set the one to use."""

from dagengine.cli.measuring.judge import app, doors

__all__ = ["app", "doors"]
