"""What a run may spend, what its next call is likely to cost, and what it has spent.

A `Budget` reserves calls and money in an `Account`, by `Estimates`; a `Ledger` is for the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from dagengine.errors import InputError, OverBudgetError
from dagengine.limits import Limits
from dagengine.question import NO_USAGE, Judge, Question, Usage, judge_name, model_of
from dagengine.results import Spent
from dagengine.results.prices import Price, find_price

# Before the server has counted anything: characters per token of English, and tokens of an answer.
_CHARACTERS, _OUTPUT = 4.0, 256.0
_OVERHEAD = 64.0  # tokens around a prompt: roles, the answer's schema
_WEIGHT = 0.1  # of the newest answer in the averages, once there are ten


class Account:
    """What a run has taken up: calls, and US dollars reserved and spent.

    Several engines may share one (`Engine(…, account=…)`). The sums hold inside `with account:`,
    where nobody else changes them. `where` follows "spent" in messages; empty for the whole run.
    """

    where = ""

    def __init__(self) -> None:
        self.calls = 0
        self.reserved = 0.0
        self.spent = 0.0

    def exceeded_limit(self, limits: Limits, amount: float) -> str | None:
        """The field of `limits` that a call of this cost would exceed; None if it may start."""
        if limits.max_calls is not None and self.calls >= limits.max_calls:
            return "max_calls"
        committed = self.spent + self.reserved + amount
        return "budget" if limits.budget is not None and committed > limits.budget else None

    async def extend(self, limit: str, amount: float) -> bool:
        """Try to get more below a limit, for a call of this cost; False if there is no more."""
        return False

    def __enter__(self) -> Account:
        return self

    def __exit__(self, *error: object) -> None: ...


class Budget:
    """Counts the calls and the money of one run, or of this process's part of one.

    A call that starts reserves what it is likely to cost; when it ends, what it did cost is
    spent instead. Calls are counted exactly. Money is exact once every call has ended: one
    whose answer was longer than those before it can overshoot by the difference.
    """

    def __init__(self, limits: Limits, account: Account | None = None) -> None:
        """`account` is that of all processes of the run, if there are several."""
        self._account = account or Account()
        self._spent = 0.0  # by this process
        self._unpriced = False
        self.keep_to(limits)

    def keep_to(self, limits: Limits) -> None:
        """Have other limits from now on."""
        self._limits = limits
        self.watches_money = limits.budget is not None
        self.is_limited = limits.max_calls is not None or self.watches_money

    @property
    def cost(self) -> float | None:
        """US dollars spent, or None when a judge without a known price was asked."""
        return None if self._unpriced else self._spent

    def price_of(self, judge: Judge) -> Price | None:
        """The price of a judge; raises InputError when a budget cannot be kept without it."""
        model = model_of(judge)
        price = find_price(model, self._limits.prices)
        if price is None and self.watches_money:
            name = f"the model {model!r}" if model else f"the judge {judge_name(judge.identity)!r}"
            raise InputError(
                f"a budget of ${self._limits.budget:g} needs to know what {name} costs: give "
                f"Limits(prices={{{model or '*'!r}: (input, output)}}), or --price IN,OUT, in US "
                "dollars per million tokens"
            )
        return price

    async def reserve(self, price: Price | None, estimate: Usage) -> float:
        """Take up one call and return the money reserved; raises OverBudgetError."""
        if not self.is_limited:
            return 0.0
        amount = price.of(estimate) if price and self.watches_money else 0.0
        while True:
            with self._account as account:
                limit = account.exceeded_limit(self._limits, amount)
                if limit is None:
                    account.calls += 1
                    account.reserved += amount
                    return amount
            if not await self._account.extend(limit, amount):
                raise self._refusal(limit, amount)

    def _refusal(self, limit: str, amount: float) -> OverBudgetError:
        if limit == "max_calls":
            return OverBudgetError(
                f"not asked: the run has used its {self._limits.max_calls} calls; increase "
                "--max-calls (Limits.max_calls) to continue"
            )
        with self._account as account:
            budget = self._limits.budget or 0.0
            sums = (
                f"${account.spent:.4f} of the budget of ${budget:g} are spent{account.where}, "
                f"${abs(account.reserved):.4f} are reserved for calls in progress"
            )
        return OverBudgetError(
            f"not asked: {sums}, and this one would cost about ${amount:.4f}; increase --budget "
            "(Limits.budget) to continue"
        )

    def charge(self, reserved: float, cost: float | None) -> None:
        """End a call: what it cost is spent (None: nobody knows), what was reserved is free."""
        self._unpriced = self._unpriced or cost is None
        self._spent += cost or 0.0
        if self.watches_money:
            with self._account as account:
                account.reserved -= reserved
                account.spent += cost or 0.0


class Estimates:
    """Guesses the tokens of one judge's calls, from averages of what its server counted."""

    def __init__(self) -> None:
        self._per_character = 1 / _CHARACTERS
        self._output = _OUTPUT
        self._seen = 0

    def of(self, question: Question[Any]) -> Usage:
        """The tokens that a call is likely to use."""
        limit = question.token_limit
        output = self._output if limit is None else min(self._output, limit)
        return Usage(round(_length(question) * self._per_character), round(output))

    def learn(self, question: Question[Any], usage: Usage) -> None:
        """Take over what the server counted; nothing if it does not count."""
        if usage.input_tokens:
            self._seen += 1
            weight = max(_WEIGHT, 1 / self._seen)
            per_character = usage.input_tokens / _length(question)
            self._per_character += weight * (per_character - self._per_character)
            self._output += weight * (usage.output_tokens - self._output)


def _length(question: Question[Any]) -> float:
    """The characters of a prompt, and as many as stand for the tokens around it."""
    characters = sum(len(message["content"]) for message in question.messages)
    return characters + _OVERHEAD * _CHARACTERS


@dataclass(slots=True)
class Entry:
    """The sums of one node of one metric at one judge; see `Ledger`."""

    asked: int = 0
    calls: int = 0
    failed: int = 0
    usage: Usage = NO_USAGE
    cost: float | None = 0.0
    seconds: float = 0.0

    def spend(self, calls: int, failed: int, usage: Usage, cost: float | None, took: float) -> None:
        """Add calls that ended; a `cost` that is not known makes that of the entry unknown."""
        self.calls += calls
        self.failed += failed
        self.usage += usage
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.seconds += took


class Ledger:
    """The sums of one run: in all, and by metric, node and judge (`entries`).

    The gateway and its `retry_pipeline` count in it. `asked` are questions, `cached` those that the
    store answered, `calls` all calls, `retried` those after the first of a question, `failed` those
    without an answer that fits. `saved` are US dollars that cached prompt tokens cost less.
    """

    def __init__(self) -> None:
        self.asked = self.cached = self.calls = self.retried = self.failed = 0
        self.usage = NO_USAGE
        self.saved = 0.0
        self.entries: defaultdict[tuple[str, str, str], Entry] = defaultdict(Entry)

    @property
    def spent(self) -> tuple[Spent, ...]:
        """Questions and tokens so far, by metric, node and judge."""
        sums = attrgetter(*Entry.__slots__)
        # The list is made in one step: other threads may add entries meanwhile.
        return tuple(Spent(*key, *sums(entry)) for key, entry in list(self.entries.items()))

    def add(self, spent: Iterable[Spent]) -> None:
        """Take over what another process counted, in `entries` alone."""
        for part in spent:
            entry = self.entries[part.metric, part.node, part.judge]
            entry.asked += part.asked
            entry.spend(part.calls, part.failed, part.usage, part.cost, part.seconds)
