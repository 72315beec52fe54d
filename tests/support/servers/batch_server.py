"""Test servers with batch APIs: OpenAI's files and batches, and Anthropic's message batches."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from servers.openai_server import Json, OpenAIServer, Reply, completion_of, valid_reply


class BatchServer(OpenAIServer):
    """Answers a batch after it was looked at `looks` times.

    `lose` names the lines (by place in their batch) that get no answer because the batch
    expired; `expire` the batches that expire as a whole, `damage` the lines of results that
    are cut in half. `refuse` is why a whole batch is not accepted. The batches that `mute` names
    are begun, but whoever sent them is never told.
    """

    def __init__(
        self,
        respond: Callable[[Json], Reply] = valid_reply,
        *,
        looks: int = 2,
        lose: Callable[[int, int], bool] = lambda batch, line: False,
        expire: Callable[[int], bool] = lambda batch: False,
        damage: Callable[[int, int], bool] = lambda batch, line: False,
        refuse: str | None = None,
        mute: Callable[[int], bool] = lambda batch: False,
    ) -> None:
        super().__init__(respond)
        self._mute = mute
        self.files: dict[str, str] = {}
        self.batches: list[Json] = []
        self._answer = respond
        self._expire, self._damage = expire, damage
        self.looks, self._lose, self._refuse = looks, lose, refuse

    def add_routes(self, app: web.Application) -> None:
        super().add_routes(app)
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{name}/content", self._content)
        app.router.add_post("/v1/batches", self._create)
        app.router.add_get("/v1/batches", self._list)
        app.router.add_get("/v1/batches/{name}", self._retrieve)

    def _keep(self, text: str) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = text
        return name

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        part = form["file"]
        assert isinstance(part, web.FileField)
        assert form["purpose"] == "batch"
        name = self._keep(part.file.read().decode())
        return web.json_response(
            {"id": name, "object": "file", "bytes": 0, "created_at": 0, "filename": "batch.jsonl",
             "purpose": "batch", "status": "processed"}
        )  # fmt: skip

    async def _content(self, request: web.Request) -> web.Response:
        return web.Response(text=self.files[request.match_info["name"]])

    async def _create(self, request: web.Request) -> web.Response:
        asked: Json = await request.json()
        batch: Json = {
            "id": f"batch-{len(self.batches)}", "object": "batch", "status": "validating",
            "endpoint": asked["endpoint"], "input_file_id": asked["input_file_id"],
            "completion_window": asked["completion_window"], "created_at": int(time.time()),
            "looks": 0, "metadata": asked.get("metadata"),
        }  # fmt: skip
        self.batches.append(batch)
        if self._mute(len(self.batches) - 1):
            await asyncio.Event().wait()
        return web.json_response(batch)

    async def _list(self, request: web.Request) -> web.Response:
        found = self.batches[::-1]
        return web.json_response({"object": "list", "data": found, "has_more": False})

    async def _retrieve(self, request: web.Request) -> web.Response:
        number = int(request.match_info["name"].partition("-")[2])
        if number >= len(self.batches):
            return _unknown()
        batch = self.batches[number]
        batch["looks"] += 1
        if self._refuse is not None:
            errors = {"object": "list", "data": [{"message": self._refuse}]}
            batch |= {"status": "failed", "errors": errors}
        elif batch["looks"] > self.looks and self._expire(number):
            batch |= {"status": "expired"}
        elif batch["looks"] > self.looks and batch["status"] != "completed":
            batch |= {"status": "completed", **self._results(number, batch["input_file_id"])}
        return web.json_response(batch)

    def _results(self, number: int, file: str) -> Json:
        good: list[str] = []
        bad: list[str] = []
        for place, line in enumerate(self.files[file].splitlines()):
            asked = json.loads(line)
            self.requests.append(asked["body"])
            if self._lose(number, place):
                bad.append(_line(asked, None, {"code": "batch_expired", "message": "too late"}))
            else:
                reply = self._answer(asked["body"])
                content = completion_of(asked["body"], reply)
                if reply.status >= 400:
                    content = {"error": {"message": reply.content, "code": None}}
                good.append(_line(asked, {"status_code": reply.status, "body": content}, None))
        good = [
            line[: len(line) // 2] if self._damage(number, place) else line
            for place, line in enumerate(good)
        ]
        good.reverse()  # the order of results is not that of the questions
        return {
            "output_file_id": self._keep("\n".join(good)) if good else None,
            "error_file_id": self._keep("\n".join(bad)) if bad else None,
        }


def _unknown() -> web.Response:
    return web.json_response({"error": {"message": "no such batch"}}, status=404)


def _line(asked: Json, response: Any, error: Any) -> str:
    return json.dumps({"custom_id": asked["custom_id"], "response": response, "error": error})


class MessageBatchServer(BatchServer):
    """Anthropic's message batches, answered by what `respond` says of the tool that is forced."""

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/messages/batches", self._create_messages)
        app.router.add_get("/v1/messages/batches", self._list_messages)
        app.router.add_get("/v1/messages/batches/{name}", self._retrieve_messages)
        app.router.add_get("/v1/messages/batches/{name}/results", self._results_messages)

    @property
    def address(self) -> str:
        """Where it is served, as Anthropic's clients want it."""
        return self.base_url.removesuffix("/v1")

    async def _create_messages(self, request: web.Request) -> web.Response:
        assert request.headers["anthropic-version"] == "2023-06-01"
        assert request.headers["x-api-key"] == "key"
        if self._refuse is not None:
            error = {"type": "invalid_request_error", "message": self._refuse}
            return web.json_response({"type": "error", "error": error}, status=400)
        asked: Json = await request.json()
        self.requests += [each["params"] for each in asked["requests"]]
        number = len(self.batches)
        created = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        self.batches.append(
            {"id": f"msgbatch_{number}", "requests": asked["requests"], "looks": 0,
             "created_at": created}
        )  # fmt: skip
        if self._mute(number):
            await asyncio.Event().wait()
        return web.json_response(self._shown(number))

    def _shown(self, number: int) -> Json:
        batch = self.batches[number]
        ended = batch["looks"] > self.looks
        name, count = batch["id"], len(batch["requests"])
        counts = dict.fromkeys(("canceled", "errored", "expired", "processing", "succeeded"), 0)
        counts["succeeded" if ended else "processing"] = count
        return {
            "id": name, "type": "message_batch", "created_at": batch["created_at"],
            "processing_status": "ended" if ended else "in_progress", "request_counts": counts,
            "results_url": f"{self.address}/v1/messages/batches/{name}/results" if ended else None,
        }  # fmt: skip

    async def _list_messages(self, request: web.Request) -> web.Response:
        found = [self._shown(number) for number in range(len(self.batches))]
        return web.json_response({"data": found[::-1], "has_more": False})

    async def _retrieve_messages(self, request: web.Request) -> web.Response:
        number = int(request.match_info["name"].partition("_")[2])
        if number >= len(self.batches):
            return _unknown()
        self.batches[number]["looks"] += 1
        return web.json_response(self._shown(number))

    async def _results_messages(self, request: web.Request) -> web.Response:
        number = int(request.match_info["name"].partition("_")[2])
        lines: list[str] = []
        for place, asked in enumerate(self.batches[number]["requests"]):
            result = self._result(number, place, asked["params"])
            line = json.dumps({"custom_id": asked["custom_id"], "result": result})
            lines.append(line[: len(line) // 2] if self._damage(number, place) else line)
        return web.Response(text="\n".join(reversed(lines)))

    def _result(self, number: int, place: int, params: Json) -> Json:
        if self._expire(number) or self._lose(number, place):
            return {"type": "expired"}
        system = "".join(part["text"] for part in params.get("system", ()))
        told = [{**message, "content": _text(message["content"])} for message in params["messages"]]
        messages = [{"role": "system", "content": system}, *told]
        reply = self._answer({**params, "messages": messages})
        if reply.status >= 400:
            error = {"type": "invalid_request_error", "message": reply.content}
            return {"type": "errored", "error": {"type": "error", "error": error}}
        content: Json = {"type": "text", "text": reply.content}
        if "tools" in params:
            tool = params["tool_choice"]["name"]
            given = json.loads(reply.content or "")
            content = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": given}
        message = {
            "type": "message", "role": "assistant", "content": [content],
            "stop_reason": "tool_use" if "tools" in params else reply.finish_reason,
            "usage": {"input_tokens": 7, "output_tokens": 3},
        }  # fmt: skip
        return {"type": "succeeded", "message": message}


def _text(content: Any) -> str:
    """The content of a message, which may come in parts."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content)
