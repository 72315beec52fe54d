"""Judges of other providers, through instructor's own provider strings."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from dagengine.errors import (
    InputError,
    JudgeError,
    JudgeSetupError,
    ProviderError,
    RefusedError,
    UnparseableError,
    UnsupportedError,
)
from dagengine.judges.identity import SharedJudge, digest_mark, durable_name
from dagengine.judges.wire.completions import message_usage, prompt_of, read_completion
from dagengine.judges.wire.dialects.error_responses import response_error
from dagengine.judges.wire.refusals_and_loops import read_reply
from dagengine.judges.wire.requests import with_cache_mark
from dagengine.judges.wire.response_bodies import BodyReader, bound, valid_limit
from dagengine.question import NO_USAGE, Answer, Capabilities, Question, Usage
from dagengine.redaction import (
    clip_text,
    public_text,
    public_value,
    secrets_in,
    secrets_of_environment,
)

T = TypeVar("T", bound=BaseModel)
_NO_CREDENTIALS = re.compile(
    r"credential|no ?region|api[_ ]?key\b.{0,80}\b(?:set|missing|provided|required|found)",
    re.IGNORECASE | re.DOTALL,
)
_REFUSAL = "Unable to generate a response due to "
_RAW = 20_000  # characters of an answer that does not fit
# Where it is not the provider's name with _API_KEY behind it.
_VARIABLES = {
    "azure_openai": ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"),
    "bedrock": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"),
    "databricks": ("DATABRICKS_TOKEN", "DATABRICKS_HOST"),
    "vertexai": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"),
}


class _Opened(NamedTuple):
    """A client of instructor's, and the HTTP clients inside of it that are ours."""

    client: Any
    connections: list[Any]


class ProviderJudge(SharedJudge[_Opened]):
    """Answers with a model of another provider, for instance `anthropic/claude-sonnet-4-5`.

    `spec` is `provider/model`, as for instructor's `from_provider`. The package of the provider
    must be installed. Text questions and token probabilities need an OpenAI-compatible endpoint
    instead.

    A response is read up to `max_bytes` if the provider's package uses httpx, as most do. Bedrock,
    Vertex AI and your own `http_client` have no such limit.

    Anthropic is told what other questions of the case begin with, too, to keep it, and says how
    many tokens it used. Of other providers no tokens are known.
    """

    def __init__(self, spec: str, *, max_bytes: int = 4_000_000, **options: Any) -> None:
        if "client" in options:
            raise InputError(
                "ProviderJudge makes its client: leave out client= and pass its options "
                "(base_url=, api_key=), or use OpenAIJudge(client=AsyncOpenAI(…))"
            )
        self.model = spec
        # Where beginnings are kept, it pays to let one prompt go first.
        self.capabilities = Capabilities(text=False, caches_prefixes=self.hosted)
        self.max_bytes = valid_limit(max_bytes)
        self._options = options
        self._clients = {}

    def _public_state(self) -> dict[str, Any]:
        return {"_options": public_value(self._options)}

    @property
    def hosted(self) -> bool:
        """Return whether the provider keeps beginnings of prompts, as requests here ask it to."""
        return self.model.startswith("anthropic/")

    @property
    def identity(self) -> str:
        """The provider string and the options."""
        options = sorted(public_value(self._options).items())
        return f"{self.model}{digest_mark(self._options)} with {options!r}"

    @property
    def durable_identity(self) -> str | None:
        """The provider string and the options that are not secrets; None when one is an object."""
        return durable_name(f"{self.model}{digest_mark(self._options)}", self._options)

    async def _close(self, client: _Opened, *, whole: bool) -> None:
        for http in client.connections:
            await http.aclose()

    def _connect(self) -> _Opened:
        import instructor

        try:
            client = instructor.from_provider(self.model, async_client=True, **self._options)
        except Exception as error:  # noqa: BLE001 - every client has errors of its own
            raise self._setup_error(error) from None
        own = bound(client, BodyReader(self.max_bytes), self._options.values())
        inner: Any = getattr(client, "client", None)
        if isinstance(getattr(inner, "max_retries", None), int):
            inner.max_retries = 0  # the gateway retries, and counts
        return _Opened(client, own)

    def _setup_error(self, error: BaseException) -> JudgeSetupError:
        cause = clip_text(f"{type(error).__name__}: {public_text(str(error), self.secrets)}")
        provider = self.model.partition("/")[0]
        lacks = ""
        if _lacks_credentials(error):  # what to set so that the provider's client finds them
            names = _VARIABLES.get(provider, (f"{provider.upper()}_API_KEY",))
            key = " or pass api_key=" if names[0].endswith("_API_KEY") else ""
            lacks = f"; set {' and '.join(names)}{key}"
        return JudgeSetupError(f"the judge {self.model!r} cannot be set up: {cause}{lacks}")

    @property
    def secrets(self) -> list[str]:
        return [*secrets_in(self._options), *secrets_of_environment()]

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises JudgeError."""
        from instructor.core.exceptions import IncompleteOutputException, InstructorRetryException

        if question.parser is not None:
            raise UnsupportedError(
                f"{self.model} answers structured questions only; for text, use an "
                "OpenAI-compatible endpoint"
            )
        options = {}
        if question.token_limit is not None:
            options["max_tokens"] = question.token_limit
        messages = with_cache_mark(question) if self.hosted else list(question.messages)
        try:
            async with self.session() as opened:
                value = await opened.client.create(
                    response_model=question.answer_type,
                    messages=messages,
                    max_retries=0,
                    strict=False,
                    **options,
                )
        except (IncompleteOutputException, InstructorRetryException) as error:
            problem = error
        else:
            # Answers are remembered for the whole run; the completion must not be kept with them.
            completion = vars(value).pop("_raw_response", None)
            return Answer(
                value, value.model_dump_json(), usage=self._usage_of(completion), mode="provider"
            )
        # Outside of the handler: what is raised inside keeps the other error with it.
        try:
            return await self._read(question, problem)
        except JudgeError as error:
            raise self._hidden(error) from None

    def _usage_of(self, completion: Any) -> Usage:
        counts = getattr(completion, "usage", None)
        if counts is None or not self.hosted:
            return NO_USAGE
        return message_usage(dict(counts))

    async def _read(self, question: Question[T], problem: Any) -> Answer[T]:
        """The answer that instructor did not read; raises a JudgeError that says why."""
        own = problem.last_completion
        if own is None:
            raise self._failure(problem, prompt_of(question.messages))
        body = own.model_dump(warnings=False) if isinstance(own, BaseModel) else own
        if not isinstance(body, dict | list | str):
            raise UnparseableError(str(problem), clip_text(str(own), _RAW))
        text = body if isinstance(body, str) else json.dumps(body, default=str)
        completion = read_completion(text.encode(), question.messages)
        usage = self._usage_of(own)
        return await read_reply(question, completion, "provider", question.token_limit, usage)

    def _failure(self, problem: Any, prompt: str) -> JudgeError:
        """Providers' error classes differ; the HTTP status, if there is one, does not."""
        error = problem.__cause__ or problem
        # The way that bodies are read raises errors of its own, in whatever a client makes of them.
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, JudgeError):
                return cause
            cause = cause.__cause__ or cause.__context__
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, AssertionError) and _REFUSAL in text:  # of instructor
            return RefusedError(f"the model refused: {text.partition(_REFUSAL)[2]}")
        status = getattr(error, "status_code", None)
        if status is None and _lacks_credentials(error):
            return self._setup_error(error)
        if status is None:
            return ProviderError(text, transient=True)
        # Providers' clients keep the body under this name, and its words in their own.
        failure = response_error(status, getattr(error, "body", None) or str(error), prompt=prompt)
        failure.args = (f"{type(error).__name__}: {failure}",)
        return failure


def _lacks_credentials(error: BaseException) -> bool:
    """Return whether a client says that it has no key, which no further attempt changes."""
    return _NO_CREDENTIALS.search(f"{type(error).__name__}: {error}") is not None
