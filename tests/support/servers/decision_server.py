"""A real HTTP server of decision models, in both wire forms, written from their published types.

    with DecisionServer() as server:
        judge = DecisionJudge(form="systemone", base_url=server.base_url)

It answers chat completions, too, so that one server is judge and writer. What it decides is a
function of the state and the question (`decide`), so that a request of many questions answers
as many requests of one; `spoil` changes the answers of a request, `fault` replaces it.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from servers.openai_server import Json, OpenAIServer, Reply, valid_reply

MODEL = "decider-2026-11-01"
TOKENS = 100
"""Input tokens of every request."""


@dataclass(frozen=True)
class Asked:
    """A question of either form: its type by the name that `decisions` has for it."""

    kind: str
    instructions: str
    options: tuple[Any, ...]
    name: str | None


Decide = Callable[[Any, Asked], Sequence[float] | None]
"""The probability of each option; None refuses the question."""
Told = Callable[[Asked, Sequence[float]], Json]


def drawn(state: Any, asked: Asked) -> Sequence[float]:
    """Odds that look drawn by lot, and are the same for equal questions about equal states."""
    text = json.dumps([state, asked.kind, asked.instructions, asked.options], sort_keys=True)
    digest = hashlib.sha256(text.encode()).digest()
    weights = [1 + digest[place % len(digest)] for place in range(len(asked.options))]
    return [weight / sum(weights) for weight in weights]


def always(*chances: float) -> Decide:
    """The same odds for every question with so many options; others are drawn."""

    def decide(state: Any, asked: Asked) -> Sequence[float]:
        return chances if len(asked.options) == len(chances) else drawn(state, asked)

    return decide


class DecisionServer(OpenAIServer):
    """Serves `/v1/decisions` and `/v1/systemone`, and remembers the bodies in `asked`."""

    def __init__(
        self,
        decide: Decide = drawn,
        *,
        spoil: Callable[[Any], Any] = lambda answers: answers,
        fault: Callable[[Json], Reply | None] = lambda body: None,
        respond: Callable[[Json], Reply] = valid_reply,
        model: str = MODEL,
    ) -> None:
        super().__init__(respond)
        self._decide, self._spoil, self._fault, self._model = decide, spoil, fault, model
        self.asked: list[Json] = []
        self.keys: list[str | None] = []
        """The authorisation of each request."""

    def add_routes(self, app: web.Application) -> None:
        super().add_routes(app)
        app.router.add_post("/v1/decisions", self._decisions)
        app.router.add_post("/v1/systemone", self._systemone)

    async def _decisions(self, request: web.Request) -> web.Response:
        body, reply = await self._begin(request)
        if reply is not None:
            return _failed(reply)
        answers = [
            self._one(body["input"], _of_decisions(place, question), _as_decisions)
            for place, question in enumerate(body["questions"])
        ]
        details = {"cached_tokens": 40, "cache_write_tokens": 0}
        usage = {
            "input_tokens": TOKENS,
            "input_tokens_details": details,
            "output_tokens": len(answers),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": TOKENS + len(answers),
        }
        return _sent({"answers": self._spoil(answers), "model": self._model, "usage": usage})

    async def _systemone(self, request: web.Request) -> web.Response:
        body, reply = await self._begin(request)
        if reply is not None:
            return _failed(reply)
        answers = {
            name: self._one(body["state"], _of_systemone(name, question), _as_systemone)
            for name, question in body["questions"].items()
        }
        usage = {"input_tokens": TOKENS, "output_tokens": len(answers)}
        return _sent({"model": self._model, "answers": self._spoil(answers), "usage": usage})

    async def _begin(self, request: web.Request) -> tuple[Json, Reply | None]:
        body: Json = await request.json()
        self.asked.append(body)
        self.keys.append(request.headers.get("Authorization"))
        return body, self._fault(body)

    def _one(
        self, state: Any, asked: Asked, told: Callable[[Asked, Sequence[float]], Json]
    ) -> Json:
        chances = self._decide(state, asked)
        if chances is None:
            return {"type": "refusal", "name": asked.name}
        return told(asked, chances)


def _text(instructions: Any) -> str:
    return instructions if isinstance(instructions, str) else json.dumps(instructions)


def _of_decisions(place: int, question: Json) -> Asked:
    kind = question["type"]
    assert len(question["instructions"]) >= 1
    if kind == "choice":
        options = tuple(choice["value"] for choice in question["choices"])
        assert 2 <= len(options) <= 255
        assert len(set(options)) == len(options)
    elif kind == "score":
        options = tuple(level["label"] for level in question["levels"])
    else:
        options = (True, False)
    return Asked(kind, _text(question["instructions"]), options, question.get("name"))


def _of_systemone(name: str | None, question: Json) -> Asked:
    kind = str({"noul": "predicate"}.get(question["type"], question["type"]))
    if kind == "predicate":
        assert question.get("instructions") or question.get("criteria")
        options: tuple[Any, ...] = (True, False)
    else:
        options = tuple(question["criteria"])
    if kind == "score":
        assert 2 <= len(options) <= 10
    return Asked(kind, _text(question.get("instructions")), options, name)


def _as_decisions(asked: Asked, chances: Sequence[float]) -> Json:
    base: Json = {"type": asked.kind, "name": asked.name}
    best = max(range(len(chances)), key=lambda place: chances[place])
    if asked.kind == "predicate":
        return {**base, "probability": chances[0]}
    if asked.kind == "choice":
        pairs = zip(asked.options, chances, strict=True)
        odds = [{"value": value, "probability": chance} for value, chance in pairs]
        return {**base, "choice": asked.options[best], "confidence": 0.5, "probabilities": odds}
    odds = [
        {"label": label, "value": place, "probability": chance}
        for place, (label, chance) in enumerate(zip(asked.options, chances, strict=True))
    ]
    return {**base, "score": _mean(chances), "confidence": 0.5, "probabilities": odds}


def _as_systemone(asked: Asked, chances: Sequence[float]) -> Json:
    best = max(range(len(chances)), key=lambda place: chances[place])
    if asked.kind == "predicate":
        return {"type": "noul", "noul": chances[0]}
    if asked.kind == "choice":
        odds = dict(zip(asked.options, chances, strict=True))
        chosen = asked.options[best]
        return {"type": "choice", "choice": chosen, "confidence": 0.5, "probabilities": odds}
    places = list(map(str, range(len(chances))))
    return {
        "type": "score",
        "score": _mean(chances),
        "confidence": 0.5,
        "legend": dict(zip(places, asked.options, strict=True)),
        "probabilities": dict(zip(places, chances, strict=True)),
    }


def _mean(chances: Sequence[float]) -> float:
    return sum(place * chance for place, chance in enumerate(chances))


def _sent(found: Json) -> web.Response:
    return web.Response(body=encoded(found).encode(), content_type="application/json")


def encoded(found: Any) -> str:
    """JSON in which a `Twice` is the same name two times."""
    if isinstance(found, Twice):
        pairs = [f"{json.dumps(name)}: {encoded(value)}" for name, value in found.pairs]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(found, dict):
        return encoded(Twice(list(found.items())))
    return json.dumps(found)


@dataclass(frozen=True)
class Twice:
    """An object of these names and values, some of which may be the same."""

    pairs: list[tuple[str, Any]]


def _failed(reply: Reply) -> web.Response:
    text = (
        reply.body if reply.body is not None else json.dumps({"error": {"message": reply.content}})
    )
    headers = {"Content-Type": "application/json", **reply.headers}
    return web.Response(body=text.encode(), status=reply.status, headers=headers)
