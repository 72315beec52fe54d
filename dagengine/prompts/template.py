"""Prompts that a caller writes in place of the built-in wording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter

from dagengine.question import Message


@dataclass(frozen=True)
class PromptTemplate:
    """Your own prompt for a node, instead of the built-in prompt.

    `{placeholder}` is something that the node reads: a case field by its name, or the output of
    another node by its label. `{{` and `}}` are literal braces. Values are filled in with one pass,
    so placeholders inside a value are not expanded.
    """

    user: str
    system: str | None = None

    @classmethod
    def from_template(cls, template: str) -> PromptTemplate:
        """A prompt of one user message."""
        return cls(template)

    def placeholders(self) -> tuple[str, ...]:
        """The names used, in order of first use; raises ValueError on unbalanced braces."""
        names: list[str] = []
        for text in (self.system or "", self.user):
            for _, name, form, conversion in Formatter().parse(text):
                if form or conversion:
                    raise ValueError(f"{name!r} has a format or conversion")
                if name is not None:
                    names.append(name)
        return tuple(dict.fromkeys(names))

    def fill(self, values: Mapping[str, str]) -> tuple[Message, ...]:
        """The chat messages with every placeholder replaced."""
        messages: list[Message] = []
        if self.system is not None:
            messages.append({"role": "system", "content": _fill(self.system, values)})
        messages.append({"role": "user", "content": _fill(self.user, values)})
        return tuple(messages)


def _fill(text: str, values: Mapping[str, str]) -> str:
    parts: list[str] = []
    for literal, name, _, _ in Formatter().parse(text):
        parts.append(literal)
        if name is not None:
            parts.append(values[name])
    return "".join(parts)
