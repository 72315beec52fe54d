"""Chat completions and their errors: what goes over the wire, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from operator import attrgetter, itemgetter
from typing import Annotated, Any, ClassVar, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.aliases import AliasChoices, AliasPath

from dagengine.errors import ProviderError, RefusedError
from dagengine.judges.wire.dialects.error_responses import complaint_in, parse_body, unreadable
from dagengine.judges.wire.dialects.response_shapes import End, end_of, normalise, without_answer
from dagengine.prompts.answer_bounds import Bounds, bounded_schema
from dagengine.prompts.json_in_text import fields_of
from dagengine.prompts.parsing import complaint
from dagengine.prompts.thinking import are_unended
from dagengine.question import NO_USAGE, Message, Usage, schema_of

_HOSTED = (".api.openai.com", ".openai.azure.com")
_MOST_TOKENS = 10**12


@cache
def wire_type(
    answer_type: type[BaseModel], bounds: Bounds | None = None, *, keywords: bool = True
) -> Any:
    """The answer type as instructor wants it, with its JSON schema made once, bounded or not.

    Without `keywords` the schema has only what every server knows. Each caller gets a copy: one of
    instructor's handlers writes into it.
    """
    import instructor

    wire = instructor.response_schema(answer_type)
    schema = schema_of(answer_type) if bounds is None else bounded_schema(answer_type, bounds)
    if not keywords:
        schema = _plain_schema(schema, schema.get("$defs", {}), ())
    return type(answer_type.__name__, (wire,), {
        "model_json_schema": classmethod(lambda cls, *args, **kwargs: deepcopy(schema)),
        "__module__": answer_type.__module__,
    })  # fmt: skip


@cache
def is_hosted(base_url: str) -> bool:
    """Return whether an address is one of OpenAI's own, or of Azure."""
    return f".{urlsplit(base_url).hostname}".endswith(_HOSTED)


def make_strict(body: dict[str, Any], base_url: str) -> None:
    """Ask OpenAI's own endpoints for guaranteed schemas; others may not know the word."""
    form = body.get("response_format")
    if form and form["type"] == "json_schema" and is_hosted(base_url):
        name, schema = form["json_schema"]["name"], json.dumps(form["json_schema"]["schema"])
        strict = {"name": name, "strict": True, "schema": _strict_schema(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": strict}


@cache
def _strict_schema(text: str) -> dict[str, Any]:
    """A schema with closed objects and without the keywords that strict mode refuses."""

    def close(part: Any) -> Any:
        if isinstance(part, list):
            return list(map(close, part))
        if not isinstance(part, dict):
            return part
        fields = {k: close(v) for k, v in part.items() if k not in ("maxLength", "default")}
        if fields.get("type") == "object" and "properties" in fields:
            fields |= {"additionalProperties": False, "required": list(fields["properties"])}
        return fields

    return cast("dict[str, Any]", close(json.loads(text)))


_PLAIN = ("type", "description", "properties", "required", "items", "enum", "anyOf")
_CONTAINERS = frozenset({"properties", "items", "anyOf"})


def _plain_schema(part: Any, defs: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """A schema of types, properties and options alone, with its definitions in their places."""
    if isinstance(part, list):
        return [_plain_schema(item, defs, inside) for item in part]
    if not isinstance(part, Mapping):
        return part
    name = str(part.get("$ref", "")).rpartition("/")[2]
    if name and name not in inside:
        return _plain_schema(defs.get(name, {}), defs, (*inside, name))
    plain = {key: part[key] for key in _PLAIN if key in part}
    if "const" in part:
        plain["enum"] = [part["const"]]
    for key in _CONTAINERS & plain.keys():
        inner = plain[key]
        if key == "properties":
            plain[key] = {name: _plain_schema(inner[name], defs, inside) for name in inner}
        else:
            plain[key] = _plain_schema(inner, defs, inside)
    return plain


class _Wire(BaseModel):
    """What is read of a part of a completion; everything else is passed over."""

    model_config = ConfigDict(defer_build=True)


class Function(_Wire):
    """The call of a tool."""

    arguments: str = ""


class CalledTool(_Wire):
    """The call of a tool, as it is wrapped."""

    function: Function


class ReplyMessage(_Wire):
    """What the model said."""

    content: str | None = None
    refusal: str | None = None
    tool_calls: list[CalledTool] | None = None
    function_call: None = None  # of an old protocol, see `dialects.response_shapes`
    # Thoughts beside the answer, as llama.cpp and DeepSeek call them, and vLLM and Ollama.
    reasoning_content: Any = None
    reasoning: Any = None

    @property
    def text(self) -> str:
        """The text of the answer: what a tool was called with, or what was said.

        Calls that differ are different answers.
        """
        calls = dict.fromkeys(map(attrgetter("function.arguments"), self.tool_calls or ()))
        return "\n".join(calls) or self.content or ""

    @property
    def thoughts(self) -> str:
        """Thoughts of a model that said nothing else; empty if it did say something.

        Thoughts without an end in the answer itself are thoughts, too.
        """
        if are_unended(self.text):
            return self.text
        beside = self.reasoning_content or self.reasoning
        return beside if isinstance(beside, str) and not self.text.strip() else ""


# Plain data: as objects they would cost ten times the processor time of the call itself.
@dataclass(slots=True)
class Token:
    """A token of the answer, without what might have stood there (see `logprobs`)."""

    token: str


@dataclass(slots=True)
class Logprobs:
    """The tokens of the answer."""

    content: list[Token] | None


class ReplyChoice(_Wire):
    """One answer."""

    message: ReplyMessage
    error: None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


def _count(value: Any) -> int:
    """A number of tokens; none is counted where a server sends something else."""
    is_count = type(value) in (int, float) and 0 < value <= _MOST_TOKENS  # NaN is not
    return int(value) if is_count else 0


Count = Annotated[int, BeforeValidator(_count)]


def _named(*names: str | AliasPath) -> Any:
    return Field(default=0, validation_alias=AliasChoices(*names))


class Counts(_Wire):
    """Tokens as the provider counted them; `cached_tokens` were in its cache."""

    prompt_tokens: Count = _named("prompt_tokens", "input_tokens")
    completion_tokens: Count = _named("completion_tokens", "output_tokens")
    total_tokens: Any = None
    # As OpenAI calls them, DeepSeek, Anthropic behind gateways, and Moonshot. Gateways write 0 for
    # names of others.
    cached_tokens: Count = _named(
        AliasPath("prompt_tokens_details", "cached_tokens"),
        AliasPath("input_tokens_details", "cached_tokens"),
        *("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens"),
    )


class Completion(_Wire):
    """A chat completion as far as it is read, which is less than the openai client insists on.

    Servers leave out what they have no use for.
    """

    choices: list[ReplyChoice] = Field(min_length=1)
    error: None = None
    model: Any = None
    usage: Annotated[Counts | None, BeforeValidator(fields_of)] = None
    content: ClassVar[bytes] = b""
    """The text that it was read from; each completion has its own."""

    @classmethod
    def read(cls, content: bytes) -> Completion:
        """The completion in a JSON text; raises ValidationError."""
        completion = cls.model_validate_json(content)
        # A private attribute takes ten calls of pydantic.
        completion.__dict__["content"] = content  # pyright: ignore[reportIndexIssue]
        return completion

    @property
    def token_texts(self) -> list[str]:
        """The tokens of the answer, where the provider sent them."""
        logprobs = self.choices[0].logprobs
        return list(map(attrgetter("token"), (logprobs and logprobs.content) or ()))


def read_completion(content: bytes, messages: Sequence[Message] = ()) -> Completion:
    """The completion in a response's body, whatever its shape; raises JudgeError for anything else.

    `messages` are those of the question, which an error may repeat. Servers also send pages,
    strings, empty lists, and errors with status 200.
    """
    try:
        return Completion.read(content)
    except ValidationError as error:
        value = parse_body(content)
        completion = completion_in(value)
        if completion is not None:
            return completion
        problem = without_answer(value) or complaint(error)
        raise unreadable(content, "chat completion", problem, prompt_of(messages)) from None


def completion_in(value: Any) -> Completion | None:
    """A completion of any known shape, from parsed JSON; None if it is none, or an error."""
    if isinstance(value, str) or complaint_in(200, value) is not None:
        return None
    with suppress(ValueError, RecursionError):
        body = json.dumps(normalise(value), ensure_ascii=False)
        return Completion.read(body.encode(errors="replace"))
    return None


def prompt_of(messages: Sequence[Message]) -> str:
    """All texts of a prompt, to be known again in what a server says."""
    return "\n".join(map(str, map(itemgetter("content"), messages)))


def reply_text(completion: Completion) -> str:
    """The text of an answer; raises RefusedError where the server says that there is none.

    ProviderError if the server broke off the answer.
    """
    choice = completion.choices[0]
    refusal = choice.message.refusal
    if refusal and refusal.lower() not in ("none", "null", "false"):  # as some programs write it
        raise RefusedError(f"the model refused: {refusal}")
    end, reason = end_of(choice.finish_reason), f"finish_reason {choice.finish_reason!r}"
    if end is End.FILTERED:
        raise RefusedError(f"the provider's content filter stopped the answer: {reason}")
    if end is End.BROKEN:
        raise ProviderError(f"the server broke off the answer ({reason})", transient=True)
    return choice.message.text


def usage_of(reply: Any) -> Usage:
    """Tokens that a reply with a `usage` used."""
    counts: Counts | None = reply.usage
    if counts is None:
        return NO_USAGE
    prompt, output, total = counts.prompt_tokens, counts.completion_tokens, counts.total_tokens
    # Gemini and xAI count thoughts in the total only.
    if prompt and type(total) is int and prompt + output < total <= _MOST_TOKENS:
        output = total - prompt
    return Usage(prompt, output, counts.cached_tokens and min(counts.cached_tokens, prompt))


def message_usage(counts: Mapping[str, Any]) -> Usage:
    """Tokens that a message of Anthropic used; it counts what it keeps, or has kept, apart."""
    kinds = ("input", "cache_creation_input", "cache_read_input", "output")
    fresh, stored, cached, output = (_count(counts.get(f"{kind}_tokens")) for kind in kinds)
    return Usage(fresh + stored + cached, output, cached)
