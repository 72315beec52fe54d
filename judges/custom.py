"""A judge made from the caller's model class.

`BaseLLM` is the shape that evaluation libraries share: `load_model`, `generate`,
`a_generate`, `get_model_name`. Any object of that shape is accepted, whether or not it
inherits from it.
"""

from __future__ import annotations

import inspect
import json
import math
from abc import ABC, abstractmethod
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from dagengine.errors import InputError, RefusedError, UnparseableError
from dagengine.judges.wire.dialects.response_shapes import refusal_in
from dagengine.prompts.answer_bounds import schema_for
from dagengine.prompts.parsing import read_aside, require_readable, valid_answer
from dagengine.prompts.prompt_echo import without_echo
from dagengine.question import NO_USAGE, Answer, Capabilities, Question, Usage
from dagengine.system.threads import in_daemon_thread
from dagengine.unknown import Answering

T = TypeVar("T", bound=BaseModel)


class BaseLLM(ABC, Answering):
    """Base class for your own model as a judge.

    `generate` takes the prompt and, if it has such a parameter, `schema`: the pydantic model of the
    answer. It returns text or an instance of the schema, or a pair of that and the cost, in US
    dollars or as a `Usage`.
    """

    def __init__(self, model: Any = None, *args: Any, **kwargs: Any) -> None:
        self.model_name = model if isinstance(model, str) else None
        self.model = self.load_model(*args, **kwargs)

    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        """Return the object that `generate` works with."""
        return None

    @abstractmethod
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a prompt; may block."""

    async def a_generate(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a prompt without blocking; by default `generate` in a worker thread."""
        return await in_daemon_thread(lambda: self.generate(*args, **kwargs))

    @abstractmethod
    def get_model_name(self) -> str:
        """The model's name: judges with different names never share answers.

        Stored answers are found by class and name. So everything that changes the answers
        (temperature, fine-tuning, system prompt) must be part of the name.
        """


def has_any(model: object, *names: str) -> bool:
    """Return whether an object has a method of one of these names."""
    return any(callable(getattr(model, name, None)) for name in names)


class ChatModel:
    """A chat model of the LangChain shape (`ainvoke` or `invoke`) as a custom model.

    What it returns is text, or has it in `content`: as text, or as a list of parts.
    """

    def __init__(self, model: Any) -> None:
        self._model = self.named_code = model

    async def a_generate(self, prompt: str) -> tuple[str, Usage]:
        """The text of the model's answer, and the tokens that the model says it took."""
        ask: Any = getattr(self._model, "ainvoke", None)
        if ask is not None:
            answer = await ask(prompt)
        else:
            answer = await in_daemon_thread(lambda: self._model.invoke(prompt))
        usage = getattr(answer, "usage_metadata", None) or {}
        tokens = Usage(usage.get("input_tokens") or 0, usage.get("output_tokens") or 0)
        content = getattr(answer, "content", answer)
        if isinstance(content, list):  # parts that are no text (pictures, calls of tools) left out
            texts = (part.get("text") if isinstance(part, dict) else part for part in content)
            content = "".join(text for text in texts if isinstance(text, str))
        if not isinstance(content, str):
            raise UnparseableError(
                f"the model returned {type(answer).__name__}, not text", repr(answer)
            )
        return content, tokens

    def get_model_name(self) -> str:
        """The name of the model, where the object tells one."""
        names = (getattr(self._model, name, None) for name in ("model_name", "model"))
        return next((name for name in names if isinstance(name, str)), type(self._model).__name__)


class CustomJudge:
    """Asks your own model: any object with the methods of `BaseLLM`. Blocking calls run in worker
    threads.
    """

    capabilities = Capabilities()

    def __init__(self, llm: Any) -> None:
        if not has_any(llm, "generate", "a_generate"):
            raise InputError(f"{llm!r} has neither `generate` nor `a_generate`")
        self._llm, self.named_code = llm, getattr(llm, "named_code", llm)
        coroutine = getattr(llm, "a_generate", None)
        if getattr(coroutine, "__func__", None) is BaseLLM.a_generate:
            coroutine = None  # it only hands on to `generate`, whose parameters matter
        # Decorated coroutine functions often are plain functions that return an awaitable.
        alone = coroutine is not None and not callable(getattr(llm, "generate", None))
        self._async: Any = coroutine if alone or inspect.iscoroutinefunction(coroutine) else None
        self._call = cast(Any, self._async or getattr(llm, "generate", None) or coroutine)
        self._takes_schema = "schema" in inspect.signature(self._call).parameters

    @property
    def model(self) -> str:
        """The model's own name."""
        return str(getattr(self._llm, "get_model_name", lambda: "")() or "")

    @property
    def identity(self) -> str:
        """The class, the model's own name, and which object it is.

        Two objects of one name may differ in what they were set up with.
        """
        return f"{self._kind} {self.model} {id(self._llm):x}"

    @property
    def durable_identity(self) -> str | None:
        """The class and the model's own name; None for a model without a name."""
        return f"{self._kind} {self.model}" if self.model else None

    @property
    def _kind(self) -> str:
        kind = type(self._llm)
        return f"{kind.__module__}.{kind.__qualname__}"

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises UnparseableError when the text holds no answer."""
        structured = self._takes_schema and question.parser is None
        # The messages as one text; the schema is written out when it cannot be passed
        parts = list(map(itemgetter("content"), question.messages))
        if not structured and question.parser is None:
            schema = json.dumps(schema_for(question), ensure_ascii=False, separators=(",", ":"))
            parts.append(f"Answer with one JSON object that follows this schema:\n{schema}")
        prompt = "\n\n".join(parts)
        extra = {"schema": question.answer_type} if structured else {}
        if self._async is not None:
            output = self._async(prompt, **extra)
            if inspect.isawaitable(output):  # not so when it only looks asynchronous
                output = await output
        else:
            # The gateway bounds the calls: no further limit, with the deadline running.
            output = await in_daemon_thread(lambda: self._call(prompt, **extra))
        # Some models return a pair: their answer, and a number of dollars or a `Usage`.
        usage, cost = NO_USAGE, None
        if isinstance(output, tuple) and len(output) == 2:
            output, bill = output
            if isinstance(bill, Usage):
                usage = bill
            elif isinstance(bill, int | float) and not isinstance(bill, bool):
                cost = float(bill) if 0 <= bill < math.inf else None
        answer = await self._read(question, prompt, output)
        return replace(answer, usage=usage, cost=cost)

    async def _read(self, question: Question[T], prompt: str, output: Any) -> Answer[T]:
        if isinstance(output, str):
            text = without_echo(prompt, output)
            try:
                return Answer(await read_aside(question, text), text, mode="text")
            except UnparseableError:
                if refusal_in(text):
                    raise RefusedError(f"the model refused: {text.strip()}") from None
                raise
        if isinstance(output, BaseModel):
            output = output.model_dump()
        if isinstance(output, dict):
            try:
                raw = json.dumps(output, ensure_ascii=False, default=str)
            except (TypeError, ValueError, RecursionError) as error:
                message = f"the output of the model has no JSON form: {error}"
                raise UnparseableError(message) from None
            require_readable(raw)
            return Answer(valid_answer(question, output, raw), raw, mode="schema")
        raise UnparseableError(
            f"the model returned {type(output).__name__}, not text", repr(output)
        )
