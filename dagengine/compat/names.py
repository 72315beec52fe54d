"""Names of other libraries: where each is here, or what is done here in its place.

This is the only table of them. What is not here is answered from it (`dagengine.unknown`), and
`dagengine migrate` rewrites programs by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HOMES: Mapping[str, str] = {
    "deepeval": "dagengine",
    "deepeval.dataset": "dagengine.dataset",
    "deepeval.errors": "dagengine.errors",
    "deepeval.evaluate": "dagengine",
    "deepeval.evaluate.types": "dagengine.results",
    "deepeval.metrics": "dagengine.metrics",
    "deepeval.metrics.conversational_dag": "dagengine.metrics.conversational_dag",
    "deepeval.metrics.dag": "dagengine.metrics.dag",
    "deepeval.metrics.g_eval": "dagengine.metrics.g_eval",
    "deepeval.models": "dagengine.models",
    "deepeval.scorer": "dagengine.scorer",
    "deepeval.synthesizer": "dagengine.synthesizer",
    "deepeval.test_case": "dagengine.test_case",
    "deepeval.test_run": "dagengine.results",
    "langchain.chains.constitutional_ai": "dagengine.metrics.criteria",
    "langchain.evaluation": "dagengine.metrics.criteria",
    "langchain_classic.chains.constitutional_ai": "dagengine.metrics.criteria",
    "langchain_classic.evaluation": "dagengine.metrics.criteria",
    "ragas": "dagengine",
    "ragas.metrics": "dagengine.metrics",
}
"""Where names of a module, or of one below it, are found here; the longest that fits counts."""


def _by_name(groups: Mapping[str, str]) -> dict[str, str]:
    """The answer of every name, from the names of every answer."""
    return {name: answer for answer, names in groups.items() for name in names.split()}


_DEEPEVAL_RENAMED = {
    "ContextWindowExceededError": "TooLongError",
    "ConversationalRelevancyMetric": "ConversationRelevancyMetric",
    "DeepEvalError": "DagengineError",
    "MetricData": "MetricResult",
    "MismatchedTestCaseInputsError": "CaseError",
    "NoMetricsError": "InputError",
    "RAGASAnswerRelevancyMetric": "AnswerRelevancyMetric",
    "RAGASContextualPrecisionMetric": "ContextualPrecisionMetric",
    "RAGASContextualRecallMetric": "ContextualRecallMetric",
    "RAGASFaithfulnessMetric": "FaithfulnessMetric",
    "TestResult": "CaseResult",
}
_RAGAS_RENAMED = {
    "AgentGoalAccuracyWithReference": "TaskCompletionMetric",
    "AgentGoalAccuracyWithoutReference": "TaskCompletionMetric",
    "AnswerRelevancy": "AnswerRelevancyMetric",
    "AspectCritic": "CriteriaMetric",
    "BleuScore": "BleuMetric",
    "ContextPrecision": "ContextualPrecisionMetric",
    "ContextRecall": "ContextualRecallMetric",
    "ExactMatch": "ExactMatchMetric",
    "Faithfulness": "FaithfulnessMetric",
    "LLMContextPrecisionWithReference": "ContextualPrecisionMetric",
    "LLMContextRecall": "ContextualRecallMetric",
    "NonLLMStringSimilarity": "EditSimilarityMetric",
    "ResponseRelevancy": "AnswerRelevancyMetric",
    "RougeScore": "RougeMetric",
    "SummarizationScore": "SummarizationMetric",
    "ToolCallAccuracy": "ToolCorrectnessMetric",
}
RENAMED: Mapping[str, Mapping[str, str]] = {
    "deepeval": _DEEPEVAL_RENAMED,
    "ragas": _RAGAS_RENAMED,
}
"""What has another name here, by library."""

_TRACES = (
    "traces of an instrumented agent are read: dagengine run METRICS.py --map otel --data "
    "spans.jsonl, or case_of_spans(…) of dagengine.traces in a test (docs/traces.md); else give "
    "the application: evaluate(goldens, metrics, app=…)"
)
_NO_SERVICE = "there is no service: what a run writes stays on your machine"
_NO_SOUND = "sound is not judged: give the transcript as turns, and keep this metric for the rest"
_NO_PICTURES = "pictures are not judged: keep this metric where it is"
_ATTACKS = (
    "attacks on a judge: dagengine attack METRICS.py --data FILE (docs/attack.md); attacks on an "
    "application are inputs of test cases"
)
_INNER = "it is internal to deepeval: nothing here needs it"

MODULES: Mapping[str, str] = {
    "deepeval.annotation": "people label cases in a browser: dagengine view FOLDER",
    "deepeval.anthropic": _TRACES,
    "deepeval.benchmarks": (
        "models are not benchmarked: load the data set (EvaluationDataset) and give the model as "
        "app=…; how reliable a judge is says `dagengine benchmark`"
    ),
    "deepeval.cli": "commands are those of `dagengine --help`",
    "deepeval.classifiers": "a classifier is a tree: NonBinaryJudgementNode, a verdict per label",
    "deepeval.confident": _NO_SERVICE,
    "deepeval.config": "settings are arguments of evaluate, or `dagengine judge set`",
    "deepeval.constants": _INNER,
    "deepeval.contextvars": _TRACES,
    "deepeval.guardrails": "there are no guardrails: judge one answer by metric.measure(case)",
    "deepeval.inspect": "a run is looked at in a browser: dagengine view FOLDER",
    "deepeval.integrations": _TRACES,
    "deepeval.key_handler": "the default judge and its key: dagengine judge set",
    "deepeval.metrics.community": "write the metric as a tree, or ask it with GEval",
    "deepeval.metrics.mcp": (
        "give calls of MCP as tools_called, ToolCall(…, type='MCP'), to ToolCorrectnessMetric or "
        "TaskCompletionMetric"
    ),
    "deepeval.metrics.mcp_use_metric": (
        "give calls of MCP as tools_called, ToolCall(…, type='MCP'), to ToolCorrectnessMetric"
    ),
    "deepeval.metrics.multimodal_metrics": _NO_PICTURES,
    "deepeval.metrics.utils": _INNER,
    "deepeval.metrics.voice": _NO_SOUND,
    "deepeval.openai": _TRACES,
    "deepeval.openai_agents": _TRACES,
    "deepeval.optimizer": (
        "prompts are not optimized: run each, and compare the runs by `dagengine diff`"
    ),
    "deepeval.plugins": "the plugin of pytest loads by itself: dagengine test run",
    "deepeval.prompt": (
        "prompts are texts of your program: say which by evaluate(…, hyperparameters={'prompt': …})"
    ),
    "deepeval.red_teaming": _ATTACKS,
    "deepeval.simulator": (
        "conversations are not simulated: give their turns, ConversationalTestCase(turns=[…]), or "
        "an app that completes conversational goldens"
    ),
    "deepeval.sqlite_store": "the record of a run is a folder: evaluate(…, out=FOLDER)",
    "deepeval.synthesizer.chunking": (
        "documents are cut by ContextConstructionConfig(chunk_size=…, chunk_overlap=…)"
    ),
    "deepeval.synthesizer.templates": "own prompts of goldens are a tree: Synthesizer(generator=…)",
    "deepeval.telemetry": "nothing is sent anywhere, so there is nothing to switch off",
    "deepeval.templates": "a metric takes its prompts as a class: evaluation_template=…",
    "deepeval.tracing": _TRACES,
    "deepeval.utils": _INNER,
    "deepeval.voice": _NO_SOUND,
    "deepteam": _ATTACKS,
    "langchain.evaluation.qa.generate_chain": (
        "questions about documents: Synthesizer().generate_goldens_from_docs([…])"
    ),
    "langchain_classic.evaluation.qa.generate_chain": (
        "questions about documents: Synthesizer().generate_goldens_from_docs([…])"
    ),
    "ragas.embeddings": "no metric needs embeddings",
    "ragas.integrations": _TRACES,
    "ragas.llms": "model= takes a name, a judge, or an object with `generate` or `invoke`",
    "ragas.testset": "goldens from documents: Synthesizer().generate_goldens_from_docs([…])",
}
"""Modules of which nothing is here, with those below them, and what is done in their place."""


def _server(address: str) -> str:
    return f"any server of OpenAI's protocol: LocalModel(model, base_url='{address}', api_key=…)"


_SPEECH = "sound is not judged: turn it into text before, and give the text"
_EMBEDDING = "no metric needs embeddings; near duplicates of goldens: judges.EmbeddingJudge"
_MCP = "give the calls as tools_called: ToolCall(name=…, type='MCP', input_parameters={…})"
_TREES = "a tree is read by DAG.from_json(text) and DAGMetric.load(path), and so are files of it"
_RECORD = "the record of a run is a folder: evaluate(…, out=FOLDER), read by record.load_run"
_TIMES = "sound is not judged; seconds can be: a CodeNode that reads completion_time"

_DEEPEVAL = {
    **_by_name({
        _TRACES: (
            "a_flush_traces flush_traces instrument observe update_current_span "
            "update_current_trace"
        ),
        "people label cases in a browser: dagengine view FOLDER": (
            "a_send_annotation send_annotation"
        ),
        _TIMES: "AgentResponsivenessMetric TurnTakingNaturalnessMetric",
        _SPEECH: (
            "AssemblyAISTTModel CartesiaSTTModel CartesiaTTSModel DeepEvalBaseSTT "
            "DeepEvalBaseTTS DeepgramSTTModel DeepgramTTSModel ElevenLabsSTTModel "
            "ElevenLabsTTSModel OpenAISTTModel OpenAITTSModel SpeechAuthError "
            "SpeechHTTPError SpeechRateLimitError"
        ),
        "sound is not judged: give its transcript as the text": "Audio AudioChunk",
        _NO_SOUND: (
            "AudioGlitchMetric AudioIntegrityMetric SpeechIntelligibilityMetric "
            "VoiceConsistencyMetric VoiceNaturalnessMetric VoiceReliabilityMetric"
        ),
        _EMBEDDING: (
            "AzureOpenAIEmbeddingModel DeepEvalBaseEmbeddingModel LocalEmbeddingModel "
            "OllamaEmbeddingModel OpenAIEmbeddingModel"
        ),
        "voices are not simulated: leave it out": "BackgroundNoiseSettings InterruptionBehavior",
        _TREES: "ChildType NodeType dag_from_dict dag_from_json",
        _RECORD: (
            "ConversationalApiTestCase LATEST_TEST_RUN_DATA_KEY LATEST_TEST_RUN_FILE_PATH "
            "LATEST_TEST_RUN_LINK_KEY LLMApiTestCase TEMP_FILE_PATH TestRun "
            "TestRunManager TurnApi global_test_run_manager"
        ),
        _NO_PICTURES: (
            "ImageCoherenceMetric ImageEditingMetric ImageHelpfulnessMetric "
            "ImageReferenceMetric TextToImageMetric"
        ),
        _MCP: "MCPPromptCall MCPResourceCall MCPToolCall",
        "name the tools that are right in expected_tools": (
            "get_available_mcp_tool_names normalize_mcp_servers"
        ),
    }),
    "AgentLoopDetectionMetric": "count equal calls in a CodeNode that reads tools_called",
    "CitationFaithfulnessMetric": "FaithfulnessMetric, what is cited as retrieval_context",
    "Classification": "a classifier is a tree: its verdict is in the steps of a result",
    "ConversationSimulator": MODULES["deepeval.simulator"],
    "ConversationalJevEval": "ConversationalGEval(…, model=DecisionJudge(…)): a judge that decides",
    "ConversationalStylingConfig": "how goldens look: StylingConfig(scenario=…, task=…)",
    "CostMetric": "a CodeNode that reads token_cost",
    "DeepEvalBaseModel": "derive from DeepEvalBaseLLM, or give any object with `generate`",
    "DeepEvalBaseSystemOneModel": "a judge that decides: judges.DecisionJudge",
    "DeepSeekModel": _server("https://api.deepseek.com"),
    "Expectations": "say what is expected in expected_output, or in the criteria of a metric",
    "FiltrationConfig": "drafts are filtered question by question: dagengine synthesize --help",
    "GrokModel": _server("https://api.x.ai/v1"),
    "JevEval": "GEval(…, model=DecisionJudge(…)): a judge that decides",
    "KimiModel": _server("https://api.moonshot.ai/v1"),
    "LatencyMetric": "a CodeNode that reads completion_time",
    "LiteLLMModel": "an object whose `generate` calls litellm, or its proxy by LocalModel",
    "MCPServer": "its tools are not read: name those that are right in expected_tools",
    "MCPTaskCompletionMetric": "TaskCompletionMetric, with calls of MCP as tools_called",
    "MCPUseMetric": "ToolCorrectnessMetric, with calls of MCP as tools_called",
    "MLLMImage": "pictures are not judged: leave such cases where they are",
    "MultiTurnMCPUseMetric": "ToolCorrectnessMetric on every reply as a case",
    "OpenRouterModel": _server("https://openrouter.ai/api/v1"),
    "Persona": "who asks is a text: ConversationalGolden(user_description=…)",
    "PlanQualityMetric": "GEval with the plan as actual_output",
    "PortkeyModel": _server("https://api.portkey.ai/v1"),
    "Prompt": MODULES["deepeval.prompt"],
    "PromptEvolution": "a golden evolves by Evolution: EvolutionConfig(evolutions={…})",
    "RAGASContextualEntitiesRecall": "ContextualRecallMetric, or a tree that lists the entities",
    "RetrievedContextData": "a passage is a text: put its source in front of it",
    "ToolPermissionMetric": "compare names with a list in a CodeNode that reads tools_called",
    "TranscriptionAccuracyMetric": "compare both texts: EditSimilarityMetric",
    "TypeSafeModel": "answers are typed with every judge: give its name as model=…",
    "UserAppError": "a failing app is a row whose outcome is `code_error`",
    "Verdict": "verdicts are texts: 'yes', 'no'",
    "confident_evaluate": "there is no service: use evaluate",
    "dag_to_dict": "write dag.to_dict()",
    "dag_to_json": "write dag.to_json(), or metric.save(path)",
    "evals_iterator": "give the application: dataset.evaluate(metrics, app=…)",
    "get_current_golden": "an app gets its golden as its argument: evaluate(goldens, …, app=…)",
    "invoke_test_run_end_hook": "a function runs at the end by on_test_run_end",
    "log_hyperparameters": "give them to the run: evaluate(…, hyperparameters={…})",
    "login": "there is no account: what a run writes stays on your machine",
    "pull": "a data set stays on your machine: use a loader",
    "push": "a data set stays on your machine: use save_as",
    "sentence_bleu_score": "bleu_score is BLEU as sacrebleu has it, not bleu1",
    "track": _NO_SERVICE,
}  # fmt: skip

_QA = "labeled_criteria with criteria='correctness', the right answer as reference"
_SCORES = "GEval(…) gives a score from 0 to 1; RatingNode asks for one on a scale in a tree"
_TRAJECTORY = "calls of tools are tools_called: ToolCorrectnessMetric, TaskCompletionMetric"
_NO_VECTORS = "no vectors are compared: EditSimilarityMetric for letters, GEval for meaning"
_JSON = "JsonCorrectnessMetric(expected_schema=…) on the answer"

EVALUATORS: Mapping[str, str] = {
    "qa": _QA,
    "cot_qa": f"{_QA}; every verdict has its reason",
    "context_qa": f"{_QA}, or FaithfulnessMetric with the context as retrieval_context",
    "score_string": _SCORES,
    "labeled_score_string": f"{_SCORES}; read expected_output, too",
    "trajectory": _TRAJECTORY,
    "embedding_distance": _NO_VECTORS,
    "pairwise_embedding_distance": _NO_VECTORS,
    "json_schema_validation": _JSON,
}
"""Types of evaluators of LangChain that `load_evaluator` does not make."""


def _load_words(kind: str) -> str:
    return f"load_evaluator({kind!r}, …) makes it"


_LANGCHAIN = {
    "JsonEditDistanceEvaluator": _load_words("json_edit_distance"),
    "JsonEqualityEvaluator": _load_words("json_equality"),
    "JsonSchemaEvaluator": EVALUATORS["json_schema_validation"],
    "JsonValidityEvaluator": _load_words("json_validity"),
    "ExactMatchStringEvaluator": _load_words("exact_match"),
    "LabeledPairwiseStringEvalChain": _load_words("labeled_pairwise_string"),
    "PairwiseStringDistanceEvalChain": _load_words("pairwise_string_distance"),
    "PairwiseStringEvalChain": _load_words("pairwise_string"),
    "PairwiseStringEvaluator": _load_words("pairwise_string"),
    "RegexMatchStringEvaluator": _load_words("regex_match"),
    "StringDistance": "a name: load_evaluator('string_distance', distance='levenshtein')",
    "StringDistanceEvalChain": _load_words("string_distance"),
    "AgentTrajectoryEvaluator": _TRAJECTORY,
    "ContextQAEvalChain": EVALUATORS["context_qa"],
    "CotQAEvalChain": EVALUATORS["cot_qa"],
    "EmbeddingDistance": _NO_VECTORS,
    "EmbeddingDistanceEvalChain": _NO_VECTORS,
    "LabeledScoreStringEvalChain": EVALUATORS["labeled_score_string"],
    "PairwiseEmbeddingDistanceEvalChain": _NO_VECTORS,
    "QAEvalChain": _QA,
    "QAGenerateChain": MODULES["langchain.evaluation.qa.generate_chain"],
    "ScoreStringEvalChain": _SCORES,
    "TrajectoryEvalChain": _TRAJECTORY,
    "load_dataset": "EvaluationDataset().add_goldens_from_hf_dataset(name)",
}
_RAGAS = {
    # Objects are metrics there, and some have the name of a module of ours.
    **{
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", theirs).lower(): f"a metric is made: {ours}(…)"
        for theirs, ours in _RAGAS_RENAMED.items()
    },
    **dict.fromkeys(("AnswerSimilarity", "SemanticSimilarity", "answer_similarity"), _NO_VECTORS),
    "answer_correctness": "claims are compared by FactualCorrectness()",
    "EvaluationDataset": "dagengine.dataset.EvaluationDataset; its rows by --map ragas",
    "MultiTurnSample": "ConversationalTestCase(turns=[…])",
    "RunConfig": "settings of a run: evaluate(…, limits=Limits(…))",
    "SingleTurnSample": "LLMTestCase: input=, actual_output=, expected_output=, retrieval_context=",
}
# Names, also of older versions, that are of pictures or sound.
_NO_TEXT = re.compile(r"^(?:[A-Z]\w*)?(?:Image|Audio|Voice|Speech|Video|MLLM|Multi[mM]odal)")

NAMES: Mapping[str, Mapping[str, str]] = {
    "deepeval": _DEEPEVAL,
    "langchain": _LANGCHAIN,
    "langchain_classic": _LANGCHAIN,
    "ragas": _RAGAS,
}
"""What is done here in the place of a name, by library."""

_OWN_JUDGE = (
    "a judge of your own is a class with `generate(prompt)` (DeepEvalBaseLLM of dagengine.models), "
    "or ScriptedJudge(function); the protocol of all judges is dagengine.question.Judge"
)
_CHECKLIST = (
    "a criterion is CriteriaMetric; several yes/no questions in one score are DAGMetric(…, "
    "DAG(root_nodes=[…]), combine='mean'); weighted ones: docs/how-to/weights.md"
)
_JURY = "several judges: judged_by(metric, [judge, …]) of dagengine.voting"
_CODE = "code in a tree is CodeNode(function, evaluation_params=[…]) of dagengine.metrics.dag"
_LLM_NODE = (
    "a question in a tree is BinaryJudgementNode, NonBinaryJudgementNode or RatingNode, a text "
    "TaskNode, all of dagengine.metrics.dag"
)
_WORDS = _by_name({
    _OWN_JUDGE: "Judge BaseJudge CustomJudge FunctionJudge LLM",
    _CHECKLIST: "Checklist ChecklistMetric",
    _JURY: "Jury JuryJudge Panel Ensemble EnsembleJudge MultiJudge majority_vote",
    "a judge without a model is ScriptedJudge(function) of dagengine.judges": (
        "FakeJudge MockJudge StubJudge DummyJudge FakeLLM MockLLM"
    ),
    "cases of a file are read by read_cases(path) of dagengine.data": (
        "load_cases load_test_cases load_dataset load_data load_jsonl load_csv read_cases "
        "read_test_cases read_dataset read_data read_jsonl read_csv"
    ),
    "answers are kept by evaluate(…, store='answers.db')": "CachedJudge CachingJudge Cache",
    "a score from a scale is RatingNode(…, scale=(1, 5))": "ScoreNode ScaleNode LikertNode",
    _CODE: (
        "FunctionNode PythonNode LambdaNode RuleNode CheckNode ConditionNode ComputeNode "
        "RegexNode DeterministicNode AssertNode FormulaNode"
    ),
    _LLM_NODE: (
        "LLMNode JudgeNode QuestionNode DecisionNode SwitchNode BranchNode "
        "ClassificationNode ChoiceNode YesNoNode BooleanNode MultiNode"
    ),
    "a metric in a tree is the child of a verdict: VerdictNode(verdict, child=metric)": (
        "MetricNode SubMetricNode"
    ),
    "several roots are combined by DAGMetric(…, combine='mean'), other sums by CodeNode": (
        "AggregateNode AggregationNode CombineNode MeanNode AverageNode SumNode "
        "WeightedNode WeightedSumNode"
    ),
    "use improve: it changes one node so that the metric agrees with human labels": "optimize",
})  # fmt: skip
ARGUMENTS: Mapping[str, str] = {
    "display": "cases that failed are in result.failed()",
    "goldens": "an application completes them: evaluate(goldens, metrics, app=…)",
    "metric_collection": "metrics are objects here: metrics=[…]",
    "observed_callback": "the application is app=: evaluate(goldens, metrics, app=…)",
    "available_tools": "ToolUseMetric asks what an agent could have called",
    "classifiers": "a label is a verdict: NonBinaryJudgementNode",
    "definition": "a criterion has its name before its words: CriteriaMetric({name: definition})",
    "cost_tracking": "what a run cost stands in its record: out=FOLDER",
    "embeddings": "no embeddings are needed",
    "eval_mode": "a judge that decides is a judge: model=DecisionJudge(…)",
    "filtration_config": "drafts are filtered question by question: max_tries=…",
    "flaky": "every case counts; how steady a metric is says `dagengine benchmark`",
    "golden": "an application completes goldens: evaluate([golden], metrics, app=…)",
    "hyperparameters": "they are of a whole run: evaluate(…, hyperparameters={…})",
    "identifier": "it names a whole run: evaluate(…, identifier=…)",
    "mcp_servers": "calls of tools are judged by `tools_called`",
    **dict.fromkeys(("mcp_prompts_called", "mcp_resources_called", "mcp_tools_called"), _MCP),
    "audio": "sound is not judged: give its transcript as the text",
    "expectations": _DEEPEVAL["Expectations"],
    "expected_labels": "what is right is expected_output, or the human label of a node",
    "official": _NO_SERVICE,
    "persona": "who asks is a text: user_description=…",
    "trace_dict": _TRACES,
    "system_one_model": "a judge that decides is a judge: model=DecisionJudge(…)",
}
"""Arguments that other libraries have, and what is done here in their place."""

_SCORED = "Scorer compares texts; what needs a model is a metric: "
# Attributes of classes, by what is written in their place.
_ATTRIBUTES = {
    "what was asked on the way, and answered, is in metric.result.steps": (
        "advices alignment_verdicts claims coverage_verdicts extracted_pii knowledges misuses "
        "opinions out_of_character_verdicts outcome role_violations score_breakdown statements "
        "truths user_intentions verdict verdicts verdicts_list"
    ),
    f"{_NO_SERVICE}; a data set is read by its loaders, and written by save_as": (
        "confident_api_key confident_link create_version delete delete_golden get_versions "
        "metric_id pull push queue test_run_id update_golden upload"
    ),
    "metrics ask a judge, model=…; for a prompt of your own use its provider's client": (
        "a_generate a_generate_raw_response a_generate_with_schema batch_generate generate "
        "generate_raw_response generate_samples generate_with_schema load_model"
    ),
    _MCP: (
        "MCP_PROMPTS MCP_PROMPTS_CALLED MCP_RESOURCES MCP_RESOURCES_CALLED MCP_SERVERS MCP_TOOLS "
        "MCP_TOOLS_CALLED"
    ),
    _DEEPEVAL["Audio"]: "AUDIO PROVIDER_TRANSCRIPT call_recording_path provider_transcript voice",
    _TRAJECTORY: "AGENT_TRAJECTORY",
    _NO_VECTORS: "bert_score",
    f"{_SCORED}FaithfulnessMetric, HallucinationMetric": (
        "faithfulness_score hallucination_score truth_identification_score"
    ),
    f"{_SCORED}AnswerRelevancyMetric": "answer_relevancy_score",
    f"{_SCORED}BiasMetric": "neural_bias_score",
    f"{_SCORED}PIILeakageMetric": "PII_score",
    f"{_SCORED}ToxicityMetric": "neural_toxic_score",
    f"{_SCORED}GEval with expected_output": "squad_score",
    "write pattern_match_score(prediction, pattern, anywhere=True)": "quasi_contains_score",
    "write exact_match_score, or edit_similarity_score": "quasi_exact_match_score",
    "the type of its goldens says so: Golden or ConversationalGolden": "_multi_turn",
    "write pandas.DataFrame([golden.model_dump() for golden in goldens])": "to_pandas",
    "write synthetic_goldens, which holds those of conversations, too": (
        "synthetic_conversational_goldens"
    ),
    "what was spent is in synthesizer.totals": "synthesis_cost",
    "tokens of a metric are in metric.result.usage": "input_tokens output_tokens",
    "the judge of a metric is metric.model, those of a run are in its record": "evaluation_model",
    "without a score a metric has a failure: metric.result.failure": "skipped",
    "how sure a judge is, is in metric.result.odds, if it gives odds": "confidence",
    "other columns are in additional_metadata": "custom_column_key_values",
}
_MEMBERS: Mapping[str, str] = {
    **{name.upper(): why for name, why in EVALUATORS.items()},
    **_by_name(_ATTRIBUTES),
}


def _nearest_above(module: str, table: Mapping[str, str]) -> str:
    """The module itself, or the nearest above it that a table has; empty for none."""
    while module and module not in table:
        module = module.rpartition(".")[0]
    return module


def home_of(module: str) -> str | None:
    """The module of ours with the names of a module of others; None if nothing of it is here."""
    return None if why_no_module(module) else HOMES.get(_nearest_above(module, HOMES))


def why_no_module(module: str) -> str | None:
    """Explain what is here in the place of a module of others; None for the others."""
    return MODULES.get(_nearest_above(module, MODULES))


def our_name(module: str, name: str) -> str:
    """The name here of a name in another library's module: mostly the same."""
    return RENAMED.get(module.partition(".")[0], {}).get(name, name)


def why_no_name(name: str, module: str = "") -> str | None:
    """Explain what is here in the place of a foreign name; of any library without a `module`."""
    library = module.partition(".")[0]
    tables = [NAMES[library]] if library in NAMES else NAMES.values()
    why = next((table[name] for table in tables if name in table), None)
    if why is None and _NO_TEXT.search(name):
        why = "texts are judged, no pictures and no sound: keep it where it is"
    return why


def answer_name(module: str, name: str) -> str | None:
    """Return what is done here in the place of a name that a module of ours lacks."""
    renamed = next((names[name] for names in RENAMED.values() if name in names), None)
    if renamed is not None:
        return f"use {renamed}"
    return why_no_name(name) or MODULES.get(f"{_theirs(module)}.{name}") or _WORDS.get(name)


def answer_member(name: str) -> str | None:
    """Return what is done here in the place of an attribute that a class of ours lacks."""
    return _MEMBERS.get(name) or ARGUMENTS.get(name) or why_no_name(name)


def answer_module(name: str) -> str | None:
    """Return what is done here in the place of a module that we lack, `dagengine.tracing`."""
    library = name.partition(".")[0]
    if library in NAMES:
        return f"`dagengine migrate FILE` rewrites the imports of programs for {library}"
    theirs = _theirs(name)
    home, is_module = home_of(theirs), name.rpartition(".")[2].islower()
    if home is not None and is_module and "." in _nearest_above(theirs, HOMES):
        return f"what is public in {theirs} is in {home}; `dagengine migrate FILE` rewrites imports"
    return why_no_module(theirs)


def _theirs(module: str) -> str:
    return f"deepeval{module.removeprefix('dagengine')}"
