"""Graphs with a problem and their sound twins, and what holds for each of these pairs."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dagengine.compiler import check, compile_metrics
from dagengine.errors import GraphError, Problem, Severity
from dagengine.graph import Graph
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import BaseNode, BinaryJudgementNode, TaskNode

ACTUAL = ("actual_output",)
Build = Callable[[bool], DAGMetric]


@dataclass(frozen=True)
class Example:
    """A metric that has a problem when `build(True)` makes it, and none at all otherwise."""

    code: str
    where: str
    build: Build
    severity: Severity


class Examples(list[Example]):
    """A table of pairs; called as a decorator it takes up one more."""

    def __call__(
        self, code: str, where: str, severity: Severity = "error"
    ) -> Callable[[Build], Build]:
        """Put a pair of graphs into the table; `where` is what the problem must name."""

        def keep(build: Build) -> Build:
            self.append(Example(code, where, build, severity))
            return build

        return keep


def yes_no(
    name: str, yes: Any = 10, no: Any = 0, reads: tuple[str, ...] = ACTUAL, **more: Any
) -> BinaryJudgementNode:
    """A binary judgement written from the child's side."""
    return BinaryJudgementNode(
        f"Is it {name}?", evaluation_params=reads, then={True: yes, False: no}, name=name, **more
    )


def task(label: str, *children: BaseNode, **more: Any) -> TaskNode:
    more.setdefault("evaluation_params", ACTUAL)
    return TaskNode(f"Prepare the {label}", label, list(children), **more)


def metric(root: Any, *more: Any, name: str = "Tested", **settings: Any) -> DAGMetric:
    return DAGMetric(name, Graph(root_nodes=[root, *more]), **settings)


def under_a_verdict(inner: DAGMetric) -> DAGMetric:
    return metric(yes_no("long", no=inner), name="Outer")


def problems_of(tested: DAGMetric) -> list[Problem]:
    return check(tested.spec())[0]


def codes_of(tested: DAGMetric) -> list[str]:
    return [problem.code for problem in problems_of(tested)]


def codes_in(module: ModuleType) -> set[str]:
    """The codes that a module reports: first arguments of calls of `report` and `Problem`."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    made = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in ("report", "Problem")]
    first = [call.args[0] for call in made if call.args]
    return {a.value for a in first if isinstance(a, ast.Constant) and isinstance(a.value, str)}


def named(one: Example) -> str:
    return f"{one.code}-{one.build.__name__}"


def the_problem_has_a_name_and_a_hint(one: Example) -> None:
    found = [problem for problem in problems_of(one.build(True)) if problem.code == one.code]
    assert found, f"{one.code} is not among {codes_of(one.build(True))}"
    assert any(one.where in f"{problem.where}: {problem.message}" for problem in found)
    for problem in found:
        assert problem.severity == one.severity
        assert problem.hint.strip()
        assert problem.message.strip()
        assert "metric '" in problem.where


def the_twin_has_no_problem_at_all(one: Example) -> None:
    assert problems_of(one.build(False)) == []


def errors_keep_a_metric_from_compiling_and_warnings_do_not(one: Example) -> None:
    broken = one.build(True)
    if one.severity == "warning":
        assert one.code in [problem.code for problem in compile_metrics([broken]).warnings]
    else:
        with pytest.raises(GraphError, match=one.code):
            compile_metrics([broken])


def no_problem_is_reported_twice(one: Example) -> None:
    found = problems_of(one.build(True))
    assert len(found) == len(set(found))


def a_problem_of_a_nested_metric_names_that_metric(one: Example) -> None:
    inner = one.build(True)
    found = [p for p in problems_of(under_a_verdict(inner)) if p.code == one.code]
    assert found
    assert any(inner.name in f"{p.where}: {p.message}" for p in found)
    # The name stands there once: no metric is called "Inner > Inner".
    assert all(f"{inner.name} > {inner.name}" not in p.where for p in found)


LAWS = (
    the_problem_has_a_name_and_a_hint,
    the_twin_has_no_problem_at_all,
    errors_keep_a_metric_from_compiling_and_warnings_do_not,
    no_problem_is_reported_twice,
    a_problem_of_a_nested_metric_names_that_metric,
)
