"""A server with both doors of Ollama: `/v1`, which cuts silently, and `/api/chat`."""

from __future__ import annotations

import json
from collections.abc import Callable

from aiohttp import web

from servers.cutting_server import TEMPLATE, TOKENIZERS, Tokenize
from servers.openai_server import Json, OpenAIServer, Reply, completion_of, example

DEFAULT = 4096  # tokens of a window that nobody asked for


class OllamaServer(OpenAIServer):
    """Honours `options`, `truncate` and `format` at `/api/chat`, as a model with `longest` tokens.

    An `old` one knows no `truncate` and cuts. `asked` has the bodies of `/api/chat`, `loads` every
    window that the model was loaded with, `cuts` counts the prompts that were cut.
    """

    def __init__(
        self,
        longest: int = 32768,
        tokenize: Tokenize = TOKENIZERS["small"],
        answer: Callable[[Json], str] | None = None,
        *,
        old: bool = False,
    ) -> None:
        super().__init__(self._cutting)
        self._longest, self._tokenize, self._old = longest, tokenize, old
        self._answer = answer or _by_format
        self.asked: list[Json] = []
        self.loads: list[int] = []
        self.cuts = 0

    def add_routes(self, app: web.Application) -> None:
        """Both doors, and what Ollama says of itself."""
        super().add_routes(app)
        app.router.add_post("/api/chat", self._own_chat)
        app.router.add_post("/api/show", self._show)
        app.router.add_get("/api/ps", self._processes)
        app.router.add_get("/api/version", _version)

    async def _show(self, request: web.Request) -> web.Response:
        info = {"general.architecture": "fake", "fake.context_length": self._longest}
        return web.json_response({"model_info": info, "capabilities": ["completion"]})

    async def _processes(self, request: web.Request) -> web.Response:
        models = [{"name": "m:latest", "context_length": window} for window in self.loads[-1:]]
        return web.json_response({"models": models})

    def _tokens(self, body: Json) -> int:
        return TEMPLATE + sum(self._tokenize(message["content"]) for message in body["messages"])

    def _read(self, tokens: int, window: int) -> int:
        if window not in self.loads[-1:]:
            self.loads.append(window)
        if tokens <= window:
            return tokens
        self.cuts += 1
        return window // 2 + 2

    def _cutting(self, body: Json) -> Reply:
        text = _by_schema(body)
        completion = completion_of(body, Reply(text))
        completion["usage"]["prompt_tokens"] = self._read(self._tokens(body), DEFAULT)
        return Reply(body=json.dumps(completion))

    async def _own_chat(self, request: web.Request) -> web.Response:
        body: Json = await request.json()
        self.asked.append(body)
        window = min(body.get("options", {}).get("num_ctx", DEFAULT), self._longest)
        tokens = self._tokens(body)
        if tokens > window and body.get("truncate", True) is False and not self._old:
            if window not in self.loads[-1:]:
                self.loads.append(window)
            error = {
                "code": 400, "type": "exceed_context_size_error",
                "message": "the request exceeds the available context size",
                "n_prompt_tokens": tokens, "n_ctx": window,
            }  # fmt: skip
            return web.json_response({"error": error}, status=400)
        reply = {
            "model": body["model"],
            "message": {"role": "assistant", "content": self._answer(body)},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": self._read(tokens, window),
            "eval_count": 7,
        }
        if body.get("logprobs"):
            token = {"token": reply["message"]["content"], "logprob": -0.1, "top_logprobs": []}
            reply["logprobs"] = [token]
        return web.json_response(reply)


async def _version(_: web.Request) -> web.Response:
    return web.json_response({"version": "0.13.5"})


def _by_format(body: Json) -> str:
    shape = body.get("format")
    return "because" if not isinstance(shape, dict) else json.dumps(example(shape, shape))


def _by_schema(body: Json) -> str:
    shape = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
    return _by_format({"format": shape})
