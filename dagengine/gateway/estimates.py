"""How many tokens a call will use: a guess from its length, then learnt from the answers."""

from __future__ import annotations

from typing import Any

from dagengine.question import Question, Usage

_CHARACTERS = 4.0  # per token, in English, before anything is learnt
_OVERHEAD = 64.0  # tokens around a prompt: roles, the answer's schema
_OUTPUT = 256.0
_WEIGHT = 0.1  # of the newest answer, once there are some


class Estimates:
    """Guesses the tokens of one judge's calls."""

    def __init__(self) -> None:
        self._per_character = 1 / _CHARACTERS
        self._output = _OUTPUT
        self._seen = 0

    def of(self, question: Question[Any]) -> Usage:
        """The tokens that a call is likely to use."""
        limit = question.options.max_tokens
        output = self._output if limit is None else min(self._output, limit)
        return Usage(round(_length(question) * self._per_character), round(output))

    def learn(self, question: Question[Any], usage: Usage) -> None:
        """Take over what the server counted; nothing where it does not count."""
        if usage.input_tokens:
            self._seen += 1
            weight = max(_WEIGHT, 1 / self._seen)
            found = usage.input_tokens / _length(question)
            self._per_character += weight * (found - self._per_character)
            self._output += weight * (usage.output_tokens - self._output)


def _length(question: Question[Any]) -> float:
    characters = sum(len(message["content"]) for message in question.messages)
    return characters + _OVERHEAD * _CHARACTERS
