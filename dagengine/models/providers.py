"""Judges of providers under the class names that evaluation libraries have for them.

Each is one of `dagengine.judges`, made from the arguments that those names take. A node says how
it samples; a `temperature` given here goes before it, where the server's protocol has one.
"""

from __future__ import annotations

from typing import Any

from dagengine.errors import InputError
from dagengine.judges.openai import OpenAIJudge
from dagengine.judges.provider import ProviderJudge
from dagengine.unknown import Answering
from dagengine.unknown_arguments import check_names


def _million(per_token: float | None) -> str:
    return f"{(per_token or 0.0) * 1e6:.10g}"


class _Named(Answering):
    """What such a class tells of itself."""

    model: str

    def get_model_name(self) -> str:
        """The model that is asked, as the server or the provider calls it."""
        return self.model


class OpenAIModel(_Named, OpenAIJudge):
    """`OpenAIJudge` for a model of OpenAI, or of a compatible server."""

    def __init__(
        self,
        model: str = "gpt-4o",
        api_key: str | None = None,
        base_url: str | None = None,
        temperature: float | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        cost_per_input_token: float | None = None,
        cost_per_output_token: float | None = None,
    ) -> None:
        if cost_per_input_token is not None or cost_per_output_token is not None:
            price = f"{_million(cost_per_input_token)}, {_million(cost_per_output_token)}"
            hint = f"limits=Limits(prices={{{model!r}: ({price})}}), in dollars per million tokens"
            raise InputError(f"prices are settings of a run: {hint}")
        parameters = {} if temperature is None else {"temperature": temperature}
        parameters |= generation_kwargs or {}
        super().__init__(model, base_url=base_url, api_key=api_key, parameters=parameters)


GPTModel = OpenAIModel


class OllamaModel(OpenAIModel):
    """A model of Ollama, by the address that it listens on."""

    def __init__(
        self, model: str, base_url: str = "http://localhost:11434", **settings: Any
    ) -> None:
        address = f"{base_url.rstrip('/').removesuffix('/v1')}/v1"
        super().__init__(model, base_url=address, **settings)


class LocalModel(OpenAIModel):
    """A model of a local server; `base_url` is that of its OpenAI-compatible interface."""

    def __init__(self, model: str, base_url: str, **settings: Any) -> None:
        super().__init__(model, base_url=base_url, **settings)


class AzureOpenAIModel(OpenAIModel):
    """A deployment of Azure OpenAI, by the endpoint of its resource.

    The deployment is what is asked (`model`, where none is named); `api_version` means nothing at
    the address that needs none.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        deployment_name: str | None = None,
        api_version: str | None = None,
        **settings: Any,
    ) -> None:
        address = f"{base_url.rstrip('/').removesuffix('/openai/v1')}/openai/v1/"
        super().__init__(deployment_name or model, base_url=address, **settings)


class _Provided(_Named, ProviderJudge):
    provider = ""

    def __init__(
        self,
        model: str = "",
        api_key: str | None = None,
        temperature: float | None = None,
        **more: Any,
    ) -> None:
        """Raises TypeError for arguments that it does not know, and without a model."""
        name = type(self).__name__
        check_names(f"{name} has no argument", more, ("model", "api_key"))
        if not model:
            raise TypeError(f"{name} needs the name of a model: {name}('…')")
        if temperature:
            hint = "their nodes ask with temperature 0: leave it out"
            raise InputError(f"{name} has no temperature={temperature!r}; {hint}")
        options: dict[str, Any] = {"api_key": api_key} if api_key else {}
        super().__init__(f"{self.provider}/{model}", **options)


class AnthropicModel(_Provided):
    """`ProviderJudge` for Anthropic; needs its package, and ANTHROPIC_API_KEY or `api_key`."""

    provider = "anthropic"


class GeminiModel(_Provided):
    """`ProviderJudge` for Google; needs its package, and GOOGLE_API_KEY or `api_key`."""

    provider = "google"


class AmazonBedrockModel(_Provided):
    """`ProviderJudge` for Bedrock; needs the package boto3 and the credentials that it finds."""

    provider = "bedrock"
