"""The words of G-Eval: how a judge is asked for evaluation steps, and for a rating by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from dagengine.metrics.common.rubric import FULL_SCALE
from dagengine.prompts.instructions import in_one_text
from dagengine.unknown import Answering

_WRITE_STEPS = (
    "You write the steps by which somebody else will judge {work}. You see none of it now. "
    "Break the criterion that the user states down into three to six steps. Each step is one "
    "or two plain sentences that say what to look at, what speaks for the work and what "
    "against it. Together the steps cover the whole criterion and nothing beyond it. The judge "
    "will have this material, to be called by these names: {parameters}."
)
_RATE = (
    "Rate {work} by the evaluation steps below, using only the material. Take the steps in "
    "their order and see what each of them finds. First give your reason: in a few sentences, "
    "the findings that decided, and what in the material shows them. Then give your score, {scale}."
)
RATED = "Rate {work} by all of these evaluation steps together:\n{evaluation_steps}"
ALL_MET, NOT_MET = "every step is met completely", "some step is not met completely"
_LISTED = "\n\nEvaluation steps:\n"
_ALL_OR_NOTHING = (
    "which is 1 if every step is met completely and 0 if any of them is not; nothing lies between"
)


def step_list(steps: Iterable[str]) -> str:
    """Evaluation steps as a prompt shows them."""
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


def steps_instructions(work: str, parameters: str) -> str:
    """The system text of the question for evaluation steps."""
    return _WRITE_STEPS.format(work=work, parameters=parameters)


def rating_instructions(
    work: str, evaluation_steps: str, rubric: str | None, score_range: tuple[int, int]
) -> str:
    """The step of a rating."""
    low, high = score_range
    scale = f"a whole number from {low} (worst) to {high} (best)"
    meaning = f"\n\nWhat the scores stand for:\n{rubric}" if rubric else ""
    return f"{_RATE.format(work=work, scale=scale)}{_LISTED}{evaluation_steps}{meaning}"


def strict_instructions(work: str, evaluation_steps: str, best: str | None = None) -> str:
    """The step of a rating in strict mode; `best` says what 1 stands for."""
    meaning = f"\n\n1 stands for: {best}" if best else ""
    return f"{_RATE.format(work=work, scale=_ALL_OR_NOTHING)}{_LISTED}{evaluation_steps}{meaning}"


class GEvalTemplate(Answering):
    """The prompts of `GEval`; override a method to replace one.

    Methods are called by keyword. `test_case_content` is fenced: text of the case cannot
    leave its block.
    """

    work: ClassVar[str] = "a piece of work"

    @classmethod
    def generate_evaluation_steps(cls, criteria: str, parameters: str) -> str:
        """Asks for `{"steps": [...]}`."""
        return f"{steps_instructions(cls.work, parameters)}\n\nCriterion: {criteria}"

    @classmethod
    def generate_evaluation_results(
        cls,
        evaluation_steps: str,
        test_case_content: str,
        parameters: str,
        rubric: str | None = None,
        score_range: tuple[int, int] = FULL_SCALE,
    ) -> str:
        """Asks for `{"reason", "score"}`, the score in the range."""
        text = rating_instructions(cls.work, evaluation_steps, rubric, score_range)
        return in_one_text(test_case_content, text)

    @classmethod
    def generate_strict_evaluation_results(
        cls, evaluation_steps: str, test_case_content: str, parameters: str
    ) -> str:
        """Asks for `{"reason", "score"}` in strict mode: the score is 0 or 1."""
        return in_one_text(test_case_content, strict_instructions(cls.work, evaluation_steps))
