"""What the probabilities of tokens say of an answer: ratings, verdicts, and how much is known."""

from dagengine.prompts.probabilities.logprobs import expected_score, stated_probability
from dagengine.prompts.probabilities.tokens import value_span

__all__ = ["expected_score", "stated_probability", "value_span"]
