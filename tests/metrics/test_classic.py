"""Scores without a judge: against the packages themselves, and against hand-computed values."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.snippets import run, snippet

from dagengine import compile_metrics, evaluate
from dagengine.errors import InputError, MissingExtraError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.classic import (
    BleuMetric,
    EditSimilarityMetric,
    ExactMatchMetric,
    JsonMatchMetric,
    PatternMatchMetric,
    RougeMetric,
)
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode
from dagengine.results import OutcomeKind
from dagengine.scorer import Scorer
from dagengine.test_case import LLMTestCase

rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
sacrebleu = pytest.importorskip("sacrebleu")
pytest.importorskip("rapidfuzz")


SCORER = Scorer()
OUTPUT = "The quick brown foxes jumped over the lazy dog."
EXPECTED = "A quick brown fox jumps over one lazy dog"
CASE = LLMTestCase(input="i", actual_output=OUTPUT, expected_output=EXPECTED)
TEXT = st.text(alphabet="ab c.é\n", max_size=30)
BOTH = ["actual_output", "expected_output"]


def metrics() -> Iterator[Any]:
    yield from (ExactMatchMetric(), RougeMetric(), BleuMetric(), EditSimilarityMetric())


@pytest.mark.parametrize("score_type", ["rouge1", "rouge2", "rougeL", "rougeLsum"])
@pytest.mark.parametrize("use_stemmer", [True, False])
def test_rouge_is_the_f_measure_of_the_package(score_type: str, use_stemmer: bool) -> None:
    oracle = rouge_scorer.RougeScorer([score_type], use_stemmer=use_stemmer)
    expected = oracle.score(EXPECTED, OUTPUT)[score_type].fmeasure
    found = SCORER.rouge_score(
        prediction=OUTPUT, target=EXPECTED, score_type=score_type, use_stemmer=use_stemmer
    )
    assert found == expected
    metric = RougeMetric(score_type=score_type, use_stemmer=use_stemmer)
    assert metric.measure(CASE) == expected


def test_rouge_of_a_sentence_counted_by_hand() -> None:
    # 2 of 3 words of each text are shared: precision = recall = F = 2/3; 1 of 2 word pairs.
    prediction, target = "the cat sat", "the cat ran"
    assert SCORER.rouge_score(prediction, target) == pytest.approx(2 / 3)
    assert SCORER.rouge_score(prediction, target, "rouge2") == pytest.approx(1 / 2)
    # Shorter prediction: precision 1/1, recall 1/3, F = 2·1·⅓ / (1 + ⅓) = 1/2.
    assert SCORER.rouge_score("cat", target) == pytest.approx(1 / 2)


def test_rouge_compares_stems_unless_told_otherwise() -> None:
    assert SCORER.rouge_score("jumped", "jumping") == 1.0
    assert SCORER.rouge_score("jumped", "jumping", use_stemmer=False) == 0.0


def test_a_target_that_rouge_cannot_read_is_an_error_and_not_a_zero() -> None:
    with pytest.raises(InputError, match="tokenizer="):
        SCORER.rouge_score("привет мир", "привет мир")
    assert SCORER.rouge_score("привет мир", "привет дом", tokenizer=str.split) == 0.5
    case = LLMTestCase(input="i", actual_output="привет", expected_output="привет")
    assert RougeMetric(tokenizer=str.split).measure(case) == 1.0
    assert SCORER.rouge_score("...", "...") == 0.0  # nothing to read in any language


@pytest.mark.parametrize("name", ["rouge", "rouge0", "rougel", "bleu", "rouge1 "])
def test_an_unknown_kind_of_rouge_is_refused_at_once(name: str) -> None:
    with pytest.raises(InputError, match="rouge1 to rouge9"):
        SCORER.rouge_score("a", "a", name)
    with pytest.raises(InputError, match="rouge1 to rouge9"):
        RougeMetric(score_type=name)


def test_bleu_is_that_of_the_package_and_a_perfect_match_is_one() -> None:
    oracle = sacrebleu.sentence_bleu(OUTPUT, [EXPECTED]).score / 100
    assert SCORER.bleu_score(prediction=OUTPUT, target=EXPECTED) == oracle
    assert BleuMetric().measure(CASE) == oracle
    same = LLMTestCase(input="i", actual_output=EXPECTED, expected_output=EXPECTED)
    assert BleuMetric().measure(same) == 1.0
    several = sacrebleu.sentence_bleu(OUTPUT, [EXPECTED, "jumped over"]).score / 100
    assert SCORER.bleu_score(OUTPUT, [EXPECTED, "jumped over"]) == several


def test_bleu_of_a_sentence_counted_by_hand() -> None:
    # 1- to 4-grams found: 4/4, 3/3, 2/2, 1/1; brevity penalty exp(1 - 5/4).
    assert SCORER.bleu_score("a b c d", "a b c d e") == pytest.approx(2.718281828459045**-0.25)


def test_edit_similarity_counted_by_hand() -> None:
    assert SCORER.edit_similarity_score("kitten", "sitting") == pytest.approx(1 - 3 / 7)
    assert SCORER.edit_similarity_score("", "abc") == 0.0
    assert SCORER.edit_similarity_score("", "") == 1.0


@pytest.mark.parametrize(
    ("distance", "score"),
    [
        ("levenshtein", 1 / 3),
        ("damerau_levenshtein", 2 / 3),
        ("hamming", 1 / 3),
        ("indel", 2 / 3),
        ("jaro", 5 / 9),
        ("jaro_winkler", 5 / 9),  # more only for a common beginning of texts that are alike
    ],
)
def test_edit_similarity_by_other_distances(distance: str, score: float) -> None:
    case = LLMTestCase(input="", actual_output="abc", expected_output="acb")
    assert EditSimilarityMetric(distance=distance).measure(case) == pytest.approx(score)


def test_an_unknown_distance_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="no distance 'lev'; use one of levenshtein, damerau"):
        EditSimilarityMetric(distance="lev")


@pytest.mark.parametrize(
    ("output", "expected", "whole", "partial"),
    [
        ('{"a": 1, "b": 2}', '{"b": 2.0, "a": 1}', 1, 1),
        ('{"a": 1}', '{"a": 1, "b": 2}', 0, 1 / 2),
        ('{"a": {"x": 1, "y": 2}, "b": 1}', '{"a": {"x": 1, "y": 3}, "b": 1}', 0, 3 / 4),
        ("[1, 2]", "[2, 1]", 0, 0),
        ("true", "1", 0, 0),
        ("no JSON", "1", 0, 0),
        ("NaN", "1", 0, 0),
        ("[" * 100_000, "1", 0, 0),
    ],
)
def test_json_matches_by_value(output: str, expected: str, whole: float, partial: float) -> None:
    case = LLMTestCase(input="", actual_output=output, expected_output=expected)
    assert JsonMatchMetric().measure(case) == whole
    assert JsonMatchMetric(partial=True).measure(case) == partial


def test_an_expected_output_that_is_not_json_is_no_zero() -> None:
    case = LLMTestCase(input="", actual_output="1", expected_output="one")
    (row,) = evaluate([case], [JsonMatchMetric()], show=False).rows
    assert (row.metrics[0].score, row.metrics[0].outcome) == (None, OutcomeKind.SKIPPED)
    assert "expected_output is not JSON" in str(row.metrics[0].failure)
    case = LLMTestCase(input="i", actual_output="kitten", expected_output="sitting")
    assert EditSimilarityMetric().measure(case) == pytest.approx(4 / 7)


@pytest.mark.parametrize(
    ("output", "expected", "score"),
    [("Paris", "Paris", 1.0), (" Paris\n", "Paris", 1.0), ("paris", "Paris", 0.0), ("", "x", 0.0)],
)
def test_exact_match_ignores_only_the_whitespace_around(
    output: str, expected: str, score: float
) -> None:
    case = LLMTestCase(input="i", actual_output=output, expected_output=expected)
    assert ExactMatchMetric().measure(case) == score
    assert SCORER.exact_match_score(prediction=output, target=expected) == score


@pytest.mark.parametrize(
    ("pattern", "options", "score"),
    [
        (r"\d{4}-\d\d-\d\d", {}, 0.0),
        (r"\d{4}-\d\d-\d\d", {"anywhere": True}, 1.0),
        (r".*\d{4}-\d\d-\d\d\.", {}, 1.0),
        (r"ON .*", {}, 0.0),
        (r"ON .*", {"ignore_case": True}, 1.0),
    ],
)
def test_a_pattern_matches_the_whole_answer_or_anywhere(
    pattern: str, options: dict[str, Any], score: float
) -> None:
    metric = PatternMatchMetric(pattern, **options)
    assert metric.measure(LLMTestCase(input="i", actual_output="On 2024-05-01.\n")) == score
    assert compile_metrics([metric]).fields == ("actual_output",)


def test_a_pattern_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="not a regular expression"):
        PatternMatchMetric("(")
    with pytest.raises(InputError, match="not a regular expression"):
        SCORER.pattern_match_score("a", "[")


@settings(deadline=None, max_examples=60)
@given(TEXT, TEXT)
def test_every_score_lies_between_zero_and_one_and_equal_texts_match(a: str, b: str) -> None:
    for score in (
        SCORER.exact_match_score,
        SCORER.rouge_score,
        SCORER.bleu_score,
        SCORER.edit_similarity_score,
    ):
        try:
            assert 0.0 <= score(a, b) <= 1.0
        except InputError:
            assert not any(c.isascii() for c in b if c.isalnum())
    assert SCORER.exact_match_score(a, a) == SCORER.edit_similarity_score(a, a) == 1.0


@pytest.mark.parametrize("target", [None, 3, ["a"]])
def test_a_target_that_is_no_text_is_a_typed_error(target: Any) -> None:
    with pytest.raises(InputError, match="target is"):
        SCORER.rouge_score(prediction="a", target=target)


def test_bleu_needs_a_target() -> None:
    with pytest.raises(InputError, match="no target"):
        SCORER.bleu_score("a", [])


def test_classic_metrics_ask_no_judge_and_give_a_reason() -> None:
    def answer(question: Any) -> Any:
        raise AssertionError(f"{question.name} was asked")

    found = [*metrics(), PatternMatchMetric("x")]
    done = evaluate([CASE], found, model=ScriptedJudge(answer), show=False)
    assert done.totals.calls == 0
    for result in done.rows[0].metrics:
        assert result.failure is None
        assert result.reason
    assert [result.metric for result in done.rows[0].metrics] == [
        *("Exact Match", "ROUGE", "BLEU", "Edit Similarity", "Pattern Match")
    ]


def test_a_missing_field_fails_its_case_only() -> None:
    cases = [LLMTestCase(input="i", actual_output="o"), CASE]
    done = evaluate(cases, list(metrics()), show=False)
    assert {m.outcome for m in done.rows[0].metrics} == {OutcomeKind.MISSING_FIELD}
    assert {m.outcome for m in done.rows[1].metrics} == {OutcomeKind.OK}


def test_strict_mode_accepts_perfection_only() -> None:
    metric = RougeMetric(threshold=0.1, strict_mode=True)
    assert metric.measure(CASE) == 0.0
    assert metric.result is not None
    assert (metric.threshold, metric.success) == (1.0, False)
    assert metric.result.raw_score is not None
    assert 0 < metric.result.raw_score < 1


@pytest.mark.anyio
async def test_classic_metrics_run_on_either_event_loop() -> None:
    assert await EditSimilarityMetric().a_measure(CASE) > 0.5


def test_a_scorer_is_a_code_node_that_scores() -> None:
    for score in (SCORER.exact_match_score, SCORER.rouge_score, SCORER.edit_similarity_score):
        node = CodeNode(score, evaluation_params=BOTH)
        assert DAGMetric("m", DAG(root_node=node)).measure(CASE) == score(OUTPUT, EXPECTED)


def test_a_scorer_is_a_code_node_that_spares_the_judge() -> None:
    def close_enough(output: str, expected: str) -> bool:
        return SCORER.edit_similarity_score(output, expected) > 0.9

    judged = BinaryJudgementNode(
        "Do both say the same?", evaluation_params=BOTH, then={True: 8, False: 0}, name="same"
    )
    root = CodeNode(close_enough, evaluation_params=BOTH, then={True: 10, False: judged})
    equal = LLMTestCase(input="i", actual_output="Paris", expected_output="Paris")
    metric = DAGMetric("m", DAG(root_node=root))
    done = evaluate([equal, CASE], [metric], model=ScriptedJudge({"same": True}), show=False)
    assert done.scores("m") == [1.0, 0.8]
    assert done.totals.calls == 1


def test_a_classic_metric_stands_under_a_verdict_as_configured() -> None:
    root = BinaryJudgementNode(
        "A quotation?",
        evaluation_params=["input"],
        then={True: ExactMatchMetric(), False: RougeMetric(strict_mode=True)},
        name="quotation",
    )
    metric = DAGMetric("m", DAG(root_node=root))
    for verdict in (True, False):
        judge = ScriptedJudge({"quotation": verdict})
        done = evaluate([CASE], [metric], model=judge, show=False)
        assert done.scores("m") == [0.0]


@pytest.mark.parametrize(
    ("metric", "module", "package"),
    [
        (RougeMetric, "rouge_score.rouge_scorer", "rouge_score"),
        (BleuMetric, "sacrebleu", "sacrebleu"),
        (EditSimilarityMetric, "rapidfuzz.distance", "rapidfuzz"),
    ],
)
def test_a_metric_without_its_package_says_what_to_install(
    metric: Any, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    needed = f'needs {package}: pip install "dagengine.scorers."'
    with pytest.raises(MissingExtraError, match=needed):
        metric()


def test_scores_load_their_packages_when_they_are_first_used() -> None:
    code = (
        "import sys\n"
        "import dagengine.metrics.classic as c\n"
        "c.ExactMatchMetric(); c.PatternMatchMetric('x')\n"
        "found = {'rouge_score', 'nltk', 'sacrebleu', 'rapidfuzz'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_published_rouge_metric_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    names = run(
        snippet("003", "from deepeval.scorer import Scorer", '        return "Rouge Metric"')
    )
    use = snippet(
        "003",
        'test_case = LLMTestCase(input="...", actual_output="...", expected_output="...")',
        "print(metric.is_successful())",
    )
    run(use, names)
    assert capsys.readouterr().out == "False\n"  # "..." has no word

    metric = names["RougeMetric"](threshold=0.9)
    assert metric.measure(CASE) == SCORER.rouge_score(OUTPUT, EXPECTED)
    done = evaluate([CASE, CASE], [metric], show=False)
    assert done.scores("Rouge Metric") == [SCORER.rouge_score(OUTPUT, EXPECTED)] * 2
    assert [row.metrics[0].success for row in done.rows] == [False, False]
