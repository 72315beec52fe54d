"""Quotes that a verdict stands on: how a judge is asked for them, and whether they are true."""

from dagengine.prompts.quotes.answers import (
    Quote,
    QuoteMode,
    QuotingParser,
    quoted_type,
    quoting_words,
)
from dagengine.prompts.quotes.checking import QuoteCheck, quotes_in

__all__ = [
    "Quote",
    "QuoteCheck",
    "QuoteMode",
    "QuotingParser",
    "quoted_type",
    "quotes_in",
    "quoting_words",
]
