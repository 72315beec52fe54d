"""Chat completions and their errors: what goes over the wire, and what comes back."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, create_model

from dagengine.errors import JudgeError, ProviderError, RefusedError
from dagengine.question import TokenChoice, Usage, schema_of

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

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


def checked(completion: Any) -> ChatCompletion:
    """A completion that has a choice; servers also send pages, strings and empty lists."""
    if not getattr(completion, "choices", None) or completion.choices[0].message is None:
        empty = "it has no choices" if hasattr(completion, "choices") else f"{completion!r:.120}"
        raise ProviderError(f"the endpoint sent no chat completion: {empty}", transient=False)
    return cast("ChatCompletion", completion)


def answer_text(message: Any) -> str:
    calls = getattr(message, "tool_calls", None)
    if calls:
        return str(calls[0].function.arguments)
    return message.content or ""


def usage_of(completion: ChatCompletion) -> Usage:
    usage = completion.usage
    if usage is None:
        return Usage()
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens if details else None) or 0
    return Usage(usage.prompt_tokens, usage.completion_tokens, cached)


@cache
def completion_type() -> type[ChatCompletion]:
    """A chat completion whose log-probabilities stay the plain data that came.

    As objects of the client's own classes the alternatives of every token would cost ten times
    the processor time of the call itself.
    """
    from openai.types.chat import ChatCompletion
    from openai.types.chat.chat_completion import Choice

    plain = create_model("Choice", __base__=Choice, logprobs=(Any, None))
    choices: Any = (list[plain], ...)  # type: ignore[valid-type]
    return create_model("ChatCompletion", __base__=ChatCompletion, choices=choices)


def tokens_of(choice: Any) -> tuple[TokenChoice, ...] | None:
    """Token alternatives, when the provider sent them."""
    logprobs = getattr(choice, "logprobs", None)
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not content:
        return None
    return tuple(
        TokenChoice(
            item["token"],
            tuple((one["token"], one["logprob"]) for one in item.get("top_logprobs") or ()),
        )
        for item in content
    )


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
