"""Settings that most constructors of nodes share, declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from typing import Any, TypedDict, TypeVar, cast, get_type_hints

from dagengine.errors import did_you_mean
from dagengine.graph.examples_and_quotes import Example, Unsupported
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.prompts.instructions import PromptTemplate
from dagengine.prompts.quotes import QuoteMode
from dagengine.question import Parser
from dagengine.test_case import LLMTestCaseParams

# What other tools call an argument of a node.
_MEANT = {
    "scale": ("low", "high", "range", "min", "max", "minimum", "maximum", "levels", "labels"),
    "criteria": ("question", "criterion", "statement"),
    "instructions": ("task", "instruction", "question"),
    "evaluation_params": ("fields", "reads", "params", "input_fields"),
    "then": ("verdicts", "branches", "outcomes", "choices", "options"),
    "function": ("func", "fn", "code", "callable"),
    "name": ("title", "id", "node_name"),
}
# What is done in the place of an argument that no node has.
_INSTEAD = {
    "rubric": "write the levels into criteria, or scale={label: number}",
    **dict.fromkeys(
        ("weights", "aggregate", "aggregation", "combine"),
        "scores of several roots: DAGMetric(…, combine='mean'); weighted: a CodeNode with inputs",
    ),
    "threshold": "it belongs in DAGMetric(…, threshold=…)",
}
F = TypeVar("F", bound=Callable[..., None])


class NodeSettings(TypedDict, total=False):
    """What most nodes take: the nodes that they read, a name (or label), and which turns."""

    inputs: Iterable[BaseNode]
    name: str | None
    label: str | None
    turn_window: tuple[int, int] | None


class AskingSettings(NodeSettings, total=False):
    """What nodes that ask a judge take besides: a prompt, and a parser of the answers."""

    prompt: PromptTemplate | None
    parser: Parser | None


class JudgedSettings(TypedDict, total=False):
    """What nodes that judge take besides: solved examples, and whether verdicts quote the case."""

    examples: Iterable[Example]

    quote: QuoteMode | None
    quote_from: Iterable[str | LLMTestCaseParams]
    unsupported: Unsupported


class JudgingSettings(AskingSettings, JudgedSettings, total=False):
    """All settings of a node that judges."""


class ListSettings(NodeSettings, JudgedSettings, total=False):
    """Those of a node that judges a list by one question."""


def takes(settings: type[Any] | None = None) -> Callable[[F], F]:
    """Limit a constructor's `**settings` to the keys of the TypedDict `settings`, if any.

    The signature then shows every key, with the default that the base classes give it. Any
    other name raises TypeError, which names the nearest argument that the constructor has; so
    does an argument that is missing. With `settings` the constructor of the base class is called
    first, with all arguments that the constructors of base classes have: it hands on none itself.
    """

    def decorate(constructor: F) -> F:
        shown = _signature(constructor, settings)

        @wraps(constructor)
        def construct(self: object, *arguments: Any, **named: Any) -> None:
            for name in named:
                if name not in shown.parameters:
                    _, *names = shown.parameters
                    hint = _hint(name, names)
                    raise TypeError(
                        f"{type(self).__name__} has no argument {name!r}; "
                        f"{hint and f'{hint} '}it has {', '.join(names)}"
                    )
            try:
                bound = shown.bind(self, *arguments, **named)
            except TypeError as error:
                raise TypeError(f"{type(self).__name__}: {error}") from None
            if settings is not None:
                bound.apply_defaults()
                mro: Any = type(self).__mro__
                owner = next(kind for kind in mro if vars(kind).get("__init__") is construct)
                handed_on = _inherited_names(owner).intersection(shown.parameters)
                super(owner, self).__init__(**{name: bound.arguments[name] for name in handed_on})
            constructor(self, *arguments, **named)

        made: Any = construct
        made.__signature__ = shown
        return cast("F", made)

    return decorate


@cache
def _inherited_names(owner: type[Any]) -> set[str]:
    """Names of the arguments that the constructors of a class's bases take."""
    bases = [base for base in owner.__mro__[1:] if "__init__" in vars(base)]
    return set().union(*map(_parameters, bases)) - {"self"}


def _parameters(kind: type[Any]) -> Mapping[str, inspect.Parameter]:
    constructor: Any = kind.__init__
    return inspect.signature(constructor).parameters


def _hint(name: str, names: Sequence[str]) -> str:
    """Advice in the place of an argument that a node does not have; empty if unknown."""
    if name in _INSTEAD:
        return f"{_INSTEAD[name]};"
    for argument, words in _MEANT.items():
        if argument in names and name in words:
            return f"write {argument}=…;"
    return did_you_mean(name, names)


def _signature(constructor: Callable[..., None], settings: type[Any] | None) -> inspect.Signature:
    """The constructor's signature with the keys of `settings` in the place of `**settings`."""
    own = inspect.signature(constructor)
    parameters = dict(own.parameters)
    if settings is not None:
        parameters.popitem()  # the `**settings`
        defaults = {**_parameters(BaseNode), **_parameters(AskingNode)}
        for name, hint in get_type_hints(settings).items():
            parameters[name] = defaults[name].replace(annotation=hint)
    return own.replace(parameters=list(parameters.values()))
