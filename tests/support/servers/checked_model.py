"""A model that answers the questions of a checkup over HTTP, with a switch for each vice."""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from dagengine.checkup.questions import EASY
from servers.openai_server import Json, Reply, asked_schema, completion_of

_PASSWORD = re.compile(r"the (\w+) door\?")


@dataclass(frozen=True)
class CheckedModel:
    """What `OpenAIServer` answers; by default a good judge.

    `cut` is how many words of a prompt the server keeps (the last ones), `refuse` how many it
    takes, `always` the one verdict. Without `schema` the model answers in prose, without `bounds`
    it writes on. `mass` is the probability of a verdict (None: no probabilities); a model that
    `thinks` does so unless the request says `quiet`.
    """

    cut: int | None = None
    refuse: int | None = None
    always: bool | None = None
    schema: bool = True
    bounds: bool = True
    mass: float | None = 0.9
    thinks: bool = False
    quiet: str = "reasoning_effort"

    def __call__(self, body: Json) -> Reply:
        body = {**body, "messages": self._read(body)}
        words = len(" ".join(message["content"] for message in body["messages"]).split())
        if self.refuse is not None and words > self.refuse:
            return Reply(f"the request has {words} tokens, the window {self.refuse}", status=400)
        text = self._text(body)
        limit = body.get("max_tokens", math.inf)
        if self.thinks and self.quiet not in body:
            text = f"<think>{' hm' * 100}</think>{text}"
        written = text.split()
        cut = len(written) > limit
        if cut:
            text = " ".join(written[: int(limit)])
        reply = Reply(
            text,
            finish_reason="length" if cut else "stop",
            logprobs=self._logprobs(body, text) if body.get("logprobs") else None,
        )
        return Reply(body=json.dumps(completion_of(body, reply)))

    def _read(self, body: Json) -> list[Json]:
        """The messages, of which a server that cuts keeps the end."""
        messages: list[Json] = body["messages"]
        if self.cut is None:
            return messages
        last = messages[-1]["content"].split(" ")
        return [*messages[:-1], {**messages[-1], "content": " ".join(last[-self.cut :])}]

    def _text(self, body: Json) -> str:
        prompt: str = body["messages"][-1]["content"]
        if "story" in prompt:
            return " ".join(f"word{number}" for number in range(500))
        door = _PASSWORD.search(prompt)
        if door is not None:
            word = re.search(rf"password of the {door[1]} door is (\w+)", prompt)
            return word[1] if word else "unknown"
        if "yes or no" in prompt:
            return "yes"
        schema = asked_schema(body)
        if schema is None:
            return "Paris"
        return self._structured(prompt, schema)

    def _structured(self, prompt: str, schema: Json) -> str:
        if not self.schema:
            return "I would say that this is a good answer."
        fields: dict[str, Any] = schema["properties"]
        if "output" in fields:
            months = ["January is cold."[:20]] * 3
            return json.dumps({"output": months if self.bounds else ["x" * 40] * 12})
        if "score" in fields:
            return '{"score": 10}'
        if "enum" in fields["verdict"]:
            return '{"verdict": "purple"}'
        truth = next((right for _, output, right in EASY if f"\n{output}\n" in prompt), None)
        verdict = truth if self.always is None else self.always
        verdict = True if verdict is None else verdict
        reason = {"reason": "So it is."} if "reason" in fields else {}
        return json.dumps({**reason, "verdict": verdict})

    def _logprobs(self, body: Json, text: str) -> list[Json] | None:
        if self.mass is None:
            return None
        tokens = re.findall(r'"|[a-z]+|1|0|[^"a-z10]+', text)
        options = ("yes", "purple", "true", "false")
        return [_entry(token, self.mass if token in options else 1.0) for token in tokens]


def _entry(token: str, chance: float) -> Json:
    others = [] if chance == 1.0 else [("other", 1 - chance)]
    alternatives = [
        {"token": text, "logprob": math.log(share)} for text, share in [(token, chance), *others]
    ]
    return {"token": token, "logprob": math.log(chance), "top_logprobs": alternatives}
