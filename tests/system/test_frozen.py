"""Values that are made quickly are frozen dataclasses in every other way."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Generic, TypeVar, get_type_hints

import pytest
from pydantic import BaseModel

from dagengine.graph.node_values import Given, NodeValue
from dagengine.question import Answer, Decision
from dagengine.results import CaseResult, MetricResult, OutcomeKind, Step
from dagengine.system.frozen import quick_init

T = TypeVar("T")


class Said(BaseModel):
    verdict: bool


@quick_init
@dataclass(frozen=True, slots=True)
class Value(Generic[T]):
    first: T
    second: int = 2
    third: str = field(default="3", compare=False)

    def __post_init__(self) -> None:
        if self.second < 0:
            raise ValueError("negative")


@dataclass(frozen=True, slots=True)
class Plain(Generic[T]):
    first: T
    second: int = 2
    third: str = field(default="3", compare=False)


def test_it_is_what_a_frozen_dataclass_is() -> None:
    value = Value("a", third="c")
    assert repr(value) == "Value(first='a', second=2, third='c')"
    assert value == Value("a", third="another") != Value("b")
    assert hash(value) == hash(Value("a"))
    assert replace(value, second=5) == Value("a", 5)
    assert inspect.signature(Value) == inspect.signature(Plain)
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(twin) is Value
        assert twin == value


@pytest.mark.parametrize("kind", [Value, NodeValue, Step, MetricResult, CaseResult, Answer])
def test_the_annotations_of_its_init_are_found_where_the_class_is(kind: type) -> None:
    hints = get_type_hints(vars(kind)["__init__"])
    assert list(hints) == [*(field.name for field in fields(kind)), "return"]


@pytest.mark.parametrize("name", ["first", "fourth", "__class__"])
def test_it_cannot_be_changed(name: str) -> None:
    # Of a name that is no field, frozen dataclasses with slots raise a TypeError (gh-91126).
    for value in (Value("a"), Plain("a")):
        with pytest.raises((FrozenInstanceError, TypeError)):
            setattr(value, name, object)


def test_a_subclass_keeps_its_class_and_may_have_more() -> None:
    class Same(Value[str]):
        __slots__ = ()

    @dataclass(frozen=True, slots=True)
    class More(Value[str]):
        fourth: int = 4

    assert type(Same("a", third="c")) is Same
    assert Same("a", third="c").third == "c"
    assert More("a", fourth=5) == More("a", 2, "3", 5)
    with pytest.raises(ValueError, match="negative"):
        Same("a", -1)


def test_arguments_are_checked_as_ever() -> None:
    with pytest.raises(ValueError, match="negative"):
        Value("a", -1)
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'first'"):
        Value()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'fourth'"):
        Value("a", fourth=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "value",
    [
        NodeValue(1, verdict="yes"),
        Given((("input", "x"),), ()),
        Step("node", "code", OutcomeKind.OK, seconds=0.5),
        MetricResult("metric", 1.0, True, "because"),
        CaseResult(0, "case 0", ()),
        Answer(Said(verdict=True), cost=0.1),
        Decision("predicate", "Is it?", ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_a_run_are_what_they_were_made_of(value: object) -> None:
    kind = type(value)
    given = {part.name: getattr(value, part.name) for part in fields(value)}  # type: ignore[arg-type]
    twin = pickle.loads(pickle.dumps(value))
    assert {part.name: getattr(twin, part.name) for part in fields(twin)} == given
    assert kind.__eq__ is object.__eq__ or kind(**given) == value
    with pytest.raises(FrozenInstanceError):
        setattr(value, next(iter(given)), None)
