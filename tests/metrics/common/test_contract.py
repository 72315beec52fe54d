"""The contract of every metric in the package, whichever there are."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest
from graphs.contract import (
    ARGUMENTS,
    OWN_ARGUMENTS,
    case_for,
    empty_case,
    items_of,
    judge,
    make,
    metric_classes,
    valid,
)
from pydantic import BaseModel

from dagengine import Limits, a_evaluate, compile_metrics, evaluate
from dagengine.errors import InputError, RefusedError
from dagengine.graph import VerdictListNode
from dagengine.judges import ScriptedJudge
from dagengine.metrics import (
    ArgumentCorrectnessMetric,
    BiasMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
    ConversationCompletenessMetric,
    CriteriaMetric,
    DAGMetric,
    ExactMatchMetric,
    FaithfulnessMetric,
    GEval,
    HallucinationMetric,
    JsonCorrectnessMetric,
    JsonMatchMetric,
    KnowledgeRetentionMetric,
    PatternMatchMetric,
    PromptAlignmentMetric,
    RagasMetric,
    RecoveryMetric,
    ResultUseMetric,
    RoleAdherenceMetric,
    StepEfficiencyMetric,
    TaskCompletionMetric,
    ToolChoiceMetric,
    ToolCorrectnessMetric,
)
from dagengine.metrics.bias import BiasTemplate
from dagengine.metrics.common.g_eval_prompts import StepwiseMetric
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.dag import DAG, CodeNode
from dagengine.metrics.hallucination import HallucinationTemplate
from dagengine.prompts.answer_types import VerdictList
from dagengine.question import Question, schema_of
from dagengine.results import MetricResult, OutcomeKind
from dagengine.test_case import ConversationalTestCase, LLMTestCase, ToolCall, Turn
from dagengine.trees.schema import parameters_of

pytestmark = pytest.mark.sampled

KINDS = metric_classes()
every_metric = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
# Once without a second chance: a failure is a failure at once.
FIRST = Limits(attempts=1, reasks=0)


def result_of(
    metric: PrebuiltMetric, model: Any, case: Any = None, limits: Limits = FIRST
) -> MetricResult:
    done = evaluate([case or case_for(metric)], [metric], model=model, show=False, limits=limits)
    result: MetricResult = done.rows[0].metrics[0]
    return result


def has_nothing_to_judge(result: MetricResult) -> bool:
    """Some metrics have no score for a case without anything to judge, and say so."""
    return result.failure is not None and "nothing to judge" in result.failure.message


def asks(kind: type[PrebuiltMetric]) -> bool:
    asked: list[str] = []
    result_of(make(kind), judge(0, asked))
    return bool(asked)


@every_metric
@pytest.mark.parametrize("pick", [0, -1])
def test_valid_answers_give_a_score_from_zero_to_one_with_a_reason(
    kind: type[PrebuiltMetric], pick: int
) -> None:
    result = result_of(make(kind), judge(pick))
    if has_nothing_to_judge(result):
        return
    assert result.failure is None
    assert result.score is not None
    assert 0 <= result.score <= 1
    assert result.reason


@every_metric
def test_measure_a_measure_and_evaluate_agree_on_both_event_loops(
    kind: type[PrebuiltMetric],
) -> None:
    metric = make(kind, model=judge(0))
    case = case_for(metric)
    scores = {
        metric.measure(case),
        anyio.run(metric.a_measure, case),
        anyio.run(metric.a_measure, case, backend="trio"),
        result_of(metric, None).score,
    }
    assert len(scores) == 1


@every_metric
def test_the_same_case_gives_the_same_prompts(kind: type[PrebuiltMetric]) -> None:
    seen: list[list[str]] = []
    for _ in range(2):
        asked: list[str] = []
        result_of(make(kind), judge(0, asked))
        seen.append(sorted(asked))
    assert seen[0] == seen[1]


@every_metric
def test_a_case_without_the_fields_is_a_typed_failure_before_any_call(
    kind: type[PrebuiltMetric],
) -> None:
    metric, asked = make(kind), list[str]()
    case = empty_case(case_for(metric))
    result = result_of(metric, judge(0, asked), case)
    required = compile_metrics([metric]).metrics[0].required
    missing = [path for path, _ in required if getattr(case, path.partition(".")[0], None) is None]
    if missing:
        assert result.outcome == OutcomeKind.MISSING_FIELD
        assert asked == []
        assert f"`{missing[0]}`" in str(result.failure)
    else:
        assert result.failure is not None or result.score is not None


@every_metric
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"nonsense": 1}, OutcomeKind.UNPARSEABLE),
        (RefusedError("no"), OutcomeKind.JUDGE_REFUSED),
    ],
    ids=["garbage", "refusal"],
)
def test_a_bad_answer_is_a_typed_failure_and_no_score(
    kind: type[PrebuiltMetric], answer: Any, outcome: OutcomeKind
) -> None:
    if not asks(kind):
        pytest.skip("this metric makes no judge calls")
    result = result_of(make(kind), ScriptedJudge(lambda question: answer))
    assert result.score is None
    assert result.outcome == outcome


@every_metric
def test_a_judge_that_never_answers_is_a_timeout(kind: type[PrebuiltMetric]) -> None:
    if not asks(kind):
        pytest.skip("this metric makes no judge calls")

    async def answer(question: Any) -> None:
        await anyio.sleep_forever()

    limits = replace(FIRST, call_timeout=0.05)
    result = result_of(make(kind), ScriptedJudge(answer), limits=limits)
    assert result.outcome == OutcomeKind.TIMEOUT


@every_metric
@pytest.mark.parametrize("pick", [0, -1])
def test_strict_mode_knows_only_zero_and_one(kind: type[PrebuiltMetric], pick: int) -> None:
    try:
        metric = make(kind, strict_mode=True)
    except TypeError:
        pytest.skip("this metric has no strict mode")
    result = result_of(metric, judge(pick))
    assert result.score in (0.0, 1.0) or has_nothing_to_judge(result)
    assert result.threshold == 1.0


@every_metric
def test_without_a_threshold_a_metric_only_scores(kind: type[PrebuiltMetric]) -> None:
    if "threshold" not in parameters_of(kind):
        pytest.skip("this metric has no threshold")
    result = result_of(make(kind, threshold=None), judge(0))
    assert result.threshold is None
    assert result.success is None
    assert result.score is not None or has_nothing_to_judge(result)


@every_metric
def test_a_mistyped_setting_is_an_error_that_names_the_right_one(
    kind: type[PrebuiltMetric],
) -> None:
    near = r"has no setting 'asinc_mode'; did you mean 'async_mode'\? It has .*model"
    with pytest.raises(TypeError, match=rf"^{kind.__name__} {near}"):
        make(kind, asinc_mode=False)
    with pytest.raises(TypeError, match=r"has no setting 'zzz'\. It has "):
        make(kind, zzz=1)


IN_ORDER = ("threshold", "model", "include_reason", "async_mode", "strict_mode", "verbose_mode")


@every_metric
def test_settings_by_position_stand_in_one_order(kind: type[PrebuiltMetric]) -> None:
    """After what a metric requires; G-Eval's family and patterns have their own."""
    parameters = list(inspect.signature(kind).parameters.values())
    if issubclass(kind, StepwiseMetric | PatternMatchMetric):
        pytest.skip("this family has its own order")
    known = ARGUMENTS | OWN_ARGUMENTS.get(cast(Any, kind).__name__, {})
    required = [known[one.name] for one in parameters if one.default is one.empty
                and one.name in known]  # fmt: skip
    model, constructor = judge(0), cast(Any, kind)
    metric = constructor(*required, 0.75, model, False, False, True, True)
    found = {name: getattr(metric, name) for name in IN_ORDER}
    assert found == dict(zip(IN_ORDER, (1.0, model, False, False, True, True), strict=True))
    assert constructor(*required, 0.75).threshold == 0.75
    if kind.no_template:
        with pytest.raises(TypeError, match=f"^{constructor.__name__} .*template"):
            constructor(*required, 0.75, model, True, True, False, False, BiasTemplate)


@pytest.mark.parametrize("name", ["evaluation_template", "verdicts_per_call", "expected"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.lacks])
def test_a_setting_of_others_that_a_metric_lacks_is_refused(
    kind: type[PrebuiltMetric], name: str
) -> None:
    assert name not in inspect.signature(kind).parameters
    with pytest.raises(TypeError, match=f"has no setting '{name}'"):
        make(kind, **{name: None})


def test_a_subclass_may_have_less_settings_than_a_metric_that_lacks_some() -> None:
    class Helpful(CriteriaMetric):
        def __init__(self, threshold: float) -> None:
            super().__init__("helpfulness", threshold)

    class Expecting(CriteriaMetric):
        def __init__(self, criteria: str, expected: bool = True, **settings: Any) -> None:
            super().__init__(criteria, **settings)
            self.expecting = expected

    assert list(inspect.signature(Helpful).parameters) == ["threshold"]
    assert Helpful(0.7).threshold == 0.7
    assert Expecting("helpfulness", expected=False).expecting is False
    with pytest.raises(TypeError, match="Expecting has no setting 'verdicts_per_call'"):
        Expecting("helpfulness", verdicts_per_call=1)


def test_a_signature_has_by_name_what_a_subclass_does_not_take_by_position() -> None:
    class ByName(BiasMetric):
        def __init__(self, *, level: int = 3, **settings: Any) -> None:
            super().__init__(**settings)

    class Levelled(PatternMatchMetric):
        def __init__(self, level: int = 3, *common: Any, **settings: Any) -> None:
            super().__init__(*common, **settings)

    shown = inspect.signature(ByName)
    assert "threshold" in shown.parameters
    with pytest.raises(TypeError, match="too many positional"):
        shown.bind(0.7)
    # The pattern is required, which in no signature an argument behind an optional one is.
    inspect.signature(Levelled).bind(level=1, pattern="a+")
    with pytest.raises(TypeError, match="'pattern'"):
        inspect.signature(Levelled).bind(level=1)


@every_metric
def test_a_metric_gives_the_same_score_under_a_verdict(kind: type[PrebuiltMetric]) -> None:
    metric = make(kind)
    start = CodeNode(lambda: 1, name="start")
    root = CodeNode(lambda one: one == 1, inputs=[start], then={True: metric, False: 0})
    case = case_for(metric)
    nested = evaluate(
        [case], [DAGMetric("outer", DAG(root_node=root))], model=judge(-1), show=False
    )
    assert nested.scores("outer") == [result_of(metric, judge(-1)).score]


@every_metric
@pytest.mark.anyio
async def test_one_object_judges_many_cases_at_once(kind: type[PrebuiltMetric]) -> None:
    metric = make(kind)
    case = case_for(metric)
    before = dict(vars(metric))
    done = await a_evaluate([case] * 5, [metric], model=judge(-1), show=False)
    results = {str(m.as_dict()) for row in done.rows for m in row.metrics}
    assert len(results) == 1
    assert vars(metric) == before


@every_metric
def test_the_graph_has_no_findings_and_can_be_drawn(kind: type[PrebuiltMetric]) -> None:
    metric = make(kind)
    plan = compile_metrics([metric])
    assert [problem for problem in plan.warnings if problem.code != "field-not-read"] == []
    assert "<svg" in metric.picture().layout("svg").decode()


# Verdicts on the items of a list.


def numbered_kinds() -> list[type[PrebuiltMetric]]:
    """Metrics that ask for a list of verdicts, and say in a common setting how many at once."""
    return [kind for kind in KINDS if "verdicts_per_call" in parameters_of(kind) and _lists(kind)]


def _lists(kind: type[PrebuiltMetric]) -> list[VerdictListNode]:
    return [node for node in make(kind).graph().nodes() if isinstance(node, VerdictListNode)]


every_list_metric = pytest.mark.parametrize(
    "kind", numbered_kinds(), ids=lambda kind: kind.__name__
)
MANY = 5


def many(case: Any) -> Any:
    """The same kind of case with five of everything that is judged one by one."""
    if isinstance(case, ConversationalTestCase):
        return case.model_copy(update={"turns": case.turns[:2] * MANY})
    texts = [f"Paris has {number} bridges." for number in range(MANY)]
    return case.model_copy(
        update={
            "context": texts,
            "retrieval_context": texts,
            "expected_output": "\n".join(texts),
            "tools_called": [ToolCall(name=text) for text in texts],
        }
    )


def by_words(question: Question[BaseModel], log: list[int]) -> Any:
    """Five items wherever some are listed; an item with an even digit is judged the other way."""
    fields = schema_of(question.answer_type)["properties"]
    if not issubclass(question.answer_type, VerdictList):
        answer = valid(question, 0)
        for name, items in answer.items():
            if isinstance(items, list) and "maxItems" not in fields[name]:
                answer[name] = [_called(items[0], number) for number in range(MANY)]
            elif isinstance(items, list):
                answer[name] = [f"item {n}" for n in range(fields[name]["maxItems"])]
        return answer
    log.append(question.answer_type.count)
    answer = valid(question, 0)
    allowed = _allowed(question)
    for text, found in zip(items_of(question), answer["verdicts"].values(), strict=True):
        digit = re.findall(r"\d", f"{text}1")[0]
        found["verdict"] = allowed[0 if int(digit) % 2 else -1]
    return answer


def _allowed(question: Question[BaseModel]) -> list[str]:
    item = schema_of(question.answer_type)["$defs"]["Item"]
    verdicts: list[str] = item["properties"]["verdict"]["enum"]
    return verdicts


def _called(item: Any, number: int) -> Any:
    return {**item, "text": f"item {number}"} if isinstance(item, dict) else f"item {number}"


@every_list_metric
@pytest.mark.parametrize("size", [1, 2, 100])
def test_verdicts_in_chunks_give_the_same_score_with_more_calls(
    kind: type[PrebuiltMetric], size: int
) -> None:
    whole, parts = list[int](), list[int]()
    metric = make(kind)
    case = many(case_for(metric))
    one = result_of(metric, ScriptedJudge(lambda q: by_words(q, whole)), case)
    chunked = make(kind, verdicts_per_call=size)
    other = result_of(chunked, ScriptedJudge(lambda q: by_words(q, parts)), case)
    assert one.failure is None
    assert other.score == one.score
    assert other.reason == one.reason
    assert sorted(parts) == sorted(
        min(size, count - start) for count in whole for start in range(0, count, size)
    )
    assert max(whole) >= 2


@pytest.mark.anyio
async def test_all_chunks_are_asked_at_once() -> None:
    under_way, all_there = list[str](), anyio.Event()

    async def answer(question: Question[Any]) -> Any:
        under_way.append(question.messages[1]["content"])
        if len(under_way) == 3:
            all_there.set()
        await all_there.wait()
        return valid(question, 0)

    metric = make(HallucinationMetric, verdicts_per_call=2)
    with anyio.fail_after(120):
        done = await a_evaluate(
            [many(case_for(metric))], [metric], model=ScriptedJudge(answer), show=False
        )
    assert done.scores("Hallucination") == [1.0]
    assert done.totals.calls == 3
    assert all("BEGIN piece of context 1>" in text for text in under_way)
    assert not any("BEGIN piece of context 3>" in text for text in under_way)


def test_a_template_sees_the_items_of_its_question_only() -> None:
    seen: list[list[str]] = []

    class Own(HallucinationTemplate):
        @staticmethod
        def generate_verdicts(actual_output: str, contexts: list[str]) -> str:
            seen.append(contexts)
            return f"Do these agree? {contexts}"

    metric = HallucinationMetric(verdicts_per_call=2, evaluation_template=Own)
    assert result_of(metric, judge(0), many(case_for(metric))).score == 1.0
    assert sorted(map(len, seen)) == [1, 2, 2]


def test_a_chunk_has_one_item_at_least() -> None:
    with pytest.raises(InputError, match="verdicts_per_call must be at least 1, got 0"):
        HallucinationMetric(verdicts_per_call=0)
    with pytest.raises(InputError, match="per_call must be a whole number from 1 on, got 0"):
        VerdictListNode("?", "context", "agreement", verdicts=("yes", "no"), per_call=0)


# Nothing to judge.

BLANK: dict[str, Any] = {"actual_output": " \n"}
NOTHING: dict[str, Any] = {"context": [], "retrieval_context": []}
NO_TOOLS: dict[str, Any] = {"tools_called": [], "expected_tools": []}
SILENT = {"turns": [Turn(role="user", content=" "), Turn(role="assistant", content="Hello.")]}


@pytest.mark.parametrize(
    ("kind", "update", "score"),
    [
        (ContextualPrecisionMetric, NOTHING, 0.0),
        (ContextualRecallMetric, NOTHING, 0.0),
        (ContextualRecallMetric, {"retrieval_context": [" "]}, 0.0),
        (ContextualRelevancyMetric, NOTHING, 0.0),
        (HallucinationMetric, NOTHING, 1.0),
        (JsonCorrectnessMetric, BLANK, 0.0),
        (ExactMatchMetric, BLANK, 0.0),
        (JsonMatchMetric, BLANK, 0.0),
        (PatternMatchMetric, BLANK, 0.0),
        (ToolCorrectnessMetric, NO_TOOLS, 1.0),
        (ArgumentCorrectnessMetric, NO_TOOLS, 1.0),
        (StepEfficiencyMetric, NO_TOOLS, 1.0),
        (KnowledgeRetentionMetric, SILENT, 1.0),
        (ConversationCompletenessMetric, SILENT, 1.0),
    ],
)
def test_nothing_to_judge_has_a_known_outcome_and_costs_no_call(
    kind: type[PrebuiltMetric], update: dict[str, Any], score: float
) -> None:
    metric, asked = make(kind), list[str]()
    case = case_for(metric).model_copy(update=update)
    result = result_of(metric, judge(0, asked), case)
    assert (result.score, asked) == (score, [])
    assert result.reason


# Metrics whose formula holds for blank text, too: it may be what is wanted, or is no JSON.
OF_ANY_TEXT = {
    *(ExactMatchMetric, PatternMatchMetric, JsonCorrectnessMetric, ToolCorrectnessMetric),
    *(ArgumentCorrectnessMetric, StepEfficiencyMetric, JsonMatchMetric),
    *(ToolChoiceMetric, ResultUseMetric, RecoveryMetric),
}


def emptied(case: Any, field: str, white: str) -> Any:
    """The case with a field in which every text is `white`."""
    blank: dict[str, Any] = {
        "turns": [Turn(role="user", content=white), Turn(role="assistant", content=white)],
        "contestants": {
            name: LLMTestCase(input="Hi", actual_output=white) for name in ("one", "two")
        },
        "tools_called": [],
    }
    plain = [white, white] if isinstance(getattr(case, field), list) else white
    return case.model_copy(update={field: blank.get(field, plain)})


@every_metric
@pytest.mark.parametrize(
    ("white", "nested"),
    [("", False), (" \n\t", False), ("\u200b\ufeff ", False), (" \n\t", True)],
    ids=["empty", "white space", "zero width", "white space under a verdict"],
)
def test_blank_text_is_skipped_before_any_call_and_never_passes(
    kind: type[PrebuiltMetric], white: str, nested: bool
) -> None:
    metric = make(kind)
    judged = metric.spec().judged
    assert bool(judged) == (kind not in OF_ANY_TEXT)
    for group in judged:
        case = case_for(metric)
        for field in group:
            case = emptied(case, field, white)
        asked: list[str] = []
        tested: Any = under_a_verdict(metric) if nested else metric
        result = result_of(tested, judge(0, asked), case)
        assert asked == []
        assert (result.score, result.success, result.outcome) == (None, None, OutcomeKind.SKIPPED)
        fields = " and ".join(f"`{field}`" for field in group)
        assert f"nothing to judge: {fields} " in str(result.failure)
        assert str(result.failure).endswith("empty")


def under_a_verdict(metric: PrebuiltMetric) -> DAGMetric:
    start = CodeNode(lambda: 1, name="start")
    return DAGMetric(
        "outer", DAG(CodeNode(lambda one: one == 1, inputs=[start], then={True: metric, False: 0}))
    )


@pytest.mark.parametrize("kind", [FaithfulnessMetric, RagasMetric])
@pytest.mark.parametrize("contexts", [[], [" ", ""]])
def test_without_contexts_there_is_nothing_to_compare_with(
    kind: type[PrebuiltMetric], contexts: list[str]
) -> None:
    metric, asked = make(kind), list[str]()
    case = case_for(metric).model_copy(update={"retrieval_context": contexts})
    result = result_of(metric, judge(0, asked), case)
    assert (result.outcome, asked) == (OutcomeKind.SKIPPED, [])
    assert "nothing to compare with" in str(result.failure)


def test_an_agent_that_only_called_tools_is_judged() -> None:
    asked: list[str] = []
    metric = make(TaskCompletionMetric)
    case = case_for(metric).model_copy(update={"actual_output": " "})
    assert result_of(metric, judge(0, asked), case).score is not None
    assert len(asked) == 2


def test_a_rating_of_other_fields_needs_one_of_them() -> None:
    metric = make(GEval, evaluation_params=["input", "expected_output"])
    case = LLMTestCase(input=" ", expected_output="\n")
    result = result_of(metric, judge(0), case)
    assert "nothing to judge: `input` and `expected_output` are empty" in str(result.failure)
    assert result_of(metric, judge(0), LLMTestCase(input="Hi", expected_output="")).score == 1.0
    no_reference = result_of(metric, judge(0), LLMTestCase(input=" "))
    assert no_reference.outcome == OutcomeKind.MISSING_FIELD


def test_an_assistant_that_says_nothing_has_kept_to_no_role() -> None:
    asked: list[str] = []
    case = ConversationalTestCase(
        chatbot_role="a guide",
        turns=[Turn(role="user", content="Hello?"), Turn(role="assistant", content=" ")],
    )
    result = result_of(make(RoleAdherenceMetric), judge(0, asked), case)
    assert (result.outcome, asked) == (OutcomeKind.SKIPPED, [])


def test_no_instructions_are_followed_without_a_call() -> None:
    asked: list[str] = []
    result = result_of(PromptAlignmentMetric([]), judge(0, asked))
    assert (result.score, asked) == (1.0, [])


# Reasons written by the judge.


def test_a_template_words_the_question_for_a_reason() -> None:
    class Own(BiasTemplate):
        @staticmethod
        def generate_reason(score: float, path: str) -> str:
            return f"Why {score}? {path.partition(':')[0]}"

    questions: list[Question[Any]] = []

    def answer(question: Question[Any]) -> Any:
        questions.append(question)
        return "because" if question.name == "Bias reason" else valid(question, 0)

    metric = BiasMetric(judged_reason=True, evaluation_template=Own)
    assert result_of(metric, ScriptedJudge(answer)).reason == "because"
    assert questions[-1].messages == (
        {"role": "user", "content": "Why 0.0? 0 of 1 opinions are unbiased"},
    )


@pytest.mark.parametrize(
    ("output", "score", "calls"), [('{"name": "cake"}', 1.0, 0), ('{"nom": "cake"}', 0.0, 1)]
)
def test_only_what_is_no_valid_json_is_explained_by_the_judge(
    output: str, score: float, calls: int
) -> None:
    asked: list[str] = []
    metric = make(JsonCorrectnessMetric, judged_reason=True)
    case = case_for(metric).model_copy(update={"actual_output": output})
    result = result_of(metric, judge(0, asked), case)
    assert (result.score, len(asked)) == (score, calls)
    assert result.reason == ("words" if calls else "The output is JSON and a valid Recipe.")


def test_the_judge_explains_tool_correctness_when_asked_to() -> None:
    asked: list[str] = []
    result = result_of(make(ToolCorrectnessMetric, judged_reason=True), judge(0, asked))
    assert (result.score, result.reason, len(asked)) == (1.0, "words", 1)
