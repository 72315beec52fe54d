"""What a plan says beforehand, against what runs then do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from graphs.contract import ARENA, FULL, TALK, case_for, judge, make, metric_classes
from graphs.random_graphs import Script, drawings, metric_of
from graphs.reference import Interpreter
from graphs.shapes import SHAPES, deep_chain
from hypothesis import assume, given, settings
from programs.commands import output_of
from pydantic import Field

from dagengine import compile_metrics, evaluate
from dagengine.errors import InputError
from dagengine.estimate import Estimate, estimate, verdicts_of
from dagengine.estimate.estimate_types import Bounds, JudgeEstimate
from dagengine.estimate.paths import MOST_PATHS, with_writers
from dagengine.judges import DecisionJudge, ScriptedJudge
from dagengine.metrics import (
    AnswerRelevancyMetric,
    BaseMetric,
    DAGMetric,
    FaithfulnessMetric,
    GEval,
    KnowledgeRetentionMetric,
)
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    MapNode,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictListNode,
)
from dagengine.results import EvaluationResult
from dagengine.test_case import ArenaTestCase, ConversationalTestCase, LLMTestCase, TestCase

KINDS = metric_classes()
PROPERTY = settings(max_examples=30)
ANSWER = LLMTestCase(input="a", actual_output="b")


def foretold(cases: Sequence[TestCase], *metrics: Any, **more: Any) -> Estimate:
    return estimate(compile_metrics(metrics), cases, **more)


def ran(cases: Sequence[TestCase], *metrics: Any, model: Any) -> EvaluationResult:
    return evaluate(cases, metrics, model=model, show=False)


def is_within(found: Estimate, done: EvaluationResult) -> None:
    assert done.totals.asked in found.asked
    assert done.totals.calls in found.calls
    assert found.asked.least <= found.asked.likely + 1e-9
    assert found.asked.most is None or found.asked.likely <= found.asked.most + 1e-9
    assert found.calls.most is None or found.calls.likely <= found.calls.most + 1e-9


def yes_no(name: str, yes: Any = 10, no: Any = 0, read: str = "actual_output") -> Any:
    then = {True: yes, False: no}
    return BinaryJudgementNode(f"Is it {name}?", evaluation_params=[read], then=then, name=name)


# Bounds on random graphs


def some_cases(count: int) -> list[TestCase]:
    return [LLMTestCase(input=f"the input {n % 2}", context=["first", "second"][: n % 3])
            for n in range(count)]  # fmt: skip


@PROPERTY
@given(drawings())
def test_a_run_of_a_random_graph_lies_within_the_bounds(drawing: dict[str, Any]) -> None:
    script = Script()
    metric = metric_of(drawing, script)
    cases = some_cases(4)
    found = foretold(cases, metric)
    done = ran(cases, metric, model=script.judge())
    is_within(found, done)
    alone = found.metrics[0].asked
    assert (alone.least, alone.most) == (found.asked.least, found.asked.most)


@settings(PROPERTY, max_examples=15)
@given(drawings(), drawings())
def test_a_run_of_random_metrics_that_share_nodes_lies_within_the_bounds(
    drawing: dict[str, Any], other: dict[str, Any]
) -> None:
    script = Script()
    metric, second = metric_of(drawing, script), metric_of(other, Script())
    outer = DAGMetric("outer", DAG(yes_no("outer", second, metric, read="input")))
    metrics = [metric, DAGMetric("same", metric.dag, combine="min"), outer]
    cases = some_cases(3)
    found = foretold(cases, *metrics)
    for verdict in (True, False):
        answers = {**Script().verdicts, **script.verdicts, "outer": verdict}
        # The nodes of the second graph have the names of the first: any verdict will do.
        done = ran(cases, *metrics, model=willing(answers))
        is_within(found, done)


def willing(verdicts: dict[str, Any]) -> ScriptedJudge:
    """Gives the verdicts by name where they fit, else the first one allowed."""

    def answer(question: Any) -> Any:
        fields = question.answer_type.model_fields
        if "verdict" not in fields:
            return question.name
        wanted = verdicts.get(question.name.rpartition(" > ")[2])
        if fields["verdict"].annotation is bool:
            return wanted if isinstance(wanted, bool) else True
        return wanted if isinstance(wanted, str) else "left"

    return ScriptedJudge(answer)


@PROPERTY
@given(drawings())
def test_the_bounds_of_a_random_graph_are_reached_by_some_verdicts(
    drawing: dict[str, Any],
) -> None:
    metric = metric_of(drawing, Script())
    nodes = metric.dag.nodes()
    deciding = {
        node.title: [b.verdict for b in node.branches()] for node in nodes if node.branches()
    }
    assume(len(deciding) <= 5)
    reference, counts = Interpreter(metric.dag), set()
    for verdicts in itertools.product(*deciding.values()):
        live = reference.run(dict(zip(deciding, verdicts, strict=True)).get).reads
        asking = [node for node in nodes if node.title in live and node.asks]
        counts.add(sum(2 if isinstance(node, MapNode) else 1 for node in asking))
    case = LLMTestCase(input="a", context=["first", "second"])
    found = foretold([case], metric)
    assert found.metrics[0].exact
    assert (found.asked.least, found.asked.most) == (min(counts), max(counts))
    assert found.metrics[0].worst.asked == max(counts)


def names(metric: DAGMetric) -> list[str]:
    return [node.title for node in metric.dag.nodes()]


@pytest.mark.parametrize("name", SHAPES)
def test_every_outcome_of_a_shape_lies_within_the_bounds(name: str) -> None:
    shape = SHAPES[name]
    metric = DAGMetric("m", shape.build())
    found = foretold([ANSWER], metric)
    for verdicts, _, _ in shape.outcomes:
        answers = ScriptedJudge(dict.fromkeys(names(metric), "text") | verdicts)
        is_within(found, ran([ANSWER], metric, model=answers))


# Bounds on the catalogue


def cases_like(case: TestCase) -> list[TestCase]:
    """The case, twice, and poorer ones."""
    if isinstance(case, LLMTestCase):
        emptied: dict[str, list[str]] = {"context": [], "retrieval_context": [], "tools_called": []}
        return [case, case, case.model_copy(update=emptied), case.model_copy(
            update={"retrieval_context": ["One."], "actual_output": ""}), ANSWER]  # fmt: skip
    if isinstance(case, ConversationalTestCase):
        parts = [case.turns[:n] for n in range(len(case.turns))]
        return [case, case, *(case.model_copy(update={"turns": part}) for part in parts)]
    return [case, case, ArenaTestCase(contestants={"one": FULL})]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("pick", [0, -1])
@pytest.mark.parametrize("judged", [False, True])
def test_a_run_of_every_metric_lies_within_the_bounds(
    kind: type[PrebuiltMetric], pick: int, judged: bool
) -> None:
    metric = make(kind)
    metric.judged_reason = judged
    cases = cases_like(case_for(metric))
    for case in () if judged or pick else cases:
        is_within(foretold([case], metric), ran([case], metric, model=judge(pick)))
    is_within(foretold(cases, metric), ran(cases, metric, model=judge(pick)))


@pytest.mark.parametrize("pick", [0, -1])
@pytest.mark.parametrize("case", [FULL, TALK, ARENA], ids=lambda case: type(case).__name__)
def test_a_run_of_all_metrics_together_lies_within_the_bounds(case: TestCase, pick: int) -> None:
    made = [make(kind) for kind in KINDS]
    metrics = [metric for metric in made if case_for(metric) is case]
    for number, metric in enumerate(metrics):
        metric.name = f"{metric.name} {number}"
    cases = [*cases_like(case), *cases_like(case)]
    found = foretold(cases, *metrics)
    done = ran(cases, *metrics, model=judge(pick))
    is_within(found, done)
    # The bounds say something: most of what may be asked is asked, and is known to be.
    assert found.asked.most is not None
    assert found.asked.most <= 1.6 * done.totals.asked
    assert found.asked.least >= 0.5 * done.totals.asked


# Single rules


def test_metrics_that_share_a_question_pay_it_once() -> None:
    found = foretold([FULL], AnswerRelevancyMetric(), FaithfulnessMetric())
    assert found.asked == Bounds(3, 5, 5)
    assert found.calls == Bounds(2, 4, 4)
    shared = [node.node for m in found.metrics for node in m.nodes if node.equal]
    assert shared == ["statements of actual_output"]


def test_equal_questions_of_different_cases_are_one_call() -> None:
    found = foretold([ANSWER] * 5, DAGMetric("m", DAG(yes_no("kind"))))
    assert found.asked == Bounds(5, 5, 5)
    assert found.calls == Bounds(1, 1, 1)


def test_what_reads_the_answers_to_equal_questions_is_likely_equal() -> None:
    cases = [LLMTestCase(input=f"{n}", actual_output="b") for n in range(3)]
    words = TaskNode("List the words", "words", [yes_no("kind"), yes_no("new", read="input")],
                     ["actual_output"])  # fmt: skip
    metric = DAGMetric("m", DAG(words), combine="mean")
    found = foretold(cases, metric)
    assert found.asked == Bounds(9, 9, 9)
    # One list and one judgement of it, but three that look at the input as well.
    assert found.calls == Bounds(1, 5, 7)
    is_within(found, ran(cases, metric, model=willing({})))


def test_judges_that_may_answer_differently_share_nothing() -> None:
    metrics = [DAGMetric(f"by {model}", DAG(yes_no("kind")), model=model) for model in "ab"]
    assert foretold([ANSWER], *metrics).calls == Bounds(2, 2, 2)


def test_a_metric_costs_nothing_on_a_case_without_its_fields() -> None:
    found = foretold([FULL, ANSWER], FaithfulnessMetric())
    assert (found.cases, found.metrics[0].cases) == (2, 1)
    assert found.asked == Bounds(2, 3, 3)


def test_a_metric_costs_nothing_on_a_case_that_its_code_turns_away() -> None:
    case = FULL.model_copy(update={"retrieval_context": []})
    assert foretold([case], FaithfulnessMetric()).asked == Bounds()


def test_a_field_missing_on_one_branch_ends_only_the_paths_through_it() -> None:
    deep = yes_no("like the reference", yes_no("brief"), read="expected_output")
    metric = DAGMetric("m", DAG(yes_no("kind", deep, 0)))
    found = foretold([ANSWER], metric)
    assert found.asked.most == 1
    for verdict in (True, False):
        is_within(found, ran([ANSWER], metric, model=willing({"kind": verdict})))


def test_code_on_the_case_decides_beforehand() -> None:
    then = {"long": yes_no("kind"), "short": 0}
    start = CodeNode(lambda text: "long" if len(text) > 3 else "short", then=then,
                     evaluation_params=["actual_output"])  # fmt: skip
    metric = DAGMetric("m", DAG(start))
    assert foretold([ANSWER], metric).asked == Bounds()
    longer = LLMTestCase(input="a", actual_output="rather long")
    assert foretold([longer], metric).asked == Bounds(1, 1, 1)


def test_code_that_is_a_coroutine_is_left_alone() -> None:
    async def decide(text: str) -> bool:
        raise AssertionError("it ran")

    start = CodeNode(decide, evaluation_params=["input"], then={True: yes_no("kind"), False: 0})
    assert foretold([ANSWER], DAGMetric("m", DAG(start))).asked == Bounds(0, 0.5, 1)


def test_a_metric_of_ones_own_is_not_run_and_has_no_known_bound() -> None:
    class Own(BaseMetric):
        def measure(self, test_case: Any) -> float:
            raise AssertionError("it ran")

    assert foretold([ANSWER], Own()).asked == Bounds(0, 0, None)


def listing(kind: Any = list[str]) -> TaskNode:
    return TaskNode("List", "items", evaluation_params=["actual_output"], output_type=kind)


def over(node: Any) -> DAGMetric:
    return DAGMetric("m", DAG(CodeNode(lambda found: 1, inputs=[node], name="score")))


def test_a_map_over_what_a_judge_lists_has_no_bound_and_a_stated_likelihood() -> None:
    metric = over(MapNode("Judge it", listing(), "verdicts", answer=bool))
    assert foretold([ANSWER], metric, items=7).asked == Bounds(1, 8, None)
    assert foretold([ANSWER], metric).metrics[0].worst.nodes == (("items", 1), ("verdicts", None))


def test_a_bound_of_the_lists_type_is_the_bound_of_a_map_over_it() -> None:
    kind = Annotated[list[str], Field(max_length=4)]
    metric = over(MapNode("Judge it", listing(kind), "verdicts", answer=bool))
    assert foretold([ANSWER], metric, items=7).asked == Bounds(1, 5, 5)


def test_a_verdict_list_is_one_question_or_none() -> None:
    metric = over(VerdictListNode("Good?", listing(), "verdicts", verdicts=("yes", "no")))
    assert foretold([ANSWER], metric).asked == Bounds(1, 2, 2)


@pytest.mark.parametrize(("per_call", "count"), [(None, 1), (1, 5), (2, 3), (9, 1)])
def test_a_verdict_list_in_parts_is_one_question_per_part(per_call: int | None, count: int) -> None:
    node = VerdictListNode("Good?", "context", "verdicts", verdicts=("yes", "no"))
    vars(node)["per_call"] = per_call
    assert node.questions({"context": ["x"] * 5}, 10).most == count
    assert node.questions({"context": []}, 10).most == 0
    assert node.questions({}, 10).most == (1 if per_call is None else None)


def test_steps_are_asked_for_once_and_not_at_all_without_cases() -> None:
    metric = GEval("Polite", "It is polite.", evaluation_params=["actual_output"])
    assert foretold([ANSWER] * 4, metric).asked == Bounds(5, 5, 5)
    assert foretold([], metric).asked == Bounds()


def test_a_reason_written_by_the_judge_is_one_more_question_per_case() -> None:
    metric = DAGMetric("m", DAG(yes_no("kind")), judged_reason=True)
    found = foretold([ANSWER] * 3, metric)
    assert found.asked == Bounds(6, 6, 6)
    assert found.depth == 2
    assert found.metrics[0].worst.nodes == (("kind", 1), ("reason", 1))
    assert [(node.node, node.asked.most) for node in found.metrics[0].nodes] == [
        ("kind", 3),
        ("reason", 3),
    ]
    # One question that is equal for all cases, and a reason for each.
    assert found.judges[0].calls == pytest.approx(4)


def test_depth_counts_what_waits_for_something_else() -> None:
    assert foretold([TALK], KnowledgeRetentionMetric()).depth == 3
    assert foretold([FULL], FaithfulnessMetric()).depth == 2
    assert foretold([ANSWER], DAGMetric("m", deep_chain(7))).depth == 7


def test_likelihoods_follow_the_verdicts_of_an_earlier_run() -> None:
    metric = DAGMetric("m", DAG(yes_no("kind", yes_no("short"), 0)))
    cases = [LLMTestCase(input="a", actual_output=f"b {n}") for n in range(4)]
    assert foretold(cases, metric).asked == Bounds(4, 6, 8)
    earlier = ran(
        cases, metric,
        model=ScriptedJudge(lambda q: q.name == "kind" and "b 0" in q.messages[1]["content"]),
    )  # fmt: skip
    odds = verdicts_of(earlier)
    assert foretold(cases, metric, odds=odds).asked == Bounds(4, 5, 8)


def test_too_many_paths_give_safe_bounds_and_say_so() -> None:
    # Each decision leads to a node of its own: 2 ** 12 paths.
    forks = [yes_no(f"f{n}", yes_no(f"then {n}"), 0) for n in range(12)]
    metric = DAGMetric("m", DAG(root_nodes=forks), combine="mean")
    assert MOST_PATHS < 2**12
    found = foretold([ANSWER], metric)
    assert not found.metrics[0].exact
    assert (found.asked.least, found.asked.most) == (12, 24)
    assert 16 < found.asked.likely < 20
    for verdict in (True, False):
        answers = ScriptedJudge(dict.fromkeys(names(metric), verdict))
        is_within(found, ran([ANSWER], metric, model=answers))


def test_verdicts_that_only_differ_in_their_score_are_one_path() -> None:
    roots = [NonBinaryJudgementNode(f"{n}?", evaluation_params=["input"], name=f"{n}",
                                    then={str(score): score for score in range(11)})
             for n in range(40)]  # fmt: skip
    found = foretold([ANSWER], DAGMetric("m", DAG(root_nodes=roots), combine="mean"))
    assert found.metrics[0].exact
    assert found.asked == Bounds(40, 40, 40)


def test_a_combination_that_is_an_error_still_asks() -> None:
    inner = DAGMetric("inner", DAG(root_nodes=[yes_no("a"), yes_no("b", yes_no("c"))]),
                      combine="error")  # fmt: skip
    metric = DAGMetric("m", DAG(yes_no("kind", inner, 0)))
    assert foretold([ANSWER], metric).asked.most == 4


def test_money_is_tokens_by_their_price() -> None:
    prices = {"small": (2.0, 8.0)}
    assert JudgeEstimate("small", 9, 1_000_000, 500_000).cost(prices) == 6.0
    assert JudgeEstimate("other", 1, 1, 1).cost(prices) is None


def test_money_is_less_for_tokens_from_caches() -> None:
    prices = {"flat": (2.0, 8.0)}
    assert JudgeEstimate("flat", 9, 1_000_000, 500_000).cost(prices, 400_000) == 6.0
    listed = JudgeEstimate("gpt-4o", 9, 1_000_000, 500_000).cost(prices, 400_000)
    assert listed == pytest.approx(0.6 * 2.5 + 0.4 * 1.25 + 0.5 * 10)


def test_all_questions_but_the_first_of_a_case_have_its_texts_from_caches() -> None:
    tree = DAGMetric("m", DAG(root_nodes=[yes_no(f"{number}") for number in range(8)]))
    cases = [LLMTestCase(input="a", actual_output=f"{n}" * 8_000) for n in range(3)]
    (found,) = foretold(cases, tree).judges
    assert found.cached_tokens == 3 * 7 * 2_000
    assert found.cached_tokens < found.input_tokens
    (short,) = foretold([ANSWER], tree).judges
    assert short.cached_tokens == 0
    (alone,) = foretold(cases, DAGMetric("m", DAG(yes_no("kind")))).judges
    assert alone.cached_tokens == 0
    # A server may keep beginnings without being asked to: a bound counts on any judge.
    judge = ScriptedJudge(lambda question: True)
    (unasked,) = estimate(compile_metrics([tree]), cases, judges=[judge]).judges
    assert unasked.cached_tokens == found.cached_tokens


def test_time_is_the_longer_of_the_row_and_the_whole() -> None:
    found = foretold([LLMTestCase(input="a", actual_output=f"{n}") for n in range(100)],
                     DAGMetric("m", deep_chain(2)))  # fmt: skip
    assert found.seconds(2.0, 1_000_000) == 2 * 2.0
    assert found.seconds(2.0, 10) == 2.0 * found.calls.likely / 10


def test_tokens_of_a_known_prompt_are_those_of_its_bytes() -> None:
    short, long = (LLMTestCase(input="a", actual_output="x" * size) for size in (4, 4_004))
    metric = DAGMetric("m", DAG(yes_no("kind")))
    few, many = (foretold([case], metric).judges[0].input_tokens for case in (short, long))
    assert many - few == 1_000


# The command

FILES = {
    "metrics.py": """
from dagengine.metrics import DAGMetric, FaithfulnessMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode, MapNode, CodeNode

short = BinaryJudgementNode("Is it short?", evaluation_params=["actual_output"], name="short",
                            then={True: 10, False: 0})
kind = BinaryJudgementNode("Is it kind?", evaluation_params=["actual_output"], name="kind",
                           then={True: short, False: 0})
manners = DAGMetric("Good manners", DAG(kind))
faithful = FaithfulnessMetric()
""",
    "judge.py": """
class Judge:
    identity = "never"
    from dagengine.question import Capabilities
    capabilities = Capabilities()
    async def answer(self, question):
        raise SystemExit("it was asked")

judge = Judge()
""",
    "cases.jsonl": "".join(
        json.dumps({"input": "a", "actual_output": f"b {n}"}) + "\n" for n in range(4)
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def command(*arguments: str) -> str:
    return output_of("plan", *arguments)


PLAN = ("metrics.py", "--data", "cases.jsonl")


def test_the_command_shows_questions_paths_money_and_time_in_80_columns(folder: Path) -> None:
    shown = command(*PLAN, "--judge", "judge.py")
    assert all(len(line) <= 80 for line in shown.splitlines())
    lines = [line.split() for line in shown.splitlines()]
    assert ["Good", "manners", "1–2", "4", "6", "8"] in [line[:6] for line in lines]  # noqa: RUF001
    assert "Faithfulness (0 of 4" in shown
    assert "worst path of Good manners: kind → short (2 questions, 2 in a row)" in shown
    assert "No price is known for a judge: give --price IN,OUT." in shown
    assert "about 4 s with 64 calls at a time, up to 2 in a row" in shown
    assert "verdicts are equally likely" in shown
    assert "can detect a difference" not in shown
    assert "4 cases with 1 run each can detect a difference" in command(*PLAN, "--detectable")


@pytest.mark.parametrize("price", ["2,8", "20,80", "2000,8000"])
def test_an_amount_of_money_has_two_digits_that_say_something(folder: Path, price: str) -> None:
    arguments = (*PLAN, "--judge", "judge.py", "--price", price)
    (judge,) = json.loads(command(*arguments, "--json"))["judges"]
    assert float(paid(*arguments)) == pytest.approx(judge["usd"], rel=0.05)


def test_an_amount_of_money_may_be_nothing_or_too_small_to_count(folder: Path) -> None:
    assert paid(*PLAN, "--judge", "judge.py", "--price", "0,0") == "0.00"
    assert paid(*PLAN, "--judge", "judge.py", "--price", "1e-9,0") == "0.0001"  # under


def paid(*arguments: str) -> str:
    """The last cell of the judge's line."""
    (line,) = (one for one in command(*arguments).splitlines() if one.lstrip().startswith("never"))
    return line.split()[-1]


def test_the_command_shows_what_may_come_from_caches_and_what_that_saves(folder: Path) -> None:
    rows = [{"input": "a", "actual_output": f"{n}" * 80_000} for n in range(4)]
    (folder / "long.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    plan = ("metrics.py", "--data", "long.jsonl", "--judge", "gpt-4o")
    (judge,) = json.loads(command(*plan, "--json"))["judges"]
    # The second question of a tree of two is as likely as not, and begins as the first does.
    assert judge["cached_tokens"] == 4 * 20_000 / 2
    (line,) = (line for line in command(*plan).splitlines() if line.lstrip().startswith("gpt-4o"))
    *_, from_caches, _, least, to, most = line.split()
    assert (from_caches, to) == ("40k", "to")
    saved = 40_000 * (2.5 - 1.25) / 1e6
    assert float(most) == pytest.approx(judge["usd"], abs=0.01)
    assert float(least) == pytest.approx(judge["usd"] - saved, abs=0.01)
    assert "From caches: at most so many tokens" in command(*plan)
    (own,) = (
        line for line in command(*plan, "--price", "2,8").splitlines()
        if line.lstrip().startswith("gpt-4o")
    )  # fmt: skip
    assert " to " not in own  # a price of one's own says nothing of cached tokens


def test_the_least_calls_are_left_out_where_no_run_comes_near_them(folder: Path) -> None:
    source = (
        "from dagengine.metrics import DAGMetric\n"
        "from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode\n"
        "good = BinaryJudgementNode('Good?', [], ['input'], then={True: 1, False: 0})\n"
        "words = TaskNode('Words.', 'words', [good], ['actual_output'])\n"
        "metric = DAGMetric('Words', DAG(words))\n"
    )
    (folder / "words.py").write_text(source)
    rows = [{"input": f"q{n}", "actual_output": f"a{n}"} for n in range(4)]
    (folder / "words.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    shown = command("words.py", "--data", "words.jsonl", "--judge", "judge.py")
    (line,) = (one.split() for one in shown.splitlines() if "judge calls" in one)
    assert line == ["judge", "calls", "8", "8"]


def test_the_time_of_a_server_of_ones_own_is_not_known_before_it_was_measured(
    folder: Path,
) -> None:
    own = (*PLAN, "--judge", "llama3.1", "--base-url", "http://localhost:11434/v1")
    shown = command(*own)
    assert "time: not known" in shown
    assert "judge check" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert json.loads(command(*own, "--json"))["seconds"] is None
    assert "about 4 s" in command(*own, "--latency", "2")


def test_the_command_gives_the_same_as_json(folder: Path) -> None:
    shown = json.loads(command(*PLAN, "--judge", "judge.py", "--price", "2,8", "--json"))
    assert shown["asked"] == {"least": 4, "likely": 6.0, "most": 8}
    assert [metric["metric"] for metric in shown["metrics"]] == ["Good manners", "Faithfulness"]
    (paid,) = shown["judges"]
    assert paid["judge"] == "never"
    expected = (2 * paid["input_tokens"] + 8 * paid["output_tokens"]) / 1e6
    assert paid["usd"] == pytest.approx(expected)


def test_the_command_learns_from_the_rows_of_an_earlier_run(folder: Path) -> None:
    metric = DAGMetric("Good manners", DAG(yes_no("kind", yes_no("short"), 0)))
    rows = ran([ANSWER], metric, model=willing({"kind": True})).rows
    lines = "".join(json.dumps(row.as_dict()) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    shown = json.loads(command(*PLAN, "--results", "rows.jsonl", "--json"))
    assert shown["asked"]["likely"] == 8.0
    assert "as frequent as in the earlier run" in " ".join(shown["assumptions"])
    (folder / "rows.jsonl").write_text(lines.replace("Good manners", "Other"), encoding="utf-8")
    other = json.loads(command(*PLAN, "--results", "rows.jsonl", "--json"))
    assert other["asked"]["likely"] == 6.0
    assert "verdicts are equally likely" in " ".join(other["assumptions"])


@pytest.mark.parametrize("price", ["2", "2,x", "-1,2", "nan,1", "1,inf"])
def test_a_price_that_is_none_is_an_error(folder: Path, price: str) -> None:
    with pytest.raises(InputError, match="--price"):
        command(*PLAN, "--price", price)


def test_a_writer_is_a_judge_whatever_its_length() -> None:
    class Script(ScriptedJudge):
        def __len__(self) -> int:
            return 0

    writer = Script({})
    judge = DecisionJudge("m", base_url="http://localhost:1/v1", writer=writer)
    assert with_writers([judge, judge]) == [judge, judge, writer]
