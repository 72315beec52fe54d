"""What the probabilities of tokens say of an answer: ratings, verdicts, and how much is known."""

from dagengine.prompts.probabilities.answer_tokens import value_span
from dagengine.prompts.probabilities.weighted_scores import expected_score, stated_probability

__all__ = ["expected_score", "stated_probability", "value_span"]
