"""`dagengine synthesize`: goldens from documents, into a file of JSON lines."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Reads, Writes, name_in_errors, within
from dagengine.cli.common.judge_access import collector_at_work, saying_how_to_go_on
from dagengine.cli.common.output import EXIT_NO_SCORE, outlive_reader, report, say

if TYPE_CHECKING:
    from dagengine.synthesis import Quota, Synthesizer


@dataclass(frozen=True, kw_only=True)
class SynthesizeOptions(shared.ReplayOptions):
    """The options of one synthesis, as they were typed."""

    documents: Annotated[list[Path], Argument(metavar="DOCUMENT..."), Reads()]
    """Files or folders: text, Markdown, HTML, PDF, DOCX, PPTX, EPUB."""
    out: Annotated[Path, Writes()] = Path("goldens.jsonl")
    """File for the goldens, JSON lines."""
    count: Annotated[int, Option(min=1)] = 20
    """Number of goldens to generate."""
    quotas: Annotated[Path | None, Reads()] = None
    """A CSV file instead of --count, with the columns count, document, kind (plain, reasoning,
    multi-context, concretizing, constrained, comparative, hypothetical, in-breadth), difficulty. An
    empty cell allows any value.
    """
    second_judge: Annotated[str | None, Option(metavar="MODEL"), Reads()] = None
    """The judge that answers without the expected output and must agree. Default: --judge."""
    difficulty_judge: Annotated[list[str] | None, Option(metavar="MODEL"), Reads()] = None
    """A cheap judge that answers without the documents, to measure the difficulty of a golden.
    Repeatable.
    """
    embedder: Annotated[str | None, Option(metavar="MODEL"), Reads()] = None
    """An embedding model, to find inputs that may ask for the same; the judge decides. Default:
    compare words.
    """
    evolutions: Annotated[int, Option(min=0, max=10)] = 1
    """Number of evolutions of each draft."""
    expected_output: Annotated[bool, Option("--expected-output/--no-expected-output")] = True
    """Also write and check the expected output."""
    per_context: Annotated[int, Option(min=1, max=20)] = 2
    """Maximum number of goldens per passage."""
    tries: Annotated[int, Option(min=1)] = 5
    """Maximum number of drafts per golden."""
    chunk_size: Annotated[int, Option(min=16)] = 512
    """Maximum length of a passage, in tokens."""
    chunk_overlap: Annotated[int, Option(min=0)] = 32
    """Overlap of two passages, in tokens."""
    scenario: str | None = None
    """Who asks, and why."""
    task: str | None = None
    """What the application does."""
    input_format: str | None = None
    """What an input looks like."""
    output_format: str | None = None
    """What an expected output looks like."""
    seed: int = 0
    """Random seed for the choice of passages and kinds."""
    record: Annotated[
        Path | None,
        within(
            *("run.json", "results.jsonl", "cases.jsonl", "times.jsonl", "columns.parquet"),
            *("goldens.jsonl", "goldens.md", "drafts.jsonl", "yield.json", "report.html"),
        ),
    ] = None
    """Folder for the record of the run: every draft is a case. Review the goldens in report.html.
    """
    plan: Annotated[bool, Option("--plan")] = False
    """Only estimate the calls of the first round; make none."""

    def quota_list(self) -> list[Quota]:
        """The quotas of --quotas, or one of --count; raises InputError for an invalid row."""
        from dagengine.data.row_readers import table_of
        from dagengine.errors import InputError
        from dagengine.synthesis import Quota

        if self.quotas is None:
            return [Quota(self.count)]
        columns = {"count", "document", "kind", "difficulty"}
        need = f"wrong columns; use {', '.join(sorted(columns))} (count is required)"
        quotas: list[Quota] = []
        for record in table_of(self.quotas).read():
            row = record.cells(need)
            if not set(row) <= columns or "count" not in row:
                raise InputError(f"{record.place}: {need}")
            cells: dict[str, Any] = {name: cell for name, cell in row.items() if cell is not None}
            try:
                cells["count"] = int(row["count"])
            except (TypeError, ValueError):
                raise InputError(f"{record.place}: count is not a whole number") from None
            quotas.append(Quota(**cells))
        if not quotas:
            raise InputError(f"{self.quotas} has no quota")
        return quotas


def synthesize(options: SynthesizeOptions) -> None:
    """Generate goldens from documents.

    Steps: draft, evolve, rewrite, filter, answer, answer again without the expected output. Writes
    one golden per line after each round, with its source in the metadata. Prints what happened to
    the drafts.

    Exit codes: 0 all goldens were generated; 2 invalid input; 3 some are missing or a document has
    no text; 130 interrupted.
    """
    from dagengine.synthesis.passages import NoTextError

    options.require_store()
    try:
        _print_plan(options) if options.plan else _make(options)
    except NoTextError as error:
        say(f"no golden: {error}")
        raise typer.Exit(EXIT_NO_SCORE) from None


def _make(options: SynthesizeOptions) -> None:
    from dagengine.results.usage_totals import cost_line

    outlive_reader()  # goldens are written one by one, until the last one
    with _lines(options.out) as write, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # why there is no golden is said below
        synthesizer = _synthesizer(options, write)
        collector_at_work()
        with saying_how_to_go_on(options.store):
            made = synthesizer.generate_goldens_from_docs(**_arguments(options))
    report(report=made.report, totals=synthesizer.totals, goldens=[*made])
    for line in made.report.lines():
        say(line)
    say(cost_line(synthesizer.totals))
    say(f"goldens: {options.out}" if made else f"no golden; {options.out} is unchanged")
    if options.record is not None and (page := options.record / "report.html").exists():
        say(f"to review: {page}")
    if made.report.missing or made.report.unreadable:
        raise typer.Exit(EXIT_NO_SCORE)


def _arguments(options: SynthesizeOptions) -> dict[str, Any]:
    from dagengine.synthesis import ContextConstructionConfig

    return {
        "document_paths": options.documents,
        "include_expected_output": options.expected_output,
        "max_goldens_per_context": options.per_context,
        "context_construction_config": ContextConstructionConfig(
            chunk_size=options.chunk_size, chunk_overlap=options.chunk_overlap
        ),
        "quotas": options.quota_list(),
    }


def _synthesizer(options: SynthesizeOptions, write: Callable[[Any], None]) -> Synthesizer:
    from dagengine.loading import chosen_judge, load_judge
    from dagengine.synthesis import EvolutionConfig, StylingConfig, Synthesizer

    address = options.base_url
    embedder: Any = options.embedder
    if embedder is not None and embedder.rpartition(":")[0].endswith(".py"):
        embedder = load_judge(embedder, None)
    elif embedder is not None:
        from dagengine.judges.default import judge_settings
        from dagengine.judges.embedding import EmbeddingJudge

        key = judge_settings(embedder, address).key()
        embedder = EmbeddingJudge(embedder, base_url=address, api_key=key)
    return Synthesizer(
        model=options.chosen_judge(),
        evolution_config=EvolutionConfig(num_evolutions=options.evolutions),
        styling_config=StylingConfig(
            scenario=options.scenario,
            task=options.task,
            input_format=options.input_format,
            expected_output_format=options.output_format,
        ),
        second_model=options.second_judge and chosen_judge(options.second_judge, address),
        difficulty_models=[load_judge(name, address) for name in options.difficulty_judge or ()],
        embedder=embedder,
        max_tries=options.tries,
        seed=options.seed,
        on_golden=write,
        out=options.record,
        limits=options.limits(),
        store=options.answers(),
    )


@contextmanager
def _lines(path: Path) -> Iterator[Callable[[Any], None]]:
    """A function that writes one golden per line; keeps an existing file until the first golden."""
    from dagengine.data.written_lines import JsonLines

    with ExitStack() as ended:

        @functools.cache
        def lines() -> JsonLines:
            path.parent.mkdir(parents=True, exist_ok=True)
            return ended.enter_context(closing(JsonLines(path)))

        def write(golden: Any) -> None:
            with name_in_errors(path):
                lines().write(golden.model_dump(mode="json", exclude_none=True))

        yield write


def _print_plan(options: SynthesizeOptions) -> None:
    from dagengine.cli.plan import LATENCY
    from dagengine.estimate.estimate_report import Assumptions, as_dict, print_estimate

    synthesizer = _synthesizer(options, lambda golden: None)
    forecast = synthesizer.estimate_goldens_from_docs(**_arguments(options))
    shown = Assumptions(options.prices(), LATENCY, options.limits().max_in_flight)
    report(**as_dict(forecast, shown))
    print_estimate(forecast, shown)
    say(f"A rejected draft is replaced: up to {options.tries} drafts per golden.")
