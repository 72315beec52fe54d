"""Texts as vectors, by any server of OpenAI's `POST /v1/embeddings`, asked as a judge is."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar, Unpack

from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat, ValidationError

from dagengine.errors import JudgeError, UnsupportedError
from dagengine.judges.wire.client import EndpointJudge, EndpointSettings
from dagengine.judges.wire.completions import Counts
from dagengine.judges.wire.dialects.error_responses import unreadable
from dagengine.prompts.evidence import fence
from dagengine.prompts.instructions import parts_of
from dagengine.prompts.json_in_text import fields_of
from dagengine.prompts.parsing import valid_answer
from dagengine.question import Answer, Capabilities, Question, Usage

T = TypeVar("T", bound=BaseModel)
_PATH = "/embeddings"
_DIGITS = 6  # of a number in a vector; what is stored and recorded is shorter so


class _Vector(BaseModel):
    embedding: Annotated[list[FiniteFloat], Field(min_length=1)]


class _Reply(BaseModel):
    """An answer of the endpoint, as far as it is read."""

    data: Annotated[list[_Vector], Field(min_length=1, max_length=1)]
    usage: Annotated[Counts, BeforeValidator(fields_of)] = Counts()


def _text_of(question: Question[Any]) -> str:
    """The text of the one piece that a question shows, without its step; several in fences.

    Of a prompt of the caller's own, its user message.
    """
    try:
        step, evidence = parts_of(question.messages)
    except ValueError:
        own = (message["content"] for message in question.messages if message["role"] == "user")
        return next(own)
    if len(evidence) == 1:
        return evidence[0].text
    return fence(evidence) or step


class EmbeddingJudge(EndpointJudge):
    """Answers a question with the embedding of its text: a list of numbers.

    So limits, prices, store and replay work for embeddings as for answers. `model`, `base_url`,
    `api_key`, `client`, `parameters` and `max_bytes` are as for `OpenAIJudge`. Any server with
    OpenAI's `POST /v1/embeddings` works. Other questions are an error.
    """

    capabilities = Capabilities(text=False)

    def __init__(self, model: str, **settings: Unpack[EndpointSettings]) -> None:
        super().__init__(model, **settings)

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises JudgeError."""
        import openai

        if list(question.answer_type.model_fields) != ["output"]:
            raise UnsupportedError(
                f"{self._name} only gives vectors; use another judge for this question"
            )
        body = {"model": self.model, "input": _text_of(question), **self._parameters}
        try:
            async with self.session() as connection:
                content = await connection.sender(_PATH)(body)
            try:
                reply = _Reply.model_validate_json(content)
            except ValidationError as error:
                failure = unreadable(content, "embedding", error.errors()[0]["msg"])
                raise failure from None
            vector = [round(number, _DIGITS) for number in reply.data[0].embedding]
            raw = json.dumps({"output": vector}, separators=(",", ":"))
            usage = Usage(reply.usage.prompt_tokens)
            return Answer(valid_answer(question, {"output": vector}, raw), raw, usage=usage)
        except (JudgeError, openai.OpenAIError) as error:
            failure = self._hidden(self.failure(error, question))
        # Outside of the handler: what is raised inside keeps the other error with it.
        raise failure

    @property
    def _name(self) -> str:
        return f"embeddings of {super()._name}"
