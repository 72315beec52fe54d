"""Chat completions and their errors: what goes over the wire, and what comes back."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from functools import cache
from typing import (
    Annotated,
    Any,
    NotRequired,  # pydantic's, until Python 3.12
    cast,
)
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from dagengine.errors import JudgeError, ProviderError, RefusedError
from dagengine.prompts.parsing import complaint
from dagengine.prompts.tokens import telling
from dagengine.question import Question, TokenChoice, Usage, schema_of

_HOSTED = ("api.openai.com", "openai.azure.com")
# Statuses that say "later" rather than "no".
TRANSIENT = frozenset({408, 409, 425, 429})


@cache
def wire_type(answer_type: type[BaseModel]) -> Any:
    """The answer type as instructor wants it, with its JSON schema made once."""
    import instructor

    wire = instructor.response_schema(answer_type)
    schema = schema_of(answer_type)
    return type(answer_type.__name__, (wire,), {
        "model_json_schema": classmethod(lambda cls, *args, **kwargs: schema),
        "__module__": answer_type.__module__,
    })  # fmt: skip


@cache
def _is_hosted(base_url: str) -> bool:
    name = urlsplit(base_url).hostname or ""
    return any(name == host or name.endswith(f".{host}") for host in _HOSTED)


def make_strict(body: dict[str, Any], base_url: str) -> None:
    """Ask OpenAI's own endpoints for guaranteed schemas; others may not know the word."""
    form = body.get("response_format")
    if form and form["type"] == "json_schema" and _is_hosted(base_url):
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


class ReplyMessage(_Wire):
    """What the model said."""

    content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None


# Plain data: as objects they would cost ten times the processor time of the call itself.
class Alternative(TypedDict):
    """What might have stood in the place of a token."""

    token: str
    logprob: float


class Token(TypedDict):
    """A token of the answer."""

    token: str
    top_logprobs: NotRequired[list[Alternative] | None]


class Logprobs(TypedDict):
    """The tokens of the answer."""

    content: list[Token] | None


class Choice(_Wire):
    """One answer; log-probabilities in some other form than OpenAI's are passed over."""

    message: ReplyMessage
    finish_reason: str | None = None
    logprobs: Annotated[Logprobs | _Wire | None, Field(union_mode="left_to_right")] = None


class PromptDetails(_Wire):
    """Which tokens of the prompt were in the provider's cache."""

    cached_tokens: int | None = None


class Counts(_Wire):
    """Tokens as the provider counted them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class Completion(_Wire):
    """A chat completion as far as it is read, which is less than the openai client insists on.

    Servers leave out what they have no use for.
    """

    choices: list[Choice] = Field(min_length=1)
    usage: Counts | None = None


def read_completion(content: bytes) -> Completion:
    """The completion in a response's body; raises ProviderError for anything else.

    Servers also send pages, strings and empty lists.
    """
    try:
        return Completion.model_validate_json(content)
    except ValidationError as error:
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
        return Usage()
    details = counts.prompt_tokens_details
    cached = (details.cached_tokens if details else None) or 0
    return Usage(counts.prompt_tokens or 0, counts.completion_tokens or 0, cached)


def tokens_of(choice: Choice, question: Question[Any], raw: str) -> tuple[TokenChoice, ...] | None:
    """The tokens of the answer `raw`, when the provider sent them.

    Alternatives are kept where they tell something: those of a reason take a hundred times
    the room of the answer, in memory and in a store.
    """
    content = choice.logprobs["content"] if isinstance(choice.logprobs, dict) else None
    if not content:
        return None
    texts = [item["token"] for item in content]
    kept = range(len(texts)) if question.parser else telling(raw, texts, question.answer_type)
    return tuple(
        TokenChoice(text, _alternatives(content[index]) if index in kept else ())
        for index, text in enumerate(texts)
    )


def _alternatives(item: Token) -> tuple[tuple[str, float], ...]:
    return tuple((one["token"], one["logprob"]) for one in item.get("top_logprobs") or ())


def status_error(error: Any) -> JudgeError:
    status, text = error.status_code, error_message(error)
    code = str(getattr(error, "code", "") or "")
    if "content_filter" in code or "content_policy" in code:
        return RefusedError(f"the provider's content filter refused the question: {text}")
    transient = (status in TRANSIENT or status >= 500) and code != "insufficient_quota"
    hint = {401: "; check the API key", 404: "; check the model's name and the address"}
    return ProviderError(
        f"HTTP {status}: {text}{hint.get(status, '')}",
        transient=transient,
        status=status,
        retry_after=_retry_after(error.response.headers),
    )


def error_message(error: Any) -> str:
    body = error.body
    if isinstance(body, dict) and body.get("message"):
        return str(body["message"])
    return str(error)


def _retry_after(headers: Any) -> float | None:
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = str(headers.get(name, ""))
        if value.replace(".", "", 1).isdigit():
            return float(value) / unit
    try:
        date = parsedate_to_datetime(str(headers.get("retry-after", "")))
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())
