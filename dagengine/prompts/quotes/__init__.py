"""Quotes that a verdict stands on: how a judge is asked for them, and whether they are true."""

from dagengine.prompts.quotes.answers import Quote

__all__ = ["Quote"]
