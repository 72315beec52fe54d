"""The arithmetic of the throughput table: what follows from the counts and the clocks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from job import FAITHFULNESS, G_EVAL, RAG, TREE, Measured

OURS, PLAIN, DEEPEVAL = "dagengine", "openai create", "deepeval"
BARE = "create, no probabilities"
# Of the processor time that plain `create` takes for a call without token probabilities.
_SHARES = {TREE: 0.35, G_EVAL: 0.45, FAITHFULNESS: 0.35, RAG: 0.35}
_FEW = 64  # calls in flight, for which the ideal is nearer
# Between equal runs; beyond it something else was using the processors.
USUAL_SPREAD = 1.2


@dataclass(frozen=True)
class Pace:
    """What the server allows: seconds per call, calls at a time, calls a minute (0: any)."""

    latency: float
    in_flight: int
    per_minute: int = 0

    def ideal(self, calls: int, rounds: int) -> float:
        """The least seconds that `calls` can take when a case takes `rounds` one by one.

        The greatest of three: the calls by the limit, the longest way through one case, and
        the whole minutes that the server's limit makes one wait.
        """
        busy = calls * self.latency / self.in_flight
        waited = 60.0 * ((calls - 1) // self.per_minute) if self.per_minute else 0.0
        return max(busy, rounds * self.latency, waited)


@dataclass(frozen=True)
class Run:
    """One client's run over one workload; `calls` and `server_cpu` are the server's."""

    measured: Measured
    cases: int
    calls: int
    in_flight_max: int
    server_cpu: float
    ideal: float

    @property
    def calls_per_case(self) -> float:
        return self.calls / self.cases

    @property
    def cpu_per_call(self) -> float:
        """Milliseconds."""
        return self.measured.cpu / self.calls * 1e3

    @property
    def over_ideal(self) -> float:
        return self.measured.wall / self.ideal

    @property
    def cases_per_second(self) -> float:
        return self.cases / self.measured.wall

    @property
    def server_share(self) -> float:
        """How busy one processor was with the server."""
        return self.server_cpu / self.measured.wall


@dataclass(frozen=True)
class Row:
    """All runs of one client over one workload, or why there is none."""

    workload: str
    client: str
    runs: Sequence[Run]
    problem: str = ""

    def median(self, figure: Callable[[Run], float]) -> float:
        return statistics.median(map(figure, self.runs))

    def least(self, figure: Callable[[Run], float]) -> float:
        return min(map(figure, self.runs))

    @property
    def cpu(self) -> float:
        """Milliseconds of processor time per call, median."""
        return self.median(lambda run: run.cpu_per_call)

    @property
    def calls(self) -> float:
        """Judge calls per case, median."""
        return self.median(lambda run: run.calls_per_case)

    @property
    def over_ideal(self) -> float:
        """Wall time over the ideal, median."""
        return self.median(lambda run: run.over_ideal)

    @property
    def disturbed(self) -> bool:
        """Whether equal runs differ more than they do on an idle machine."""
        walls = [run.measured.wall for run in self.runs]
        return max(walls) > USUAL_SPREAD * min(walls)


@dataclass(frozen=True)
class Target:
    """A ratio that should be met, and what it is."""

    name: str
    wanted: str
    found: float
    met: bool


def targets(rows: Sequence[Row], in_flight: int = _FEW) -> list[Target]:
    """Every target whose two sides were measured, with so many calls in flight."""
    slowest = 1.10 if in_flight <= _FEW else 1.20
    by = {(row.workload, row.client): row for row in rows if row.runs}
    found = list[Target]()
    for workload in (TREE, G_EVAL, FAITHFULNESS, RAG):
        ours, theirs = by.get((workload, OURS)), by.get((workload, DEEPEVAL))
        plain = by.get((workload, BARE if workload == G_EVAL else PLAIN))
        if ours and theirs:
            found += _against_deepeval(workload, ours, theirs)
        if ours and plain:
            ratio, most = ours.cpu / plain.cpu, _SHARES[workload]
            name = f"{workload}: CPU per call / {plain.client}"
            found.append(Target(name, f"at most {most:g}", ratio, ratio <= most))
        if ours:
            name = f"{workload}: wall / ideal"
            over = ours.over_ideal
            found.append(Target(name, f"at most {slowest:.2f}", over, over <= slowest))
    return found


def _against_deepeval(workload: str, ours: Row, theirs: Row) -> list[Target]:
    calls, cpu = ours.calls / theirs.calls, theirs.cpu / ours.cpu
    found = [Target(f"{workload}: CPU per call of deepeval / ours", "at least 20", cpu, cpu >= 20)]
    if workload == G_EVAL:
        found.append(Target(f"{workload}: calls / deepeval's", "at most 0.5", calls, calls <= 0.5))
    if workload == RAG:
        found.append(Target(f"{workload}: calls / deepeval's", "below 1", calls, calls < 1))
    return found
