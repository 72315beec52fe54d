"""One run of a generator: rounds of drafts through one engine, and the goldens that are left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagengine.data.golden import ConversationalGolden, Golden
from dagengine.estimate.counting import estimate
from dagengine.estimate.values import Estimate
from dagengine.execution.engine import Engine, Settings
from dagengine.graph.graph import Metric
from dagengine.record.recording import manifest_of
from dagengine.record.values import DataRecord
from dagengine.record.writer import RunWriter
from dagengine.report.progress import progress_bar
from dagengine.results import CaseResult, Failure, MetricResult, OutcomeKind, Step, Totals
from dagengine.synthesis.duplicates import NearDuplicates, SameMeaning
from dagengine.synthesis.generators import CHOOSE, EMBEDDING, GOLDEN
from dagengine.synthesis.goldens import AnyGolden, Folder
from dagengine.synthesis.instructions import CHANGES
from dagengine.synthesis.quotas import Filling
from dagengine.synthesis.values import Difficulty, Evolution, Report, Seed
from dagengine.test_case import LLMTestCase

DUPLICATE, UNNEEDED = "near duplicate", "not needed"
_NO_GOLDEN = "the generator, which gave no golden"
ALIKE = 0.9
"""The cosine from which on two inputs are near duplicates."""
_MESSAGE = 200  # characters of a failure's message in a report


class _Kept:
    """The texts of the goldens so far, by their words and by their vectors."""

    def __init__(self, known: Sequence[str], alike: float) -> None:
        self._words, self._meanings = NearDuplicates(), SameMeaning(alike)
        for text in known:
            self._words.add(text)

    def has(self, text: str, vector: Any) -> bool:
        return self._words.is_known(text) or self._meanings.is_known(vector)

    def add(self, text: str, vector: Any) -> None:
        self._words.add(text)
        self._meanings.add(vector)


@dataclass(slots=True)
class Generation:
    """A generator, what it is given, and what it gave so far.

    `note` is kept in the metadata of every golden. `known` are inputs that goldens must not
    repeat, `alike` is the cosine from which on two vectors mean the same. `case` makes what the
    generator reads.
    """

    metric: Metric
    filling: Filling
    note: dict[str, Any]
    report: Report
    known: Sequence[str] = ()
    alike: float = ALIKE
    case: Callable[[Seed], LLMTestCase] | None = None
    engine: Engine | None = None
    goldens: list[AnyGolden] = field(default_factory=list)

    @property
    def totals(self) -> Totals:
        """What was asked and used so far."""
        return Totals() if self.engine is None else self.engine.totals

    def plan(self, settings: Settings, *, at_once: bool = True) -> Estimate:
        """What the first round asks at most; asks nothing. Uses the generation up."""
        engine = Engine([self.metric], settings, at_once=at_once)
        cases = [self._case(seed) for seed in self.filling.next()]
        return estimate(engine.plan, cases, judges=[judge.identity for judge in engine.judges])

    async def run(
        self,
        settings: Settings,
        on_golden: Callable[[AnyGolden], None],
        *,
        show: bool = False,
        at_once: bool = True,
        out: str | Path | None = None,
    ) -> None:
        """Go on until every quota is met or nothing is left to try; raises what the engine does.

        Goldens are handed out after each round, in the order of their drafts. `show` draws a
        progress bar, in which every draft is a case. `out` is a folder for the record of the
        run, in which every draft has its row.
        """
        engine = self.engine = Engine([self.metric], settings, at_once=at_once)
        new, first = _Kept(self.known, self.alike), 0
        with progress_bar(engine, None, show) as finished, self._record(engine, out) as record:
            async with engine.open():
                while seeds := self.filling.next():
                    rows: list[CaseResult] = []

                    def take(row: CaseResult, rows: list[CaseResult] = rows) -> None:
                        rows.append(row)
                        record.add(row)

                    cases = engine.cases([self._case(seed) for seed in seeds])
                    await engine.run(cases, take, first, finished=finished)
                    first += len(seeds)
                    for seed, row in zip(seeds, rows, strict=True):
                        golden = self._golden(seed, row.metrics[0], new)
                        if golden is not None:
                            self.goldens.append(golden)
                            on_golden(golden)
                    record.save(self.goldens, self.report)

    @contextmanager
    def _record(self, engine: Engine, out: str | Path | None) -> Iterator[Folder]:
        """What takes every row for the record, if a record is written."""
        if out is None:
            yield Folder(None)
            return
        manifest = manifest_of(engine, DataRecord(), self.note)
        with RunWriter(out, manifest, lambda: (engine.totals, engine.spent)) as writer:
            yield Folder(writer)

    def _case(self, seed: Seed) -> LLMTestCase:
        return self.case(seed) if self.case else self.case_of(seed, seed.draft, seed.source or "")

    @staticmethod
    def case_of(seed: Seed, draft: int, subject: str) -> LLMTestCase:
        """What a generator reads: `input` is the source, the metadata say which draft to take."""
        return LLMTestCase(
            name=f"{seed.source or 'context'}{_place(seed)}, {seed.kind}, draft {seed.draft + 1}",
            input=subject,
            context=[passage.text for passage in seed.passages],
            additional_metadata={
                "draft": draft,
                "passages": [passage.provenance() for passage in seed.passages],
                "evolutions": [CHANGES[Evolution(name)] for name in seed.evolutions],
            },
        )

    def _golden(self, seed: Seed, result: MetricResult, kept: _Kept) -> AnyGolden | None:
        """The golden of a draft, or None; the report says what became of it."""
        self.report.tried += 1
        value = next((step.output for step in result.steps if step.node == GOLDEN), None)
        if result.failure is not None:
            self._failed(result.failure)
            return None
        if not isinstance(value, dict):
            self._fell(result.path[-1][0] if result.path else _NO_GOLDEN)
            return None
        text = value.get("input") or value.get("scenario") or ""
        vector = next((step.output for step in result.steps if step.node == EMBEDDING), None)
        if kept.has(text, vector):
            self._fell(DUPLICATE)
            return None
        if not self.filling.keep(seed, _difficulty(value)):
            self._fell(UNNEEDED)
            return None
        kept.add(text, vector)
        self.report.kept += 1
        return self._made(seed, value, result)

    def _fell(self, where: str) -> None:
        self.report.fell[where] = self.report.fell.get(where, 0) + 1

    def _failed(self, failure: Failure) -> None:
        report = self.report
        if failure.kind == OutcomeKind.SKIPPED and failure.node == CHOOSE:
            report.unwritten += 1
            return
        what = f"{failure.kind} at {failure.node}"
        report.failed[what] = report.failed.get(what, 0) + 1
        report.messages.setdefault(what, " ".join(failure.message.split())[:_MESSAGE])

    def _made(self, seed: Seed, value: dict[str, Any], result: MetricResult) -> AnyGolden:
        """The golden with where it comes from: passages, evolutions, seed, every node's answer."""
        known = {name: value[name] for name in ("supporting_sentences",) if name in value}
        if (level := _difficulty(value)) is not None:
            knew, judges = value["answered_without_context"]
            known["difficulty"] = {"level": level, "answered": knew, "judges": judges}
        origin = {
            "source": seed.source,
            "kind": seed.kind,
            "evolutions": list(seed.evolutions),
            "draft": seed.draft,
            "passages": [passage.provenance() for passage in seed.passages],
            **self.note,
            **known,
            "answers": {step.node: _answer(step) for step in result.steps if _is_told(step)},
        }
        common: dict[str, Any] = {
            "context": [passage.text for passage in seed.passages] or None,
            "source_file": seed.passages[0].document if seed.passages else None,
            "additional_metadata": {"synthesis": origin},
        }
        if "scenario" in value:
            return ConversationalGolden(
                scenario=value["scenario"],
                expected_outcome=value.get("expected_outcome"),
                user_description=value.get("user_description"),
                **common,
            )
        return Golden(input=value["input"], expected_output=value.get("expected_output"), **common)


def _place(seed: Seed) -> str:
    """Where the first passage of a draft stands, as far as that is known."""
    first = seed.passages[0] if seed.passages else None
    if first is None or (first.page is None and first.offset is None):
        return ""
    return f" page {first.page}" if first.page is not None else f" at {first.offset:,}"


def _is_told(step: Step) -> bool:
    """Whether a step says something that stands nowhere else in the golden."""
    return step.node not in (GOLDEN, EMBEDDING) and step.kind != "field"


def _answer(step: Step) -> Any:
    """What a node said, as the golden's metadata keep it."""
    if step.verdict is None:
        return step.output
    return {"verdict": step.verdict, **({"reason": step.reason} if step.reason else {})}


def _difficulty(value: dict[str, Any]) -> Difficulty | None:
    """How hard a golden is, by the share of cheap judges that answer without the passages."""
    if "answered_without_context" not in value:
        return None
    knew, judges = value["answered_without_context"]
    if knew * 3 >= judges * 2:
        return "easy"
    return "hard" if knew * 3 <= judges else "medium"
