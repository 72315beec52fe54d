"""Arguments of public functions: unknown names, wrong kinds of values, swapped arguments."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from programs.evaluations import UNUSED, without

from dagengine import Limits, assert_test, evaluate
from dagengine.attacking import attack
from dagengine.dataset import EvaluationDataset
from dagengine.errors import InputError
from dagengine.execution.local_executor import Settings
from dagengine.graph.node import BaseNode
from dagengine.improvement import improve
from dagengine.judges import ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric, ExactMatchMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, RatingNode, TaskNode
from dagengine.reliability import repeat
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(input="a", actual_output="b", expected_output="b")
FACES = (
    "dagengine", "dagengine.dataset", "dagengine.execution", "dagengine.estimate",
    "dagengine.judges", "dagengine.metrics", "dagengine.metrics.dag", "dagengine.reliability",
    "dagengine.reliability.card", "dagengine.store", "dagengine.test_case",
    "dagengine.testing", "dagengine.voting",
)  # fmt: skip
# Their further arguments are those of something else, which alone can know them: a provider's
# client, and a model class of the caller.
OPEN = {"AnsweringEnum", "BaseLLM", "ProviderJudge"}
METRIC = ExactMatchMetric()
# Those that run metrics and take `Settings`.
RUNS = ("EvaluationDataset.evaluate", "a_evaluate", "a_repeat", "assert_test", "evaluate", "repeat",
        "stream")  # fmt: skip


def public() -> Iterator[tuple[str, Any]]:
    """Every public function, class and method of the package, by its name."""
    for face in map(import_module, FACES):
        for name in getattr(face, "__all__", None) or [n for n in vars(face) if n[0] != "_"]:
            thing = getattr(face, name)
            yield name, thing
            for method, function in vars(thing).items() if inspect.isclass(thing) else ():
                if method[0] != "_" and inspect.isfunction(function):
                    yield f"{name}.{method}", function


def is_open(thing: Any) -> bool:
    if not callable(thing) or getattr(thing, "_is_protocol", False):
        return False
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:  # a built-in class
        return False
    return any(one.kind is one.VAR_KEYWORD for one in parameters)


DOORS = {
    name: thing
    for name, thing in public()
    if is_open(thing)
    and name.partition(".")[0] not in OPEN
    and str(getattr(thing, "__module__", "")).startswith("dagengine")
}


def call(door: Callable[..., Any], **given: Any) -> Any:
    """Call with something for every argument that is needed; a coroutine is run to its end."""
    needed = [
        parameter.name
        for parameter in inspect.signature(door).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    known: dict[str, Any] = {
        "self": EvaluationDataset([CASE]), "test_cases": [CASE], "metrics": [METRIC],
        "test_case": CASE, "on_row": lambda row: None,
        "evaluator": "criteria", "evaluators": ["criteria"],
    }  # fmt: skip
    made = door(**{name: known.get(name, "x") for name in needed}, **given)
    if inspect.iscoroutine(made):
        made.send(None)
    return made


def test_the_doors_that_everybody_uses_are_among_those_found() -> None:
    assert set(RUNS) <= set(DOORS)


@pytest.mark.parametrize("name", sorted(DOORS))
def test_no_door_swallows_a_name_that_it_does_not_know(name: str) -> None:
    with pytest.raises(TypeError, match="'zzz'"):
        call(DOORS[name], zzz=1)


@pytest.mark.parametrize("door", [repeat, attack, improve])
def test_an_error_about_arguments_names_the_door_that_was_called(door: Callable[..., Any]) -> None:
    calls: list[Callable[[], Any]] = [door, lambda: door(*range(9)), lambda: call(door, zzz=1)]
    for wrong in calls:
        with pytest.raises(TypeError, match=rf"^{door.__name__}\(\) "):
            wrong()


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("modle", r"did you mean 'model'\?"),
        ("stor", r"did you mean 'store'\?"),
        ("limit", r"did you mean 'limits'\?"),
        ("judge", "`judge` is called `model` here"),
        ("resume", r"with store='answers\.db' the same call goes on"),
        ("classifiers", "a label is a verdict: NonBinaryJudgementNode"),
        ("official", "there is no service"),
        *((field, rf"`{field}` belongs in `limits=Limits\({field}=…\)`")
          for field in ("max_calls", "max_in_flight", "budget", "prices")),
        ("max_cost", r"`max_cost` belongs in `limits=Limits\(budget=…\)`"),
        ("concurrency", r"`concurrency` belongs in `limits=Limits\(max_in_flight=…\)`"),
        ("max_call", r"did you mean 'max_calls'\? It belongs in `limits=Limits\(…\)`"),
        ("base_url", r"`base_url` belongs in `model=OpenAIJudge\(…, base_url=…\)`"),
    ],
)  # fmt: skip
def test_every_run_says_what_was_meant(name: str, given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"has no argument '{given}'; {meant}"):
        call(DOORS[name], **{given: 1})


@pytest.mark.parametrize(
    ("given", "name"),
    [("dataset", "test_cases"), ("data", "test_cases"), ("verbose", "show"), ("output_dir", "out")],
)
def test_a_word_of_the_field_is_told_its_name_in_evaluate(given: str, name: str) -> None:
    with pytest.raises(TypeError, match=f"'{given}'; `{given}` is called `{name}` here"):
        call(evaluate, **{given: 1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"limits": {"max_calls": 1}},
            r"limits must be a Limits object, for instance "
            r"Limits\(max_calls=…\)",
        ),
        ({"limits": 4}, r"limits must be a Limits"),
        ({"store": 5}, "store must be a path or a Store"),
        ({"model": ScriptedJudge}, "is a class, not a judge"),
        ({"on_attempt": "ledger"}, "on_attempt must be a function"),
        ({"tracer": "traces"}, "tracer must be an OpenTelemetry tracer"),
        ({"app": 3}, "an app is a function"),
    ],
)
@pytest.mark.parametrize("door", [evaluate, repeat])
def test_a_value_of_the_wrong_kind_is_refused(
    door: Callable[..., Any], settings: dict[str, Any], message: str
) -> None:
    assert set(settings) <= set(Settings.__annotations__)
    with pytest.raises(InputError, match=message):
        door([CASE], [METRIC], **settings)


def judgement() -> BinaryJudgementNode:
    return BinaryJudgementNode("Good?", then={True: 10, False: 0}, name="good",
                               evaluation_params=["input"])  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (DAG(root_node=judgement()), r"is a graph, not a metric: .*DAGMetric\(name, dag\)"),
        (ExactMatchMetric, r"ExactMatchMetric is a class, not a metric"),
        (judgement(), "is a node, not a metric"),
        (CASE, "is a test case, not a metric: test cases come first"),
        ("faithfulness", r"^.faithfulness. is not a metric, which is an object such as Faith"),
        (sys, "^<module .sys. .* is not a metric"),
        (3, "is not a metric"),
    ],
)
def test_what_is_no_metric_is_refused_in_a_sentence(metric: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate([CASE], [metric], show=False)
    with pytest.raises(InputError):
        evaluate([CASE], metric, show=False)


def test_swapped_metrics_and_cases_are_told() -> None:
    with pytest.raises(InputError, match="test cases come first, then metrics"):
        evaluate([METRIC], [CASE], show=False)  # type: ignore[list-item]
    with pytest.raises(InputError, match="test cases come first, then metrics"):
        evaluate(METRIC, CASE, show=False)  # type: ignore[arg-type]


def test_a_single_case_and_a_single_metric_are_lists_of_one() -> None:
    done = evaluate(CASE, METRIC, show=False)  # type: ignore[arg-type]
    assert [row.success for row in done] == [True]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TaskNode("Read.", "read", [], [cast(Any, judgement())]),
            "read nodes with inputs=",
        ),
    ],
)
def test_nodes_in_the_wrong_place_are_told(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
    assert isinstance(judgement(), BaseNode)


def test_assert_test_takes_the_settings_of_a_run() -> None:
    judge = ScriptedJudge({"good": True})
    metric = DAGMetric("m", DAG(root_node=judgement()))
    assert_test(CASE, [metric], model=judge)
    with pytest.raises(AssertionError, match="over_budget"):
        assert_test(CASE, [metric], model=judge, limits=Limits(max_calls=0))


def test_a_failure_names_the_node_that_gave_the_score() -> None:
    rating = RatingNode("How good?", evaluation_params=["actual_output"], name="rate")
    ways = {True: rating, False: 0}
    first = BinaryJudgementNode("Any?", evaluation_params=["actual_output"], name="any", then=ways)
    judge = ScriptedJudge(lambda question: "1" if question.name == "rate" else True)
    with pytest.raises(AssertionError, match="m: rate\n"):
        assert_test(CASE, [DAGMetric("m", DAG(root_node=first))], model=judge)


def test_without_run_async_metrics_run_one_at_a_time() -> None:
    running, most = 0, 0

    class Slow(BaseMetric):
        def __init__(self, name: str) -> None:
            self.name = name

        async def a_measure(self, test_case: LLMTestCase) -> float:
            nonlocal running, most
            import anyio.lowlevel

            running += 1
            most = max(most, running)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            running -= 1
            return 1.0

    metrics = [Slow("one"), Slow("two"), Slow("three")]
    assert_test(CASE, metrics, run_async=False)
    assert most == 1
    assert_test(CASE, metrics)
    assert most == 3


def test_verbose_metrics_print_their_steps_at_every_door(
    capsys: pytest.CaptureFixture[str],
) -> None:
    loud, quiet = DAGMetric("loud", DAG(root_node=judgement())), ExactMatchMetric()
    loud.verbose_mode, loud.model = True, ScriptedJudge({"good": True})
    evaluate([CASE], [quiet, loud], show=False)
    shown = capsys.readouterr().out
    assert shown.startswith("loud: ")
    assert quiet.name not in shown
    assert_test(CASE, [quiet, loud])
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("workers", [without("xdist"), ["-n", "2"]], ids=["alone", "workers"])
def test_what_follows_a_test_run_is_called_once(workers: list[str], tmp_path: Path) -> None:
    code = """
import pathlib
import pytest
import dagengine

@dagengine.on_test_run_end
def note():
    with pathlib.Path("called.txt").open("a") as file:
        file.write("called\\n")

@pytest.mark.parametrize("number", range(4))
def test_nothing(number):
    assert not pathlib.Path("called.txt").exists()
"""
    (tmp_path / "test_run.py").write_text(code)
    outer = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    plugins = without(*UNUSED, but=["xdist"])
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *workers]
    done = subprocess.run(command, cwd=tmp_path, env=outer, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "called.txt").read_text() == "called\n"
