"""What a run has spent, and whether another call fits into what it may spend."""

from __future__ import annotations

from typing import Any

from dagengine.errors import InputError, OverBudgetError
from dagengine.gateway.limits import Limits
from dagengine.gateway.prices import Price, find_price
from dagengine.question import Judge, Question, Usage


class Budget:
    """Counts the calls and the money of one run.

    A call that starts reserves what it is likely to cost; when it ends, what it did cost is
    spent instead. Calls are counted exactly. Money is exact once every call has ended: one
    whose answer was longer than those before it can overshoot by the difference.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._reserved = 0.0
        self._spent = 0.0
        self._calls = 0
        self._unpriced = False

    @property
    def cost(self) -> float | None:
        """US dollars spent, or None when a judge without a known price was asked."""
        return None if self._unpriced else self._spent

    @property
    def watches_money(self) -> bool:
        """Whether there is an amount of money to keep to."""
        return self._limits.budget is not None

    def price_of(self, judge: Judge) -> Price | None:
        """The price of a judge; raises InputError when a budget cannot be kept without it."""
        model = getattr(judge, "model", None)
        price = find_price(model if isinstance(model, str) else None, self._limits.prices)
        if price is None and self.watches_money:
            name = f"the model {model!r}" if model else f"the judge {judge.identity!r}"
            raise InputError(
                f"a budget of ${self._limits.budget:g} needs to know what {name} costs: give "
                f"Limits.prices={{{model or 'model'!r}: (input, output)}} in US dollars per "
                "million tokens" + ("" if model else ", and the judge a `model`")
            )
        return price

    def reserve(self, price: Price | None, estimate: Usage) -> float:
        """Take up one call and return the money reserved; raises OverBudgetError."""
        most, limit = self._limits.max_calls, self._limits.budget
        if most is not None and self._calls >= most:
            raise OverBudgetError(
                f"not asked: the run has made the {most} calls it may make; raise "
                "Limits.max_calls to go on"
            )
        amount = price.of(estimate) if price and limit is not None else 0.0
        if limit is not None and self._spent + self._reserved + amount > limit:
            raise OverBudgetError(
                f"not asked: ${self._spent:.4f} of the budget of ${limit:g} are spent, "
                f"${self._reserved:.4f} are reserved for calls under way, and this one would "
                f"cost about ${amount:.4f}; raise Limits.budget to go on"
            )
        self._calls += 1
        self._reserved += amount
        return amount

    def settle(self, price: Price | None, reserved: float, usage: Usage) -> None:
        """End a call: what it used is spent, what was reserved is free."""
        self._reserved -= reserved
        if price is None:
            self._unpriced = True
        else:
            self._spent += price.of(usage)


_CHARACTERS = 4.0  # per token, in English, before anything is learnt


_OVERHEAD = 64.0  # tokens around a prompt: roles, the answer's schema


_OUTPUT = 256.0


_WEIGHT = 0.1  # of the newest answer, once there are some


class Estimates:
    """Guesses the tokens of one judge's calls."""

    def __init__(self) -> None:
        self._per_character = 1 / _CHARACTERS
        self._output = _OUTPUT
        self._seen = 0

    def of(self, question: Question[Any]) -> Usage:
        """The tokens that a call is likely to use."""
        limit = question.options.max_tokens
        output = self._output if limit is None else min(self._output, limit)
        return Usage(round(_length(question) * self._per_character), round(output))

    def learn(self, question: Question[Any], usage: Usage) -> None:
        """Take over what the server counted; nothing where it does not count."""
        if usage.input_tokens:
            self._seen += 1
            weight = max(_WEIGHT, 1 / self._seen)
            found = usage.input_tokens / _length(question)
            self._per_character += weight * (found - self._per_character)
            self._output += weight * (usage.output_tokens - self._output)


def _length(question: Question[Any]) -> float:
    characters = sum(len(message["content"]) for message in question.messages)
    return characters + _OVERHEAD * _CHARACTERS
