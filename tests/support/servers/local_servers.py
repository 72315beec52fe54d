"""Servers that say of themselves what llama.cpp, vLLM, LM Studio and Ollama say, for tests."""

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from servers.openai_server import Json, OpenAIServer, Reply, valid_reply

LLAMA = {"/props": {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 4}}
VLLM = {
    "/v1/models": {
        "data": [
            {"id": "other", "owned_by": "vllm", "max_model_len": 512},
            {"id": "m", "owned_by": "vllm", "max_model_len": 8192},
        ]
    }
}
LM_STUDIO = {
    "/api/v0/models": {
        "data": [
            {"id": "m", "loaded_context_length": 4096, "max_context_length": 131072},
            {"id": "other", "max_context_length": 32768},
        ]
    },
    "/props": {"error": "Unexpected endpoint or method. (GET /props)"},
}
OLLAMA = {
    "/api/show": {"model_info": {"general.architecture": "x", "x.context_length": 32768}},
    "/api/version": {"version": "0.13.0"},
    "/api/ps": {"models": [{"name": "m:latest", "model": "m:latest", "context_length": 4096}]},
}


class TellingServer(OpenAIServer):
    """Serves chat completions, and `pages` of JSON (or text) by their paths.

    `told` notes which paths were read.
    """

    def __init__(
        self, pages: Mapping[str, Any], respond: Callable[[Json], Reply] = valid_reply
    ) -> None:
        super().__init__(respond)
        self.pages, self.told = pages, list[str]()

    def add_routes(self, app: web.Application) -> None:
        """The pages, instead of what the protocol has there."""
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_route("*", "/{path:.*}", self._page)

    async def _page(self, request: web.Request) -> web.Response:
        self.told.append(request.path)
        page = self.pages.get(request.path)
        if page is None:
            return web.json_response({"error": "not found"}, status=404)
        if isinstance(page, int):
            return web.json_response({"error": "no"}, status=page)
        return web.Response(text=page) if isinstance(page, str) else web.json_response(page)
