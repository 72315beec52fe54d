"""Repetitions: every question asked again, and nothing but the judge makes a difference."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from graphs.contract import case_for, judge, make, metric_classes
from hypothesis import given
from hypothesis import strategies as st
from programs.hash_seeds import printed

from dagengine import Limits, compile_metrics, evaluate, stream
from dagengine.errors import GraphError, InputError, UnparseableError
from dagengine.estimate import estimate
from dagengine.judges import Noise, RecordedJudge, ScriptedJudge, SimulatedJudge
from dagengine.metrics import BaseMetric, DAGMetric, GEval
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    MapNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.question import Options, Question
from dagengine.reliability import Observations, a_repeat, repeat
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.perturbations import Resampling
from dagengine.reliability.repetition import ORDERS, Design
from dagengine.results import CaseResult, OutcomeKind
from dagengine.test_case import ArenaTestCase, LLMTestCase

CASES = [LLMTestCase(name=f"case {n}", input=f"number {n}") for n in range(4)]


def tree(name: str = "tree", **settings: Any) -> DAGMetric:
    """A task, a judgement, and one more where it says yes."""
    task = TaskNode("Extract", "facts", evaluation_params=["input"])
    last = NonBinaryJudgementNode(
        "How good?", name="how", inputs=[task], then={"very": 10, "fairly": 6, "not": 0}
    )
    first = BinaryJudgementNode(
        "Good?", name="good", inputs=[task], evaluation_params=["input"],
        then={True: last, False: 0},
    )  # fmt: skip
    return DAGMetric(name, DAG(first), **settings)


TRUTH = {"facts": "some", "good": True, "how": "very"}


def noisy(seed: int) -> SimulatedJudge:
    return SimulatedJudge(TRUTH, Noise(flip=0.3), seed=seed, name="noisy")


NOISY = noisy(5)


def lines(seen: Observations) -> list[str]:
    return list(seen.lines())


# What is asked.


def test_each_question_is_asked_once_per_repetition_with_a_sample_of_its_own() -> None:
    asked: Counter[tuple[str, int, str]] = Counter()

    def script(question: Question[Any]) -> Any:
        shown = question.messages[-1]["content"]
        asked[question.name, question.options.sample, shown] += 1
        return TRUTH[question.name]

    seen = repeat(CASES, [tree()], times=5, model=ScriptedJudge(script))

    assert set(asked.values()) == {1}
    assert {sample for _, sample, _ in asked} == set(range(5))
    # `how` reads the same facts in every case: equal questions of one repetition are one.
    assert Counter(name for name, _, _ in asked) == {"facts": 20, "good": 20, "how": 5}
    assert seen.totals.calls == 45
    assert seen.totals.shared == 15


def test_the_first_repetition_asks_what_an_evaluation_asks() -> None:
    keys: list[set[str]] = [set(), set()]

    def judge(place: int) -> ScriptedJudge:
        def script(question: Question[Any]) -> Any:
            keys[place].add(question.key)
            return TRUTH[question.name]

        return ScriptedJudge(script)

    repeat(CASES, [tree()], times=1, model=judge(0))
    evaluate(CASES, [tree()], model=judge(1), show=False)
    assert keys[0] == keys[1]


@given(
    st.lists(
        st.builds(
            Condition,
            sample=st.integers(0, 2**20 - 1),
            order=st.sampled_from(ORDERS),
            temperature=st.sampled_from([None, 0.0, 1.0]),
            seed=st.sampled_from([None, 1, 2]),
            paraphrase=st.sampled_from(["", "other"]),
        ),
        min_size=2,
        max_size=2,
        unique=True,
    ),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_no_two_conditions_share_a_sample_whatever_samples_their_nodes_ask_for(
    conditions: list[Condition], first: int, second: int
) -> None:
    samples = [
        Resampling(condition).options(Options(sample=sample))
        for condition, sample in zip(conditions, (first, second), strict=True)
    ]
    assert samples[0].sample != samples[1].sample
    assert [options.repetition for options in samples] == [c.sample for c in conditions]


def test_temperature_and_seed_are_those_of_the_condition() -> None:
    asked: set[tuple[float | None, int | None]] = set()

    def script(question: Question[Any]) -> Any:
        asked.add((question.options.temperature, question.options.seed))
        return TRUTH[question.name]

    repeat(CASES, [tree()], times=1, temperatures=(None, 0.7), seeds=(None, 3),
           model=ScriptedJudge(script))  # fmt: skip
    assert asked == {(0.0, None), (0.0, 3), (0.7, None), (0.7, 3)}


def test_questions_of_lists_are_repeated_too() -> None:
    each = MapNode("Good?", "context", "each", answer=bool)
    last = BinaryJudgementNode("All?", name="all", inputs=[each], then={True: 10, False: 0})
    case = LLMTestCase(input="q", context=["one", "two"])
    seen = repeat([case], [DAGMetric("m", DAG(last))], times=3,
                  model=ScriptedJudge(lambda question: True))  # fmt: skip
    assert seen.totals.calls == 9


def test_steps_that_no_case_decides_are_asked_once_per_repetition() -> None:
    metric = GEval("g", criteria="good", evaluation_params=["input"])
    asked: Counter[str] = Counter()

    def script(question: Question[Any]) -> Any:
        steps = "steps" in question.answer_type.model_fields
        asked["steps" if steps else "rating"] += 1
        return {"steps": ["look"]} if steps else 7

    repeat(CASES, [metric], times=3, model=ScriptedJudge(script))
    assert asked == {"steps": 3, "rating": 12}


@pytest.mark.parametrize("kind", metric_classes(), ids=lambda kind: kind.__name__)
def test_every_metric_asks_all_its_questions_again(kind: type[PrebuiltMetric]) -> None:
    metric = make(kind)
    case, asked = case_for(metric), Counter[int]()
    sampled = judge(1)

    class Counting:
        identity = "counting"
        capabilities = sampled.capabilities

        async def answer(self, question: Question[Any]) -> Any:
            asked[question.options.repetition] += 1
            return await sampled.answer(question)

    repeat([case], [metric], times=3, model=Counting())
    assert len(set(asked.values())) <= 1
    assert set(asked) in (set(), {0, 1, 2})


def test_metrics_that_compute_their_score_themselves_are_repeated_as_they_are() -> None:
    count = itertools.count()

    class Counting(BaseMetric):
        def measure(self, test_case: LLMTestCase) -> float:
            return next(count) / 10

    seen = repeat(CASES[:1], [Counting()], times=4, limits=Limits(max_in_flight=1))
    assert sorted(seen.table("Counting")[0]) == [0.0, 0.1, 0.2, 0.3]


def test_no_reasons_are_written_about_results() -> None:
    metric = tree(judged_reason=True)
    seen = repeat(CASES[:1], [metric], times=2, model=ScriptedJudge(TRUTH))
    assert seen.totals.calls == 6
    assert metric.judged_reason


def test_other_judges_take_the_place_of_the_metrics_own() -> None:
    judges = {"yes": ScriptedJudge(TRUTH), "no": ScriptedJudge({**TRUTH, "good": False})}
    seen = repeat(CASES, [tree(model="nobody")], times=2, judges=judges)
    assert [condition.judge for condition in seen.conditions] == ["yes", "yes", "no", "no"]
    assert seen.table("tree") == [[1.0, 1.0, 0.0, 0.0]] * 4


def test_paraphrases_stand_beside_the_words_as_given() -> None:
    def script(question: Question[Any]) -> Any:
        other = "Really?" in question.messages[-1]["content"]
        return not other if question.name == "good" else TRUTH[question.name]

    seen = repeat(CASES[:1], [tree()], times=2, paraphrases={"strict": {"good": "Really?"}},
                  model=ScriptedJudge(script))  # fmt: skip
    assert [(c.paraphrase, c.sample) for c in seen.conditions] == [
        ("", 0), ("", 1), ("strict", 0), ("strict", 1)
    ]  # fmt: skip
    assert seen.table("tree", "good") == [[True, True, False, False]]


def test_orders_show_who_prefers_a_place() -> None:
    fields = [f"contestants.{name}.actual_output" for name in "AB"]
    node = NonBinaryJudgementNode(
        "Who?", name="who", evaluation_params=fields, then={"A": 10, "B": 0}
    )
    case = ArenaTestCase(contestants={n: LLMTestCase(input="q", actual_output=n * 3) for n in "AB"})
    seen = repeat([case], [DAGMetric("m", DAG(node))], times=1, orders=ORDERS,
                  model=ScriptedJudge({"who": "A"}))  # fmt: skip
    assert seen.table("m", "who") == [["A", "B", "A"]]
    assert seen.table("m") == [[1.0, 0.0, 1.0]]


def repeating_wrongly(**settings: Any) -> Any:
    return repeat(CASES, [tree()], model=ScriptedJudge({}), **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"times": 0}, "times must be"),
        ({"times": 2**20}, "times must be"),
        ({"orders": ("given", "backwards")}, "no order 'backwards'; use given"),
        ({"orders": ()}, "orders must be a list of different values"),
        ({"temperatures": (0.5, 0.5)}, "temperatures must be"),
        ({"orders": ("swapped",)}, "needs two fields that may change places"),
        (
            {"paraphrases": {"p": {"bad": "Bad?"}}},
            "no node is called 'bad'; use 'facts', 'good', 'how'",
        ),
    ],
)
def test_what_makes_no_condition_is_an_error_before_anything_is_asked(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        repeating_wrongly(**settings)


def test_a_graph_that_does_not_compile_is_reported_once() -> None:
    broken = DAGMetric("m", DAG(TaskNode("Do", "done", evaluation_params=["input"])))
    with pytest.raises(GraphError) as raised:
        repeat(CASES, [broken], times=20)
    codes = [problem.code for problem in raised.value.problems]
    assert len(codes) == len(set(codes))
    assert "#" not in str(raised.value).partition("more: ")[0]


# What is observed.


@pytest.mark.parametrize("seed", range(6))
def test_observations_are_those_of_the_results(seed: int) -> None:
    rows: list[CaseResult] = []
    seen = repeat(CASES, [tree(), tree("other")], times=3, model=noisy(seed), on_row=rows.append)

    assert seen.metrics == ("tree", "other")
    assert seen.cases == (0, 1, 2, 3)
    assert set(seen.nodes("tree")) == {"facts", "good", "how"}
    results = [result for row in rows for result in row.metrics]
    own = [observation for observation in seen if not observation.node]
    assert [(o.score, o.path) for o in own] == [(r.score, r.path) for r in results]
    assert len({r.metric for r in results}) == 6
    steps = [step for result in results for step in result.steps]
    nodes = [observation for observation in seen if observation.node and not observation.alone]
    assert [(o.node, o.verdict) for o in nodes] == [(s.node, s.verdict) for s in steps]
    assert seen.table("tree") == seen.table("other")
    # Beyond the results are only second answers of what the runs of a case reached once.
    reached = Counter((o.case, o.metric, o.node) for o in nodes)
    assert {reached[o.case, o.metric, o.node] for o in seen if o.alone} <= {1}


def test_a_node_that_was_not_asked_has_no_vote_and_no_row_of_votes() -> None:
    def script(question: Question[Any]) -> Any:
        first = "number 0" in question.messages[-1]["content"]
        odd = question.options.repetition % 2 == 1
        return (not first and odd) if question.name == "good" else TRUTH[question.name]

    seen = repeat(CASES[:2], [tree()], times=2, model=ScriptedJudge(script))
    assert seen.table("tree", "how") == [[None, None], [None, "very"]]
    with pytest.raises(InputError, match="no observation of 'what'; there are 'tree', 'facts'"):
        seen.table("tree", "what")


def test_answers_that_cannot_be_read_are_kept_as_they_are() -> None:
    def script(question: Question[Any]) -> Any:
        if question.name == "good":
            return UnparseableError("no verdict", raw=f"hm {question.options.repetition}")
        return TRUTH[question.name]

    seen = repeat(CASES[:1], [tree()], times=2, texts=True, model=ScriptedJudge(script),
                  limits=Limits(reasks=0))  # fmt: skip
    own = seen.table("tree", "good", of=lambda row: (row.vote, row.outcome, row.raw))
    assert own == [[(None, OutcomeKind.UNPARSEABLE, f"hm {n}") for n in (0, 1)]]
    assert seen.table("tree") == [[None, None]]


def test_texts_are_digests_unless_asked_for() -> None:
    texts, digests = (
        repeat(CASES, [tree()], times=4, texts=texts, model=NOISY) for texts in (True, False)
    )
    pairs = {(one.raw, other.raw) for one, other in zip(texts, digests, strict=True) if one.raw}
    assert len(pairs) == len({text for text, _ in pairs}) == len({digest for _, digest in pairs})
    assert '{"reason": "simulated", "verdict": true}' in {text for text, _ in pairs}
    assert {len(digest or "") for _, digest in pairs} == {16}


def test_answers_to_a_list_of_questions_stand_in_the_order_of_the_questions() -> None:
    second_is_there = anyio.Event

    async def main() -> list[Any]:
        arrived = second_is_there()

        async def script(question: Question[Any]) -> Any:
            if "one" in question.messages[-1]["content"]:
                await arrived.wait()
                return "first"
            arrived.set()
            return "second"

        each = MapNode("Say", "context", "each")
        last = RatingNode("How?", inputs=[each], scale=(0, 1))
        rows: list[CaseResult] = []
        judge = ScriptedJudge(lambda q: 1 if "score" in q.answer_type.model_fields else script(q))
        await stream([LLMTestCase(input="q", context=["one", "two"])],
                     [DAGMetric("m", DAG(last))], rows.append, model=judge)  # fmt: skip
        return [json.loads(text)["output"] for text in rows[0].metrics[0].steps[0].answers]

    assert anyio.run(main) == ["first", "second"]


def test_observations_are_read_as_they_were_written(tmp_path: Path) -> None:
    seen = repeat(CASES, [tree()], times=3, temperatures=(0.0, 1.0), model=NOISY, texts=True)
    seen.save(tmp_path / "seen.jsonl")
    assert Observations.load(tmp_path / "seen.jsonl") == seen


@given(
    st.builds(
        Observation,
        case=st.integers(0),
        metric=st.text(),
        node=st.text(),
        condition=st.builds(Condition, judge=st.text(), temperature=st.none() | st.floats(0, 2)),
        verdict=st.none() | st.text() | st.booleans(),
        score=st.none() | st.floats(0, 1),
        raw=st.none() | st.text(st.characters(codec=None)),
        outcome=st.sampled_from(OutcomeKind),
        path=st.lists(st.tuples(st.text(), st.text() | st.booleans())).map(tuple),
    )
)
def test_any_observation_survives_a_file(observation: Observation) -> None:
    from dagengine.reliability.observations import read_lines

    (again,) = read_lines(Observations((observation,)).lines())
    assert again == observation
    assert type(again.verdict) is type(observation.verdict)


def test_a_line_that_is_no_observation_is_named(tmp_path: Path) -> None:
    path = tmp_path / "seen.jsonl"
    path.write_text('{"case":0,"metric":"m","node":""}\n{"case":0}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"seen\.jsonl, line 2"):
        Observations.load(path)


# The engine adds no noise.


@pytest.mark.anyio
@pytest.mark.parametrize("limit", [1, 64])
async def test_observations_do_not_depend_on_concurrency_or_event_loop(limit: int) -> None:
    async def turns(question: Question[Any]) -> Any:
        for _ in range(int(question.key[:1], 16)):
            await anyio.sleep(0)
        return await NOISY.answer(question)

    class Slow:
        identity = "slow"
        capabilities = NOISY.capabilities
        answer = staticmethod(turns)

    seen = await a_repeat(CASES, [tree()], times=6, model=Slow(),
                          limits=Limits(max_in_flight=limit))  # fmt: skip
    assert lines(seen) == lines(repeat(CASES, [tree()], times=6, model=NOISY))


_PROGRAM = """
from test_repetition import CASES, NOISY, tree
from dagengine.reliability import repeat
seen = repeat(CASES, [tree()], times=6, orders=("given", "reversed"), model=NOISY)
print("\\n".join(seen.lines()))
"""


def test_observations_do_not_depend_on_the_hash_seed() -> None:
    texts = printed(_PROGRAM, Path(__file__).parent)
    seen = repeat(CASES, [tree()], times=6, orders=("given", "reversed"), model=NOISY)
    assert [text.splitlines() for text in texts] == [lines(seen)] * len(texts)


def test_a_replay_observes_what_was_observed_live() -> None:
    recorded: dict[str, str] = {}

    async def answer(question: Question[Any]) -> Any:
        found = await NOISY.answer(question)
        recorded[question.key] = found.raw
        return found

    class Recorder:
        identity = "recorder"
        capabilities = NOISY.capabilities

    Recorder.answer = staticmethod(answer)  # type: ignore[attr-defined]
    live = repeat(CASES, [tree()], times=6, model=Recorder())
    replayed = repeat(CASES, [tree()], times=6, model=RecordedJudge(recorded))
    assert lines(replayed) == lines(live)


def test_a_repetition_from_the_store_makes_no_call(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"times": 6, "model": NOISY, "store": tmp_path / "answers.sqlite"}
    live = repeat(CASES, [tree()], **settings)
    again = repeat(CASES, [tree()], **settings)
    assert lines(again) == lines(live)
    assert (live.totals.calls > 0, again.totals.calls) == (True, 0)
    longer = repeat(CASES, [tree()], **{**settings, "times": 7})
    assert 0 < longer.totals.calls < live.totals.calls


def test_the_plan_of_repetitions_counts_their_questions() -> None:
    made = Design(times=5).variants([tree()])
    plan = compile_metrics([variant.rewritten for variant in made])
    asked = repeat(CASES, [tree()], times=5, model=ScriptedJudge(TRUTH)).totals
    planned = estimate(plan, CASES)
    once = estimate(compile_metrics([tree()]), CASES)
    assert planned.asked.least == 5 * once.asked.least
    assert planned.calls.least <= asked.calls <= (planned.calls.most or 0)


def test_conditions_are_every_combination() -> None:
    found = Design(
        times=2, orders=("given", "reversed"), judges={"a": None, "b": None}
    ).conditions()
    assert len(set(found)) == len(found) == 8
    assert found[0] == Condition(judge="a")
    assert Design(times=1).conditions() == [Condition()]
