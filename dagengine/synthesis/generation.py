"""One run of a generator: rounds of drafts through one engine, the goldens left, their folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, Self

from dagengine.data.golden import ConversationalGolden, Golden
from dagengine.data.written_lines import line_of
from dagengine.errors import InputError
from dagengine.estimate.estimate_types import Estimate
from dagengine.estimate.estimator import estimate
from dagengine.evaluation import RecordTo, open_record
from dagengine.execution.cases_and_rows import OnRow
from dagengine.execution.local_executor import LocalExecutor
from dagengine.record.run_json_types import DataRecord
from dagengine.record.writer import RunWriter
from dagengine.report.page.run_facts import DRAFTS, DraftRecord
from dagengine.report.progress import progress_bar
from dagengine.results import CaseResult, Failure, MetricResult, OutcomeKind
from dagengine.synthesis.generators import (
    CHANGES,
    CHOOSE,
    EMBEDDING,
    GOLDEN,
    LIKENESS,
    REWRITE,
    SAME,
    duplicates,
    pair_case,
)
from dagengine.synthesis.near_duplicates import ALIKE, NEAREST, GoldenTexts, TextPair
from dagengine.synthesis.quotas import Filling
from dagengine.synthesis.synthesis_types import Difficulty, Evolution, Report, Seed
from dagengine.system.safe_files import remove, write_whole
from dagengine.system.terminal_text import plain
from dagengine.test_case import LLMTestCase

DUPLICATE, UNNEEDED, UNWRITTEN = "near duplicate", "not needed", "not written"
_NO_GOLDEN = "the generator, which gave no golden"
_ANY_INPUT = "an input that nobody has written so far, about as long as they are: "
# How many of the pairs that may be alike are so: with vectors it depends on the documents.
_BY_VECTOR, _BY_WORDS = 0.5, 0.01
_MESSAGE = 200  # characters of a failure's message in a report


@dataclass(slots=True)
class _Draft:
    """A draft that went through the generator as a `case`; without a `value` it is no golden.

    `place` is that of its text, `pairs` are those with the texts that are most like it.
    """

    seed: Seed
    case: int
    result: MetricResult
    value: dict[str, Any] | None = None
    place: int = -1
    pairs: Sequence[TextPair] = ()

    @classmethod
    def of(cls, seed: Seed, row: CaseResult, texts: GoldenTexts) -> Self:
        """The draft, with its text among the others."""
        (result,) = row.metrics
        value, vector = _output(result, GOLDEN), _output(result, EMBEDDING)
        if result.failure is not None or not isinstance(value, dict):
            return cls(seed, row.index, result)
        index = texts.add(value.get("input") or value.get("scenario") or "", vector)
        return cls(seed, row.index, result, value, index, texts.nearest(index, vector))

    @property
    def text(self) -> str:
        """The input or the scenario, as far as it was written."""
        value = self.value or {}
        texts = value.get("input"), value.get("scenario"), _output(self.result, REWRITE)
        return next(filter(None, texts), None) or _output(self.result, CHOOSE) or ""

    def repeated_text(
        self, same: set[tuple[int, int]], pending: set[int], texts: GoldenTexts
    ) -> str | None:
        """A text that is not pending and asks for the same, or is the same; None without one."""
        if self.place not in pending:
            return texts[self.place]
        for pair in self.pairs:
            for index, text in zip(pair.places, pair.texts, strict=True):
                if pair.places in same and index != self.place and index not in pending:
                    return text
        return None

    def golden(self, note: Mapping[str, Any]) -> AnyGolden:
        """The golden with where it comes from: passages, evolutions, seed, every node's answer."""
        seed, value = self.seed, self.value or {}
        origin: dict[str, Any] = {
            "source": seed.source,
            "kind": seed.kind,
            "evolutions": list(seed.evolutions),
            "draft": seed.draft,
            "passages": [passage.provenance() for passage in seed.passages],
            **note,
        }
        if "supporting_sentences" in value:
            origin["supporting_sentences"] = value["supporting_sentences"]
        if (level := _difficulty(value)) is not None:
            knew, judges = value["answered_without_context"]
            origin["difficulty"] = {"level": level, "answered": knew, "judges": judges}
        origin["answers"] = self._answers()
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

    def _answers(self) -> dict[str, Any]:
        """Answers of all nodes, verdicts with their reasons."""
        answers: dict[str, Any] = {}
        for step in self.result.steps:
            # What these two say is elsewhere in the golden.
            if step.node in (GOLDEN, EMBEDDING) or step.kind == "field":
                continue
            answers[step.node] = step.output
            if step.verdict is not None:
                answers[step.node] = {"verdict": step.verdict}
                if step.reason:
                    answers[step.node]["reason"] = step.reason
        return answers

    def record(
        self, cause: str | None, repeats: str | None, golden: AnyGolden | None
    ) -> DraftRecord:
        """Record of it for a reviewer."""
        value, failure = self.value or {}, self.result.failure
        kind = " and ".join(self.seed.evolutions) or self.seed.kind
        if golden is not None:
            kind = sort_of((golden.additional_metadata or {})["synthesis"])
        reasons = {step.node: step.reason for step in self.result.steps}
        why = failure.message if failure is not None else reasons.get(cause or "")
        answer = value.get("expected_output") or value.get("expected_outcome")
        return DraftRecord(
            case=self.case,
            text=_whole(self.text),
            source=_whole(source_of(self.seed)),
            kind=kind,
            cause=cause,
            why=_whole(why) or None,
            repeats=_whole(repeats) or None,
            answer=_whole(answer) or None,
            sentences=[*map(_whole, value.get("supporting_sentences") or ())],
        )


def draft_case(seed: Seed, draft: int | None = None, subject: str | None = None) -> LLMTestCase:
    """Case for a generator: `input` is the subject, the metadata say which draft to take."""
    return LLMTestCase(
        name=f"{source_of(seed)}, {seed.kind}, draft {seed.draft + 1}",
        input=subject or seed.source or "",
        context=[passage.text for passage in seed.passages],
        additional_metadata={
            "draft": seed.draft if draft is None else draft,
            "passages": [passage.provenance() for passage in seed.passages],
            "evolutions": [CHANGES[Evolution(name)] for name in seed.evolutions],
        },
    )


@dataclass(slots=True)
class Generation:
    """A generator, ready to judge, what it is given, and what it gave so far.

    `note` is kept in the metadata of every golden. `existing` are inputs that goldens must not
    repeat, `alike` is the cosine from which on the judge is asked whether two inputs ask for the
    same. `case` makes what the generator reads.
    """

    engine: LocalExecutor
    filling: Filling
    note: dict[str, Any]
    report: Report
    existing: Sequence[str] = ()
    alike: float = ALIKE
    case: Callable[[Seed], LLMTestCase] = draft_case
    goldens: list[AnyGolden] = field(default_factory=list)

    def plan(self) -> Estimate:
        """Estimate the first round; ask nothing. Uses the generation up."""
        plan, cases = self.engine.plan, [*map(self.case, self.filling.next())]
        drafts = estimate(plan, cases, judges=self.engine.judges)
        confirming = self._pair_judge()
        if confirming is None:
            return drafts
        pairs = estimate(confirming.plan, _any_pairs(len(cases), len(self.existing)))
        embedded = any(unit.name == EMBEDDING for unit in plan.units)
        judge = plan.judge_of(plan.metrics[0].spec.model)
        return drafts.besides(pairs, _BY_VECTOR if embedded else _BY_WORDS, judge)

    async def run(
        self, on_golden: Callable[[AnyGolden], None], *, show: bool, out: str | Path | None
    ) -> None:
        """Go on until every quota is met or nothing is left to try; raises what the engine does.

        Goldens are handed out after each round, in the order of their drafts. `show` draws a
        progress bar, in which every draft is a case. `out` is a folder for the record of the
        run, in which every draft has its row.
        """
        texts, rows = GoldenTexts(self.existing), list[CaseResult]()
        target = RecordTo(out, self.note)
        with (
            progress_bar(self.engine, None, show) as finished,
            open_record(target, self.engine, DataRecord(), page=True) as writer,
        ):
            record = GoldenFolder(writer)

            def take(row: CaseResult) -> None:
                rows.append(row)
                record.add(row)

            async with self.engine.open():
                confirming = self._pair_judge()
                while seeds := self.filling.next():
                    rows.clear()
                    cases = self.engine.cases([*map(self.case, seeds)])
                    await self.engine.run(cases, OnRow(take, finished), self.report.tried)
                    earlier = len(texts)
                    drafts = list(map(_Draft.of, seeds, rows, repeat(texts)))
                    same = await self._same_pairs(drafts, confirming)
                    reviewed: list[DraftRecord] = []
                    for golden, draft in self._settle(drafts, same, texts, earlier):
                        reviewed.append(draft)
                        if golden is not None:
                            self.goldens.append(golden)
                            on_golden(golden)
                    record.save(self.goldens, self.report, reviewed)

    def _pair_judge(self) -> LocalExecutor | None:
        """Engine that asks the generator's judge about pairs; None if only nodes have judges."""
        plan = self.engine.plan
        try:
            judge = self.engine.judges[plan.judge_of(plan.metrics[0].spec.model)]
        except LookupError:
            return None
        return self.engine.also([duplicates(self.alike, judge)])

    async def _same_pairs(
        self, drafts: Iterable[_Draft], confirming: LocalExecutor | None
    ) -> set[tuple[int, int]]:
        """The places of pairs that ask for the same answer, as the judge says; each is asked once.

        A pair without an answer is none of them: nothing is dropped on a guess.
        """
        by_places = {pair.places: pair for draft in drafts for pair in draft.pairs}
        if confirming is None or not by_places:
            return set()
        rows: list[CaseResult] = []
        cases = confirming.cases([*map(pair_case, by_places.values())])
        await confirming.run(cases, OnRow(rows.append))
        equal_pairs = set[tuple[int, int]]()
        for numbers, row in zip(by_places, rows, strict=True):
            (result,) = row.metrics
            if result.failure is not None:
                self._count_failure(result.failure, self.report.unconfirmed)
            self.report.nominated += result.failure is not None or (LIKENESS, True) in result.path
            if (SAME, True) in result.path:
                equal_pairs.add(numbers)
        self.report.confirmed += len(equal_pairs)
        return equal_pairs

    def _settle(
        self,
        drafts: Sequence[_Draft],
        same: set[tuple[int, int]],
        texts: GoldenTexts,
        earlier: int,
    ) -> Iterator[tuple[AnyGolden | None, DraftRecord]]:
        """The drafts of a round with their goldens, in their order; the report counts them.

        All but the `earlier` texts are those of this round. A draft falls if its text is that of a
        golden, or asks for the same. What asks for the same as a draft that fell for this asks for
        the same as the golden, too.
        """
        pending = set(range(earlier, len(texts)))  # not the text of any golden so far
        repeating = set[int]()
        for draft in drafts:
            self.report.tried += 1
            golden: AnyGolden | None = None
            cause: str | None = None
            repeated: str | None = None
            if draft.value is None:
                cause = self._cause_of_loss(draft.result)
            elif (repeated := draft.repeated_text(same, pending, texts)) is not None:
                cause = self._fell(DUPLICATE)
                repeating |= pending & {draft.place}
                pending.discard(draft.place)
            elif not self.filling.keep(draft.seed, _difficulty(draft.value)):
                cause = self._fell(UNNEEDED)
            else:
                self.report.kept += 1
                pending.discard(draft.place)
                golden = draft.golden(self.note)
            yield golden, draft.record(cause, repeated, golden)
        for index in pending | repeating:
            texts.remove(index)

    def _cause_of_loss(self, result: MetricResult) -> str:
        """Count a draft that is no golden, and say why."""
        failure = result.failure
        if failure is None:
            return self._fell(result.path[-1][0] if result.path else _NO_GOLDEN)
        if failure.kind == OutcomeKind.SKIPPED and failure.node == CHOOSE:
            self.report.unwritten += 1
            return UNWRITTEN
        return self._count_failure(failure, self.report.failed)

    def _fell(self, where: str) -> str:
        self.report.fell[where] = self.report.fell.get(where, 0) + 1
        return where

    def _count_failure(self, failure: Failure, counts: dict[str, int]) -> str:
        """Count a failure by kind and node, and keep the first message of each."""
        problem = f"{failure.kind} at {failure.node}"
        counts[problem] = counts.get(problem, 0) + 1
        self.report.messages.setdefault(problem, " ".join(failure.message.split())[:_MESSAGE])
        return problem


def _any_pairs(drafts: int, earlier: int) -> Iterator[LLMTestCase]:
    """As many pairs as the drafts of a round can have, of texts about as long as inputs are."""
    for number in range(drafts):
        for neighbour in range(min(NEAREST, earlier + number)):
            texts = f"{_ANY_INPUT}{number}", f"{_ANY_INPUT}{neighbour} of others"
            yield pair_case(TextPair((number, neighbour), texts, 1.0, 1.0))


def _output(result: MetricResult, node: str) -> Any:
    return next((step.output for step in result.steps if step.node == node), None)


def source_of(seed: Seed) -> str:
    """Subject of a draft, and the place of its first passage, as far as that is known."""
    source = seed.source or "context"
    for passage in seed.passages[:1]:
        if passage.page is not None:
            return f"{source} page {passage.page}"
        if passage.offset is not None:
            return f"{source} at {passage.offset:,}"
    return source


def _whole(text: Any) -> str:
    """A text that a page can hold: lone surrogates are escapes. Empty for None."""
    return str(text or "").encode(errors="backslashreplace").decode()


def _difficulty(value: dict[str, Any]) -> Difficulty | None:
    """Difficulty of a golden, by the share of cheap judges that answer without the passages."""
    if "answered_without_context" not in value:
        return None
    knew, judges = value["answered_without_context"]
    if knew * 3 >= judges * 2:
        return "easy"
    return "hard" if knew * 3 <= judges else "medium"


AnyGolden = Golden | ConversationalGolden
LINES, PAGE, YIELD = "goldens.jsonl", "goldens.md", "yield.json"


class Goldens(list[Any]):
    """A list of goldens, with the report of how they came about."""

    def __init__(self, goldens: Iterable[AnyGolden], report: Report) -> None:
        super().__init__(goldens)
        self.report = report

    def markdown(self) -> str:
        """The goldens as a page to review: each with its answer, its evidence, and its path."""
        return golden_page(self, self.report)


class GoldenFolder:
    """Beside the record of a run: its goldens, a page to review them, and the yield."""

    def __init__(self, record: RunWriter | None) -> None:
        self._record = record
        self._begun = False
        self._drafts: list[DraftRecord] = []

    def add(self, row: CaseResult) -> None:
        """Write the row of a draft; the first one ends what an earlier run left."""
        if self._record is None:
            return
        self._record.add(row)
        if not self._begun:
            self._begun = True
            for name in (LINES, PAGE, YIELD, DRAFTS):
                remove(self._record.folder / name)

    def save(
        self, goldens: Sequence[AnyGolden], report: Report, drafts: Iterable[DraftRecord]
    ) -> None:
        """Write the goldens so far, and what became of drafts; `drafts` are those of a round."""
        if self._record is None:
            return
        self._drafts += drafts
        lines = (golden.model_dump(mode="json", exclude_none=True) for golden in goldens)
        folder = self._record.folder
        figures = json.dumps({"format": 1, **asdict(report)}, ensure_ascii=False, indent=1)
        texts = {
            LINES: b"".join(map(line_of, lines)).decode(),
            PAGE: golden_page(goldens, report),
            YIELD: f"{figures}\n",
            DRAFTS: b"".join(line_of(draft.model_dump()) for draft in self._drafts).decode(),
        }
        try:
            for name, text in texts.items():
                write_whole(folder / name, text)
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror or error}") from error


def golden_page(goldens: Sequence[AnyGolden], report: Report) -> str:
    """Markdown for a reviewer; foreign texts keep to their line and cannot hide anything."""
    lines = ["# Goldens", "", *(f"- {_line(line)}" for line in report.lines())]
    for number, golden in enumerate(goldens, 1):
        lines += ["", *_sheet(number, golden)]
    return "\n".join(lines) + "\n"


def _sheet(number: int, golden: AnyGolden) -> Iterator[str]:
    origin: dict[str, Any] = (golden.additional_metadata or {}).get("synthesis", {})
    if isinstance(golden, Golden):
        prompt, answer = golden.input, golden.expected_output
    else:
        prompt, answer = golden.scenario, golden.expected_outcome
    yield f"## {number}. {_line(prompt)}"
    yield ""
    yield f"- answer: {_line(answer)}" if answer else "- no expected answer"
    if isinstance(golden, ConversationalGolden) and golden.user_description:
        yield f"- person: {_line(golden.user_description)}"
    for sentence in origin.get("supporting_sentences", ()):
        yield f"- rests on: {_line(sentence)}"
    for passage, text in zip(origin.get("passages", ()), golden.context or (), strict=False):
        yield f"- from {_passage_name(passage)}: {_line(text)}"
    yield f"- {sort_of(origin)}"
    lines = {_line(prompt), _line(answer or "")}
    for node, reply in origin.get("answers", {}).items():
        # A text or a verdict; lists and objects are in the file.
        short = isinstance(reply, str | bool) or (isinstance(reply, dict) and "verdict" in reply)
        if short and (line := _answer_line(reply)) not in lines:
            yield f"- {node}: {line}"


def _passage_name(passage: Mapping[str, Any]) -> str:
    name = _line(passage.get("document", "a context"))
    if "page" in passage:
        name += f" page {passage['page']}"
    if "offset" in passage:
        name += f" at {passage['offset']:,}"
    return f"{name} (SHA-256 {passage['sha256'][:12]}…)"


def sort_of(origin: dict[str, Any]) -> str:
    """Make of a golden: its evolutions, how hard it is, which draft, and the seed."""
    parts: list[str] = []
    # A golden without passages is about what its source is called.
    if "source" in origin and not origin.get("passages"):
        parts.append(f"about {_line(str(origin['source']))}")
    parts.append(" and ".join(origin.get("evolutions", ())) or str(origin.get("kind", "own")))
    if hard := origin.get("difficulty"):
        parts.append(f"{hard['level']} ({hard['answered']} of {hard['judges']} knew it)")
    return ", ".join([*parts, f"draft {origin.get('draft', 0) + 1}", f"seed {origin.get('seed')}"])


def _answer_line(value: Any) -> str:
    if isinstance(value, dict) and "verdict" in value:
        verdict = _answer_line(value["verdict"])
        return _line(f"{verdict}: {value['reason']}") if value.get("reason") else verdict
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _line(str(value))


def _line(text: str) -> str:
    return plain(" ".join(text.split()))
