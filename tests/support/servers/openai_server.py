"""A real HTTP server that speaks the OpenAI chat-completions protocol, for tests of judges.

The server runs on an event loop of its own in a background thread, so the test that uses it may
be sync or async, on asyncio or on trio:

    with OpenAIServer(lambda body: Reply('{"verdict": true}')) as server:
        client = OpenAI(base_url=server.base_url, api_key="any")
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from ssl import SSLContext
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from anyio.from_thread import start_blocking_portal

Json = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What the server does with one request."""

    content: str | None = None
    """The text of the answer: the arguments if a tool is forced, the message if it is an error."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay: float = 0.0
    finish_reason: str = "stop"
    refusal: str | None = None
    reasoning: str | None = None
    """Thoughts beside the answer, as servers of thinking models send them."""
    logprobs: list[Json] | None = None
    """Token entries as OpenAI writes them, placed at `choices[0].logprobs.content`."""
    drop: bool = False
    """Close the connection without an answer."""
    body: str | None = None
    """Send this text as it is instead of a completion or an error."""
    compressed: bool = False


def forced_tool(body: Json) -> Json | None:
    """The function a request leaves the model no choice but to call."""
    choice = body.get("tool_choice")
    functions: list[Json] = [tool["function"] for tool in body.get("tools") or []]
    if isinstance(choice, dict):
        wanted = choice["function"]["name"]
        return next(function for function in functions if function["name"] == wanted)
    return functions[0] if choice == "required" else None


def asked_schema(body: Json) -> Json | None:
    """The JSON schema a request wants its answer to follow, None if it wants plain text."""
    response_format = body.get("response_format") or {}
    if response_format.get("type") == "json_schema":
        return response_format["json_schema"]["schema"]  # type: ignore[no-any-return]
    tool = forced_tool(body)
    return None if tool is None else tool["parameters"]


def example(schema: Json, root: Json) -> Any:
    """The same valid instance of a schema every time; `root` is where its `$ref`s point into."""
    if "$ref" in schema:
        return example(_referred(schema["$ref"], root), root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return example(schema[choice][0], root)
    return _example_of_type(schema, root)


def _referred(pointer: str, root: Json) -> Json:
    found: Any = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        found = found[step.replace("~1", "/").replace("~0", "~")]
    return found  # type: ignore[no-any-return]


def _example_of_type(schema: Json, root: Json) -> Any:
    match schema.get("type", "object"):
        case "object":
            properties: Json = schema.get("properties", {})
            return {name: example(part, root) for name, part in properties.items()}
        case "array":
            return [example(schema["items"], root) for _ in range(schema.get("minItems", 0))]
        case "string":
            return "because".ljust(schema.get("minLength", 0), "!")[: schema.get("maxLength")]
        case "boolean":
            return True
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        case "null":
            return None
        case other:
            raise ValueError(f"no example for the schema type {other!r}")


def valid_reply(body: Json) -> Reply:
    """Answer with the example of the schema the request asks for."""
    schema = asked_schema(body)
    return Reply("because" if schema is None else json.dumps(example(schema, schema)))


class OpenAIServer:
    """Serves `respond` at `base_url` inside a `with` block, and remembers what it was asked."""

    def __init__(
        self,
        respond: Callable[[Json], Reply] = valid_reply,
        capacity: float = math.inf,
        host: str = "127.0.0.1",
        tls: SSLContext | None = None,
    ) -> None:
        """Requests beyond `capacity` at the same time are rejected with 429."""
        self._host, self._tls = host, tls
        self.base_url = ""
        self.requests: list[Json] = []
        self.bodies: list[bytes] = []
        """The bytes of each request's body."""
        self.connections: set[tuple[str, int]] = set()
        """Where the requests came from, one address for each connection."""
        self.queries: list[str] = []
        """The query of each request's address, decoded."""
        self.headers: list[Mapping[str, str]] = []
        """The headers of each request; their names match in any case."""
        self.in_flight = 0
        self.in_flight_max = 0
        self.rejected = 0
        self._respond = respond
        self._capacity = capacity
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal("asyncio"))
            port = stack.enter_context(portal.wrap_async_context_manager(self._serving()))
            scheme = "http" if self._tls is None else "https"
            host = f"[{self._host}]" if ":" in self._host else self._host
            self.base_url = f"{scheme}://{host}:{port}/v1"
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[int]:
        app = web.Application(client_max_size=2**26)
        self.add_routes(app)
        # Handlers end when their client hangs up, as far as `in_flight` is concerned, and are
        # given a moment at the end. (To aiohttp, a timeout of 0 means to wait for ever.)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, 0, backlog=1024, ssl_context=self._tls)
            await site.start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()
            # What was accepted at the last moment closes in later turns of the loop.
            for _ in range(5):
                await asyncio.sleep(0)

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1{deployment:.*}/chat/completions", self._chat)
        app.router.add_get("/v1/models", _models)

    async def _chat(self, request: web.Request) -> web.Response:
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            body: Json = await request.json()
            self.requests.append(body)
            self.bodies.append(await request.read())
            if request.transport is not None:
                self.connections.add(request.transport.get_extra_info("peername"))
            self.headers.append(request.headers)
            self.queries.append(request.query_string)
            if self.in_flight > self._capacity:
                self.rejected += 1
                return _response(body, Reply("too many requests at once", status=429))
            try:
                reply = self._respond(body)
            except Exception as error:  # noqa: BLE001 - a mistake of the test, and no outage
                reply = Reply(f"the test cannot answer this: {error!r}", status=400)
            await asyncio.sleep(reply.delay)
            if reply.drop and request.transport is not None:
                request.transport.abort()
            return _response(body, reply)
        finally:
            self.in_flight -= 1


async def _models(_: web.Request) -> web.Response:
    model = {"id": "test-model", "object": "model", "created": 0, "owned_by": "tests"}
    return web.json_response({"object": "list", "data": [model]})


def _response(body: Json, reply: Reply) -> web.Response:
    if reply.body is not None:
        text = reply.body
    elif reply.status >= 400:
        text = json.dumps(_error(reply))
    else:
        text = json.dumps(completion_of(body, reply))
    headers = {"Content-Type": "application/json", **reply.headers}
    response = web.Response(body=text.encode(), status=reply.status, headers=headers)
    if reply.compressed:
        response.enable_compression(web.ContentCoding.gzip)
    return response


def _error(reply: Reply) -> Json:
    status = HTTPStatus(reply.status)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    message = reply.content or status.phrase
    return {"error": {"message": message, "type": kind, "param": None, "code": status.name.lower()}}


def completion_of(body: Json, reply: Reply) -> Json:
    logprobs = None if reply.logprobs is None else {"content": reply.logprobs, "refusal": None}
    choice = {
        "index": 0,
        "message": _message(body, reply),
        "finish_reason": reply.finish_reason,
        "logprobs": logprobs,
    }
    return {
        "id": "chatcmpl-test",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", "test-model"),
        "choices": [choice],
        "usage": _usage(body, reply),
    }


def _message(body: Json, reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": reply.content, "refusal": reply.refusal}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    tool = forced_tool(body)
    if tool is None or reply.content is None:
        return message
    function = {"name": tool["name"], "arguments": reply.content}
    call = {"id": "call_test", "type": "function", "function": function}
    return {**message, "content": None, "tool_calls": [call]}


def tokens_of(text: str) -> int:
    """Nearly what a real tokenizer counts: a count that is too small looks like a cut prompt."""
    return max(len(text.split()), round(len(text) / 3.3))


def _usage(body: Json, reply: Reply) -> dict[str, int]:
    asked = sum(tokens_of(str(message.get("content"))) for message in body["messages"])
    answered = len((reply.content or "").split())
    return {
        "prompt_tokens": asked,
        "completion_tokens": answered,
        "total_tokens": asked + answered,
    }
