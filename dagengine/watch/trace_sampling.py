"""The traces that are judged: strata by code, a rate for each, a decision that never changes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from dagengine.errors import InputError
from dagengine.results import CaseResult
from dagengine.results.metric_results import GROUPED, STARTED, WATCHED
from dagengine.test_case import LLMTestCase, read_field

ERRORS, OTHERS = "errors", "others"
PERIODS = {"hour": 13, "day": 10}
"""The characters of a time (ISO 8601) that say an hour, or a day."""
Stratify = Callable[[LLMTestCase], str]


def errors_or_others(case: LLMTestCase) -> str:
    """`errors` for a trace in which a span failed, else `others`."""
    return ERRORS if any(span.error for span in case.spans or ()) else OTHERS


def trace_share(trace_id: str) -> float:
    """The number in [0, 1) that decides for a trace; the same in every process."""
    digest = hashlib.sha256(f"dagengine watch {trace_id}".encode()).digest()
    # 53 bits, which are all that a float holds: one more could be rounded up to 1.
    return (int.from_bytes(digest[:7]) >> 3) / 2**53


def group_digest(case: LLMTestCase, field: str) -> str | None:
    """The digest of a field of a case, or of the `hour` or the `day` (UTC) of its trace.

    None for a case without it, which is alone.
    """
    began = (case.additional_metadata or {}).get(STARTED) or ""
    value = began[: PERIODS[field]] if field in PERIODS else read_field(case, field)
    if value is None or value == "":
        return None
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Sampling:
    """The share of traces that is judged: `rates` by stratum, `rate` for every other one.

    Raises InputError for a rate outside of (0, 1], and for a stratum that the built-in `stratify`
    does not know.
    """

    rate: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict[str, float])
    stratify: Stratify = errors_or_others

    def __post_init__(self) -> None:
        for rate in (self.rate, *self.rates.values()):
            if not 0 < rate <= 1:
                raise InputError(f"a rate of sampling is above 0 and at most 1, got {rate:g}")
        if self.stratify is errors_or_others:
            for name in self.rates.keys() - {ERRORS, OTHERS}:
                raise InputError(
                    f"there is no stratum {name!r}: without --strata there are {ERRORS} and "
                    f"{OTHERS}"
                )

    @classmethod
    def parse(cls, texts: Sequence[str], stratify: Stratify | None = None) -> Sampling:
        """The sampling of `--sample RATE` and `--sample STRATUM=RATE`, both repeatable."""
        rates: dict[str, float] = {}
        for text in texts:
            name, _, number = text.rpartition("=")
            try:
                rate = float(number)
            except ValueError:
                rate = math.nan
            if math.isnan(rate):
                raise InputError(f"--sample is RATE or STRATUM=RATE, such as 0.1, not {text!r}")
            if name in rates:
                raise InputError(f"--sample gives two rates for {name or 'all strata'}")
            rates[name] = rate
        rate = rates.pop("", 1.0)  # the one without a stratum
        return cls(rate, rates, stratify or errors_or_others)

    def stratum(self, case: LLMTestCase) -> str:
        """The stratum of a case; raises InputError if the function gives no name."""
        name = self.stratify(case)
        if not isinstance(name, str) or not name:
            raise InputError(f"--strata must give the name of a stratum, got {name!r:.80}")
        return name

    def probability(self, stratum: str) -> float:
        """The probability that a trace of this stratum is judged."""
        return self.rates.get(stratum, self.rate)

    @property
    def least(self) -> float:
        """The lowest rate: traces whose share is below it are judged whatever their stratum."""
        return min([self.rate, *self.rates.values()])


@dataclass(frozen=True, slots=True)
class JudgedTrace:
    """A judged trace, as the laws of alarms read it from its row.

    `share` is that of `trace_share`: the trace was judged because it is below the `probability` of
    its `stratum`. `characters` is the length of its input. `scores` and `paths` are by metric; a
    metric without a score is in neither. Cases of one `group` count together.
    """

    row: int
    stratum: str
    probability: float
    share: float
    characters: int
    scores: dict[str, float]
    paths: dict[str, str]
    group: str | None = None

    @classmethod
    def of(cls, row: CaseResult) -> Self | None:
        """Read a row; None if no watch wrote it."""
        ids = row.trace or {}
        if not ids.keys() >= {"trace_id", *WATCHED}:
            return None
        stratum, probability, characters = (ids[name] for name in WATCHED)
        scores, paths = dict[str, float](), dict[str, str]()
        for result in row.metrics:
            if result.score is not None:
                scores[result.metric] = float(result.score)
                path = (f"{node} = {verdict}" for node, verdict in result.path)
                paths[result.metric] = " → ".join(path)
        share = trace_share(ids["trace_id"])
        group = ids.get(GROUPED)
        return cls(
            row.index, stratum, float(probability), share, int(characters), scores, paths, group
        )
