"""Retrieval in conversations: metrics of single answers, for every reply that has contexts."""

from __future__ import annotations

import itertools
import math
import types
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, Unpack, cast

from pydantic import BaseModel

from dagengine.errors import NotApplicableError
from dagengine.graph.graph import Graph, is_blank
from dagengine.graph.list_nodes import mean_mass
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.node_values import Ask, Given, NodeValue, QuestionCount
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.prebuilt import MetricSettings, PrebuiltMetric
from dagengine.metrics.common.turns import WindowedMetric, given_replies
from dagengine.metrics.contextual_precision import (
    ContextualPrecisionMetric,
    ContextualPrecisionTemplate,
)
from dagengine.metrics.contextual_recall import ContextualRecallMetric, ContextualRecallTemplate
from dagengine.metrics.contextual_relevancy import (
    ContextualRelevancyMetric,
    ContextualRelevancyTemplate,
)
from dagengine.metrics.faithfulness import FaithfulnessMetric, FaithfulnessTemplate
from dagengine.prompts.evidence import as_text, turn_names
from dagengine.question import Answer, Question
from dagengine.system.terminal_text import counted
from dagengine.test_case import LLMTestCase, Turn, read_field

T = TypeVar("T", bound=BaseModel)
Questions = list[Question[Any]]
Answers = list[Answer[Any]]

REPLIES = "replies with context"


def replies_with_context(size: int, *, of_window: bool, outcome: bool) -> CodeNode:
    """Each reply that has retrieved contexts, as a case of its own with the turns before it.

    A window ends with the reply and has at most `size` turns; its other turns are the `input`. The
    contexts are those of the whole window (`of_window`), or of what came after the reply before.
    With `outcome` the expected outcome of the conversation is what is expected of each reply.
    """

    def cases_of(turns: list[Turn], expected: str | None = None) -> NodeValue:
        names, places = turn_names(turns), given_replies(turns)
        cases: list[LLMTestCase] = []
        last = -1  # the place of the reply before
        for end in places:
            start = max(0, end + 1 - size)
            # What was retrieved for some turns, each text once
            shown = turns[start if of_window else max(start, last + 1) : end + 1]
            texts = [text for turn in shown for text in turn.retrieval_context or ()]
            contexts = [text for text in dict.fromkeys(texts) if not is_blank(text)]
            last = end
            if contexts and not is_blank(turns[end]):
                cases.append(
                    LLMTestCase(
                        name=names[end],
                        input=as_text(turns[start:end]),
                        actual_output=turns[end].content,
                        expected_output=expected,
                        retrieval_context=contexts,
                    )
                )
        if not cases:
            raise NotApplicableError(
                "nothing to judge: no assistant turn with text has a `retrieval_context`"
            )
        left_out = len(places) - len(cases)
        reason = f"{counted(left_out, 'assistant turn')} without text or context: not judged."
        return NodeValue(cases, reason=reason if left_out else None)

    fields = ["turns", "expected_outcome"] if outcome else ["turns"]
    return CodeNode(cases_of, evaluation_params=fields, output_label=REPLIES)


def mean_of_each(score: CodeNode, cases: CodeNode) -> CodeNode:
    """The mean score of all `cases`, where `score` is the last node of the graph for one case."""
    copies: dict[BaseNode, BaseNode] = {}
    inputs = [_for_each(node, cases, copies) for node in score.inputs]

    def mean(shown: list[LLMTestCase], *lists: list[Any]) -> NodeValue:
        rows = zip(shown, *lists, strict=True)
        values = [score.function(*_fields(score, case), *row) for case, *row in rows]
        scores = [value.score or 0.0 for value in values]
        result = math.fsum(scores) / len(scores)
        terms = " + ".join(f"{number:.4g}" for number in scores)
        lead = f"The mean of {counted(len(scores), 'assistant turn')} with context"
        parts = [f"{lead}: ({terms}) / {len(scores)} = {result:.4g}."]
        pairs = zip(shown, values, strict=True)
        parts += [f"{case.name}: {value.reason}" for case, value in pairs if value.score != 1]
        return NodeValue(result, score=result, reason="\n".join(parts))

    return CodeNode(mean, inputs=[cases, *inputs], name="score")


def _for_each(node: BaseNode, cases: BaseNode, copies: dict[BaseNode, BaseNode]) -> BaseNode:
    """A node that does for every case what `node` does for one."""
    if node not in copies:
        inputs = [_for_each(source, cases, copies) for source in node.inputs]
        if isinstance(node, CodeNode):
            copies[node] = _code_for_each(node, cases, inputs)
        else:
            copies[node] = EachTurnNode(cast(AskingNode, node), cases, inputs)
    return copies[node]


def _code_for_each(node: CodeNode, cases: BaseNode, inputs: Sequence[BaseNode]) -> CodeNode:
    def of_each(*lists: list[Any]) -> list[Any]:
        rows: Iterable[tuple[Any, ...]] = zip(*lists, strict=True)
        if node.evaluation_params:
            rows = ((*_fields(node, case), *rest) for case, *rest in rows)
        values = [node.function(*row) for row in rows]
        return [value.value if isinstance(value, NodeValue) else value for value in values]

    of_each.__name__ = node.text  # as pictures show it
    sources = [cases, *inputs] if node.evaluation_params else inputs
    return CodeNode(of_each, inputs=sources, name=node.name, output_label=node.output_label)


def _fields(node: BaseNode, case: LLMTestCase) -> list[Any]:
    """The fields of one case that a node reads."""
    return [read_field(case, path) for path in node.evaluation_params]


class EachTurnNode(AskingNode):
    """Asks for every case of a list what another node asks for one; readers see a list.

    What the node asks of all cases in one step is asked at the same time.
    """

    kind = "each turn"

    def __init__(self, node: AskingNode, cases: BaseNode, inputs: Iterable[BaseNode]) -> None:
        super().__init__(
            name=node.name,
            output_label=node.output_label,
            inputs=[cases, *inputs],
            options=node.options,
        )
        self.node = node

    @property
    def text(self) -> str:
        return self.node.text

    @property
    def writes(self) -> bool:
        return self.node.writes

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        if REPLIES not in known:
            return QuestionCount(0, items, None)
        counts = [self.node.questions(dict(self._read(case)), items) for case in known[REPLIES]]
        most = [count.most for count in counts if count.most is not None]
        return QuestionCount(
            sum(count.least for count in counts),
            sum(count.likely for count in counts),
            sum(most) if len(most) == len(counts) else None,
            max((count.in_a_row for count in counts), default=0),
        )

    def _read(self, case: LLMTestCase) -> tuple[tuple[str, Any], ...]:
        paths = self.node.evaluation_params
        return tuple(zip(paths, _fields(self.node, case), strict=True))

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        (_, cases), *inputs = given.inputs
        works: list[Coroutine[Any, Any, NodeValue]] = []
        for index, case in enumerate(cases):
            case_inputs = tuple((label, values[index]) for label, values in inputs)
            # The state of a decision stays the conversation; what is read stands beside it.
            of_turn = Given(self._read(case), case_inputs, given.case)
            works.append(self.node.work(of_turn, _Relay(ask.decides)))
        values = await _in_step(works, ask)
        return NodeValue([value.value for value in values], mass=mean_mass(values))


class _Relay:
    """What a node asks with for one case: it hands questions out to `_in_step`."""

    def __init__(self, decides: bool) -> None:
        self.decides = decides

    async def __call__(self, question: Question[T]) -> Answer[T]:
        (answer,) = await _hand_out([question])
        return answer

    async def each(self, questions: Iterable[Question[T]]) -> list[Answer[T]]:
        return await _hand_out(list(questions))


# A `yield` in a coroutine of this kind reaches whoever sends into the work: `_in_step`, and no
# event loop.
@types.coroutine
def _hand_out(questions: Questions) -> Generator[Questions, Answers, Answers]:
    return (yield questions)


async def _in_step(works: Sequence[Coroutine[Any, Any, NodeValue]], ask: Ask) -> list[NodeValue]:
    """Run all works; their next questions are asked together, again and again."""
    values: dict[int, NodeValue] = {}
    answers: dict[int, Answers | None] = dict.fromkeys(range(len(works)))
    try:
        # Every work runs until it asks. What all of them ask then is one batch, so the judge gets
        # it in parallel. A work that has ended is in `answers` no more.
        while answers:
            batches: dict[int, Questions] = {}
            for index, replies in answers.items():
                try:
                    batches[index] = works[index].send(replies)
                except StopIteration as done:
                    values[index] = done.value
            coming = iter(await ask.each(itertools.chain.from_iterable(batches.values())))
            answers = {}
            for index, questions in batches.items():
                answers[index] = list(itertools.islice(coming, len(questions)))
    finally:
        # If one failed, the others end here: one that never began would warn that nobody awaited
        # it.
        for work in works:
            work.close()
    return [values[index] for index in range(len(works))]


TurnFaithfulnessTemplate = FaithfulnessTemplate
TurnContextualPrecisionTemplate = ContextualPrecisionTemplate
TurnContextualRecallTemplate = ContextualRecallTemplate
TurnContextualRelevancyTemplate = ContextualRelevancyTemplate


class _TurnMetric(WindowedMetric):
    """The mean of a metric of single answers over the replies that have contexts."""

    single: ClassVar[type[PrebuiltMetric]]
    of_window: ClassVar[bool] = False
    outcome: ClassVar[bool] = False

    def _single(self, **settings: Any) -> PrebuiltMetric:
        """The metric of single answers; `settings` are those that it shares with this one."""
        return self.single(**settings)

    def graph(self) -> Graph:
        metric = self._single(
            evaluation_template=self.evaluation_template, verdicts_per_call=self.verdicts_per_call
        )
        cases = replies_with_context(
            self.window_size, of_window=self.of_window, outcome=self.outcome
        )
        return Graph(mean_of_each(cast(CodeNode, metric.graph().root_nodes[0]), cases))


class TurnFaithfulnessMetric(_TurnMetric):
    """The faithfulness of the replies of a conversation to what was retrieved, on average.

    A reply is judged as by `FaithfulnessMetric`, which has the other two settings, by the contexts
    of a window: at most `window_size` turns, the last of which is the reply (InputError below 2).
    Reads `turns`; 3 calls per reply that has contexts, all replies in parallel. Score: the mean of
    their scores, from 0 to 1; a conversation without such a reply has no score.
    """

    title = "Turn Faithfulness"
    of_window = True

    def __init__(
        self,
        *common: Any,
        truths_extraction_limit: int | None = None,
        penalize_ambiguous_claims: bool = False,
        window_size: int = 10,
        **settings: Unpack[MetricSettings],
    ) -> None:
        super().__init__(*common, window_size=window_size, **settings)
        self.truths_extraction_limit = truths_extraction_limit
        self.penalize_ambiguous_claims = penalize_ambiguous_claims
        self._single()  # says what is wrong with the settings

    def _single(self, **settings: Any) -> PrebuiltMetric:
        return FaithfulnessMetric(
            truths_extraction_limit=self.truths_extraction_limit,
            penalize_ambiguous_claims=self.penalize_ambiguous_claims,
            **settings,
        )


class TurnContextualPrecisionMetric(_TurnMetric):
    """How high the contexts are ranked that help towards the expected outcome, on average.

    A reply is judged as by `ContextualPrecisionMetric`, by what was retrieved for it: its contexts
    and those of the user's turns right before it, in this order of turns. The judge sees at most
    `window_size` turns, the last of which is the reply (InputError below 2). Reads `turns` and
    `expected_outcome`; 1 call per reply that has contexts, all in parallel. Score: the mean of
    their scores, from 0 to 1; a conversation without such a reply has no score.
    """

    title, single = "Turn Contextual Precision", ContextualPrecisionMetric
    outcome = True


class TurnContextualRecallMetric(_TurnMetric):
    """The share of the expected outcome that retrieved contexts bear out, on average.

    A reply is judged as by `ContextualRecallMetric`, by what was retrieved for it: its contexts and
    those of the user's turns right before it. The judge sees at most `window_size` turns, the last
    of which is the reply (InputError below 2). Reads `turns` and `expected_outcome`; 1 call per
    reply that has contexts, all in parallel. Score: the mean of their scores, from 0 to 1; a
    conversation without such a reply has no score.
    """

    title, single = "Turn Contextual Recall", ContextualRecallMetric
    judged = (("turns",), ("expected_outcome",))
    outcome = True


class TurnContextualRelevancyMetric(_TurnMetric):
    """The share of the retrieved contexts that is about what the user wants, on average.

    A reply is judged as by `ContextualRelevancyMetric`, by what was retrieved for it: its contexts
    and those of the user's turns right before it. The judge sees at most `window_size` turns, the
    last of which is the reply (InputError below 2). Reads `turns`; 1 call per context, all in
    parallel. Score: the mean over the replies that have contexts, from 0 to 1; a conversation
    without such a reply has no score.
    """

    title, single = "Turn Contextual Relevancy", ContextualRelevancyMetric
