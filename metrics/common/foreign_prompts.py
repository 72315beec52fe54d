"""Prompt templates of LangChain, known by what they have, as templates of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagengine.errors import InputError
from dagengine.prompts.template import PromptTemplate


def as_template(prompt: Any) -> Any:
    """A text, or a template of LangChain (plain, chat, `.partial()`), as a `PromptTemplate`.

    Anything else is given back as it is. Raises InputError for a format other than f-strings and
    for messages that are neither of the system nor of the user.
    """
    if isinstance(prompt, str):
        return PromptTemplate(user=prompt)
    if isinstance(prompt, PromptTemplate):
        return prompt
    values = getattr(prompt, "partial_variables", None) or {}
    messages = getattr(prompt, "messages", None)
    if messages is not None:
        # LangChain is not imported: its messages are known by the names of their classes.
        system, user = list[str](), list[str]()
        for message in messages:
            kind = type(message).__name__.lower()
            if not kind.startswith(("system", "human")):
                raise InputError(
                    f"the prompt has a message of another role than system or user: {kind}"
                )
            texts = system if kind.startswith("system") else user
            texts.append(_text(getattr(message, "prompt", message), values))
        return PromptTemplate("\n\n".join(user), "\n\n".join(system) or None)
    if hasattr(prompt, "template"):
        return PromptTemplate(_text(prompt, values))
    return prompt


def _text(template: Any, known: Mapping[str, Any]) -> str:
    """The text of a template, with what is known already put in."""
    if getattr(template, "template_format", "f-string") != "f-string":
        raise InputError(f"the prompt is a {template.template_format} template; use an f-string")
    content = getattr(template, "content", None)  # a message without placeholders
    text = template.template if content is None else _literal(content)
    for name, value in {**(getattr(template, "partial_variables", None) or {}), **known}.items():
        text = text.replace(f"{{{name}}}", _literal(value() if callable(value) else value))
    return str(text)


def _literal(value: Any) -> str:
    return str(value).replace("{", "{{").replace("}", "}}")
