"""A decision judge in this process: what it is asked in one request is one entry of `requests`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio.lowlevel

from dagengine.errors import JudgeError, ProviderError
from dagengine.judges import ScriptedJudge
from dagengine.prompts.decisions import answer_fields, odds_in_words, read_wording, state_text
from dagengine.question import Answer, Capabilities, Packs, Question

Decide = Callable[[Question[Any]], Any]
"""The verdict of a question, or the error that it ends with."""


def first_option(question: Question[Any]) -> Any:
    return next(iter(read_wording(question).meanings))


async def at_once(names: Sequence[str]) -> None:
    await anyio.lowlevel.checkpoint()


class PackingJudge:
    """Decides by a function of the question; `pause` is awaited before a request is answered."""

    shows = "case"
    identity = durable_identity = "packing"

    def __init__(
        self,
        decide: Decide = first_option,
        *,
        packs: Packs | None = Packs(400, 100_000),  # noqa: B008 - a frozen value
        writer: Any = None,
        pause: Callable[[Sequence[str]], Awaitable[None]] = at_once,
    ) -> None:
        self.capabilities = Capabilities(schema=False, text=False, decides=True, packs=packs)
        self.writer = writer or ScriptedJudge(lambda question: "words", name="writer")
        self.requests: list[list[str]] = []
        self.questions: list[Question[Any]] = []
        self.answered: list[list[str]] = []
        self._decide, self._pause = decide, pause

    async def answer(self, question: Question[Any]) -> Answer[Any]:
        (outcome,) = await self.answer_all([question], on_request=lambda: None, ahead=0)
        if isinstance(outcome, JudgeError):
            raise outcome
        return outcome

    async def answer_all(
        self, questions: Sequence[Question[Any]], *, on_request: Callable[[], None], ahead: int
    ) -> list[Answer[Any] | JudgeError]:
        on_request()
        assert len({state_text(question) for question in questions}) == 1
        names = [question.name for question in questions]
        self.requests.append(names)
        self.questions += questions
        await self._pause(names)
        self.answered.append(names)
        outcomes = [self._outcome(question) for question in questions]
        for outcome in outcomes:
            if isinstance(outcome, ProviderError) and outcome.transient:  # a whole request fails
                raise outcome
        return outcomes

    def _outcome(self, question: Question[Any]) -> Answer[Any] | JudgeError:
        value = self._decide(question)
        if isinstance(value, JudgeError):
            return value
        options = read_wording(question).meanings
        odds = tuple((option, float(option == value)) for option in options)
        fields = answer_fields(question.answer_type, value, odds_in_words(odds))
        return Answer(question.answer_type(**fields), str(value), odds=odds)
