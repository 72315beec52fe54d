"""What stands before the gateway when the answers of an earlier attempt must not be given again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dagengine.gateway.gateway import Asks, Gateway
from dagengine.gateway.request import Request
from dagengine.question import Answer


class Resampled:
    """Asks for another sample: neither memory nor a store has an answer to it."""

    def __init__(self, asks: Asks, attempt: int) -> None:
        self._asks = asks
        self._attempt = attempt

    @property
    def run(self) -> Gateway:
        return self._asks.run

    @property
    def replays(self) -> bool:
        return self._asks.replays

    async def answer(self, request: Request) -> Answer[Any]:
        question = request.question
        options = replace(question.options, sample=question.options.sample + self._attempt)
        request.question = replace(question, options=options)
        return await self._asks.answer(request)
