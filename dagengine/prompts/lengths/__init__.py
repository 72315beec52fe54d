"""How many tokens prompts have, and what is said of those that are too long."""

from dagengine.prompts.lengths.token_counts import Size, least_tokens, size_of
from dagengine.prompts.lengths.window import Overflow, overflow_in

__all__ = ["Overflow", "Size", "least_tokens", "overflow_in", "size_of"]
