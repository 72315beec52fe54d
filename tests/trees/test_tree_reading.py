"""Documents of others: deepeval's as they are, and hostile ones refused where they are wrong."""

from __future__ import annotations

import copy
import json
import os
import re
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine import compile_metrics, evaluate
from dagengine.errors import DagengineError, InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric, GEval
from dagengine.metrics.dag import DAG
from dagengine.question import Question
from dagengine.test_case import ConversationalTestCase, LLMTestCase, Turn
from dagengine.trees.reading import metrics_of

# Written by deepeval 4.3.1, with the scores that it gave with the judge below.
THEIRS = [
    json.loads(line)
    for line in Path(__file__).with_name("deepeval.jsonl").read_text(encoding="utf-8").splitlines()
]
CASE = LLMTestCase(input="in", actual_output="out text")
SAID = [
    {"role": role, "content": text}
    for role, text in zip(["user", "assistant"] * 2, "hoxy", strict=True)
]
TALK = ConversationalTestCase(turns=[Turn.model_validate(said) for said in SAID])


def same_judge(number: int) -> ScriptedJudge:
    """Answers by the number in the question, as the judge did that deepeval asked."""

    def answer(question: Question[Any]) -> Any:
        shape = question.answer_type.model_json_schema()["properties"]
        answers: dict[str, Any] = {"output": "out", "score": 7}
        answers |= {field: ["a", "b"] for field in ("statements", "opinions", "steps")}
        for field, value in answers.items():
            if field in shape:
                return {field: value, "reason": "r"} if field == "score" else {field: value}
        if "verdicts" in shape:
            yes, no = ({"reason": "r", "verdict": verdict} for verdict in ("yes", "no"))
            return {"verdicts": {"1": yes, "2": no}}
        asked = re.findall(r"q(\d+)\?", "\n".join(m["content"] for m in question.messages))
        own = int(asked[-1]) if asked else 0
        kinds = shape["verdict"].get("enum", [])
        options = [kind for kind in ("left", "middle", "right") if kind in kinds]
        verdict: Any = bool((own * 7 + number) % 2) if not kinds else "yes"
        verdict = options[(own * 5 + number) % len(options)] if options else verdict
        return {"verdict": verdict, "reason": "r"}

    return ScriptedJudge(answer, name=f"by name {number}")


@pytest.mark.parametrize("written", THEIRS)
def test_a_tree_that_deepeval_wrote_gives_the_score_that_deepeval_gave(written: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        metric = DAGMetric.from_dict(written["document"])
    case = TALK if written["turns"] else CASE
    scores = [
        evaluate([case], [metric], model=same_judge(number), show=False).rows[0].metrics[0].score
        for number in range(4)
    ]
    assert scores == pytest.approx(written["scores"])
    assert metric.to_dict() == DAGMetric.from_dict(metric.to_dict()).to_dict()


def leaf(**more: Any) -> dict[str, Any]:
    """A tree with one inner metric, as deepeval writes it."""
    child = {"type": "geval", "name": "g", "criteria": None, "evaluation_params": ["input"]}
    verdicts = {
        "b": {"type": "VerdictNode", "verdict": True, "child": {**child, **more}},
        "c": {"type": "VerdictNode", "verdict": False, "score": 0},
    }
    judge: dict[str, Any] = {"type": "BinaryJudgementNode", "criteria": "q?", "label": None}
    judge |= {"evaluation_params": ["input"], "children": ["b", "c"]}
    return {"nodes": {"a": judge, **verdicts}}


def test_what_deepeval_adds_to_leaves_is_dropped_only_where_it_is_neutral() -> None:
    extras: Any = {"flaky": False, "_include_g_eval_suffix": True, "eval_mode": "llm"}
    with pytest.warns(UserWarning, match="does not say who judges"):
        metric = DAGMetric.from_dict(leaf(criteria="x", evaluation_steps=["a"], **extras))
    (inner,) = (each for each in metric.dag.root_nodes[0].then.values() if each)
    assert isinstance(inner, GEval)
    assert (inner.criteria, inner.steps) == (None, ["a"])
    with pytest.raises(InputError, match=r"child\.flaky: there is no such key; every case counts"):
        DAGMetric.from_dict(leaf(criteria="x", flaky=True, model=None))


JUDGE: dict[str, Any] = {
    "type": "BinaryJudgementNode", "criteria": "q?", "evaluation_params": ["input"],
    "then": [{"verdict": True, "score": 10}, {"verdict": False, "score": 0}],
}  # fmt: skip


def tree(settings: Any = None, **judge: Any) -> str:
    return json.dumps({"roots": ["a"], "nodes": {"a": {**JUDGE, **judge}}, **(settings or {})})


def verdict(**way: Any) -> str:
    return tree(then=[way, {"verdict": False, "score": 0}])


def inner(**child: Any) -> str:
    return verdict(verdict=True, child=child)


def nested(levels: int) -> str:
    data = json.loads(tree())
    for _ in range(levels):
        data = json.loads(inner(type="dag", **data))
    return json.dumps(data)


MANY = [{"verdict": str(number), "score": 1} for number in range(100_000)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("{" * 100_000, "nested too deeply|not JSON|Expecting"),
        ("[" + "{}," * 3_000_000 + "{}]", "more than"),
        ("", "Expecting value"),
        ("null", "must be an object"),
        ("{}", "nodes must be an object"),
        ('{"nodes": {}}', "no node is a root"),
        (tree({"threshold": 1}).replace("1}", "1e999}"), "threshold: 1e999"),
        (tree({"threshold": 1}).replace("1}", "NaN}"), "threshold: NaN"),
        (tree({"threshold": True}), "threshold: .*valid number; got True"),
        (tree({"treshold": 1}), "treshold: .* did you mean 'threshold'"),
        (tree({"$schema": "urn:dagengine:tree:2"}), "update dagengine"),
        (tree({"threshold": 10**400}), "threshold: a whole number beyond"),
        (inner(type="metric", metric_class="BiasMetric", kwargs=5), "kwargs must be an object"),
        (tree({"roots": ["zz"]}), r"roots\[0\]: there is no node 'zz'"),
        (tree({"roots": 5}), "roots must be a list"),
        ('{"nodes": {"a": 1, "a": 2}}', "nodes: the key 'a' is there twice"),
        (tree({"name": "x"}).replace('"x"', r'"\ud800"'), "name: .* half a character"),
        (tree().replace('"a": {', r'"\udfff": {'), "half a character"),
        (tree().replace('"a": {', f'"{"x" * 1_000_000}": {{'), "an id of 1,000,000"),
        (tree(evaluation_param=[]), r"nodes\.a\.evaluation_param: .*'evaluation_params'"),
        (tree(type="BinaryJudgmentNode"), r"nodes\.a\.type: .*'BinaryJudgementNode'"),
        (tree(type=["x"]), r"nodes\.a\.type"),
        (tree(criteria=5), r"nodes\.a\.criteria: .*valid string; got 5"),
        (tree(inputs=["a"]), "read each other: a <- a"),
        (tree(inputs=[5]), r"nodes\.a\.inputs\[0\] must be a text"),
        (tree(children=["b"]), r"nodes\.a\.children\[0\]: there is no node 'b'"),
        (tree(examples=[{"reads": "x", "answer": True, "why": 1}]), r"examples\[0\]\.why"),
        (tree(options={"top_logprobs": 99}), r"nodes\.a\.options: .*0\.\.20"),
        (tree(parser="os:system"), r"nodes\.a\.parser names code, 'os:system'"),
        (tree(parser=5), r"nodes\.a: parser= takes a function"),
        (tree(then=MANY), "more than 10,000 nodes"),
        (tree(then=MANY[:2_000]), r"nodes\.a\.then: 2,000 of them"),
        (tree(then=[5]), r"nodes\.a\.then\[0\] must be an object"),
        (verdict(verdict="true", score=1), r"then\[0\]\.verdict: .* is true or false; got 'true'"),
        (verdict(verdict=1, score=1), r"then\[0\]\.verdict"),
        (verdict(verdict=False, score=1), r"then\[1\]: the verdict False is declared twice"),
        (verdict(verdict=True, score=2.5), r"then\[0\]\.score: a whole number"),
        (verdict(verdict=True), "this one has neither"),
        (verdict(verdict=True, score=1, child={}), "this one has both"),
        (inner(type="node", ref=5), "the id of a node"),
        (inner(type="node", ref="a"), "cycle"),
        (inner(type="metric", metric_class="FaithfulnesMetric", kwargs={}), "'FaithfulnessMetric'"),
        (inner(type="metric", metric_class="BaseMetric", kwargs={}), "no metric 'BaseMetric'"),
        (inner(type="metric", metric_class="DAGMetric", kwargs={}), "a tree in a tree is"),
        (inner(type="metric", metric_class="BiasMetric", kwargs=[]), "kwargs must be an object"),
        (inner(type="own"), "is not dag, metric or geval"),
        (nested(60), "more than 50 trees"),
        (json.dumps({"name": "m", "refused": "a lambda"}), "has no metric: a lambda"),
        (json.dumps({"nodes": {f"n{i}": JUDGE for i in range(10_001)}}), "more than 10,000 nodes"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_and_named(text: str, words: str) -> None:
    with pytest.raises(DagengineError, match=words) as caught:
        compile_metrics(metrics_of(text, name="tree.json"))
    assert len(str(caught.value)) < 5_000


def test_nothing_stands_for_a_parser_that_is_not_there() -> None:
    assert compile_metrics(metrics_of(tree(parser=None, quote=None)))


def test_data_that_json_cannot_hold_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["nodes"] = loop
    for data in (loop, {"nodes": {1, 2}}, {"nodes": object()}):
        with pytest.raises(InputError, match="plain data"):
            DAG.from_dict(data)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "half.json").write_bytes(b"\xff{}")
    for name in ("pipe.json", "half.json", "nix.json", "."):
        with pytest.raises(InputError, match="cannot be read"):
            DAGMetric.load(tmp_path / name)


def test_code_runs_only_if_it_is_allowed_and_beside_the_document(tmp_path: Path) -> None:
    folder = tmp_path / "trees"
    folder.mkdir()
    (tmp_path / "out.py").write_text("def good(text): return 1.0\n")
    (folder / "in.py").write_text("def good(text): return 1.0\nword = 'x'\n")
    (folder / "link.py").symlink_to(tmp_path / "out.py")

    def load(function: str, **allowed: bool) -> Any:
        node = {"type": "CodeNode", "function": function, "evaluation_params": ["input"]}
        (folder / "tree.json").write_text(json.dumps({"nodes": {"a": node}}))
        return DAGMetric.load(folder / "tree.json", **allowed)

    with pytest.raises(InputError, match="--allow-code"):
        load("in.py:good", allow_model=True)
    assert load("in.py:good", allow_code=True).name == "tree"
    assert load("statistics:mean", allow_code=True)
    for name in (
        "../out.py:good", "link.py:good", f"{tmp_path}/out.py:good", "nix.py:good", "in.py:nix",
        "in.py:word", "in:good", "no_such_package:x", "in.py", ":",
        "trees/../in.py:good", "\0.py:x",
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"nodes\.a\.function|no file"):
            load(name, allow_code=True)


SEEDS = [
    *(written["document"] for written in THEIRS[:6]),
    json.loads(tree({"threshold": 0.5}, examples=[{"reads": "x", "answer": True}])),
    json.loads(inner(type="metric", metric_class="FaithfulnessMetric", kwargs={"threshold": 1})),
]  # fmt: skip
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 12), st.floats(), st.text(max_size=5),
    st.sampled_from(["a", "node", "metric", "dag", "geval", "input", "TaskNode", "VerdictNode"]),
    st.just([]), st.just({}), st.just([[]]), st.just({"type": "node", "ref": "a"}),
    st.just([{"verdict": True, "score": 1}]), st.just({"type": []}), st.just(10**400),
)  # fmt: skip
NAMES = (
    "type nodes roots then children inputs over scale options examples prompt quote quote_from "
    "turn_window verdict score child ref kwargs metric_class name label threshold strict_mode "
    "combine $schema refused answer verdicts per_call path function parser output_type"
)
CHANGES = st.lists(
    st.tuples(st.integers(0), st.sampled_from(NAMES.split(" ")), ODD), min_size=1, max_size=4
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.sampled_from(SEEDS), CHANGES)
def test_whatever_is_changed_in_a_document_the_error_is_typed(seed: Any, changes: Any) -> None:
    data = copy.deepcopy(seed)
    for place, name, value in changes:
        inside, waiting = list[Any](), [data]
        while waiting:
            each = waiting.pop()
            if isinstance(each, dict | list):
                inside.append(each)
                waiting += each.values() if isinstance(each, dict) else each
        target = inside[place % len(inside)]
        if isinstance(target, dict):
            keys = [*target, name]
            target[keys[place % len(keys)]] = copy.deepcopy(value)
        elif target:
            target[place % len(target)] = copy.deepcopy(value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(DagengineError):
            compile_metrics(metrics_of(json.dumps(data)))
