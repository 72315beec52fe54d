"""From what people pass as `model=` to a judge."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

from dagengine.errors import InputError, did_you_mean, nearest
from dagengine.judges.custom import ChatModel, CustomJudge, has_any
from dagengine.judges.deciding.decision_judge import DecisionJudge, LabelJudge
from dagengine.judges.deciding.decision_protocols import FORMS
from dagengine.judges.default import BUILT_IN, judge_settings
from dagengine.judges.openai import OpenAIJudge
from dagengine.judges.provider import ProviderJudge
from dagengine.judges.wire.client import EndpointJudge
from dagengine.question import Capabilities, Judge
from dagengine.redaction import is_key
from dagengine.system.entry_points import JUDGES, installed_words, load_offer, offers

FILE = "gguf:"
"""What the path of a model file is behind."""

# Prefixes of instructor's provider strings; any other name is a model of the endpoint.
PROVIDERS = frozenset(
    (
        *("anthropic", "azure_openai", "bedrock", "cerebras", "cohere", "databricks"),
        *("deepseek", "fireworks", "google", "groq", "litellm", "mistral", "ollama"),
        *("openai", "openrouter", "perplexity", "together", "vertexai", "writer", "xai"),
    )
)


def as_judge(
    model: Any = None, *, base_url: str | None = None, api_key: str | None = None
) -> Judge:
    """The judge that `model` names.

    None is the default judge (see `judges.default`; gpt-4o where none is set). A string is a
    model's name, or `provider/model` for another provider (`ollama/model` for that server on this
    machine); with `base_url` it names a model of that server, and the key is `api_key` or
    DAGENGINE_API_KEY. `decisions/model`, `systemone/model` and `labels/model` name judges that only
    decide, with `base_url` as well; `decisions/model+gpt-4o` names their writer. `gguf:PATH` is a
    model file on this machine, and packages offer judges by name. An object is a judge already, or
    has the shape of `BaseLLM` or of LangChain's chat models. Raises InputError for anything else.
    """
    if model is not None and not isinstance(model, str):
        return _judge_of_object(model)
    chosen = judge_settings(model, base_url)
    judge = _judge_named(chosen.model, chosen.base_url, api_key or chosen.key())
    # For instance what `judge check` found to switch thoughts off.
    if chosen.tuning.parameters and isinstance(judge, EndpointJudge):
        return cast("Judge", judge.with_parameters(chosen.tuning.parameters))
    return judge


def _judge_of_object(model: Any) -> Judge:
    """The judge that an object is, or that asks it; raises InputError for any other object."""
    if isinstance(model, type):
        raise InputError(f"{model!r} is a class, not a judge: pass an object of it")
    answers = callable(getattr(model, "answer", None))
    # A class of `Judge` itself inherits properties that are None.
    lacking = []
    for name, kind in (("identity", str), ("capabilities", Capabilities)):
        if not isinstance(getattr(model, name, None), kind):
            lacking.append(f"`{name}` (a {kind.__name__})")
    if answers and not lacking:
        return cast(Judge, model)
    # Asked before `generate`: chat models have another kind of it.
    if has_any(model, "ainvoke", "invoke") and not hasattr(model, "a_generate"):
        return CustomJudge(ChatModel(model))
    if has_any(model, "generate", "a_generate"):
        return CustomJudge(model)
    if answers:
        raise InputError(
            f"{model!r:.200} has `answer`, but is no judge without {' and '.join(lacking)}: see "
            "dagengine.question.Judge. A class with `generate(prompt)` needs no more than that, "
            "and ScriptedJudge(function) of dagengine.judges takes a function of the question"
        )
    hint = ""
    if callable(model):
        hint = (
            ". A function that takes the question and returns the verdict: ScriptedJudge(function) "
            "of dagengine.judges. One that takes the prompt: a class with it as `generate`"
        )
    elif isinstance(model, list | tuple):
        hint = (
            ". Several judges: judged_by(metric, [judge, …]) of dagengine.voting, which returns "
            "the metric with them"
        )
    raise InputError(
        f"{model!r} is not a judge: pass a model name, an object with `answer`, or one with "
        f"`generate`, `a_generate`, `invoke` or `ainvoke`{hint}"
    )


def _judge_named(name: str, base_url: str | None, api_key: str | None) -> Judge:
    """The judge of a name as `--judge` takes it; raises InputError for what names no model."""
    if name.startswith(FILE):
        path = name.removeprefix(FILE)
        if base_url is not None:
            raise InputError(
                f"{FILE}{path} is a model file, which needs no server: leave out base_url "
                "(--base-url)"
            )
        from dagengine.judges.local.gguf import GGUFJudge  # few need it

        return GGUFJudge(path)
    provider, _, model = name.partition("/")
    if provider == "labels":
        return LabelJudge(model or BUILT_IN, base_url=base_url, api_key=api_key)
    if provider in FORMS:
        decider, _, writer = model.partition("+")
        return DecisionJudge(
            decider, form=provider, writer=writer or None, base_url=base_url, api_key=api_key
        )
    if base_url is None and name in offers(JUDGES):
        return _judge_of_object(load_offer(JUDGES, name, _model_called(name)))
    if base_url is not None:  # whatever stands before a slash there is a part of the name
        return OpenAIJudge(name, base_url=base_url, api_key=api_key)
    if model and provider in PROVIDERS:
        return _judge_of_provider(provider, model, api_key)
    # Nobody calls a model so; sent on, the first would leave this machine as a model's name.
    if is_key(name):
        raise InputError(
            "model= (--judge) is the name of a model, such as gpt-4o, and this text has the form "
            "of a key: put the key into the environment variable OPENAI_API_KEY (or that of its "
            "provider, such as ANTHROPIC_API_KEY)"
        )
    if name.endswith(".gguf"):
        raise InputError(f"{name!r:.200} is a model file: write {FILE}{name:.200}")
    return OpenAIJudge(name, api_key=api_key)


def _judge_of_provider(provider: str, model: str, api_key: str | None) -> Judge:
    if provider == "openai":
        return OpenAIJudge(model, api_key=api_key)
    if provider == "ollama":
        # The address of Ollama, which its own environment variable may name without a scheme
        host = os.environ.get("OLLAMA_HOST") or "localhost:11434"
        address = host if "://" in host else f"http://{host}"
        return OpenAIJudge(model, base_url=f"{address.rstrip('/')}/v1", api_key=api_key)
    options: dict[str, Any] = {"api_key": api_key} if api_key else {}
    return ProviderJudge(f"{provider}/{model}", **options)


def _model_called(name: str) -> str:
    """Meaning of a name besides an installed judge; empty if no provider has a model of it."""
    from genai_prices.data import providers  # as in `completion`

    models = (model.id for provider in providers for model in provider.models)
    is_model = name.partition("/")[0] in PROVIDERS or name in models
    return f"the model openai/{name}" if is_model else ""


def require_provider(name: str) -> None:
    """Raise InputError for a provider that does not exist, or nearly the name of a package's judge.

    Only where no server of one's own is set, which may call its models so.
    """
    near = nearest(name, offers(JUDGES), cutoff=0.8)
    if near not in ("", name) and not (os.environ.get("OPENAI_BASE_URL") or _model_called(name)):
        raise InputError(
            f"{name!r:.200} is no known model; {installed_words(JUDGES, name)}; for a model of "
            f"this name write openai/{name:.200}"
        )
    provider, slash, _ = name.partition("/")
    providers = sorted({*PROVIDERS, *FORMS, "labels"})
    if not slash or provider in providers or os.environ.get("OPENAI_BASE_URL"):
        return
    raise InputError(
        f"{name!r:.200}: there is no provider {provider!r:.80} (a model of your own server "
        "also needs its address, base_url= or --base-url); "
        + (did_you_mean(provider, providers) or f"providers are {', '.join(sorted(PROVIDERS))}")
    )


@asynccontextmanager
async def open_judges(judges: Sequence[Judge]) -> AsyncIterator[None]:
    """Open the sessions of all judges that have one; raises JudgeSetupError."""
    async with AsyncExitStack() as stack:
        for judge in dict.fromkeys(judges):
            session = getattr(judge, "session", None)
            if session is not None:
                await stack.enter_async_context(session())
        yield
