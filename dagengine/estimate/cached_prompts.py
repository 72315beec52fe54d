"""How many tokens of the prompts of a run an earlier prompt of the same case begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagengine.compiler.plan import Plan
from dagengine.estimate.lookahead import text_tokens
from dagengine.gateway.packs.prompt_cache import SERVER_CHARACTERS
from dagengine.prompts.evidence import as_text
from dagengine.question import Judge
from dagengine.test_case import TestCase, read_field

_LEAST = text_tokens("x" * SERVER_CHARACTERS)


class CachedPrompts:
    """The tokens that servers which keep beginnings need not read again, by judge.

    Questions of a case share a beginning as far as they show the same fields. The first question
    with a beginning reads it, and all others find it. This is a bound: a server may keep less.
    """

    def __init__(self, plan: Plan, asked: Sequence[Judge]) -> None:
        self._units = [
            unit for unit in plan.units
            if unit.shares and not unit.constant
            and (not asked or asked[unit.judges[0]].capabilities.caches_prefixes)
        ]  # fmt: skip
        self.tokens = [0.0] * max(len(plan.models), len(asked))

    def add(self, case: TestCase, likely: Mapping[int, float]) -> None:
        """Count a case whose units are asked so many `likely` questions."""
        sizes: dict[str, int] = {}
        beginnings: set[tuple[int, tuple[str, ...]]] = set()
        for unit in self._units:
            questions = likely.get(unit.index, 0.0)
            if not questions:
                continue
            for path in unit.shares:
                if path not in sizes:
                    sizes[path] = text_tokens(as_text(read_field(case, path) or ""))
            shared = sum(sizes[path] for path in unit.shares)
            if shared < _LEAST:
                continue
            judge = unit.judges[0]
            self.tokens[judge] += questions * shared
            for length in range(1, len(unit.shares) + 1):
                beginning = judge, unit.shares[:length]
                if beginning not in beginnings:
                    beginnings.add(beginning)
                    self.tokens[judge] -= min(1.0, questions) * sizes[unit.shares[length - 1]]
