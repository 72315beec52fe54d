"""Arena G-Eval: which of several contestants did better, by evaluation steps.

The contestants are masked and shown in every rotation, so that each of them is once in every place:
judges prefer a place. The rule for two orders is that of Zheng et al. (2023, "Judging
LLM-as-a-Judge with MT-Bench and Chatbot Arena", https://arxiv.org/abs/2306.05685): a win counts if
both agree, anything else is a tie.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast

from pydantic import BaseModel, ConfigDict

from dagengine.errors import InputError, MissingFieldError
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.node_values import Ask, Given, NodeValue, QuestionCount
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.g_eval_prompts import (
    GEvalTemplate,
    StepwiseMetric,
    given_steps,
    one_message,
    step_list,
    without_backticks,
)
from dagengine.prompts.answer_types import judgement_type
from dagengine.prompts.evidence import Evidence, canonical_place, evidence_of, fence
from dagengine.prompts.instructions import in_one_text, messages_for
from dagengine.question import Decision, Option, Question
from dagengine.results import MetricResult
from dagengine.test_case import LLMTestCase, LLMTestCaseParams, read_field

if TYPE_CHECKING:
    from dagengine.execution.cases_and_rows import Source
    from dagengine.execution.local_executor import Settings

TIE = "tie"
_CONTESTANTS = "contestants"
_WINNER = "winner"
# Shown once when all contestants have the same; what a contestant made is always its own.
_SHARED = frozenset({"input", "expected_output", "context", "expected_tools"})
_LABEL = re.compile(r"\bcontestant[ _]?(\d{1,9})\b", re.IGNORECASE)

_COMPARE = (
    "Compare {count} contestants, called {labels}, who had the same task, and say which of "
    "them did best by the evaluation steps below, using only the material. Labels and order "
    "were drawn by lot and say nothing about anybody. Take the steps in their order, each for "
    "all contestants. First give your reason: the differences that decided, naming contestants "
    'by their full labels. Then give your verdict: the label of the best, or "tie" if the steps '
    "show no difference that matters.\n\nEvaluation steps:\n{evaluation_steps}"
)
_DECIDE = (
    "Which contestant did best, by all of these evaluation steps together? Labels and order were "
    'drawn by lot and say nothing about anybody; "tie" if the steps show no difference that '
    "matters.\n{evaluation_steps}"
)


def mask(index: int) -> str:
    """The label of the contestant at an index of the order, for the judge."""
    return f"Contestant {index + 1}"


def arena_instructions(evaluation_steps: str, count: int) -> str:
    """The step of a comparison of `count` contestants."""
    labels = ", ".join(mask(index) for index in range(count))
    return _COMPARE.format(count=count, labels=labels, evaluation_steps=evaluation_steps)


class ArenaGEvalTemplate(GEvalTemplate):
    """The prompts of `ArenaGEval`; override a method to replace one."""

    work: ClassVar[str] = "several contestants against each other, to name the best or a tie"

    @classmethod
    def generate_arena_winner(
        cls, evaluation_steps: str, test_case_contents: str, parameters: str, count: int
    ) -> str:
        """Asks for `{"reason", "verdict"}`: "Contestant 1", "Contestant 2", … or "tie"."""
        return in_one_text(test_case_contents, arena_instructions(evaluation_steps, count))


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class OrderVote(_Value):
    """What the judge said of one order of the contestants; no winner is a tie."""

    order: list[str]
    winner: str | None = None
    reason: str


class ArenaOutcome(_Value):
    """How a contest ended; no winner is a tie.

    `votes` are the orders won by each contestant, `ties` those won by none. `margins` say by what
    share of the orders each is ahead of (or behind) the best of the others.
    """

    winner: str | None = None
    votes: dict[str, int]
    ties: int
    margins: dict[str, float]
    ballots: list[OrderVote]

    @property
    def score(self) -> float:
        """The share of the orders that the winner won, 0 for a tie."""
        return 0.0 if self.winner is None else self.votes[self.winner] / len(self.ballots)


def line_up(contestants: Mapping[str, LLMTestCase], fields: Sequence[str], seed: int) -> list[str]:
    """The contestants' names in an order drawn by lot from `seed` and what they wrote.

    The order depends neither on the names nor on the order in which they were given. Raises
    InputError for fewer than two contestants, MissingFieldError when one of them lacks a field.
    """
    if len(contestants) < 2:
        raise InputError(f"an arena needs at least two contestants, not {len(contestants)}")
    for name, case in contestants.items():
        absent = [f"`{field}`" for field in fields if read_field(case, field) is None]
        if absent:
            raise MissingFieldError(
                f"the contestant {name!r} has no {', '.join(absent)}, which this metric reads; "
                "add it to the contestant's test case"
            )

    def lot(name: str) -> tuple[str, str]:
        # By content: whoever renames the contestants, or lists them in another order, gets the same
        # line-up.
        content = f"{seed} {contestants[name].content_hash()}"
        return hashlib.sha256(content.encode()).hexdigest(), name

    return sorted(contestants, key=lot)


def rotations(order: Sequence[Any]) -> list[list[Any]]:
    """Every rotation of an order: each contestant stands once in every place."""
    return [[*order[start:], *order[:start]] for start in range(len(order))]


def masked_evidence(cases: Sequence[LLMTestCase], fields: Sequence[str]) -> list[Evidence]:
    """The contestants' material under neutral labels, in the order of `cases`."""
    pieces: list[Evidence] = []
    own: list[str] = []
    for field in sorted(fields, key=canonical_place):
        values = [read_field(case, field) for case in cases]
        if field in _SHARED and all(value == values[0] for value in values):
            pieces += evidence_of(field, values[0])
        else:
            own.append(field)
    for index, case in enumerate(cases):
        for field in own:
            pieces += evidence_of(f"{mask(index)} {field}", read_field(case, field))
    return pieces


def retold(reason: str, order: Sequence[str]) -> str:
    """A reason with the contestants' names in place of their labels."""

    def name(found: re.Match[str]) -> str:
        index = int(found[1]) - 1
        return order[index] if 0 <= index < len(order) else found[0]

    return _LABEL.sub(name, reason)


class BallotsNode(AskingNode):
    """One question per rotation of the contestants, all at once."""

    kind = "comparison"

    def __init__(self, metric: ArenaGEval, inputs: Iterable[BaseNode]) -> None:
        super().__init__(
            name="comparison", output_label="ballots", evaluation_params=[_CONTESTANTS],
            inputs=inputs,
        )  # fmt: skip
        self._words = without_backticks(metric.text)
        self._steps = metric.steps
        self._fields = metric.evaluation_params
        self._parameters = metric.parameters
        self._own = metric.own_prompt("generate_arena_winner")

    @property
    def text(self) -> str:
        return self._words

    @property
    def writes(self) -> bool:
        return False

    @property
    def prompted(self) -> bool:
        return self._own is not None

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        return QuestionCount.exactly(len(known[_CONTESTANTS]))

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        contestants, inputs = dict(given.fields)[_CONTESTANTS], dict(given.inputs)
        steps = step_list(given_steps(given, self._steps))
        names: list[str] = inputs["line-up"]
        # Judges favour a place in the list. Every contestant stands in every place once: a
        # judge that goes by the place alone gives each of them one vote, which is a tie.
        line_ups = rotations(list(map(contestants.__getitem__, names)))
        answers = await ask.each(self._comparison(steps, cases) for cases in line_ups)
        ballots = []
        for order, answer in zip(rotations(names), answers, strict=True):
            choice = cast(Any, answer.value)
            # The verdict `tie` is no mask: such a ballot has no winner.
            labels = {mask(index): name for index, name in enumerate(order)}
            winner, reason = labels.get(choice.verdict), retold(choice.reason, order)
            ballots.append(OrderVote(order=order, winner=winner, reason=reason))
        return NodeValue(ballots)

    def _comparison(self, steps: str, cases: Sequence[LLMTestCase]) -> Question[BaseModel]:
        evidence, count = masked_evidence(cases, self._fields), len(cases)
        verdicts = (*map(mask, range(count)), TIE)
        if self._own is None:
            messages = messages_for(arena_instructions(steps, count), evidence)
        else:
            prompt = self._own(
                evaluation_steps=steps,
                test_case_contents=fence(evidence),
                parameters=self._parameters,
                count=count,
            )
            messages = one_message(prompt)
        # Names may say who is who: the masked material is in the place of the case.
        decision = Decision(
            "choice", _DECIDE.format(evaluation_steps=steps), tuple(map(Option, verdicts)),
            text=fence(evidence),
        )  # fmt: skip
        return self.put(messages, judgement_type(verdicts), decision)


def outcome_of(names: Sequence[str], ballots: Sequence[OrderVote]) -> ArenaOutcome:
    """Count ballots: a contestant with more than half of them wins, otherwise it is a tie."""
    count = len(ballots)
    wins = Counter(ballot.winner for ballot in ballots)
    votes = {name: wins[name] for name in names}
    winner = next((name for name in names if 2 * votes[name] > count), None)
    margins: dict[str, float] = {}
    for name in names:
        best_rival = max(votes[rival] for rival in names if rival != name)
        margins[name] = (votes[name] - best_rival) / count
    ties = count - sum(votes.values())
    return ArenaOutcome(
        winner=winner, votes=votes, ties=ties, margins=margins, ballots=list(ballots)
    )


def told(outcome: ArenaOutcome) -> str:
    """An outcome in words, with the contestants' names."""
    count = len(outcome.ballots)
    votes = ", ".join(f"{name} {number}" for name, number in outcome.votes.items())
    if outcome.winner is None:
        head = (
            f"Tie: nobody wins more than half of the {count} orders ({votes}, tie {outcome.ties})."
        )
    else:
        won, ahead = outcome.votes[outcome.winner], outcome.margins[outcome.winner]
        head = (
            f"{outcome.winner} wins {won} of {count} orders ({votes}, tie {outcome.ties}), a "
            f"margin of {ahead:.4g}."
        )
    lines = [head]
    for ballot in outcome.ballots:
        order = ", ".join(ballot.order)
        lines.append(f"In the order {order}: {ballot.winner or TIE}. {ballot.reason}")
    return "\n".join(lines)


class ArenaGEval(StepwiseMetric):
    """Which contestant of an `ArenaTestCase` did best, or a tie.

    `criteria` or `evaluation_steps`, and `evaluation_params` (fields of the contestants' test
    cases), are as for `GEval`. The judge sees only the names Contestant 1, 2, …. It is asked once
    per rotation of a random order (from `seed`), in parallel: both orders of two contestants. A
    contestant that wins more than half of the rotations is the winner; otherwise it is a tie.
    Score: the share of the rotations that the winner won, 0 for a tie; there is no threshold.

    `winner` (None for a tie) and `outcome` are those of the last `measure`. The results of a run
    have the same as JSON in the output of the step `winner` (see `outcome_in`).
    """

    template = ArenaGEvalTemplate

    def __init__(
        self,
        name: str,
        criteria: str | None = None,
        evaluation_steps: Sequence[str] | None = None,
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        model: Any = None,
        async_mode: bool = True,
        verbose_mode: bool = False,
        evaluation_template: type[Any] | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(
            name,
            criteria,
            evaluation_steps,
            evaluation_params,
            model=model,
            async_mode=async_mode,
            verbose_mode=verbose_mode,
            evaluation_template=evaluation_template,
        )
        self.seed = seed
        fields = set(LLMTestCase.model_fields)
        unknown = [f for f in self.evaluation_params if f.partition(".")[0] not in fields]
        if unknown:
            raise InputError(f"{name}: contestants have no field {', '.join(unknown)}")
        if not set(self.evaluation_params) - {"input"}:
            raise InputError(
                f"{name}: evaluation_params must name what the contestants differ in, for "
                "instance ['input', 'actual_output']"
            )

    def spec(self) -> MetricSpec:
        judged = ((_CONTESTANTS,),) if "actual_output" in self.evaluation_params else ()
        return replace(super().spec(), judged=judged)

    def graph(self) -> Graph:
        fields, seed = self.evaluation_params, self.seed

        def draw(contestants: dict[str, LLMTestCase]) -> list[str]:
            return line_up(contestants, fields, seed)

        def count(contestants: dict[str, LLMTestCase], ballots: list[OrderVote]) -> NodeValue:
            outcome = outcome_of(list(contestants), ballots)
            return NodeValue(outcome, reason=told(outcome), score=outcome.score)

        order = CodeNode(
            draw, evaluation_params=[_CONTESTANTS], name=_CONTESTANTS, output_label="line-up"
        )
        ballots = BallotsNode(self, [order, *self.steps_nodes()])
        winner = CodeNode(count, inputs=[ballots], evaluation_params=[_CONTESTANTS], name=_WINNER)
        return Graph(winner)

    @property
    def outcome(self) -> ArenaOutcome | None:
        """The outcome of the last `measure`."""
        return None if self.result is None else outcome_in(self.result)

    @property
    def winner(self) -> str | None:
        """The winner of the last `measure`; None for a tie, and before the first."""
        return None if self.outcome is None else self.outcome.winner


def compare(
    test_cases: Source,
    metric: ArenaGEval,
    name: str | None = None,
    *,
    show: bool = True,
    **settings: Unpack[Settings],
) -> dict[str, int]:
    """Count how many arena cases each contestant wins, the most first; ties count as "tie".

    A case without an outcome is not counted. `name` is the identifier of the run. `settings` and
    errors are those of `evaluate`, which also gives rows with reasons and margins.
    """
    from dagengine.evaluation import evaluate  # whoever only builds metrics needs no engine

    labels: Any = {} if name is None else {"identifier": name}
    rows = evaluate(test_cases, [metric], show=show, **settings, **labels)
    outcomes = [outcome_in(row.metrics[0]) for row in rows]
    return dict(
        Counter(outcome.winner or TIE for outcome in outcomes if outcome is not None).most_common()
    )


def outcome_in(result: MetricResult) -> ArenaOutcome | None:
    """The outcome that a result of `ArenaGEval` holds; None when it ended without one."""
    for step in result.steps:
        if step.node.rpartition(" > ")[2] == _WINNER and step.output is not None:
            return ArenaOutcome.model_validate(step.output)
    return None
