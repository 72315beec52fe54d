"""Questions to Ollama through its own door, which does not cut prompts.

Its OpenAI-compatible door ignores every setting of the window and cuts what is longer. `/api/chat`
takes the window with each request (`num_ctx`): here the smallest step that prompt and answer fit
into, and never a smaller one than before, since every change loads the model anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from dagengine.errors import TooLongError, TruncatedError
from dagengine.judges.wire.completions import Completion, prompt_of, read_completion, usage_of
from dagengine.judges.wire.connection import Send
from dagengine.judges.wire.dialects.failures import of_response
from dagengine.judges.wire.requests import Body, RequestForm
from dagengine.prompts.json_values import fields_of
from dagengine.prompts.lengths.token_counts import size_of
from dagengine.question import Question

_STEP: Final = 4096  # tokens of the smallest window; larger ones double it
_ANSWER: Final = 2048  # tokens of an answer without a bound of its own
_DENSITY: Final = 1.6  # tokens of most models per token of an efficient tokenizer
_AROUND: Final = 128
# What a request says itself; all other settings are options of the model.
_OWN: Final = frozenset({"keep_alive", "options", "think", "shift", "truncate"})
_WRITTEN: Final = frozenset(
    {"model", "messages", "response_format", "tools", "tool_choice", "parallel_tool_calls"}
    | {"max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "stream"}
    | {"reasoning_effort"}
)


class OllamaPost:
    """Sends the questions of one connection to `/api/chat`; raises what `send` raises.

    `most` is the longest window of the model, None if it is not known; `loaded` gives the window
    that it is in memory with.
    """

    def __init__(
        self, send: Send, most: int | None, loaded: Callable[[], Awaitable[int | None]]
    ) -> None:
        self._send, self._most, self._loaded = send, most, loaded
        self._window = 0

    async def __call__(self, form: RequestForm, question: Question[Any]) -> Completion:
        """The completion of a question; raises TooLongError if no window is long enough."""
        body = form.body(question)
        answer = body.get("max_tokens") or body.get("max_completion_tokens") or _ANSWER
        size = size_of(question.messages).tokens
        await self._grow(round(size * _DENSITY) + _AROUND + answer)
        try:
            reply = await self._reply(body)
        except TooLongError as error:
            if self._window == self._most:
                raise
            await self._grow((error.needed or 2 * self._window) + answer)
            reply = await self._reply(body)
        if self._looks_cut(reply):  # an old Ollama, which knows no `truncate`
            former_usage = usage_of(reply)
            await self._grow(2 * self._window)
            reply = await self._reply(body)
            usage = usage_of(reply)
            if self._looks_cut(reply) and usage.input_tokens != former_usage.input_tokens:
                raise TruncatedError("Ollama cut the prompt; use a newer Ollama", usage.counts)
        return reply

    async def _grow(self, tokens: int) -> None:
        """Let the window have so many tokens, as far as the model has them."""
        if not self._window:
            self._window = await self._loaded() or _STEP
        while self._window < tokens:
            self._window *= 2
        if self._most is not None:
            self._window = min(self._window, self._most)

    async def _reply(self, body: Body) -> Completion:
        import openai

        try:
            content = await self._send(chat_body(body, self._window))
        except openai.APIStatusError as error:
            failure = of_response(error, prompt_of(body["messages"]))
            if isinstance(failure, TooLongError):
                raise failure from None
            raise
        return read_completion(content, body["messages"])

    def _looks_cut(self, reply: Completion) -> bool:
        return abs(usage_of(reply).input_tokens - (self._window // 2 + 2)) <= 1


def chat_body(body: Body, window: int) -> Body:
    """A request of the OpenAI protocol as one to `/api/chat` with a window of so many tokens."""
    effort = body.get("reasoning_effort")
    options = {key: value for key, value in body.items() if key not in _OWN | _WRITTEN}
    most = body.get("max_tokens") or body.get("max_completion_tokens")
    own: Body = {
        "model": body["model"],
        "messages": body["messages"],
        "stream": False,
        "think": effort in ("low", "medium", "high") and effort,
        "truncate": False,
        "shift": False,
        **{key: body[key] for key in _OWN & body.keys()},
    }
    if body.get("logprobs"):
        own |= {"logprobs": True, "top_logprobs": body.get("top_logprobs", 0)}
    # The schema of the answer, wherever a mode has it
    form, tools = body.get("response_format") or {}, body.get("tools") or []
    if form.get("type") == "json_schema":
        own["format"] = form["json_schema"]["schema"]
    elif form.get("type") == "json_object":
        own["format"] = "json"
    elif tools:
        own["format"] = tools[0]["function"]["parameters"]
    if most is not None:
        options["num_predict"] = most
    options |= {"num_ctx": window, **fields_of(body.get("options"))}
    return {**own, "options": options}
