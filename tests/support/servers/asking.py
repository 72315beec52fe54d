"""One question put to a server of the OpenAI protocol, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from dagengine.errors import JudgeError
from dagengine.gateway.gateway import Gateway, Limits
from dagengine.judges import OpenAIJudge
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.question import Answer, Question
from dagengine.results import Attempt
from servers.openai_server import Json, OpenAIServer, Reply

LIMIT = 60.0
VERDICTS = ("Yes", "Partly", "No")
SHAPE = judgement_type(VERDICTS)
OK = '{"reason": "because", "verdict": "Yes"}'
FAST = Limits(attempts=3, backoff=0.0, max_backoff=0.0)
Respond = Callable[[Json], Reply]


def question(text: str = "t", shape: Any = SHAPE, **more: Any) -> Question[Any]:
    return Question(messages_for("Is it so?", [Evidence("text", text)]), shape, name="q", **more)


@dataclass
class Asked:
    """What became of one question, on this side and on the server's."""

    answer: Answer[Any] | None
    error: Any
    ledger: list[Attempt]
    gateway: Gateway
    requests: list[Json]

    @property
    def outcomes(self) -> list[str]:
        return [str(attempt.outcome) for attempt in self.ledger]

    @property
    def value(self) -> Json:
        assert self.answer is not None, self.error
        fields: Json = self.answer.value.model_dump()
        return fields


async def ask(
    respond: Respond | Reply | list[Reply],
    asked: Question[Any] | None = None,
    limits: Limits = FAST,
    **settings: Any,
) -> Asked:
    """Put one question to a server that answers so; a list is gone through, then repeats."""
    listed = respond if isinstance(respond, list) else []
    replies = iter(listed)

    def reply(body: Json) -> Reply:
        if isinstance(respond, Reply):
            return respond
        return next(replies, listed[-1]) if isinstance(respond, list) else respond(body)

    ledger: list[Attempt] = []
    gateway = Gateway(limits, ledger.append)
    answer, error = None, None
    with OpenAIServer(reply) as server:
        judge = OpenAIJudge("test-model", base_url=server.base_url, **settings)
        async with judge.session():
            try:
                with anyio.fail_after(LIMIT):
                    answer = await gateway.ask(judge, asked or question())
            except JudgeError as caught:
                error = caught
    return Asked(answer, error, ledger, gateway, server.requests)


@contextmanager
def standing_in(server: OpenAIServer, base_url: str) -> Iterator[Any]:
    """A client that believes to talk to `base_url`; its requests go to the server instead."""
    import httpx2
    import openai

    here = httpx2.URL(server.base_url)

    async def redirect(request: httpx2.Request) -> None:
        request.url = request.url.copy_with(
            scheme=here.scheme, host=here.host, port=here.port, path="/v1/chat/completions"
        )

    transport = openai.DefaultAsyncHttpxClient(event_hooks={"request": [redirect]})
    yield openai.AsyncOpenAI(api_key="k", base_url=base_url, http_client=transport)
