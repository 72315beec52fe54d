"""Checks of the arguments of nodes and graphs; each error says what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from dagengine.errors import InputError
from dagengine.test_case import LLMTestCaseParams, MultiTurnParams, field_name

T = TypeVar("T")


def of_kind(role: str, given: T, kind: Any, words: str) -> T:
    """Return a value of that kind; else raise InputError, in which `words` say what.

    A text must have a UTF-8 form: neither a request nor a file can hold another one.
    """
    if isinstance(given, str) and not given.isascii():
        require_utf8(role, given)
    if isinstance(given, kind):
        return given
    raise InputError(f"{role}= takes {words}; got {given!r:.80}")


def require_utf8(role: str, given: str) -> None:
    """Raise InputError for a text with a lone surrogate."""
    try:
        given.encode()
    except UnicodeEncodeError as error:
        lone = given[error.start]
        raise InputError(
            f"{role}= has {lone!r} at place {error.start + 1}, half of a character, which "
            f"UTF-8 cannot hold: write the whole character, or remove it; got {given!r:.80}"
        ) from None


def as_callable(role: str, given: T) -> T:
    """Return a callable or None; else raise InputError."""
    return of_kind(role, given, Callable | None, "a function")


def text(role: str, given: T) -> T:
    """Return a text; else raise InputError."""
    return of_kind(role, given, str, "a text")


def text_or_none(role: str, given: T) -> T:
    """Return a text or None; else raise InputError."""
    return of_kind(role, given, str | None, "a text")


def answer_kind(role: str, given: T, more: str = "") -> T:
    """Return a type; raises InputError for a value where a type (or `more`) belongs."""
    if given is None or isinstance(given, str | int | float | list | dict | set):
        raise InputError(f"{role}= takes a type, such as str or list[str]{more}; got {given!r:.80}")
    return given


def as_nodes(role: str, given: Any) -> list[Any]:
    """The nodes given for `role`; raises InputError when that is a single thing and no list."""
    if isinstance(given, str):
        raise InputError(f"{role}= takes a list of nodes, not the text {given!r:.80}")
    if not isinstance(given, Iterable):
        raise InputError(f"{role}= takes a list of nodes: write {role}=[…] around {given!r:.80}")
    return list(given)


def field_paths(given: Any, window: Any = None) -> tuple[str, ...]:
    """The case fields given as `evaluation_params`; raises InputError for anything else.

    What belongs to turns (`role`, `content`, and any `MultiTurnParams` that turns have) is read
    from the turns of `window`. It names the first and the last turn, both included, counted from 0,
    or from the end below 0.
    """
    fields = fields_listed(given)
    for field in fields:
        if not isinstance(field, str | LLMTestCaseParams):
            rule = "takes names of test case fields, for instance ['actual_output']"
            raise InputError(
                f"evaluation_params {rule}; read nodes with inputs=[…]; got {field!r:.80}"
            )
    turns = _turns(window)
    paths = list[str]()
    for field in fields:
        name = str(field)
        # Cases of one turn have a `retrieval_context` and `tools_called` of their own: those of
        # turns are meant in a window, or by a param of turns.
        of_turns = window is not None or isinstance(field, MultiTurnParams)
        if name in ("role", "content", "turns"):
            paths.append(turns)  # what was said, and by whom
        elif name in ("retrieval_context", "tools_called") and of_turns:
            paths.append(f"{turns}.{name}")
        else:
            paths.append(field_name(field))
    if window is not None and not any(path.startswith(turns) for path in paths):
        paths.append(turns)
    return tuple(dict.fromkeys(paths))


def fields_listed(given: Any) -> list[Any]:
    """List `evaluation_params`; raises InputError for a single text."""
    if isinstance(given, str):
        raise InputError(f"evaluation_params takes a list: [{str(given)!r}]")
    return list(given) if isinstance(given, Iterable) else [given]


def _turns(window: Any) -> str:
    """The path of the turns in a window; None stands for all of them."""
    if window is None:
        return "turns"
    if isinstance(window, tuple | list) and list(map(type, window)) == [int, int]:
        first, last = window
        # Some conversation must have such turns; what is below 0 counts from the end.
        if last < 0 <= first or (first <= last and (first < 0) == (last < 0)):
            return f"turns.{first}:{last}"
    raise InputError(
        "turn_window takes the first and the last turn, counted from 0, for instance (0, 3), "
        f"or from the end, for instance (-3, -1); got {window!r:.80}"
    )


def verdict_targets(given: Any) -> dict[Any, Any]:
    """Targets of verdicts, from `then`; raises InputError for a value that is no target."""
    if not isinstance(given, Mapping):
        raise InputError(f"then= maps verdicts to targets, such as {{True: 10}}; got {given!r:.80}")
    for verdict in given:
        of_kind("then", verdict, object, "verdicts")
    return {verdict: verdict_target(target) for verdict, target in given.items()}


def verdict_target(target: Any) -> Any:
    """`target` itself; raises InputError when it is a class where a metric or node is meant."""
    if isinstance(target, type):
        name = target.__name__
        raise InputError(f"a verdict leads to a metric or node, not to a class: write {name}(…)")
    return target
