"""What callers may give: unknown names and wrong values are refused in a sentence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from dagengine.argument_names import check_names, names_of
from dagengine.errors import InputError
from dagengine.execution.interrupts import sync
from dagengine.synthesis.values import Quota

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

# Where settings stand that other tools take as arguments of the generating methods.
_ELSEWHERE = {
    "num_evolutions": "Synthesizer(evolution_config=EvolutionConfig(num_evolutions=…))",
    "evolutions": "Synthesizer(evolution_config=EvolutionConfig(evolutions={…}))",
    "evolution_types": "Synthesizer(evolution_config=EvolutionConfig(evolutions={…}))",
    "chunk_size": "context_construction_config=ContextConstructionConfig(chunk_size=…)",
    "chunk_overlap": "context_construction_config=ContextConstructionConfig(chunk_overlap=…)",
    "max_contexts_per_document": (
        "context_construction_config=ContextConstructionConfig(max_contexts_per_document=…)"
    ),
    "scenario": "Synthesizer(styling_config=StylingConfig(scenario=…))",
    "input_format": "Synthesizer(styling_config=StylingConfig(input_format=…))",
    "expected_output_format": "Synthesizer(styling_config=StylingConfig(…))",
    "model": "Synthesizer(model=…)",
}


def door(
    method: Callable[Concatenate[S, P], Awaitable[R]],
) -> Callable[Concatenate[S, P], Awaitable[R]]:
    """The method, with unknown arguments refused in a sentence."""

    @wraps(method)
    async def call(self: S, /, *given: P.args, **settings: P.kwargs) -> R:
        name, names = method.__name__.removeprefix("a_"), names_of(method)
        for setting in settings:
            if setting not in names and (elsewhere := _ELSEWHERE.get(setting)):
                raise TypeError(f"{name}() has no argument {setting!r}: it is in {elsewhere}")
        check_names(f"{name}() has no argument", settings, names)
        return await method(self, *given, **settings)

    return call


def sync_door(method: Callable[Concatenate[S, P], Awaitable[R]]) -> Callable[Concatenate[S, P], R]:
    """A `door` for callers without an event loop (it works inside one, too)."""

    @wraps(method)
    def call(self: S, /, *given: P.args, **settings: P.kwargs) -> R:
        return sync(lambda: method(self, *given, **settings))

    call.__name__ = method.__name__.removeprefix("a_")
    return call


def require_kind(name: str, value: Any, kind: type[R]) -> R:
    """The value; raises InputError when it is of another kind."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be of the type {kind.__name__}, got {value!r:.60}")
    return value


def quotas_of(quotas: Any) -> list[Quota]:
    """The quotas as a list; raises InputError for anything else."""
    listed = isinstance(quotas, Sequence) and not isinstance(quotas, str)
    if not listed or not all(isinstance(quota, Quota) for quota in quotas):
        raise InputError(f"quotas must be a list of Quota(…), got {quotas!r:.60}")
    return list(quotas)


def topics_of(subject: Any) -> list[str]:
    """A subject, or several, each once; raises InputError for something that is not a text."""
    listed = isinstance(subject, Iterable) and not isinstance(subject, str)
    topics: list[Any] = list(subject) if listed else [subject]
    if not topics or not all(isinstance(topic, str) and topic.strip() for topic in topics):
        raise InputError(f"subject must be a text, or a list of texts, got {subject!r:.80}")
    return list(dict.fromkeys(topics))
