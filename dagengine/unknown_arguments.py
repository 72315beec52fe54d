"""Arguments that nobody knows: what they were probably meant to be, in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from dagengine.errors import did_you_mean
from dagengine.limits import Limits
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
            hint = _suggestion(name, names)
            sign = "; " if hint else ". "
            raise TypeError(f"{what} {name!r}{sign}{hint}It has {', '.join(names)}")


def _suggestion(name: str, names: list[str]) -> str:
    """A sentence on the probable meaning of a name; empty if nothing is like it."""
    if _RENAMED.get(name) in names:
        return f"`{name}` is called `{_RENAMED[name]}` here. "
    limits = [field.name for field in fields(Limits)]
    limit = _LIMITS.get(name, name)
    setting = ("limits", f"Limits({limit}=…)") if limit in limits else _INSIDE.get(name)
    if setting is not None and setting[0] in names:
        return f"`{name}` belongs in `{setting[0]}={setting[1]}`. "
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
    own = [parameter.name for parameter in parameters if parameter.kind not in variable]
    return [name for name in dict.fromkeys([*own, *more]) if name != "self"]
