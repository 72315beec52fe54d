"""What the benchmark server answers: the first thing that the asked schema allows.

The schema is that of `response_format` or of the first tool, or one that stands in a message
behind the word `json_schema`, as clients without structured output paste it. Without any
schema the answer is a rating with its reason, which is what is asked for in plain text.

Every text holds a mark of the request, so that equal requests have equal answers and different
requests have different ones: an engine that shares answers must not find more to share than
with a model.
"""

from __future__ import annotations

import functools
import json
import math
import re
import zlib
from typing import Any

Json = dict[str, Any]

MARK = "0badcafe"
SENTENCE = f"The text says so in part {MARK}, where it names the day and the reason."
USUAL_ITEMS = 2
RATING = {"reason": SENTENCE, "score": 8}
_TOKEN = re.compile(r"\w+|\W")


def completion(body: Json, raw: bytes) -> bytes:
    """The whole answer to a chat request, of which `raw` are the bytes."""
    schema, tool = asked_schema(body)
    alternatives = (body.get("top_logprobs") or 0) if body.get("logprobs") else 0
    template = _template(json.dumps(schema), tool, alternatives)
    count = b'"prompt_tokens": %d' % max(1, len(raw) // 4)  # a judge notices one that never changes
    answer = template.replace(MARK.encode(), b"%08x" % zlib.crc32(raw))
    return answer.replace(b'"prompt_tokens": 500', count)


def embeddings(body: Json) -> bytes:
    """One short vector per text, equal for equal texts."""
    given = body["input"]
    texts = [given] if isinstance(given, str) else given
    data = [
        {"object": "embedding", "index": place, "embedding": _vector(str(text))}
        for place, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    about = {"object": "list", "model": "benchmark", "usage": usage}
    return json.dumps({**about, "data": data}).encode()


def decisions(body: Json) -> bytes:
    """The first option of every question, with nine tenths of the odds."""
    answers = [_decided(question) for question in body["questions"]]
    usage = {"input_tokens": len(body["input"]) // 4, "output_tokens": len(answers)}
    return json.dumps({"answers": answers, "model": "benchmark", "usage": usage}).encode()


def _decided(question: Json) -> Json:
    base: Json = {"type": question["type"], "name": question.get("name")}
    if question["type"] == "predicate":
        return {**base, "probability": 0.9}
    if question["type"] == "choice":
        values = [option["value"] for option in question["choices"]]
        odds = [{"value": value, "probability": chance} for value, chance in _odds(values)]
        return {**base, "choice": values[0], "confidence": 0.9, "probabilities": odds}
    labels = [level["label"] for level in question["levels"]]
    odds = [
        {"label": label, "value": place, "probability": chance}
        for place, (label, chance) in enumerate(_odds(labels))
    ]
    return {**base, "score": 0.1, "confidence": 0.9, "probabilities": odds}


def _odds(options: list[Any]) -> list[tuple[Any, float]]:
    rest = 0.1 / (len(options) - 1)
    return [(option, rest if place else 0.9) for place, option in enumerate(options)]


def _vector(text: str) -> list[float]:
    return [1.0 + byte / 255 for byte in zlib.crc32(text.encode()).to_bytes(4, "big")]


def asked_schema(body: Json) -> tuple[Json | None, str | None]:
    """The schema that the answer has to follow, and the tool that it calls, if any."""
    form = body.get("response_format") or {}
    if "json_schema" in form:
        return form["json_schema"]["schema"], None
    if body.get("tools"):
        function = body["tools"][0]["function"]
        return function["parameters"], function["name"]
    return next(filter(None, map(_pasted, body["messages"])), None), None


def _pasted(message: Json) -> Json | None:
    text = message.get("content")
    if not isinstance(text, str) or "json_schema" not in text:
        return None
    start = text.find("{", text.index("json_schema"))
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@functools.lru_cache(maxsize=10_000)
def _template(schema_text: str, tool: str | None, alternatives: int) -> bytes:
    """An answer to a schema (`null`: none), with the mark that every answer replaces."""
    schema = json.loads(schema_text)
    value = RATING if schema is None else instance(schema, schema)
    text = json.dumps(value)
    message: Json = {"role": "assistant", "content": text, "refusal": None}
    if tool is not None:
        call = {"id": "call_0", "type": "function", "function": {"name": tool, "arguments": text}}
        message = {**message, "content": None, "tool_calls": [call]}
    logprobs = {"content": _tokens(text, alternatives), "refusal": None} if alternatives else None
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": logprobs}
    usage = {"prompt_tokens": 500, "completion_tokens": 50, "total_tokens": 550}
    about = {"id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": "benchmark"}
    return json.dumps({**about, "choices": [choice], "usage": usage}).encode()


def _tokens(text: str, alternatives: int) -> list[Json]:
    """Every token with its alternatives: for a number its neighbours, else other words."""
    return [_token(token, alternatives) for token in _TOKEN.findall(text)]


def _token(token: str, count: int) -> Json:
    others = [str(int(token) + place) if token.isdecimal() else f"{token}{place}"
              for place in range(1, count)]  # fmt: skip
    likely = [token, *others]
    each = [
        {"token": one, "logprob": math.log(0.5 ** (place + 1)), "bytes": None}
        for place, one in enumerate(likely)
    ]
    return {**each[0], "top_logprobs": each[:count]}


def instance(schema: Json, root: Json) -> Any:
    """The first thing the schema allows; `root` is where its references point into."""
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].split("/")[1:]:
            target = target[step]
        return instance(target, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    branches = schema.get("anyOf") or schema.get("allOf")
    return instance(branches[0], root) if branches else _instance_of_type(schema, root)


def _instance_of_type(schema: Json, root: Json) -> Any:
    kind = schema.get("type")
    if kind == "string":
        return SENTENCE.ljust(schema.get("minLength", 0), "!")[: schema.get("maxLength")]
    if kind == "array":
        return _items(schema, root)
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
    if kind in ("boolean", "null"):
        return True if kind == "boolean" else None
    return {name: instance(part, root) for name, part in schema.get("properties", {}).items()}


def _items(schema: Json, root: Json) -> list[Any]:
    """Different items: what a list repeats counts once."""
    count = max(schema.get("minItems", 0), min(USUAL_ITEMS, schema.get("maxItems", USUAL_ITEMS)))
    item = json.dumps(instance(schema["items"], root))
    return [json.loads(item.replace(MARK, f"{MARK} {place}")) for place in range(1, count + 1)]
