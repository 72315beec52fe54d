"""The OpenAI test server with its batch API: files, batches, and results as JSON lines."""

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web
from openai_server import Json, OpenAIServer, Reply, completion_of, valid_reply


class BatchServer(OpenAIServer):
    """Answers a batch after it was looked at `looks` times.

    `lose` names the lines (by place in their batch) that get no answer because the batch
    expired; `expire` the batches that expire as a whole, `damage` the lines of results that
    are cut in half. `refuse` is why a whole batch is not accepted.
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
    ) -> None:
        super().__init__(respond)
        self.files: dict[str, str] = {}
        self.batches: list[Json] = []
        self._answer = respond
        self._expire, self._damage = expire, damage
        self._looks, self._lose, self._refuse = looks, lose, refuse

    def add_routes(self, app: web.Application) -> None:
        super().add_routes(app)
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{name}/content", self._content)
        app.router.add_post("/v1/batches", self._create)
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
            "completion_window": asked["completion_window"], "created_at": 0, "looks": 0,
        }  # fmt: skip
        self.batches.append(batch)
        return web.json_response(batch)

    async def _retrieve(self, request: web.Request) -> web.Response:
        number = int(request.match_info["name"].partition("-")[2])
        batch = self.batches[number]
        batch["looks"] += 1
        if self._refuse is not None:
            errors = {"object": "list", "data": [{"message": self._refuse}]}
            batch |= {"status": "failed", "errors": errors}
        elif batch["looks"] > self._looks and self._expire(number):
            batch |= {"status": "expired"}
        elif batch["looks"] > self._looks and batch["status"] != "completed":
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


def _line(asked: Json, response: Any, error: Any) -> str:
    return json.dumps({"custom_id": asked["custom_id"], "response": response, "error": error})
