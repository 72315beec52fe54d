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
from dagengine.cli.common.judging import collector_at_work, saying_how_to_go_on
from dagengine.cli.common.output import EXIT_NO_SCORE, outlive_reader, report, say

if TYPE_CHECKING:
    from dagengine.synthesis import Quota, Synthesizer


@dataclass(frozen=True, kw_only=True)
class SynthesizeOptions(shared.LimitOptions):
    """The options of one synthesis, as they were typed."""

    documents: Annotated[
        list[Path],
        Argument(
            metavar="DOCUMENT...",
            help="Files or folders: text, Markdown, HTML, PDF, DOCX, PPTX, EPUB.",
        ),
        Reads(),
    ]
    out: Annotated[Path, Option(help="File for the goldens, JSON lines."), Writes()] = Path(
        "goldens.jsonl"
    )
    count: Annotated[int, Option(min=1, help="Number of goldens to generate.")] = 20
    quotas: Annotated[
        Path | None,
        Option(
            help="A CSV file instead of --count, with the columns count, document, kind (plain, "
            "reasoning, multi-context, concretizing, constrained, comparative, hypothetical, "
            "in-breadth), difficulty. An empty cell allows any value."
        ),
        Reads(),
    ] = None
    second_judge: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="The judge that answers without the expected output "
            "and must agree. Default: --judge.",
        ),
        Reads(),
    ] = None
    difficulty_judge: Annotated[
        list[str] | None,
        Option(
            metavar="MODEL",
            help="A cheap judge that answers without the documents, to measure the difficulty of "
            "a golden. Repeatable.",
        ),
        Reads(),
    ] = None
    embedder: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="An embedding model, to find inputs that may ask for the same; the judge "
            "decides. Default: compare words.",
        ),
        Reads(),
    ] = None
    evolutions: Annotated[
        int, Option(min=0, max=10, help="Number of evolutions of each draft.")
    ] = 1
    expected_output: Annotated[
        bool,
        Option(
            "--expected-output/--no-expected-output",
            help="Also write and check the expected output.",
        ),
    ] = True
    per_context: Annotated[
        int, Option(min=1, max=20, help="Maximum number of goldens per passage.")
    ] = 2
    tries: Annotated[int, Option(min=1, help="Maximum number of drafts per golden.")] = 5
    chunk_size: Annotated[int, Option(min=16, help="Maximum length of a passage, in tokens.")] = 512
    chunk_overlap: Annotated[int, Option(min=0, help="Overlap of two passages, in tokens.")] = 32
    scenario: Annotated[str | None, Option(help="Who asks, and why.")] = None
    task: Annotated[str | None, Option(help="What the application does.")] = None
    input_format: Annotated[str | None, Option(help="What an input looks like.")] = None
    output_format: Annotated[str | None, Option(help="What an expected output looks like.")] = None
    seed: Annotated[int, Option(help="Random seed for the choice of passages and kinds.")] = 0
    replay: shared.Replayed = False
    record: Annotated[
        Path | None,
        Option(
            help="Folder for the record of the run: every draft is a case. Review the goldens in "
            "report.html."
        ),
        within(
            *("run.json", "results.jsonl", "cases.jsonl", "times.jsonl", "columns.parquet"),
            *("goldens.jsonl", "goldens.md", "drafts.jsonl", "yield.json", "report.html"),
        ),
    ] = None
    plan: Annotated[
        bool, Option("--plan", help="Only estimate the calls of the first round; make none.")
    ] = False

    def quota_list(self) -> list[Quota]:
        """The quotas of --quotas, or one of --count; raises InputError for an invalid row."""
        from dagengine.data.readers import table_of
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
    if options.replay and options.store is None:
        raise typer.BadParameter("--replay needs --store")
    from dagengine.synthesis.contexts import NoTextError

    try:
        _print_plan(options) if options.plan else _make(options)
    except NoTextError as error:
        say(f"no golden: {error}")
        raise typer.Exit(EXIT_NO_SCORE) from None


def _make(options: SynthesizeOptions) -> None:
    from dagengine.results.totals import cost_line

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
    from dagengine.store.answers import Store
    from dagengine.synthesis import EvolutionConfig, StylingConfig, Synthesizer

    address = options.base_url
    embedder: Any = options.embedder
    if embedder is not None and embedder.rpartition(":")[0].endswith(".py"):
        embedder = load_judge(embedder, None)
    elif embedder is not None:
        from dagengine.judges.embedding import EmbeddingJudge

        embedder = EmbeddingJudge(embedder, base_url=address)
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
        store=None if options.store is None else Store(options.store, replay=options.replay),
    )


@contextmanager
def _lines(path: Path) -> Iterator[Callable[[Any], None]]:
    """A function that writes one golden per line; keeps an existing file until the first golden."""
    from dagengine.data.json_lines import JsonLines

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
    from dagengine.cli.plan import LATENCY, Assumptions, as_dict, print_estimate
    from dagengine.question import judge_name

    synthesizer = _synthesizer(options, lambda golden: None)
    forecast = synthesizer.estimate_goldens_from_docs(**_arguments(options))
    names = tuple(judge_name(judge.judge) for judge in forecast.judges)
    shown = Assumptions(names, options.prices(), LATENCY, options.limits().max_in_flight)
    report(**as_dict(forecast, shown))
    print_estimate(forecast, shown)
    say(f"A rejected draft is replaced: up to {options.tries} drafts per golden.")
