"""Evaluators of texts without criteria, by the names under which LangChain's programs load them.

Scores are those of such programs: a distance of 0 is best. `EditSimilarityMetric`,
`PatternMatchMetric`, `JsonMatchMetric` and `ArenaGEval` are the metrics behind them.
"""

from __future__ import annotations

import inspect
import json
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dagengine.errors import InputError
from dagengine.metrics.arena_g_eval import ArenaGEval
from dagengine.metrics.classic import as_json
from dagengine.metrics.common.base import wait_for
from dagengine.metrics.common.named_criteria import GivenCriteria, criteria_of
from dagengine.metrics.tool_correctness import agreement
from dagengine.scorer import Scorer
from dagengine.test_case import ArenaTestCase, LLMTestCase
from dagengine.unknown_arguments import check_names

Found = dict[str, Any]
Rule = Callable[[str, str], Found]
"""What a text and a reference (or a second text) come to."""
_PREFERRED = ("helpfulness", "relevance", "correctness", "depth")


@dataclass(frozen=True)
class CodeEvaluator:
    """Compares texts by code. Raises InputError for a text that is missing, or is no text."""

    evaluation_name: str
    rule: Rule
    requires_reference: bool = True
    requires_input: bool = False

    def evaluate_strings(
        self, *, prediction: str, reference: str | None = None, input: str | None = None
    ) -> Found:
        """The score of a text."""
        owner = f"the evaluator {self.evaluation_name!r}"
        if self.requires_reference:
            require_text(owner, "reference", reference)
        return self.rule(require_text(owner, "prediction", prediction), reference or "")

    async def aevaluate_strings(self, **texts: Any) -> Found:
        """`evaluate_strings` for callers with an event loop."""
        return self.evaluate_strings(**texts)

    def evaluate_string_pairs(
        self,
        *,
        prediction: str,
        prediction_b: str,
        reference: str | None = None,
        input: str | None = None,
    ) -> Found:
        """The score of two texts."""
        return self.evaluate_strings(prediction=prediction, reference=prediction_b)

    async def aevaluate_string_pairs(self, **texts: Any) -> Found:
        """`evaluate_string_pairs` for callers with an event loop."""
        return self.evaluate_string_pairs(**texts)


@dataclass(frozen=True)
class PairwiseEvaluator:
    """Says which of two texts a judge prefers, in both orders: the graph of an `ArenaGEval`."""

    criteria: GivenCriteria = _PREFERRED
    llm: Any = None
    requires_reference: bool = False
    requires_input: bool = True
    evaluation_name: str = "pairwise_string"

    def metric(self) -> ArenaGEval:
        """The metric that compares; raises InputError for criteria that are none."""
        fields = ["input", "actual_output"]
        if self.requires_reference:
            fields.append("expected_output")
        return ArenaGEval(
            "Preference",
            evaluation_steps=list(map(str, criteria_of(self.criteria))),
            evaluation_params=fields,
            model=self.llm,
        )

    def evaluate_string_pairs(
        self,
        *,
        prediction: str,
        prediction_b: str,
        input: str | None = None,
        reference: str | None = None,
    ) -> Found:
        """The preferred text: A (score 1), B (0) or None (0.5), and why.

        Raises InputError for a text that is missing, MetricFailedError without a valid answer.
        """
        case = self._case(prediction, prediction_b, input, reference)
        return wait_for(lambda: self._compare(case))

    async def aevaluate_string_pairs(
        self,
        *,
        prediction: str,
        prediction_b: str,
        input: str | None = None,
        reference: str | None = None,
    ) -> Found:
        """`evaluate_string_pairs` for callers with an event loop."""
        return await self._compare(self._case(prediction, prediction_b, input, reference))

    async def _compare(self, case: ArenaTestCase) -> Found:
        metric = self.metric()
        await metric.a_measure(case)
        score = {"A": 1, "B": 0}.get(metric.winner or "", 0.5)
        return {"reasoning": metric.reason, "value": metric.winner, "score": score}

    def _case(
        self, prediction: str, prediction_b: str, input: str | None, reference: str | None
    ) -> ArenaTestCase:
        owner, expected = f"the evaluator {self.evaluation_name!r}", None
        if self.requires_reference:
            expected = require_text(owner, "reference", reference)
        contestants: dict[str, LLMTestCase] = {}
        texts = (("A", "prediction", prediction), ("B", "prediction_b", prediction_b))
        for name, argument, text in texts:
            answer = require_text(owner, argument, text)
            contestants[name] = LLMTestCase(
                input=input or "", actual_output=answer, expected_output=expected
            )
        return ArenaTestCase(contestants=contestants)


def require_text(owner: str, name: str, value: object) -> str:
    """An argument of an evaluator; raises InputError for what is no text."""
    if not isinstance(value, str):
        raise InputError(f"{owner} needs {name}=, but it is {value!r:.80}")
    return value


def exact_match(
    *, ignore_case: bool = False, ignore_punctuation: bool = False, ignore_numbers: bool = False
) -> Rule:
    """1 for equal texts, apart from what is ignored; else 0."""
    ignored = string.punctuation * ignore_punctuation + string.digits * ignore_numbers
    table = str.maketrans("", "", ignored)

    def plain(text: str) -> str:
        return (text.lower() if ignore_case else text).translate(table)

    return lambda prediction, reference: {"score": int(plain(prediction) == plain(reference))}


def regex_match(*, flags: int = 0) -> Rule:
    """1 if the reference, a regular expression, matches the beginning of the text; else 0."""

    def rule(prediction: str, reference: str) -> Found:
        try:
            return {"score": float(re.match(reference, prediction, flags) is not None)}
        except re.error as error:
            raise InputError(f"{reference!r:.80} is no regular expression: {error}") from None

    return rule


def string_distance(*, distance: str = "jaro_winkler", normalize_score: bool = True) -> Rule:
    """The distance of two texts from 0 (equal) to 1; `distance` as in `EditSimilarityMetric`."""
    if not normalize_score:
        raise InputError("normalize_score=False is not here: distances go from 0 to 1")
    name, scorer = str(getattr(distance, "value", distance)), Scorer()
    scorer.edit_similarity_score("", "", distance=name)  # says what is wrong with the name

    def rule(prediction: str, reference: str) -> Found:
        return {"score": 1 - scorer.edit_similarity_score(prediction, reference, distance=name)}

    return rule


def json_validity() -> Rule:
    """1 if a text is JSON, else 0 and why."""

    def rule(prediction: str, reference: str) -> Found:
        try:
            as_json("prediction", prediction)
        except InputError as error:
            return {"score": 0, "reasoning": str(error)}
        return {"score": 1}

    return rule


def json_equality(*, operator: Callable[[Any, Any], bool] | None = None) -> Rule:
    """1 if two texts are the same JSON value, else 0; or the answer of `operator` on the values."""

    def rule(prediction: str, reference: str) -> Found:
        value, expected = as_json("prediction", prediction), as_json("reference", reference)
        if operator is None:
            return {"score": agreement(value, expected) == 1}
        return {"score": operator(value, expected)}

    return rule


def json_edit_distance(*, canonicalize: Callable[[Any], Any] | None = None) -> Rule:
    """The Damerau-Levenshtein distance from 0 to 1 of two JSON values, written with sorted keys."""
    measure = string_distance(distance="damerau_levenshtein")

    def plain(name: str, text: str) -> str:
        value = as_json(name, text)
        if canonicalize is not None:
            return str(canonicalize(value))
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    return lambda prediction, reference: measure(
        plain("prediction", prediction), plain("reference", reference)
    )


RULES: Mapping[str, Callable[..., Rule]] = {
    "exact_match": exact_match,
    "regex_match": regex_match,
    "string_distance": string_distance,
    "pairwise_string_distance": string_distance,
    "json_validity": json_validity,
    "json_equality": json_equality,
    "json_edit_distance": json_edit_distance,
}
PAIRWISE = ("pairwise_string", "labeled_pairwise_string")


def evaluator_of(
    kind: str, llm: Any, criteria: GivenCriteria | None, settings: Mapping[str, Any]
) -> CodeEvaluator | PairwiseEvaluator:
    """The evaluator of a kind that needs no criteria.

    Raises TypeError for a setting that it does not have, InputError for a value that is none.
    """
    if kind in PAIRWISE:
        check_names(f"the evaluator {kind!r} has no setting", settings, ["llm", "criteria"])
        labelled = kind == "labeled_pairwise_string"
        evaluator = PairwiseEvaluator(criteria or _PREFERRED, llm, labelled, evaluation_name=kind)
        evaluator.metric()  # says what is wrong with the criteria
        return evaluator
    rule = RULES[kind]
    arguments = settings if criteria is None else {**settings, "criteria": criteria}
    check_names(
        f"the evaluator {kind!r} has no setting", arguments, [*inspect.signature(rule).parameters]
    )
    return CodeEvaluator(kind, rule(**settings), requires_reference=kind != "json_validity")
