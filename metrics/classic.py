"""Metrics without a judge: exact match, patterns, ROUGE, BLEU, edit similarity, JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Unpack

from dagengine.errors import InputError, NotApplicableError
from dagengine.graph.graph import Graph
from dagengine.graph.node_values import NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.prebuilt import MetricSettings, PrebuiltMetric
from dagengine.metrics.tool_correctness import agreement
from dagengine.prompts.json_in_text import shallow_value
from dagengine.scorer import Scorer, compiled_pattern, distance_name, needs, rouge_type


class _ClassicMetric(PrebuiltMetric):
    """Base: one code node that reads the answer and, if need be, the expected one.

    `model` is there so that metrics can be made alike; it is never asked.
    """

    reads: ClassVar[tuple[str, ...]] = ("actual_output", "expected_output")
    package: ClassVar[str] = ""
    """The package that computes the score, of metrics that need one."""

    def __init__(self, *common: Any, **settings: Unpack[MetricSettings]) -> None:
        self.take_common(common, settings)
        if self.package:
            needs(self.package)
        self.scorer = Scorer()

    def score_of(self, output: str, expected: str = "") -> float:
        """The score of one case."""
        raise TypeError(f"{type(self).__name__} must override score_of")

    def why(self, score: float) -> str:
        """The reason that goes with a score."""
        return f"{self.title} of actual_output and expected_output is {score:.4g}."

    def graph(self) -> Graph:
        return Graph(CodeNode(self.graded, evaluation_params=self.reads, name=self.title))

    def graded(self, *texts: str) -> NodeValue:
        """The score, and why."""
        score = self.score_of(*texts)
        return NodeValue(score, score=score, reason=self.why(score))


class ExactMatchMetric(_ClassicMetric):
    """1 if the answer equals the expected one except for whitespace around it, else 0."""

    title = "Exact Match"
    judged = ()  # a blank output may be the right one

    def score_of(self, output: str, expected: str = "") -> float:
        return self.scorer.exact_match_score(output, expected)

    def why(self, score: float) -> str:
        return f"actual_output is {'equal to' if score else 'not'} expected_output."


class PatternMatchMetric(_ClassicMetric):
    """1 if a regular expression matches the whole answer (`anywhere`: a part), else 0."""

    title = "Pattern Match"
    judged = ()  # a pattern may want a blank output
    reads: ClassVar[tuple[str, ...]] = ("actual_output",)

    def __init__(
        self,
        pattern: str,
        ignore_case: bool = False,
        *common: Any,
        anywhere: bool = False,
        **settings: Unpack[MetricSettings],
    ) -> None:
        super().__init__(*common, **settings)
        self.pattern = compiled_pattern(pattern, ignore_case)
        self.anywhere = anywhere

    @property
    def ignore_case(self) -> bool:
        """Whether large and small letters are alike."""
        return bool(self.pattern.flags & re.IGNORECASE)

    def score_of(self, output: str, expected: str = "") -> float:
        return self.scorer.pattern_match_score(output, self.pattern, anywhere=self.anywhere)

    def why(self, score: float) -> str:
        extent = "somewhere in" if self.anywhere else "all of"
        verb = "matches" if score else "does not match"
        return f"{self.pattern.pattern!r} {verb} {extent} actual_output."


class RougeMetric(_ClassicMetric):
    """The F-measure of ROUGE; `Scorer.rouge_score` describes the options."""

    title, package = "ROUGE", "rouge-score"

    def __init__(
        self,
        *common: Any,
        score_type: str = "rouge1",
        use_stemmer: bool = True,
        tokenizer: Callable[[str], list[str]] | None = None,
        **settings: Unpack[MetricSettings],
    ) -> None:
        super().__init__(*common, **settings)
        self.score_type = rouge_type(score_type)
        self.use_stemmer = use_stemmer
        self.tokenizer = tokenizer

    def score_of(self, output: str, expected: str = "") -> float:
        return self.scorer.rouge_score(
            output,
            expected,
            score_type=self.score_type,
            use_stemmer=self.use_stemmer,
            tokenizer=self.tokenizer,
        )

    def why(self, score: float) -> str:
        return f"{self.score_type} (F-measure) of actual_output and expected_output: {score:.4g}."


class BleuMetric(_ClassicMetric):
    """Sentence BLEU of the answer against the expected one."""

    title, package = "BLEU", "sacrebleu"

    def score_of(self, output: str, expected: str = "") -> float:
        return self.scorer.bleu_score(output, expected)


class EditSimilarityMetric(_ClassicMetric):
    """1 - edit distance between the answer and the expected one / the largest possible one.

    `distance` is levenshtein (the largest is the longer length), damerau_levenshtein, jaro,
    jaro_winkler, hamming or indel (InputError for another one).
    """

    title, package = "Edit Similarity", "rapidfuzz"

    def __init__(
        self,
        *common: Any,
        distance: str = "levenshtein",
        **settings: Unpack[MetricSettings],
    ) -> None:
        super().__init__(*common, **settings)
        self.distance = distance_name(distance)

    def score_of(self, output: str, expected: str = "") -> float:
        return self.scorer.edit_similarity_score(output, expected, distance=self.distance)


class JsonMatchMetric(_ClassicMetric):
    """1 if the answer and the expected output are the same JSON value, else 0.

    The order of keys and white space do not count; numbers are equal by value. With `partial` the
    score is the share of keys whose values agree (of objects in objects, too). An answer that is
    not JSON scores 0; a case whose expected output is not JSON is skipped.
    """

    title = "Json Match"
    judged = ()  # a blank output is not JSON

    def __init__(
        self, *common: Any, partial: bool = False, **settings: Unpack[MetricSettings]
    ) -> None:
        super().__init__(*common, **settings)
        self.partial = partial

    def graded(self, *texts: str) -> NodeValue:
        output, expected = texts
        try:
            wanted = as_json("expected_output", expected)
        except InputError as error:
            raise NotApplicableError(f"nothing to judge by: {error}") from None
        try:
            share = agreement(as_json("actual_output", output), wanted)
        except InputError as error:
            return NodeValue(0.0, score=0.0, reason=str(error))
        score = float(share if self.partial else share == 1)
        reason = "actual_output and expected_output are the same JSON value."
        if share != 1:
            reason = f"Not the same JSON value: {float(share):.4g} of the keys agree."
        return NodeValue(score, score=score, reason=reason)


def as_json(name: str, text: str) -> Any:
    """The value that a text is as JSON; raises InputError, which calls the text by its name."""
    try:
        return shallow_value(text, parse_constant=_no_number)
    except ValueError as error:
        raise InputError(f"{name} is not JSON: {error}") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
