"""Chat completions and their errors: what goes over the wire, and what comes back."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from dagengine.errors import JudgeError, ProviderError, RefusedError, TooLongError
from dagengine.prompts.bounds import Bounds, bounded_schema
from dagengine.prompts.lengths.window import overflow_in
from dagengine.prompts.parsing import complaint
from dagengine.question import NO_USAGE, Usage, schema_of

# How a request may call the most tokens of its answer, in the order of their age.
TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
_HOSTED = ("api.openai.com", "openai.azure.com")
_SECONDS = re.compile(r"\s*[0-9]{1,12}(\.[0-9]{0,12})?\s*")
_UNCLOSED = re.compile(r"\s*<(think|thinking|reasoning)>(?!.*</\1>)", re.DOTALL | re.IGNORECASE)
_MOST_TOKENS = 10**12
_MOST_DIGITS = 4_000
# Statuses that say "later" rather than "no".
TRANSIENT = frozenset({408, 409, 425, 429})
# Statuses with which servers refuse prompts that are too long.
OVERFLOWS = frozenset({400, 413, 422, 500})


@cache
def wire_type(answer_type: type[BaseModel], bounds: Bounds | None = None) -> Any:
    """The answer type as instructor wants it, with its JSON schema made once, bounded or not.

    Each caller gets a copy: one of instructor's handlers writes into it.
    """
    import instructor

    wire = instructor.response_schema(answer_type)
    schema = schema_of(answer_type) if bounds is None else bounded_schema(answer_type, bounds)
    return type(answer_type.__name__, (wire,), {
        "model_json_schema": classmethod(lambda cls, *args, **kwargs: deepcopy(schema)),
        "__module__": answer_type.__module__,
    })  # fmt: skip


@cache
def is_hosted(base_url: str) -> bool:
    """Whether an address is one of OpenAI's own, or of Azure."""
    name = urlsplit(base_url).hostname or ""
    return any(name == host or name.endswith(f".{host}") for host in _HOSTED)


def make_strict(body: dict[str, Any], base_url: str) -> None:
    """Ask OpenAI's own endpoints for guaranteed schemas; others may not know the word."""
    form = body.get("response_format")
    if form and form["type"] == "json_schema" and is_hosted(base_url):
        asked = form["json_schema"]
        schema = _strict_schema(json.dumps(asked["schema"]))
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": asked["name"], "strict": True, "schema": schema},
        }


@cache
def _strict_schema(text: str) -> dict[str, Any]:
    """A schema with closed objects and without the keywords that strict mode refuses."""

    def closed(part: Any) -> Any:
        if isinstance(part, list):
            return [closed(item) for item in part]
        if not isinstance(part, dict):
            return part
        kept = {k: closed(v) for k, v in part.items() if k not in ("maxLength", "default")}
        if kept.get("type") == "object" and "properties" in kept:
            kept |= {"additionalProperties": False, "required": list(kept["properties"])}
        return kept

    return cast("dict[str, Any]", closed(json.loads(text)))


class _Wire(BaseModel):
    """What is read of a part of a completion; everything else is passed over."""

    model_config = ConfigDict(defer_build=True)


class Function(_Wire):
    """The call of a tool."""

    name: str | None = None
    arguments: str = ""


class ToolCall(_Wire):
    """The call of a tool, as it is wrapped."""

    function: Function


def _in_one(value: Any) -> Any:
    """A content in parts, as some servers send it, as one text: of thoughts and images nothing."""
    if not isinstance(value, list):
        return value
    texts = [part.get("text") for part in map(_part, value) if part.get("type") == "text"]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else value


def _part(value: Any) -> Any:
    return value if isinstance(value, dict) else {}


class ReplyMessage(_Wire):
    """What the model said."""

    content: Annotated[str | None, BeforeValidator(_in_one)] = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    # Thoughts beside the answer, as llama.cpp and DeepSeek call them, and vLLM and Ollama.
    reasoning_content: Any = None
    reasoning: Any = None

    @property
    def thoughts(self) -> str:
        """What the model thought where it said nothing; empty if it did say something.

        A think block without an end in the answer itself is a thought, too.
        """
        text = answer_text(self)
        if _UNCLOSED.match(text):
            return text
        beside = self.reasoning_content or self.reasoning
        return beside if isinstance(beside, str) and not text.strip() else ""


# Plain data: as objects they would cost ten times the processor time of the call itself.
class Token(TypedDict):
    """A token of the answer, without what might have stood there (see `probabilities`)."""

    token: str


class Logprobs(TypedDict):
    """The tokens of the answer."""

    content: list[Token] | None


class Choice(_Wire):
    """One answer; log-probabilities in some other form than OpenAI's are passed over."""

    message: ReplyMessage
    finish_reason: str | None = None
    logprobs: Annotated[Logprobs | _Wire | None, Field(union_mode="left_to_right")] = None


def _count(value: Any) -> int:
    """A number of tokens; none is counted where a server sends something else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 < value <= _MOST_TOKENS else 0  # NaN is not


Count = Annotated[int, BeforeValidator(_count)]


class PromptDetails(_Wire):
    """Which tokens of the prompt were in the provider's cache."""

    cached_tokens: Count = 0


class Counts(_Wire):
    """Tokens as the provider counted them."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    prompt_tokens_details: Annotated[PromptDetails | None, BeforeValidator(_part)] = None


class Completion(_Wire):
    """A chat completion as far as it is read, which is less than the openai client insists on.

    Servers leave out what they have no use for.
    """

    choices: list[Choice] = Field(min_length=1)
    usage: Annotated[Counts | None, BeforeValidator(_part)] = None
    _content: bytes = b""

    @classmethod
    def read(cls, content: bytes) -> Completion:
        """The completion in a JSON text; raises ValidationError."""
        completion = cls.model_validate_json(content)
        completion._content = content
        return completion

    @property
    def content(self) -> bytes:
        """The text that it was read from."""
        return self._content

    @property
    def token_texts(self) -> list[str]:
        """The tokens of the answer, where the provider sent them."""
        logprobs = self.choices[0].logprobs
        return (
            [item["token"] for item in logprobs["content"] or ()]
            if isinstance(logprobs, dict)
            else []
        )


def read_completion(content: bytes) -> Completion:
    """The completion in a response's body; raises ProviderError for anything else.

    Servers also send pages, strings and empty lists.
    """
    try:
        return Completion.read(content)
    except ValidationError as error:
        with suppress(ValueError, RecursionError):
            # Lone surrogates, bytes that are not text and endless numbers come from models, too:
            # with a substitute for them, the rest of the completion can be read.
            value = json.loads(
                content.decode(errors="replace"),
                parse_int=lambda digits: int(digits) if len(digits) <= _MOST_DIGITS else None,
            )
            return Completion.read(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
        shown = f"{content[:120].decode(errors='replace')!r}: {complaint(error)}"
        raise ProviderError(
            f"the endpoint sent no chat completion: {shown}", transient=False
        ) from None


def answer_text(message: ReplyMessage) -> str:
    """The text of an answer, wherever it stands."""
    if message.tool_calls:
        return message.tool_calls[0].function.arguments
    return message.content or ""


def usage_of(completion: Completion) -> Usage:
    """What a completion used."""
    counts = completion.usage
    if counts is None:
        return NO_USAGE
    asked, details = counts.prompt_tokens, counts.prompt_tokens_details
    cached = 0 if details is None else min(details.cached_tokens, asked)
    return Usage(asked, counts.completion_tokens, cached)


def message_usage(counts: Mapping[str, Any]) -> Usage:
    """What a message of Anthropic used; it counts what it keeps, or has kept, apart."""
    asked, written, kept, answered = (
        _count(counts.get(name))
        for name in (
            "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens",
            "output_tokens",
        )
    )  # fmt: skip
    return Usage(asked + written + kept, answered, kept)


ACCESS = {401: "; check the API key", 404: "; check the model's name and the address"}
"""What to do about statuses that every call gets: they speak of the judge, not of a question."""


def status_error(error: Any) -> JudgeError:
    status, text = error.status_code, error_message(error)
    code = str(getattr(error, "code", "") or "")
    if "content_filter" in code or "content_policy" in code:
        return RefusedError(f"the provider's content filter refused the question: {text}")
    overflow = overflow_in(text, whole_body(error)) if status in OVERFLOWS else None
    if overflow is not None:
        return TooLongError(f"HTTP {status}: {text}", **overflow._asdict())
    transient = (status in TRANSIENT or status >= 500) and code != "insufficient_quota"
    return ProviderError(
        f"HTTP {status}: {text}{ACCESS.get(status, '')}",
        transient=transient,
        status=status,
        retry_after=_retry_after(error.response.headers),
    )


def error_message(error: Any) -> str:
    body = error.body
    if isinstance(body, dict) and body.get("message"):
        return str(body["message"])
    return body if isinstance(body, str) and body else str(error)


def whole_body(error: Any) -> Any:
    """The body of an error; the client keeps a part of it."""
    try:
        return json.loads(error.response.content)
    except (ValueError, RecursionError):
        return error.body


def _retry_after(headers: Any) -> float | None:
    """Seconds to wait, where a header says so in one of the forms of RFC 9110, 10.2.3."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = str(headers.get(name, ""))
        if _SECONDS.fullmatch(value):
            return float(value) / unit
    try:
        date = parsedate_to_datetime(str(headers.get("retry-after", "")))
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, OverflowError, OSError):  # no date, or one that no clock shows
        return None
