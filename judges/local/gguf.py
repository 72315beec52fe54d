"""A model file as the judge, without a server of one's own: `--judge gguf:model.gguf`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from dagengine.errors import InputError, JudgeError, ProviderError
from dagengine.judges.identity import durable_name
from dagengine.judges.local.llama_server import model_server_of, require_llama, size_for
from dagengine.judges.local.model_file import read_model_file
from dagengine.judges.openai import OpenAIJudge
from dagengine.judges.wire.connection import Connection
from dagengine.question import Question, ServerFacts


class GGUFJudge(OpenAIJudge):
    """Answers with the chat model in a file, for instance `qwen2.5-7b-instruct-q4_k_m.gguf`.

    A process on this machine serves it by llama.cpp while the judge is open, for instance for the
    time of a run. It needs the extra `llama`. `window` is the number of tokens that the prompt and
    the answer of one call may have together, `places` is the number of calls at the same time,
    `threads` the number of processors that work for them. They are chosen by model, memory, the
    longest case and the processors of this process if they are not given. `parameters` are added to
    every request body.

    The identity is that of the model in the file, wherever the file is, so stored answers are
    found again. Raises InputError for a file that is not a chat model.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        window: int | None = None,
        places: int | None = None,
        threads: int | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        for name, number in (("window", window), ("places", places), ("threads", threads)):
            if number is not None and number < 1:
                raise InputError(f"{name} must be at least 1, got {number}")
        self.file = read_model_file(Path(path))
        super().__init__(self.file.path.stem, parameters=parameters)
        self._wanted = window, places, threads
        self._server = model_server_of(self.file, size_for(self.file, *self._wanted))

    @property
    def hosted(self) -> bool:
        """It never asks a provider."""
        return False

    @property
    def window(self) -> int:
        """The tokens that the prompt and the answer of one call may have together."""
        return self._server.size.window

    @property
    def places(self) -> int:
        """The number of calls at the same time."""
        return self._server.size.places

    @property
    def base_url(self) -> str | None:
        """None: the address is another one in every run, and nobody else may ask there."""
        return None

    @cached_property
    def _identity(self) -> str:
        """The model's own name, what tells its content apart, and parameters."""
        return self.durable_identity or f"{self._name} with {self._parameters!r}"

    @property
    def durable_identity(self) -> str | None:
        """The same: it has neither a path nor an address."""
        return durable_name(self._name, self._parameters)

    @property
    def _name(self) -> str:
        return f"gguf {self.file.name} {self.file.digest}"

    def _public_state(self) -> dict[str, Any]:
        return {**super()._public_state(), "_address": None, "_server": self._server.size}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _server=model_server_of(state["file"], state["_server"]))

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """Keep the server running and connections open while inside.

        Raises MissingExtraError without xllamacpp, and JudgeSetupError with the last lines of the
        server's log when it does not start.
        """
        async with self._server.running() as address:
            self._address, self._api_key = address
            async with super().session() as client:
                yield client

    def make_room(self, material: int) -> None:
        """Choose the window for prompts with so many bytes of material, before the model is loaded.

        It never gets smaller, and stays as it is if the user chose it or the model is at work.
        """
        if not self._clients:
            size = size_for(self.file, *self._wanted, material=material)
            if size.window > self.window:
                self._server = model_server_of(self.file, size)

    async def facts(self) -> ServerFacts:
        """Window and places of the server, which are known without asking it."""
        return ServerFacts("model file", self.window, self.places)

    async def require_reachable(self) -> None:
        """Raise MissingExtraError without xllamacpp; the model is loaded when a run begins."""
        require_llama()

    def failure(self, error: Any, question: Question[Any]) -> JudgeError:
        import openai

        death = self._server.death()
        if death is not None and isinstance(error, openai.APIConnectionError):
            return ProviderError(death, transient=False)
        return super().failure(error, question)
