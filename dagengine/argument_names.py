"""Arguments that nobody knows: what they were probably meant to be, in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from dagengine.errors import did_you_mean
from dagengine.gateway.limits import Limits
from dagengine.unknown import answer_argument

# What other tools and the command line call an argument.
_RENAMED = {
    "judge": "model",
    "llm": "model",
    "evaluation_model": "model",
    "cache": "store",
    "cases": "test_cases",
    "data": "test_cases",
    "dataset": "test_cases",
    "output_dir": "out",
    "trace": "tracer",
    "progress": "show",
    "print_results": "show",
    "show_indicator": "show",
    "verbose": "show",
    "template_class": "evaluation_template",
    "num_goldens": "num_initial_goldens",
}
# What belongs into the value of an argument.
_INSIDE = {
    "api_key": ("model", "OpenAIJudge(…, api_key=…)"),
    "base_url": ("model", "OpenAIJudge(…, base_url=…)"),
    "replay": ("store", "Store(…, replay=True)"),
}
# What another call, or another setting, does.
_INSTEAD = {
    "repeat": "repeat(test_cases, metrics, times=…) of dagengine.reliability asks again",
    "resume": "with store='answers.db' the same call goes on where it was interrupted",
}
# What other tools call a limit.
_LIMITS = {
    "concurrency": "max_in_flight",
    "cost_limit": "budget",
    "max_budget": "budget",
    "max_concurrency": "max_in_flight",
    "max_concurrent": "max_in_flight",
    "max_cost": "budget",
    "max_workers": "max_in_flight",
    "max_retries": "attempts",
    "retries": "attempts",
    "timeout": "call_timeout",
}


def check_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError for the first name in `given` that is not in `known`.

    `what` begins the message, for instance `evaluate() has no argument`.
    """
    names = list(known)
    for name in given:
        if name not in names:
            meant = _meant(name, names)
            sign = "; " if meant else ". "
            raise TypeError(f"{what} {name!r}{sign}{meant}It has {', '.join(names)}")


def _meant(name: str, names: list[str]) -> str:
    """What was probably meant, in a sentence; empty if nothing is like it."""
    if _RENAMED.get(name) in names:
        return f"`{name}` is called `{_RENAMED[name]}` here. "
    limits = [field.name for field in fields(Limits)]
    limit = _LIMITS.get(name, name)
    place = ("limits", f"Limits({limit}=…)") if limit in limits else _INSIDE.get(name)
    if place is not None and place[0] in names:
        return f"`{name}` belongs in `{place[0]}={place[1]}`. "
    instead = answer_argument(name) or ("store" in names and _INSTEAD.get(name))
    if instead:
        return f"{instead}. "
    near = did_you_mean(name, names)
    if not near and "limits" in names and (near := did_you_mean(name, limits)):
        near += " It belongs in `limits=Limits(…)`."
    return near and f"{near} "


def names_of(function: Callable[..., Any], more: Iterable[str] = ()) -> list[str]:
    """The names of a function's parameters without `self`, then `more`, each once."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind not in variable and parameter.name != "self"
    ]
    return list(dict.fromkeys([*names, *more]))
