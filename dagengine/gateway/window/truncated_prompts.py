"""No answer to a part of a prompt: what a server counted is held against the prompt, and proved.

A server that cuts prompts counts what is left and says nothing. Where a count is suspicious, the
server is asked: for the exact count if it can give one, else for one token to the same prompt with
known words before it. A server that counts honestly counts them, too; one that cuts does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import anyio
from pydantic import BaseModel

from dagengine.errors import JudgeError, TooLongError, TruncatedError
from dagengine.gateway.window.suspicious_counts import PromptCounts
from dagengine.prompts.lengths.context_overflow import Overflow, cut, too_long
from dagengine.prompts.lengths.token_counts import Size, least_tokens, size_of
from dagengine.question import (
    NO_FACTS,
    FirstMatch,
    Judge,
    Message,
    Question,
    ServerFacts,
    Usage,
    facts_of,
)

Messages = tuple[Message, ...]
Count = Callable[[Question[Any], Messages], Awaitable[int]]
"""Asks for one token, and gives how many the server counted for the messages (0: it is silent)."""

_WORDS: Final = "one two three four five six seven eight nine ten "
_FEWEST: Final = 64  # words that are put before a prompt
_TINY: Final[Messages] = ({"role": "user", "content": "Hi"},)
_EFFICIENT: Final = 0.5  # of the tokens of the most efficient tokenizers: nobody needs fewer
_EXACT: Final = 0.95  # of an exact count; words at the seams may differ
_TEMPLATE: Final = 8
_GROWS: Final = 0.6  # of the words put before it, by which an honest count grows
_CACHED: Final = 2.0  # times these words, by which only a count without the cache grows
_CONSTANT: Final = 0.8  # of a count, for one word: it is none
_HALVES: Final = 0.85  # of the tokens of both halves


_ANY: Final = FirstMatch((("(?s)(.*)", None),), field="text")


class _AnyText(BaseModel):
    text: str = ""


class WholePrompts:
    """Sees to it that one judge's server reads prompts whole."""

    def __init__(self, judge: Judge, count: Count) -> None:
        self._judge, self._count = judge, count
        self._counts = PromptCounts()
        self._facts: ServerFacts | None = None
        self._confirmed: ServerFacts | None = None
        self._turn = anyio.Lock()

    async def require_fit(self, question: Question[Any]) -> None:
        """Raise TooLongError before a call for a prompt that cannot fit, whatever the tokenizer."""
        facts = self._facts
        is_current = getattr(self._judge, "knows_server", facts is not NO_FACTS)
        if facts is None or not is_current:
            facts = await self._hear()
        if facts.window is None:
            return
        if sum(len(message["content"]) for message in question.messages) < facts.window:
            return
        least = least_tokens(question.messages)
        if least > facts.window:
            facts = await self._hear_again()
        if facts.window is not None and least > facts.window:
            estimate = max(least, self._counts.tokens_needed(size_of(question.messages)))
            raise TooLongError(
                too_long(question.messages, Overflow(estimate, facts.window), facts),
                needed=estimate,
                window=facts.window,
            )

    async def require_whole(self, question: Question[Any], usage: Usage) -> None:
        """Raise TruncatedError if what a server counted for an answer is not the whole prompt."""
        tokens = usage.input_tokens
        if not tokens:
            return
        facts, size, counts = self._facts or NO_FACTS, size_of(question.messages), self._counts
        if facts.window is not None and tokens + usage.output_tokens > facts.window + 2:
            facts = await self._hear_again()
            if facts.window is not None and tokens + usage.output_tokens > facts.window + 2:
                raise self._cut_error(question, usage, max(tokens, counts.tokens_needed(size)))
        if not counts.is_cut(size, tokens) and not counts.is_suspicious(size, tokens):
            counts.accept(size, tokens)
            return
        async with self._turn:  # what others found out meanwhile holds
            if counts.is_cut(size, tokens):
                raise self._cut_error(question, usage, counts.tokens_needed(size))
            if not counts.is_suspicious(size, tokens):
                counts.accept(size, tokens)
                return
            estimate = await self._look_into(question, size, tokens)
        if estimate is not None:
            raise self._cut_error(question, usage, max(estimate, tokens + 1))

    def explain(self, question: Question[Any], error: TooLongError) -> TooLongError:
        """A server's refusal in our words, with the field and the remedy."""
        facts = self._facts or NO_FACTS
        if error.window and facts.window and error.window != facts.window:
            self._forget()
        return explain_overflow(question, error, facts)

    async def _hear(self) -> ServerFacts:
        """The facts of the server; a judge whose server was not ready asks it again."""
        facts = self._facts = await facts_of(self._judge)
        self._counts.window = facts.window
        sizes = getattr(self._judge, "sizes_window", False)
        self._counts.refuses = sizes and facts.server == "Ollama"
        return facts

    async def _hear_again(self) -> ServerFacts:
        """The facts after a prompt that contradicts them: those that were not asked again yet."""
        if self._facts != self._confirmed:
            self._forget()
            self._confirmed = await self._hear()
        return self._facts or NO_FACTS

    def _forget(self) -> None:
        forget = getattr(self._judge, "forget_facts", None)
        if forget is not None:
            forget()

    def _cut_error(self, question: Question[Any], usage: Usage, needed: int) -> TruncatedError:
        message = cut(question.messages, needed, usage.input_tokens, self._facts or NO_FACTS)
        return TruncatedError(message, (usage.input_tokens, usage.output_tokens))

    async def _look_into(self, question: Question[Any], size: Size, read: int) -> int | None:
        """Approximate tokens of a cut prompt, or None if it was read whole."""
        proved, estimate = read, None
        try:
            count = getattr(self._judge, "count_tokens", None)
            exact: int | None = None if count is None else await count(question.messages)
            if exact is None:
                proved, estimate = await self._by_more_words(question, size, read)
            elif read < _EXACT * exact - _TEMPLATE:
                estimate = exact
        except TooLongError:  # a server that says when a prompt is too long cuts none
            pass
        except JudgeError:
            return self._if_few(size, read)
        if estimate is None:
            self._counts.accept(size, read, proved)
        return estimate

    def _if_few(self, size: Size, read: int) -> int | None:
        """The tokens that are known to be missing without the server: nobody counts so few."""
        return self._counts.tokens_needed(size) if read < _EFFICIENT * size.tokens else None

    async def _by_more_words(
        self, question: Question[Any], size: Size, read: int
    ) -> tuple[int, int | None]:
        """The tokens that are proved to be read, and approximate tokens of a cut prompt."""
        # The same prompt with as many known words before it as were counted:
        #
        #     count grows by        0              it cuts there, or says the same for everything
        #                           about `words`  it has read them, and so the prompt
        #                           far more       the first count left out what was in its cache
        #                           some of them   it cut the longer prompt only, or this one, too
        words = max(_FEWEST, read)
        # The prompt with known words before it: no cache of its beginning serves it, either
        opening = question.messages[0]
        filler = _WORDS * (words // 10 + 1)
        changed: Any = {**opening, "content": f"{filler}\n\n{opening['content']}"}
        longer = await self._count(question, (changed, *question.messages[1:]))
        if not longer:
            return 0, self._if_few(size, read)
        growth = longer - read
        if abs(growth) <= 1:
            if await self._count(question, _TINY) >= _CONSTANT * read:
                self._counts.mute = True
                return 0, None
            self._counts.limit = read
            return 0, self._counts.tokens_needed(size)
        if growth > _CACHED * words:  # the count before left out what the server had in its cache
            return read, None
        if growth >= _GROWS * words and not self._counts.is_few(size, read):
            return longer - 1, None  # it may be the limit itself
        # Whether two halves of the longest message have more tokens than the whole prompt
        longest = max((message["content"] for message in question.messages), key=len)
        middle, around = len(longest) // 2, await self._count(question, _TINY)
        whole = 0
        for half in (longest[:middle], longest[middle:]):
            whole += await self._count(question, ({"role": "user", "content": half},)) - around
        return read, whole if read < _HALVES * whole else None


def explain_overflow(
    question: Question[Any], error: TooLongError, facts: ServerFacts = NO_FACTS
) -> TooLongError:
    """The error with the field that takes most room and the remedy, and what the server said."""
    overflow = Overflow(error.needed, error.window)
    text = too_long(question.messages, overflow, facts)
    return TooLongError(f"{text} ({error})", error.tokens, **overflow._asdict())


def counting(question: Question[Any], messages: Messages) -> Question[Any]:
    """A question for one token to other messages, whose answer is not read."""
    options = replace(question.options, max_tokens=1, top_logprobs=0)
    return Question(messages, _AnyText, options, _ANY, name=question.name, asker=question.asker)
