"""Metrics as documents: what is written comes back the same, or is refused in words."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from graphs.random_graphs import Script, drawings, metric_of
from hypothesis import given, settings
from programs.commands import start_program
from pydantic import BaseModel

import dagengine.metrics as catalogue
from dagengine import evaluate
from dagengine.compiler.execution_plan import compile_metrics
from dagengine.compiler.metric_hashes import definitions
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric, FaithfulnessMetric, GEval, Rubric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    Example,
    FieldNode,
    MapNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictListNode,
    VerdictNode,
)
from dagengine.prompts.instructions import PromptTemplate
from dagengine.question import Options
from dagengine.test_case import LLMTestCase, ToolCall
from dagengine.trees.schema import KINDS, metric_kind, parameters_of
from dagengine.voting import judged_by, quoted, voted

ROOT = Path(__file__).parents[2]
READ = ["input", "actual_output"]


class Shape(BaseModel):
    """A shape of answers."""

    count: int


def is_short(text: str) -> bool:
    return len(text) < 100


def hashes(metric: Any) -> Any:
    plan = compile_metrics(metric)
    return definitions(plan, plan.metrics[0])


def again(metric: Any, **allowed: bool) -> Any:
    made = type(metric).from_json(metric.to_json(), Path(__file__).parent, **allowed)
    assert made.to_json() == metric.to_json()
    assert hashes(made) == hashes(metric)
    return made


@settings(max_examples=60)
@given(drawings(("task", "binary", "multi", "map")))
def test_a_random_tree_comes_back_with_the_same_prompts_scores_and_hashes(drawing: Any) -> None:
    if drawing["nodes"][-1]["kind"] == "deciding code":  # its code is made in a function
        drawing["nodes"][-1]["kind"] = "multi"
    before, after = Script(), Script()
    metric = metric_of(drawing, before)
    after.verdicts = before.verdicts
    case = LLMTestCase(input="a", actual_output="b", context=["c", "d"])
    rows = [
        evaluate([case], [each], model=script.judge(), show=False).rows
        for each, script in ((metric, before), (again(metric), after))
    ]
    assert before.prompts == after.prompts
    assert [row.as_dict() for row in rows[0]] == [row.as_dict() for row in rows[1]]


def leads(**settings: Any) -> BinaryJudgementNode:
    return BinaryJudgementNode(
        "Good?", evaluation_params=READ, then={True: 10, False: 0}, **settings
    )


def rich() -> DAG:
    listed = TaskNode(
        "List them.", "claims", evaluation_params=["input"], output_type=list[str],
        options=Options(temperature=0.5, max_items=3),
    )  # fmt: skip
    judged = MapNode(
        "Is it so?", listed, "so", answer=("yes", "no"), item_label="claim", evaluation_params=READ
    )
    every = VerdictListNode("Is it so?", "context", "list", verdicts=("a", "b"), per_call=2)
    field = FieldNode("input", output_label="Question")
    own = leads(name="Own", prompt=PromptTemplate("{input} {{x}}", "s"), inputs=[field])
    kind = NonBinaryJudgementNode(
        "Which?",
        [VerdictNode("true", child=FaithfulnessMetric(0.7)), VerdictNode("other", score=3)],
        ["input"],
        inputs=[judged, every],
        examples=[Example({"input": "x"}, "other", "because"), Example({"input": "y"}, "true")],
        then={"third": own},
        quote="required",
        quote_from=["context"],
    )
    rated = RatingNode("How good?", READ, scale={"poor": 1, "good": 3}, name="Own")
    return DAG([kind, rated, CodeNode(is_short, evaluation_params=["input"])])


def test_every_setting_of_nodes_comes_back() -> None:
    metric = DAGMetric("Rich", rich(), 1, strict_mode=True, combine="mean", include_reason=False)
    text = metric.to_json()
    assert again(metric, allow_code=True).combine == "mean"
    assert '"function": "test_tree_writing.py:is_short"' in text
    assert json.loads(text)["nodes"]["Own 2"]["name"] == "Own"
    assert DAG.from_dict(rich().to_dict(), Path(__file__).parent, allow_code=True).to_dict()


def test_turns_keep_their_window() -> None:
    node = leads(name="a")
    node.then = {True: 1, False: 2}
    last = BinaryJudgementNode(
        "Good?", evaluation_params=["content", "retrieval_context"], turn_window=(-3, -1),
        then={True: 10, False: 0},
    )  # fmt: skip
    data = DAG(last).to_dict()["nodes"]["Good?"]
    assert data["turn_window"] == [-3, -1]
    again(DAGMetric("Turns", DAG([last, node])))


REQUIRED: dict[str, Any] = {
    "criteria": "conciseness", "evaluation_params": READ, "name": "N", "domain": "law",
    "role": "guide",
    "advice_types": ["legal"], "pattern": "a+", "prompt_instructions": ["Be kind."],
    "available_tools": [ToolCall(name="find", input_parameters={"n": [1, 2]})],
    "relevant_topics": ["tea"], "expected_schema": Shape,
}  # fmt: skip
KIND_NAMES = [name for name in catalogue.__all__ if metric_kind(name) and "DAG" not in name]


@pytest.mark.parametrize("name", KIND_NAMES)
def test_every_metric_of_the_catalogue_comes_back(name: str) -> None:
    kind = metric_kind(name)
    needed: dict[str, Any] = {
        each.name: REQUIRED[each.name]
        for each in parameters_of(kind).values()
        if each.default is each.empty
        or (each.name in REQUIRED and "criteria" in parameters_of(kind))
    }
    if kind is catalogue.ConversationalGEval:
        del needed["evaluation_params"]
    if kind is catalogue.RubricMetric:
        needed["criteria"] = [
            catalogue.RubricItem("Kind", points=2, tags=["tone"]),
            catalogue.RubricItem("Rude", -3),
        ]
    more: dict[str, Any] = {"threshold": 0.9} if "threshold" in parameters_of(kind) else {}
    assert again(kind(**needed, **more), allow_code=True).threshold == more.get("threshold")


def test_a_rubric_quotes_and_steps_come_back() -> None:
    rubric = [Rubric((0, 3), "bad"), Rubric((4, 10), "good")]
    metric = GEval(
        "G", None, ["Look.", "Rate."], READ, rubric, None, quote="if_any", unsupported="keep"
    )
    assert again(metric).rubric == metric.rubric
    model = GEval("G", "clear", None, READ, model="gpt-4o")
    assert again(model, allow_model=True).model == "gpt-4o"
    with pytest.raises(
        InputError, match=r"kwargs\.model: the document chooses the judge, 'gpt-4o'"
    ):
        GEval.from_json(model.to_json())


class OwnNode(TaskNode):
    pass


class OwnMetric(catalogue.BaseMetric):
    def measure(self, test_case: Any, *_: Any, **__: Any) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (lambda: DAGMetric("m", DAG(CodeNode(lambda x: 1.0, [], ["input"]))), "no lambda"),
        (lambda: DAGMetric("m", DAG(leads(parser=partial(print)))), "parser is"),
        (lambda: DAGMetric("m", DAG(OwnNode("a", "b", [leads()], ["input"]))), "is a OwnNode"),
        (lambda: DAGMetric("m", DAG(leads()), model=ScriptedJudge(lambda q: True)), "judge"),
        (lambda: voted(DAGMetric("m", DAG(leads())), 3), "asks otherwise"),
        (
            lambda: judged_by(DAGMetric("m", DAG(leads())), [ScriptedJudge(str), "gpt-4o"]),
            "otherwise",
        ),
        (lambda: voted(FaithfulnessMetric(), 3), "without loss"),
        (lambda: DAGMetric("m", DAG(CodeNode(open, [], ["input"], then={1.5: 1}))), "verdict"),
    ],
)
def test_what_no_document_can_hold_is_refused_in_words(
    metric: Any, words: str, tmp_path: Path
) -> None:
    with pytest.raises((InputError, ValueError), match=words):
        metric().save(tmp_path / "tree.json")
    assert not list(tmp_path.iterdir())


def test_a_metric_of_your_own_is_refused_and_a_quoted_tree_is_not() -> None:
    from dagengine.trees import document_of

    with pytest.raises(InputError, match="MeasureNode"):
        document_of(OwnMetric())
    tree = document_of(quoted(DAGMetric("m", DAG(leads()))))
    assert tree["nodes"]["Good?"]["quote"] == "required"


def test_code_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    tree = DAG(CodeNode(is_short, evaluation_params=["input"]))
    with pytest.raises(InputError, match="outside of the folder"):
        tree.save(tmp_path / "tree.json")


def test_the_gallery_comes_back_in_another_process(tmp_path: Path) -> None:
    from dagengine.loading import load_metrics

    wanted: dict[str, Any] = {}
    for file in sorted((ROOT / "examples" / "gallery").glob("*/metrics.py")):
        folder = tmp_path / file.parent.name
        folder.mkdir()
        shutil.copy(file, folder)
        (metric,) = load_metrics(str(folder / "metrics.py"))
        metric.save(folder / "tree.json")  # type: ignore[attr-defined]
        wanted[str(folder / "tree.json")] = hashes(metric)
    assert len(wanted) == 12
    program = (
        "import json, sys\n"
        "from dagengine.compiler.metric_hashes import definitions\n"
        "from dagengine.compiler.execution_plan import compile_metrics\n"
        "from pathlib import Path\n"
        "from dagengine.trees import metrics_of, read_document\n"
        "def load(path):\n"
        "    text = read_document(Path(path))\n"
        "    return metrics_of(text, Path(path).parent, path, allow_code=True)\n"
        "plans = {p: compile_metrics(load(p)) for p in sys.argv[1:]}\n"
        "print(json.dumps({p: definitions(x, x.metrics[0]) for p, x in plans.items()}))\n"
    )
    done = start_program(program, *wanted).ended()
    assert done.stderr == ""
    assert json.loads(done.stdout) == wanted


def test_the_schema_has_every_argument() -> None:
    schema = json.loads((ROOT / "dagengine" / "record" / "tree.schema.json").read_text())["$defs"]
    for name, kind in KINDS.items():
        assert schema[name]["properties"].keys() == {"type", *parameters_of(kind)}
    tree = {"$schema", "type", "roots", "nodes", *parameters_of(DAGMetric)} - {"dag"}
    assert schema["dag"]["properties"].keys() == tree
