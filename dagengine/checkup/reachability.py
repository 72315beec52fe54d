"""Whether a judge can be reached, and which models its server names."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import anyio
from pydantic import BaseModel, ValidationError

from dagengine.checkup.findings import Connection
from dagengine.errors import JudgeError, JudgeSetupError, did_you_mean
from dagengine.judges.wire.client import EndpointJudge
from dagengine.question import Judge
from dagengine.system.terminal import few

_PATIENCE = 10.0  # seconds for a server to say which models it has
_PORTS: Final = {
    11434: "Ollama: start it with `ollama serve`",
    1234: "LM Studio: start its server (Developer, Status: Running)",
    8000: "vLLM: start it with `vllm serve MODEL`",
    8080: "llama.cpp: start it with `llama-server -m FILE.gguf`",
}
"""The ports of well-known servers, and how to start them."""


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


async def connection_of(judge: Judge) -> Connection:
    """Check the connection to a judge before it is asked: a problem, and the models."""
    if not isinstance(judge, EndpointJudge):
        return Connection(None)
    try:
        with anyio.move_on_after(_PATIENCE) as patience:
            await judge.require_reachable()
    except JudgeSetupError as error:
        port = urlsplit(judge.base_url or "").port
        start = f" ({_PORTS[port]})" if port in _PORTS else ""
        return Connection(None, f"{error}{start}", judge.model)
    if patience.cancelled_caught:
        return Connection(None, f"{judge.base_url} did not connect within 10 s", judge.model)
    return Connection(None, None, judge.model, await _models_of(judge))


def not_answered(connection: Connection, error: JudgeError) -> Connection:
    """A connection whose first question failed, with what to do about it."""
    status = getattr(error, "status", None)
    problem = str(error)
    if connection.is_listed is False and status in (400, 404):
        assert connection.model is not None
        assert connection.listed is not None
        near = did_you_mean(connection.model, connection.listed)
        problem = f"{problem}. {models_in_words(connection.listed)}; {near}".rstrip("; ")
    elif status == 404:
        problem = f"{problem}. Most servers want an address that ends in /v1"
    return replace(connection, problem=problem)


def models_in_words(models: tuple[str, ...]) -> str:
    """The models that a server names, in words."""
    return f"The server has {few(models, 8)}"


async def _models_of(judge: EndpointJudge) -> tuple[str, ...] | None:
    """The models that the server of a judge names; None if it names none."""
    import httpx2
    import openai

    with anyio.move_on_after(_PATIENCE):
        try:
            async with judge.session() as client:
                response = await client.api.get("/models", cast_to=httpx2.Response)
            models = _Models.model_validate_json(response.content)
        except (openai.OpenAIError, JudgeError, ValidationError, OSError):
            return None
        return tuple(model.id for model in models.data) or None
    return None
