"""Judges of other providers, through instructor's own provider strings."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import anyio.lowlevel
from pydantic import BaseModel

from dagengine.errors import (
    JudgeError,
    JudgeSetupError,
    ProviderError,
    UnparseableError,
    UnsupportedError,
)
from dagengine.judges.identity import durable_name
from dagengine.question import Answer, Capabilities, Question
from dagengine.redaction import (
    public_text,
    public_value,
    secrets_in,
    secrets_of_environment,
    shortened,
)

T = TypeVar("T", bound=BaseModel)
_NO_CREDENTIALS = re.compile(
    r"credential|no ?region|api[_ ]?key\b.{0,80}\b(?:set|missing|provided|required|found)",
    re.IGNORECASE | re.DOTALL,
)
_RAW = 20_000  # characters of an answer that does not fit
# Where it is not the provider's name with _API_KEY behind it.
_VARIABLES = {
    "azure_openai": ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"),
    "bedrock": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"),
    "databricks": ("DATABRICKS_TOKEN", "DATABRICKS_HOST"),
    "vertexai": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"),
}


class ProviderJudge:
    """Answers with a model of another provider, for instance `anthropic/claude-sonnet-4-5`.

    `spec` is `provider/model` as instructor's `from_provider` takes it; the provider's
    package must be installed. Text questions and token probabilities need an
    OpenAI-compatible endpoint instead.

    The provider's package reads the responses: there is no limit of bytes as `OpenAIJudge` has
    one. Of an answer that does not fit the first 20,000 characters are kept.
    """

    capabilities = Capabilities(text=False)

    def __init__(self, spec: str, **options: Any) -> None:
        self.model = spec
        self._options = options
        self._clients: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but keys and connections, for another process."""
        return {**vars(self), "_options": public_value(self._options), "_clients": {}}

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @property
    def identity(self) -> str:
        """The provider string and the options."""
        return f"{self.model} with {sorted(public_value(self._options).items())!r}"

    @property
    def durable_identity(self) -> str | None:
        """The provider string and the options that are no secrets; None when one is an object."""
        return durable_name(self.model, self._options)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[None]:
        """Make the client; raises JudgeSetupError when the provider cannot be set up."""
        loop = anyio.lowlevel.current_token()
        self._clients[loop] = self._clients.get(loop) or self._connect()
        try:
            yield
        finally:
            self._clients.pop(loop, None)

    def _connect(self) -> Any:
        import instructor

        try:
            return instructor.from_provider(self.model, async_client=True, **self._options)
        except Exception as error:  # noqa: BLE001 - every client has errors of its own
            raise self._setup_error(error) from None

    def _setup_error(self, error: BaseException) -> JudgeSetupError:
        said = shortened(f"{type(error).__name__}: {self._public(error)}")
        provider = self.model.partition("/")[0]
        lacks = f"; {_variables(provider)}" if _lacks_credentials(error) else ""
        return JudgeSetupError(f"the judge {self.model!r} cannot be set up: {said}{lacks}")

    def _public(self, error: object) -> str:
        """The text of an error without secrets."""
        return public_text(str(error), [*secrets_in(self._options), *secrets_of_environment()])

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises JudgeError."""
        from instructor.core.exceptions import IncompleteOutputException, InstructorRetryException

        if question.parser is not None:
            raise UnsupportedError(f"{self.model} answers structured questions only")
        client = self._clients.get(anyio.lowlevel.current_token()) or self._connect()
        try:
            value = await client.create(
                response_model=question.answer_type,
                messages=list(question.messages),
                max_retries=0,
                strict=False,
            )
        except IncompleteOutputException as error:
            said = shortened(self._public(error.last_completion), _RAW)
            raise UnparseableError("the answer was cut off", said) from None
        except InstructorRetryException as error:
            if error.last_completion is not None:
                said = shortened(self._public(error.last_completion), _RAW)
                raise UnparseableError(shortened(self._public(error)), said) from None
            raise self._failure(error.__cause__ or error) from None
        return Answer(value, value.model_dump_json(), mode="provider")

    def _failure(self, error: BaseException) -> JudgeError:
        """Providers' error classes differ; the HTTP status, where there is one, does not."""
        status = getattr(error, "status_code", None)
        if status is None and _lacks_credentials(error):
            return self._setup_error(error)
        transient = status is None or status in (408, 409, 425, 429) or status >= 500
        text = shortened(f"{type(error).__name__}: {self._public(error)}")
        return ProviderError(text, transient=transient, status=status)


def _lacks_credentials(error: BaseException) -> bool:
    """Whether a client says that it has no key, which no further attempt changes."""
    return _NO_CREDENTIALS.search(f"{type(error).__name__}: {error}") is not None


def _variables(provider: str) -> str:
    """What to set so that a provider's client finds its credentials."""
    names = _VARIABLES.get(provider, (f"{provider.upper()}_API_KEY",))
    key = " or pass api_key=" if names[0].endswith("_API_KEY") else ""
    return f"set {' and '.join(names)}{key}"
