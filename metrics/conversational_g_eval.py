"""G-Eval over a conversation: the judge rates all its turns by evaluation steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from dagengine.errors import InputError, MissingFieldError
from dagengine.graph.graph import Graph
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Given
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.g_eval_prompts import GEvalTemplate
from dagengine.metrics.g_eval import RatedMetric, RatingForm, StepRatingNode
from dagengine.prompts.evidence import Evidence, evidence_of, turn_names
from dagengine.test_case import ConversationalTestCase, Turn, read_field

_CONVERSATION = "conversation"
_OF_CASE = frozenset(ConversationalTestCase.model_fields) - {"turns"}
_OF_TURN = frozenset(Turn.model_fields) - _OF_CASE


class ConversationalGEvalTemplate(GEvalTemplate):
    """The prompts of `ConversationalGEval`; override a method to replace one."""

    work: ClassVar[str] = "a conversation between a user and an assistant"


class TurnsRatingNode(StepRatingNode):
    """A rating of a conversation that another node has taken apart.

    `of_case` are the fields beside its turns that are shown.
    """

    def __init__(
        self, form: RatingForm, inputs: Iterable[BaseNode], of_case: Sequence[str] = ()
    ) -> None:
        super().__init__(form, inputs=inputs)
        self.of_case = tuple(of_case)

    def material(self, given: Given) -> list[Evidence]:
        return [Evidence(**piece) for piece in dict(given.inputs)[_CONVERSATION]]

    def fields(self, given: Given) -> tuple[tuple[str, Any], ...]:
        return tuple((name, read_field(given.case, name)) for name in ("turns", *self.of_case))


class ConversationalGEval(RatedMetric):
    """A rating of a whole conversation by any criterion; see `GEval`.

    The judge sees the role and content of every turn. `evaluation_params` adds other fields of the
    turns (`retrieval_context`, `tools_called`) and of the conversation (`scenario`,
    `expected_outcome`, `chatbot_role`, …).
    """

    template = ConversationalGEvalTemplate
    judged = (("turns",),)

    def fields_read(self, named: tuple[str, ...]) -> tuple[str, ...]:
        fields = tuple(dict.fromkeys(("role", "content", *named)))
        unknown = set(fields) - _OF_CASE - _OF_TURN
        if unknown:
            raise InputError(
                f"{self.name}: nothing is called {', '.join(sorted(unknown))}; turns have "
                f"{', '.join(sorted(_OF_TURN))}, conversations {', '.join(sorted(_OF_CASE))}"
            )
        return fields

    def graph(self) -> Graph:
        of_turn = [field for field in self.evaluation_params if field in _OF_TURN]
        of_case = [field for field in self.evaluation_params if field in _OF_CASE]

        def taken_apart(turns: list[Turn], *values: Any) -> list[dict[str, str]]:
            around = [
                piece
                for field, value in zip(of_case, values, strict=True)
                for piece in evidence_of(field, value)
            ]
            pieces = [*turn_evidence(turns, of_turn), *around]
            return [{"label": piece.label, "text": piece.text} for piece in pieces]

        conversation = CodeNode(
            taken_apart,
            evaluation_params=["turns", *of_case],
            name=_CONVERSATION,
            output_label=_CONVERSATION,
        )
        inputs = [conversation, *self.steps_nodes()]
        return Graph(TurnsRatingNode(self.form(), inputs, of_case))


def turn_evidence(turns: Sequence[Turn], fields: Sequence[str]) -> list[Evidence]:
    """Every turn as separate evidence blocks, under the same names as in other metrics.

    Raises MissingFieldError when no turn has one of the fields.
    """
    for field in fields:
        if all(getattr(turn, field) is None for turn in turns):
            raise MissingFieldError(
                f"no turn of the conversation has `{field}`, which this metric reads; add it to "
                "the test case"
            )
    pieces: list[Evidence] = []
    for name, turn in zip(turn_names(turns), turns, strict=True):
        for field in fields:
            value = getattr(turn, field)
            if field == "content":
                pieces.append(Evidence(name, turn.content))
            # The role is in the name of a turn.
            elif field != "role" and value is not None:
                pieces += evidence_of(f"{name}, {field}", value)
    return pieces
