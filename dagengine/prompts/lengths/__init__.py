"""How many tokens prompts have, and what is said of those that are too long."""

from dagengine.prompts.lengths.context_overflow import Overflow, overflow_in
from dagengine.prompts.lengths.token_counts import Size, least_tokens, size_of

__all__ = ["Overflow", "Size", "least_tokens", "overflow_in", "size_of"]
