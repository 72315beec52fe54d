"""Nodes that ask under a condition: their own samples, another temperature or seed.

In repetition r of the metric as given, a node that asks for sample 0 gets sample r. So repetition 0
asks what a plain evaluation asks. No sample is shared by two conditions.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import BaseModel

from dagengine.gateway.inner_metrics import asking_with
from dagengine.graph.node import BaseNode
from dagengine.graph.values import Ask, Given, NodeValue, Work
from dagengine.question import REPETITIONS, Answer, Options, Question
from dagengine.reliability.observations import Condition

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Resampling:
    """As a change: has a node ask under a condition, and note a digest of what it asks."""

    condition: Condition
    top_logprobs: int = 0

    def __call__(self, node: BaseNode) -> None:
        _ask_with(self.options, node)

    def options(self, options: Options) -> Options:
        """The options of a question under the condition."""
        at = self.condition
        # Conditions that differ in more than sample and judge never share an answer: each has
        # a range of samples of its own, the plain one the first.
        plain, space = replace(at, sample=0, judge=""), 0
        if plain != Condition():
            space = int.from_bytes(hashlib.sha256(repr(plain).encode()).digest()[:3]) + 1
        sample = at.sample + REPETITIONS * (options.sample + REPETITIONS * space)
        temperature = options.temperature if at.temperature is None else at.temperature
        seed = options.seed if at.seed is None else at.seed
        return replace(
            options,
            sample=sample,
            temperature=temperature,
            seed=seed,
            top_logprobs=max(options.top_logprobs, self.top_logprobs),
        )


def later(node: BaseNode, repetitions: int) -> BaseNode:
    """A copy of a resampled node that asks what it would ask so many repetitions later."""

    twin = copy.copy(node)
    _ask_with(lambda options: replace(options, sample=options.sample + repetitions), twin)
    return twin


def _ask_with(options: Callable[[Options], Options], node: BaseNode) -> None:
    """Have a node ask with other options; its value says by a digest what it asked."""

    def wrap(work: Work) -> Work:
        async def ask_again(given: Given, ask: Ask) -> NodeValue:
            asking = _Resampled(ask, options)
            with asking_with(asking.with_options):  # also where its own code measures other metrics
                value = await work(given, asking)
            return replace(value, question=asking.digest) if asking.digest else value

        return ask_again

    node.around = (*node.around, wrap)


class _Resampled:
    """Asks as another does, but with other options, and remembers what was asked."""

    def __init__(self, ask: Ask, options: Callable[[Options], Options]) -> None:
        self._ask = ask
        self._options = options
        self._asked: list[bytes] = []

    @property
    def decides(self) -> bool:
        """As the other."""
        return self._ask.decides

    async def __call__(self, question: Question[T]) -> Answer[T]:
        return await self._ask(self.with_options(question))

    async def each(self, questions: Iterable[Question[T]]) -> list[Answer[T]]:
        return await self._ask.each(map(self.with_options, questions))

    def with_options(self, question: Question[T]) -> Question[T]:
        """The question with other options."""
        changed = replace(question, options=self._options(question.options))
        self._asked.append(changed.canonical.rpartition(b"\n")[0])  # all but the options
        return changed

    @property
    def digest(self) -> str | None:
        """64 bits of SHA-256 of the questions asked, whatever their options; None without any."""
        if not self._asked:
            return None
        return hashlib.sha256(b"\0".join(self._asked)).hexdigest()[:16]
