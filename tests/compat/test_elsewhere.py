"""Names of other libraries: each is here, or its import says what is done here."""

from __future__ import annotations

import copy
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from folders.places import ROOT

import dagengine
from dagengine import a_evaluate, evaluate, unknown
from dagengine.compat import names as elsewhere
from dagengine.dataset import EvaluationDataset
from dagengine.errors import InputError
from dagengine.metrics import DAGMetric, ExactMatchMetric, GEvalTemplate
from dagengine.metrics.criteria import CriteriaEvalChain, EvaluatorType, load_evaluator
from dagengine.metrics.dag import DAG, RatingNode
from dagengine.scorer import Scorer
from dagengine.synthesizer import Synthesizer
from dagengine.test_case import LLMTestCase, LLMTestCaseParams
from dagengine.trees import load_module

PACKAGE = ROOT / "dagengine"
pytest_plugins = ["pytester"]
# What deepeval 4.3.1 exports, by module.
DEEPEVAL = {
    "": """a_flush_traces assert_test compare evaluate flush_traces instrument log_hyperparameters
        login on_test_run_end""",
    "dataset": """BackgroundNoiseSettings ConversationalGolden EvaluationDataset Expectations Golden
        InterruptionBehavior Persona get_current_golden""",
    "errors": """ContextWindowExceededError DeepEvalError MismatchedTestCaseInputsError
        MissingTestCaseParamsError NoMetricsError SpeechAuthError SpeechHTTPError
        SpeechRateLimitError UserAppError""",
    "metrics": """AgentLoopDetectionMetric AgentResponsivenessMetric AnswerRelevancyMetric
        ArenaGEval ArgumentCorrectnessMetric AudioGlitchMetric AudioIntegrityMetric
        BaseArenaMetric BaseConversationalMetric BaseMetric BiasMetric ContextualPrecisionMetric
        ContextualRecallMetric ContextualRelevancyMetric ConversationCompletenessMetric
        ConversationalDAGMetric ConversationalGEval ConversationalJevEval DAGMetric
        DeepAcyclicGraph ExactMatchMetric FaithfulnessMetric GEval GEvalTemplate
        GoalAccuracyMetric HallucinationMetric ImageCoherenceMetric ImageEditingMetric
        ImageHelpfulnessMetric ImageReferenceMetric JevEval JsonCorrectnessMetric
        KnowledgeRetentionMetric MCPTaskCompletionMetric MCPUseMetric MisuseMetric
        MultiTurnMCPUseMetric NonAdviceMetric PIILeakageMetric PatternMatchMetric
        PlanAdherenceMetric PlanQualityMetric PromptAlignmentMetric RoleAdherenceMetric
        RoleViolationMetric SpeechIntelligibilityMetric StepEfficiencyMetric SummarizationMetric
        TaskCompletionMetric TextToImageMetric ToolCorrectnessMetric ToolPermissionMetric
        ToolUseMetric TopicAdherenceMetric ToxicityMetric TranscriptionAccuracyMetric
        TurnContextualPrecisionMetric TurnContextualRecallMetric TurnContextualRelevancyMetric
        TurnFaithfulnessMetric TurnRelevancyMetric TurnTakingNaturalnessMetric Verdict
        VoiceConsistencyMetric VoiceNaturalnessMetric VoiceReliabilityMetric""",
    "metrics.dag": """BaseNode BinaryJudgementNode ChildType DeepAcyclicGraph
        NonBinaryJudgementNode NodeType TaskNode VerdictNode dag_from_dict dag_from_json
        dag_to_dict dag_to_json""",
    "metrics.ragas": """RAGASAnswerRelevancyMetric RAGASContextualEntitiesRecall
        RAGASContextualPrecisionMetric RAGASContextualRecallMetric RAGASFaithfulnessMetric
        RagasMetric""",
    "models": """AmazonBedrockModel AnthropicModel AssemblyAISTTModel AzureOpenAIEmbeddingModel
        AzureOpenAIModel CartesiaSTTModel CartesiaTTSModel DeepEvalBaseEmbeddingModel
        DeepEvalBaseLLM DeepEvalBaseModel DeepEvalBaseSTT DeepEvalBaseSystemOneModel
        DeepEvalBaseTTS DeepSeekModel DeepgramSTTModel DeepgramTTSModel ElevenLabsSTTModel
        ElevenLabsTTSModel GeminiModel GrokModel KimiModel LiteLLMModel LocalEmbeddingModel
        LocalModel OllamaEmbeddingModel OllamaModel OpenAIEmbeddingModel OpenAIModel
        OpenAISTTModel OpenAITTSModel OpenRouterModel PortkeyModel TypeSafeModel""",
    "results": """Classification ConversationalApiTestCase LATEST_TEST_RUN_DATA_KEY
        LATEST_TEST_RUN_FILE_PATH LATEST_TEST_RUN_LINK_KEY LLMApiTestCase MetricData
        TEMP_FILE_PATH TestRun TestRunManager TurnApi global_test_run_manager
        invoke_test_run_end_hook log_hyperparameters""",
    "synthesizer": "Evolution FiltrationConfig PromptEvolution Synthesizer",
    "test_case": """ArenaTestCase Audio AudioChunk Contestant ConversationalTestCase Expectations
        LLMTestCase LLMTestCaseParams MCPPromptCall MCPResourceCall MCPServer MCPToolCall
        MLLMImage MultiTurnParams RetrievedContextData SingleTurnParams ToolCall ToolCallParams
        ToolCallType Turn TurnParams get_available_mcp_tool_names normalize_mcp_servers""",
}
LANGCHAIN = """AgentTrajectoryEvaluator ContextQAEvalChain CotQAEvalChain Criteria
    CriteriaEvalChain EmbeddingDistance EmbeddingDistanceEvalChain EvaluatorType
    ExactMatchStringEvaluator JsonEditDistanceEvaluator JsonEqualityEvaluator JsonSchemaEvaluator
    JsonValidityEvaluator LabeledCriteriaEvalChain LabeledPairwiseStringEvalChain
    LabeledScoreStringEvalChain PairwiseEmbeddingDistanceEvalChain PairwiseStringDistanceEvalChain
    PairwiseStringEvalChain PairwiseStringEvaluator QAEvalChain RegexMatchStringEvaluator
    ScoreStringEvalChain StringDistance StringDistanceEvalChain StringEvaluator
    TrajectoryEvalChain load_dataset load_evaluator load_evaluators"""
TYPES = """QA COT_QA CONTEXT_QA PAIRWISE_STRING SCORE_STRING LABELED_PAIRWISE_STRING
    LABELED_SCORE_STRING AGENT_TRAJECTORY CRITERIA LABELED_CRITERIA STRING_DISTANCE EXACT_MATCH
    REGEX_MATCH PAIRWISE_STRING_DISTANCE EMBEDDING_DISTANCE PAIRWISE_EMBEDDING_DISTANCE
    JSON_VALIDITY JSON_EQUALITY JSON_EDIT_DISTANCE JSON_SCHEMA_VALIDATION"""


def public() -> Iterator[tuple[str, str]]:
    """Every name, with the module that a program imports it from."""
    for module, names in DEEPEVAL.items():
        yield from ((f"dagengine.{module}".rstrip("."), name) for name in names.split())
    yield from (("dagengine.metrics.criteria", name) for name in LANGCHAIN.split())


def imported(module: str, name: str) -> None:
    exec(f"from {module} import {name}", {})


@pytest.mark.parametrize("module", sorted({module for module, _ in public()}))
def test_every_name_of_others_is_here_or_its_import_says_what_is(module: str) -> None:
    bare = []
    for name in [name for place, name in public() if place == module]:
        try:
            imported(module, name)
        except ImportError as error:
            if f"{module} has no {name}: " not in str(error):
                bare.append(str(error))
    assert bare == []


def test_the_answer_names_the_class_to_use() -> None:
    with pytest.raises(ImportError, match="expected_tools"):
        imported("dagengine.test_case", "MCPServer")
    with pytest.raises(ImportError, match=r"base_url='https://api\.x\.ai/v1'"):
        imported("dagengine.models", "GrokModel")
    with pytest.raises(ImportError, match="DagengineError"):
        imported("dagengine.errors", "DeepEvalError")
    with pytest.raises(ImportError, match=r"hyperparameters=\{…\}"):
        dagengine.log_hyperparameters  # noqa: B018


MODULES = [module for module in elsewhere.MODULES if module.startswith("deepeval.")]
HERE_TOO = ("dagengine.cli",)


def words_of_file(folder: Path, line: str) -> str:
    """What is said of a file of metrics that imports what is not there."""
    path = folder / f"metrics_{len([*folder.iterdir()])}.py"  # a new file: no code is cached
    path.write_text(f"{line}\n")
    with pytest.raises(InputError) as caught:
        load_module(path)
    return str(caught.value)


def test_a_module_of_others_is_answered_with_what_is_done_here(tmp_path: Path) -> None:
    for module in MODULES:
        ours = f"dagengine{module.removeprefix('deepeval')}"
        missing = f"{ours}.inner" if ours in HERE_TOO else ours
        words = words_of_file(tmp_path, f"import {ours}.inner")
        assert f"there is no {missing}: {elsewhere.MODULES[module]}" in words


def test_a_test_that_imports_a_module_of_others_is_told_what_is_done_here(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("from dagengine.tracing import observe")
    result = pytester.runpytest_subprocess("-q")
    result.stdout.fnmatch_lines(["there is no dagengine.tracing: traces of an instrumented*"])


def test_names_of_older_versions_for_pictures_are_answered() -> None:
    for name in ("MLLMTestCase", "BaseMultimodalMetric", "OfTomorrowImageMetric"):
        with pytest.raises(ImportError, match="no pictures and no sound"):
            imported("dagengine.metrics", name)


def test_modules_that_are_elsewhere_here_are_named(tmp_path: Path) -> None:
    says = (
        "what is public in deepeval.{} is in dagengine{}; `dagengine migrate FILE` rewrites imports"
    )
    for module, home in {
        "test_run": ".results",
        "evaluate.configs": "",
        "models.llms": ".models",
        # These are files here, below which Python itself would look for nothing.
        "synthesizer.config": ".synthesizer",
        "dataset.golden": ".dataset",
        "test_case.llm_test_case": ".test_case",
        "metrics.g_eval.utils": ".metrics.g_eval",
    }.items():
        missing = module.partition(".")[0] if home == "" else module
        words = words_of_file(tmp_path, f"import dagengine.{module}")
        assert says.format(missing, home) in words


@pytest.mark.parametrize(
    ("module", "name", "home"),
    [
        ("dagengine", "DAGMetric", "dagengine.metrics"),
        ("dagengine", "LLMTestCase", "dagengine.test_case"),
        ("dagengine", "InputError", "dagengine.errors"),
        ("dagengine.judges", "judged_by", "dagengine.voting"),
        ("dagengine.test_case", "evaluate", "dagengine"),
        ("dagengine.metrics", "ScriptedJudge", "dagengine.judges"),
    ],
)
def test_a_name_of_ours_is_answered_with_its_module(module: str, name: str, home: str) -> None:
    with pytest.raises(ImportError) as caught:
        imported(module, name)
    assert str(caught.value) == f"{module} has no {name}: write `from {home} import {name}`"
    imported(home, name)


def test_a_module_with_the_name_of_a_function_can_still_be_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unknown, "_FACES", ("dagengine.estimate",))
    monkeypatch.delattr(dagengine, "estimate", raising=False)
    assert not hasattr(dagengine, "estimate")  # there is a function of the name, and no refusal
    imported("dagengine", "estimate")


def test_words_for_several_judges_and_better_metrics_are_answered() -> None:
    for module in ("dagengine", "dagengine.judges", "dagengine.voting"):
        with pytest.raises(ImportError, match="judged_by"):
            imported(module, "Jury")
    with pytest.raises(ImportError, match="use improve"):
        imported("dagengine", "optimize")


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        ("metrics.dag", "FunctionNode", "CodeNode(function"),
        ("metrics.dag", "LLMNode", "BinaryJudgementNode"),
        ("metrics.dag", "MetricNode", "VerdictNode(verdict, child=metric)"),
        ("metrics", "HallucinationMetrics", "did you mean 'HallucinationMetric'?"),
        ("judges", "FakeJudge", "ScriptedJudge(function)"),
        ("metrics.dag", "LikertNode", "RatingNode(…, scale=(1, 5))"),
        ("judges", "CachedJudge", "store='answers.db'"),
        ("data", "load_cases", "read_cases(path)"),
    ],
)
def test_a_guess_is_answered_with_the_name(module: str, name: str, words: str) -> None:
    with pytest.raises(ImportError) as refusal:
        imported(f"dagengine.{module}", name)
    assert words in str(refusal.value)
    assert not hasattr(importlib.import_module(f"dagengine.{module}"), "nonsense")


@pytest.mark.parametrize(
    ("argument", "words"),
    [("low", "write scale=…; it has"), ("rubric", "scale={label: number}; it has"),
     ("threshold", r"DAGMetric\(…, threshold=…\); it has")],
)  # fmt: skip
def test_arguments_of_nodes_are_answered_with_ours(argument: str, words: str) -> None:
    with pytest.raises(TypeError, match=f"no argument '{argument}'; .*{words}"):
        RatingNode("How good?", **cast("Any", {argument: 1}))


def test_a_judge_is_no_argument_of_a_measurement() -> None:
    with pytest.raises(TypeError, match="it is an argument of the metric, model="):
        ExactMatchMetric().measure(LLMTestCase(input="a"), **cast("Any", {"model": "gpt-4o"}))


def test_other_imports_are_as_they_were() -> None:
    assert importlib.util.find_spec("dagengine.nonsense") is None
    assert importlib.util.find_spec("nonsense_of_nobody") is None
    assert not hasattr(dagengine.metrics, "nonsense")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("from dagengine import evaluat", "did you mean 'evaluate'"),
        ("from dagengine.metrics import NoSuchThing", "it has .*GEval"),
        ("from dagengine.reliability import missing", "it has .*repeat"),
        ("from dagengine.errors import InputErorr", "did you mean 'InputError'"),
        ("from dagengine.scorer import rouge", "did you mean 'rouge_type'"),
    ],
)
def test_an_import_of_what_nobody_has_says_what_there_is(line: str, words: str) -> None:
    with pytest.raises(ImportError, match=words):
        exec(line, {})


@pytest.mark.parametrize("name", ["nonsense", "tracing", "metrics.community"])
def test_a_question_whether_a_module_is_there_is_no_error(name: str) -> None:
    assert importlib.util.find_spec(f"dagengine.{name}") is None


def test_every_room_answers_what_it_lacks_and_nothing_is_found_by_asking() -> None:
    rooms = [f"dagengine.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")]
    for room in {*rooms, "dagengine.judges", "dagengine.metrics"}:
        with pytest.raises(ImportError, match=f"{room} has no missing: it has "):
            imported(room, "missing")
        assert not hasattr(importlib.import_module(room), "missing")


def test_a_module_that_is_misspelt_is_answered_in_a_file_that_is_read(tmp_path: Path) -> None:
    assert "did you mean 'metrics'" in words_of_file(tmp_path, "import dagengine.metric")
    assert "no dagengine.x: it has " in words_of_file(tmp_path, "from dagengine.x import a")
    assert "there is no deepeval: `dagengine migrate FILE`" in words_of_file(
        tmp_path, "from deepeval.metrics import GEval"
    )
    assert "No module named 'nobody_has_this'" in words_of_file(tmp_path, "import nobody_has_this")


def test_nothing_of_the_table_is_here() -> None:
    homes = [importlib.import_module(home) for home in set(elsewhere.HOMES.values())]
    elsewhere_here = {"Verdict"}  # of results: a type
    listed = {
        name for library in ("deepeval", "langchain") for name in elsewhere.NAMES[library]
    } - elsewhere_here
    assert sorted(name for name in listed for home in homes if name in vars(home)) == []


def test_what_cannot_be_seen_or_heard_is_never_a_criterion() -> None:
    table = {**elsewhere.NAMES["deepeval"], **elsewhere.MODULES}
    about = [why for why in table.values() if "picture" in why or "sound" in why]
    assert len(about) >= 20
    assert [why for why in about if "GEval" in why] == []


@pytest.mark.parametrize("name", TYPES.split())
def test_every_type_of_evaluator_is_here_or_says_what_is(name: str) -> None:
    value = {"AGENT_TRAJECTORY": "trajectory"}.get(name, name.lower())
    if value in [*EvaluatorType]:
        assert EvaluatorType[name] == value
        return
    why = elsewhere.EVALUATORS[value]
    with pytest.raises(AttributeError) as caught:
        getattr(EvaluatorType, name)
    assert why in str(caught.value)
    with pytest.raises(InputError) as refused:
        load_evaluator(value)
    assert why in str(refused.value)


def test_correctness_is_asked_with_a_right_answer_only() -> None:
    with pytest.raises(InputError, match="'labeled_criteria'"):
        load_evaluator("criteria", criteria="correctness")
    with pytest.raises(InputError, match="give reference="):
        CriteriaEvalChain.from_llm(None, "correctness")
    assert load_evaluator("labeled_criteria", criteria="correctness").requires_reference


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"goldens": [], "observed_callback": print}, "evaluate(goldens, metrics, app=…)"),
        ({"observed_callback": print, "metrics": []}, "the application is app="),
        ({"test_cases": [], "metric_collection": "mine"}, "metrics=[…]"),
        ({"test_cases": [], "classifiers": []}, "NonBinaryJudgementNode"),
    ],
)
def test_arguments_of_others_are_answered_before_missing_ones(
    arguments: dict[str, Any], why: str
) -> None:
    for door in (evaluate, a_evaluate):
        with pytest.raises(TypeError) as caught:
            cast("Any", door)(**arguments)
        assert why in str(caught.value)


def test_a_test_that_brings_a_golden_is_told_what_completes_it() -> None:
    door: Any = dagengine.assert_test
    with pytest.raises(TypeError, match=r"evaluate\(\[golden\], metrics, app=…\)"):
        door(golden=1, metrics=[])


@pytest.mark.parametrize("field", ["flaky", "mcp_tools_called", "trace_dict", "expectations"])
def test_a_field_of_others_is_answered_with_what_is_done_here(field: str) -> None:
    with pytest.raises(InputError) as caught:
        LLMTestCase(**{"input": "a", field: None})
    assert elsewhere.ARGUMENTS[field] in str(caught.value)


def test_a_case_is_text_and_what_stands_for_a_picture_is_refused() -> None:
    assert not LLMTestCase(input="What is [DEEPEVAL: this]?").multimodal
    assert not LLMTestCase.model_validate({"input": "a", "multimodal": False}).multimodal
    fields: dict[str, dict[str, Any]] = {
        "input": {"input": "What is on [DEEPEVAL:IMAGE:ab12]?"},
        "retrieval_context": {"input": "a", "retrieval_context": ["b", "[DEEPEVAL:PDF:ab12]"]},
    }
    for name, given in fields.items():
        with pytest.raises(InputError, match=f"'{name}' holds a picture.*describe the picture"):
            LLMTestCase(**given)
    with pytest.raises(ValueError, match="multimodal=True: texts are judged"):
        LLMTestCase.model_validate({"input": "a", "multimodal": True})


@pytest.mark.parametrize(
    ("owner", "name", "words"),
    [
        (ExactMatchMetric(), "upload", "there is no service"),
        (DAGMetric, "upload", "there is no service"),
        (RatingNode, "upload", "there is no service"),
        (DAG, "nodez", "it has .*nodes"),
        (RatingNode("How good?"), "_execute", "it has .*label"),
        (ExactMatchMetric(), "verdicts", r"metric\.result\.steps"),
        (Scorer(), "bert_score", "no vectors are compared"),
        (Scorer(), "sentence_bleu_score", "bleu_score is BLEU"),
        (EvaluationDataset(), "_multi_turn", "Golden or ConversationalGolden"),
        (EvaluationDataset(), "evals_iterator", "app="),
        (object.__new__(Synthesizer), "to_pandas", r"pandas\.DataFrame"),
        (LLMTestCase(input="Hi", actual_output="Ho"), "mcp_servers", "tools_called"),
        (LLMTestCase(input="Hi", actual_output="Ho"), "answer", "it has .*actual_output"),
        (LLMTestCase, "flaky", "every case counts"),
        (GEvalTemplate, "generate_trace_evaluation_steps", "it has .*generate_evaluation"),
        (LLMTestCaseParams, "MCP_SERVERS", "tools_called"),
        (EvaluatorType, "COT_QA", "labeled_criteria"),
    ],
)
def test_an_attribute_that_a_class_lacks_is_answered_with_what_to_write(
    owner: object, name: str, words: str
) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; .*{words}"):
        getattr(owner, name)
    assert getattr(owner, name, None) is None
    copy.deepcopy(owner)


def test_a_property_keeps_its_own_attribute_error() -> None:
    class Reading(ExactMatchMetric):
        @property
        def verdicts(self) -> str:
            return str(getattr(None, "text"))  # noqa: B009

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'text'"):
        Reading().verdicts  # noqa: B018
