"""Checks of the arguments of nodes and graphs; each error says what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dagengine.errors import InputError
from dagengine.test_case import LLMTestCaseParams, field_name


def listed(role: str, given: Any) -> list[Any]:
    """The nodes given for `role`; raises InputError when that is a single thing and no list."""
    if isinstance(given, str):
        raise InputError(f"{role}= takes a list of nodes, not the text {given!r:.80}")
    if not isinstance(given, Iterable):
        raise InputError(f"{role}= takes a list of nodes: write {role}=[…] around {given!r:.80}")
    return list(given)


def field_paths(given: Any) -> tuple[str, ...]:
    """The case fields given as `evaluation_params`; raises InputError for anything else."""
    if isinstance(given, str):
        raise InputError(f"evaluation_params takes a list: [{str(given)!r}]")
    found = list(given) if isinstance(given, Iterable) else [given]
    for one in found:
        if not isinstance(one, str | LLMTestCaseParams):
            what = "names fields of the test case, such as ['actual_output']"
            raise InputError(
                f"evaluation_params {what}; nodes are read by inputs=[…]; got {one!r:.80}"
            )
    return tuple(dict.fromkeys(map(field_name, found)))


def verdict_targets(given: Any) -> dict[Any, Any]:
    """What verdicts lead to, as given in `then`; raises InputError for what can be no target."""
    if not isinstance(given, Mapping):
        raise InputError(f"then= maps verdicts to targets, such as {{True: 10}}; got {given!r:.80}")
    return {verdict: verdict_target(target) for verdict, target in given.items()}


def verdict_target(target: Any) -> Any:
    """`target` itself; raises InputError when it is a class where a metric or node is meant."""
    if isinstance(target, type):
        name = target.__name__
        raise InputError(f"a verdict leads to a metric or node, not to a class: write {name}(…)")
    return target
