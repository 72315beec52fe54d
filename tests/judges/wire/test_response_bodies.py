"""Bodies that servers really send: each file of `bodies/` is sent, read by a judge, and held.

A file says who sends the body, when, and what is expected:

    origin, server, topic, what   where it was seen, who sends it, and what it says, in short
    status, headers, body         the response; a body may also be a text
    when                          what a request contains that gets it (`fits`); any other one gets
                                  a good answer
    times                         how often it is sent before all requests get a good answer
    question, text, judge         what is asked (QUESTIONS), about which text, by which judge
    warm                          whether the judge has answered another case before
    expect                        outcome, score, value, mode, calls; words and not_words of the
                                  message; `last`: what the last request contains; `later`: what
                                  the judge's last request for another case contains afterwards
"""

from __future__ import annotations

import json
import re
import runpy
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from aiohttp import web
from folders.places import ROOT
from pydantic import BaseModel, ConfigDict, Field
from servers.batch_server import BatchServer, MessageBatchServer
from servers.openai_server import Json, OpenAIServer, Reply, completion_of

from dagengine import evaluate
from dagengine.gateway import Limits
from dagengine.judges import (
    AnthropicBatchJudge,
    DecisionJudge,
    LabelJudge,
    OpenAIBatchJudge,
    OpenAIJudge,
    ProviderJudge,
)
from dagengine.metrics import DAGMetric, GEval
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)
from dagengine.question import FirstMatch
from dagengine.results import MetricResult
from dagengine.test_case import LLMTestCase

FOLDER = Path(__file__).parent / "bodies"
# Nothing waits: what a server asks to wait for is an error at once if it is more than that.
LIMITS = Limits(backoff=0.0, max_backoff=0.0, patience=1.0, call_timeout=10.0, case_timeout=20.0)
TEXT = "Hello! It is nice to see you again."


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Expected(_Part):
    """What becomes of a question; `calls` may be the least and the most."""

    outcome: str
    score: float | None = None
    value: Any = None
    mode: str | None = None
    calls: int | tuple[int, int]
    words: tuple[str, ...] = ()
    not_words: tuple[str, ...] = ()
    last: str | None = None
    later: str | None = None

    @property
    def range(self) -> tuple[int, int]:
        """The least and the most calls."""
        return (self.calls, self.calls) if isinstance(self.calls, int) else self.calls


class Body(_Part):
    """A file of the corpus."""

    origin: str = Field(min_length=10)
    server: str = Field(min_length=2)
    topic: Literal[
        "refusal", "thoughts", "limits", "schema mode", "log-probabilities", "settings",
        "system role", "errors", "quota", "shapes", "answers", "window",
    ]  # fmt: skip
    what: str = Field(min_length=10, max_length=110)
    status: int = 200
    headers: dict[str, str] = {}
    body: Any
    when: str | None = None
    times: int | None = None
    question: Literal["verdict", "rating", "choice", "list", "text", "prose"] = "verdict"
    text: str = TEXT
    warm: bool = False
    judge: Literal[
        "chat", "ollama", "batch", "anthropic batch", "labels", "decisions", "provider"
    ] = "chat"
    expect: Expected

    @property
    def content(self) -> str:
        """The body as it is sent."""
        return self.body if isinstance(self.body, str) else json.dumps(self.body)


FILES = {file.stem: file for file in sorted(FOLDER.glob("*.json"))}


@cache
def body_of(name: str) -> Body:
    """The body in a file, by the file's name; raises ValidationError for an invalid file."""
    return Body.model_validate_json(FILES[name].read_text(encoding="utf-8"))


_CONDITION = re.compile(r"(?P<no>not )?(?P<path>\S+)(?: (?P<operator>=|>|~) (?P<value>.+))?")
_STEP = re.compile(r"\[(-?\d+)\]|(…)?([^.…\[\]]+)")


def fits(condition: str, request: Json) -> bool:
    """Whether a request contains what a condition says, such as `top_logprobs > 5`.

    `a.b[0]` is a place, `a…b` any place below `a`. `=` compares, `~` looks for a part of a text,
    `not` turns a condition round; `and` binds closer than `or`.
    """
    if " or " in condition:
        return any(fits(part, request) for part in condition.split(" or "))
    for part in condition.split(" and "):
        match = _CONDITION.fullmatch(part)
        assert match is not None, f"no condition: {part!r}"
        values = [value for value in _values(match["path"], request) if value is not None]
        match match["operator"]:
            case None:
                holds = any(value is not False for value in values)
            case "=":
                holds = match["value"] in map(str, values)
            case ">":
                holds = any(float(value) > float(match["value"]) for value in values)
            case _:
                holds = any(match["value"] in json.dumps(value) for value in values)
        if holds == bool(match["no"]):
            return False
    return True


def _values(path: str, request: Json) -> list[Any]:
    values: list[Any] = [request]
    for index, below, name in _STEP.findall(path):
        if below:
            values = [inner for value in values for inner in _below(name, value)]
        elif name:
            values = [value[name] for value in values if isinstance(value, dict) and name in value]
        else:
            place = int(index)
            values = [
                value[place]
                for value in values
                if isinstance(value, list) and -len(value) <= place < len(value)
            ]
    return values


def _below(name: str, value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if name in value:
            yield value[name]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _below(name, item)


def _politeness(**settings: Any) -> DAGMetric:
    node = BinaryJudgementNode(
        "Is the answer polite?",
        [VerdictNode(False, score=0), VerdictNode(True, score=10)],
        evaluation_params=["actual_output"],
        **settings,
    )
    return DAGMetric("politeness", DAG(root_node=node))


def _warmth() -> DAGMetric:
    verdicts = [VerdictNode("Warm", score=10), VerdictNode("Cool", score=5)]
    node = NonBinaryJudgementNode(
        "How does the answer sound?",
        [*verdicts, VerdictNode("Cold", score=0)],
        evaluation_params=["actual_output"],
    )
    return DAGMetric("warmth", DAG(root_node=node))


def _task(kind: Any) -> DAGMetric:
    last = CodeNode(lambda written: float(bool(written)), name="written")
    node = TaskNode(
        "List the claims of the answer.",
        "claims",
        [last],
        evaluation_params=["actual_output"],
        output_type=kind,
    )
    return DAGMetric("claims", DAG(root_node=node))


def _rating() -> GEval:
    steps = ["Look whether the greeting is kind."]
    return GEval("kindness", evaluation_steps=steps, evaluation_params=["actual_output"])


PROSE = FirstMatch((("VERDICT: yes", True), ("VERDICT: no", False)))
LISTED = ["It greets.", "It is kind."]
QUESTIONS: dict[str, Any] = {
    "verdict": (_politeness, {"reason": "It greets kindly.", "verdict": True}),
    "prose": (lambda: _politeness(parser=PROSE), "It greets kindly.\nVERDICT: yes"),
    "choice": (_warmth, {"reason": "It greets kindly.", "verdict": "Warm"}),
    "rating": (_rating, {"reason": "It greets kindly.", "score": 8}),
    "list": (lambda: _task(list[str]), {"output": LISTED}),
    "text": (lambda: _task(str), {"output": "It greets kindly."}),
}
"""What is asked: the metric, and the good answer."""
# A rating of 8.5 of 10 by its probabilities, of 8 by its text.
RATED = ['{"reason": "It greets kindly.", "score": ', "8", "}"]


def _tokens(texts: list[str], *options: tuple[str, float]) -> list[Json]:
    """The tokens of an answer; those of the second one could have been these."""
    tops: list[Json] = [{"token": text, "logprob": logprob} for text, logprob in options]
    alone = [{"token": text, "logprob": 0.0, "top_logprobs": []} for text in texts]
    place = min(1, len(texts) - 1)
    alone[place] |= {"logprob": tops[0]["logprob"], "top_logprobs": tops}
    return alone


HALVES = (("8", -0.6931471805599453), ("9", -0.6931471805599453))


def good_answer(body: Body, asked: Json) -> Json:
    """The good answer to a request, in the form of its server."""
    answer = QUESTIONS[body.question][1]
    text = answer if isinstance(answer, str) else json.dumps(answer)
    logprobs = _tokens(RATED, *HALVES) if asked.get("logprobs") else None
    limits = (asked.get("max_tokens"), asked.get("max_completion_tokens"))
    if body.judge == "labels" and 1 in limits:
        text, logprobs = "A", _tokens(["A"], ("A", -0.1), ("B", -2.5))
    if body.judge == "decisions":
        decided = {"type": "predicate", "name": "q0", "probability": 0.9}
        return {"answers": [decided], "model": "decider", "usage": {}}
    if body.judge == "ollama":
        message = {"role": "assistant", "content": text}
        return {"message": message, "done": True, "done_reason": "stop", "logprobs": logprobs}
    return completion_of(asked, Reply(text, logprobs=logprobs))


class Sender:
    """Sends the body of a file, and remembers what was asked."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.requests: list[Json] = []
        self.sent = 0

    def sends(self, asked: Json) -> bool:
        """Whether a request gets the body."""
        self.requests.append(asked)
        body = self.body
        if body.when is not None and not fits(body.when, asked):
            return False
        self.sent += 1
        return body.times is None or self.sent <= body.times


class BodyServer(OpenAIServer):
    """One server for all files: each has an address of its own below the name of its sender."""

    def __init__(self) -> None:
        super().__init__()
        self.senders: dict[str, Sender] = {}

    def add_routes(self, app: web.Application) -> None:
        """Everything goes to its sender."""
        app.router.add_get("/{name}/{path:.*}", self._facts)
        app.router.add_post("/{name}/{path:.*}", self._answer)

    async def _facts(self, request: web.Request) -> web.Response:
        own = {"api/version": {"version": "0.13.5"}, "api/ps": {"models": []}}
        page = own.get(request.match_info["path"])
        if page is None or self.senders[request.match_info["name"]].body.judge != "ollama":
            raise web.HTTPNotFound
        return web.json_response(page)

    async def _answer(self, request: web.Request) -> web.Response:
        if request.match_info["path"] == "api/show":
            return web.json_response({"model_info": {"m.context_length": 32768}})
        sender, asked = self.senders[request.match_info["name"]], await request.json()
        body = sender.body
        if not sender.sends(asked):
            return web.json_response(good_answer(body, asked))
        headers = {"Content-Type": "application/json", **body.headers}
        return web.Response(body=body.content.encode(), status=body.status, headers=headers)


class LineServer(BatchServer):
    """OpenAI's batches, with the body as the `response` and `error` of a line."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(looks=0)
        self._sender = sender

    def _results(self, number: int, file: str) -> Json:
        lines: list[str] = []
        for asked in map(json.loads, self.files[file].splitlines()):
            line = self._sender.body.body
            if not self._sender.sends(asked["body"]):
                answer = good_answer(self._sender.body, asked["body"])
                line = {"response": {"status_code": 200, "body": answer}, "error": None}
            lines.append(json.dumps({"custom_id": asked["custom_id"], **line}))
        return {"output_file_id": self._keep("\n".join(lines)), "error_file_id": None}


class MessageServer(MessageBatchServer):
    """Anthropic's batches, with the body as the `result` of a line."""

    def __init__(self, sender: Sender) -> None:
        answer = json.dumps(QUESTIONS[sender.body.question][1])
        super().__init__(lambda asked: Reply(answer), looks=0)
        self._sender = sender

    def _result(self, number: int, place: int, params: Json) -> Json:
        if self._sender.sends(params):
            result: Json = self._sender.body.body
            return result
        return super()._result(number, place, params)


@pytest.fixture(scope="module")
def server() -> Iterator[BodyServer]:
    with BodyServer() as server:
        yield server


class Later(NamedTuple):
    """What became of another case afterwards, and the requests for it."""

    result: MetricResult | None
    requests: list[Json]


def ask_judge(name: str, body: Body, server: BodyServer) -> tuple[Sender, MetricResult, Later]:
    """What became of a question, and of a later one."""
    sender = server.senders[name] = Sender(body)
    root = server.base_url.removesuffix("v1") + name
    url = f"{root}/v1"
    quick: Any = {"quiet": 0.01, "poll": 0.01}
    match body.judge:
        case "batch":
            with LineServer(sender) as lines:
                judge: Any = OpenAIBatchJudge("m", base_url=lines.base_url, **quick)
                return sender, *_results(body, judge, sender)
        case "anthropic batch":
            with MessageServer(sender) as messages:
                judge = AnthropicBatchJudge("m", base_url=messages.address, api_key="key", **quick)
                return sender, *_results(body, judge, sender)
        case "labels":
            judge = LabelJudge("m", base_url=url)
        case "decisions":
            judge = DecisionJudge("m", base_url=url)
        case "provider":
            judge = ProviderJudge("openai/m", base_url=url, api_key="none")
        case _:
            judge = OpenAIJudge("m", base_url=url)
    return sender, *_results(body, judge, sender)


def _results(body: Body, judge: Any, sender: Sender) -> tuple[MetricResult, Later]:
    def run(text: str) -> MetricResult:
        metric = QUESTIONS[body.question][0]()
        case = LLMTestCase(input="A guest comes in.", actual_output=text)
        done = evaluate([case], [metric], model=judge, limits=LIMITS, show=False)
        (result,) = done.rows[0].metrics
        return result

    if body.warm:
        run("Good morning.")
        sender.requests.clear()
    result = run(body.text)
    count = len(sender.requests)
    afterwards = run("Good evening.") if body.expect.later is not None else None
    later = Later(afterwards, sender.requests[count:])
    del sender.requests[count:]
    return result, later


@pytest.mark.parametrize("name", FILES)
def test_a_body_is_read_as_its_file_says(name: str, server: BodyServer) -> None:
    body = body_of(name)
    expected = body.expect
    sender, result, later = ask_judge(name, body, server)
    failure = result.failure
    outcome = "ok" if failure is None else str(failure.kind)
    message = f"{outcome}: {'' if failure is None else failure.message}"
    asked = "".join(f"\n{_outline(request)}" for request in sender.requests)
    assert outcome == expected.outcome, message + asked
    if expected.score is not None:
        assert result.score == pytest.approx(expected.score, abs=1e-6), str(result.mode) + asked
    if expected.value is not None:
        assert result.steps[0].output == expected.value
    if expected.mode is not None:
        assert str(result.mode).partition(" ")[0] == expected.mode, result.mode
    least, most = expected.range
    assert least <= len(sender.requests) <= most, message + asked
    text = message.lower()
    assert [word for word in expected.words if word.lower() not in text] == [], message
    assert [word for word in expected.not_words if word.lower() in text] == [], message
    if expected.last is not None:
        assert fits(expected.last, sender.requests[-1]), asked
    if expected.later is not None:
        assert later.result is not None
        assert later.result.failure is None
        outlines = [_outline(request) for request in later.requests]
        assert fits(expected.later, later.requests[-1]), outlines


def _outline(request: Json) -> Json:
    """A request without its prompts and schemas, for messages."""
    texts = ("messages", "tools", "response_format", "format")
    kept = {key: value for key, value in request.items() if key not in texts}
    roles = [message["role"] for message in request.get("messages", ())]
    form = (request.get("response_format") or {}).get("type")
    bounded = any(_values("…maxLength", request))
    return {**kept, "format": form, "tools": "tools" in request, "bounded": bounded, "roles": roles}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("logprobs", True),
        ("seed", False),
        ("top_logprobs > 5", True),
        ("top_logprobs > 20", False),
        ("response_format.type = json_schema", True),
        ("response_format…maxLength", True),
        ("response_format…maxItems", False),
        ("messages[0].role = system", True),
        ("messages[-1].content ~ guest", True),
        ("logprobs and not seed", True),
        ("not logprobs", False),
    ],
)
def test_conditions_look_into_requests(condition: str, holds: bool) -> None:
    schema = {"properties": {"reason": {"type": "string", "maxLength": 400}}}
    request = {
        "logprobs": True,
        "top_logprobs": 20,
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a guest"}],
    }
    assert fits(condition, request) == holds


def test_the_corpus_has_bodies_of_every_server_and_topic() -> None:
    bodies = [body_of(name) for name in FILES]
    counts = Counter(body.server for body in bodies)
    assert len(bodies) >= 120
    assert [server for server in SERVERS if counts[server] < 3] == []
    topics = {body.topic for body in bodies}
    assert topics == set(Body.model_fields["topic"].annotation.__args__)  # type: ignore[union-attr]


def test_the_page_on_servers_is_made_from_the_bodies() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_server_page.py"))
    remake = "out of date: python docs/make_server_page.py"
    assert made["PAGE"].read_text(encoding="utf-8") == made["list_page"](), remake
    assert list(made["KINDS"]) == sorted({body_of(name).topic for name in FILES})


SERVERS = (
    "OpenAI", "Azure", "Anthropic", "Gemini", "Mistral", "Groq", "DeepSeek", "DashScope",
    "OpenRouter", "litellm", "vLLM", "SGLang", "TGI", "llama.cpp", "Ollama", "LM Studio",
)  # fmt: skip
