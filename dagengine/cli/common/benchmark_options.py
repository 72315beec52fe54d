"""What `dagengine benchmark` can be told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dagengine.cli.common.completion import judge_names
from dagengine.cli.common.files import Given, Reads, Writes
from dagengine.cli.common.options import BaseUrl, Delimiters, Mapped, MaxInFlight, StorePath


def _card_files(out: Path, given: Given) -> Iterable[Path]:
    """What is written into the folder; with --check and --compare nothing is."""
    if given.get("check") is None and given.get("compare") is None:
        yield from (out / f"card.{suffix}" for suffix in ("html", "json", "md"))


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """The options of one benchmark, as they were typed."""

    metrics: Annotated[
        str | None,
        typer.Argument(metavar="METRICS.py[:NAME]", help="A Python file with metrics."),
        Reads(),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(help="Test cases, as for `run`: JSON lines, CSV, Parquet …"),
        Reads(),
    ] = None
    mapped: Mapped = None
    delimiter: Delimiters = None
    judge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            autocompletion=judge_names,
            help="Who answers, as for `run`; several are compared.",
        ),
        Reads(),
    ] = None
    base_url: BaseUrl = None
    times: Annotated[int, typer.Option(min=1, help="How often every question is asked.")] = 20
    orders: Annotated[
        str, typer.Option(help="Orders of presentation, with commas: given, swapped, reversed.")
    ] = "given"
    temperatures: Annotated[
        str | None,
        typer.Option(help="Temperatures, with commas between; by default the nodes' own."),
    ] = None
    seeds: Annotated[
        str | None, typer.Option(help="Seeds that the judge is asked with, with commas between.")
    ] = None
    paraphrases: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help='Other words for nodes: {"short": {"name of a node": "other words"}, …}.',
        ),
        Reads(),
    ] = None
    swap: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST,SECOND",
            help="The two fields that the order `swapped` exchanges; by default two contestants.",
        ),
    ] = None
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            help="Ask for token probabilities, to see whether the judge knows how sure it is.",
        ),
    ] = False
    second_answers: Annotated[
        bool,
        typer.Option(help="Ask nodes that a case reached only once a second time, by themselves."),
    ] = True
    verdicts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What judges said elsewhere, which nothing is asked for again: a table with the "
            "columns `case` and `verdict` or `score` (also `run`, `node`, `judge` …), or what "
            "`Observations.save` wrote.",
        ),
        Reads(),
    ] = None
    scale: Annotated[
        str | None,
        typer.Option(metavar="LOW,HIGH", help="The ends of the scores in --verdicts; 0,1 if not."),
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD|FILE",
            help="Human labels: a case field such as `additional_metadata.label`, a file with the "
            "columns `case` (name, or place from 0) and `label`, or the `labels.jsonl` that people "
            "wrote by labelling a run in `dagengine view`.",
        ),
    ] = None
    labels_random: Annotated[
        bool,
        typer.Option(
            "--labels-random",
            help="State that the labelled cases are a random part of all, which lets the card "
            "correct the judge's pass rate by them.",
        ),
    ] = False
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The case field that cases of one document or dialogue have in common.",
        ),
    ] = None
    out: Annotated[Path, typer.Option(help="Folder for the card."), Writes(_card_files)] = Path(
        "benchmark"
    )
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEASURE>NUMBER",
            help="Exit with 1 when this holds; repeatable. With --compare: when it holds for the "
            "difference, and p, corrected for all that are named, is below 0.05.",
        ),
    ] = None
    target: Annotated[
        float, typer.Option(min=0, max=0.5, help="The flip rate that votes are counted for.")
    ] = 0.05
    max_calls: Annotated[
        int | None,
        typer.Option(min=0, help="Ask nothing if more calls may be needed; never make more."),
    ] = None
    max_in_flight: MaxInFlight = 64
    store: StorePath = None
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="CARD.json", help="Only say whether a card still holds; asks nothing."
        ),
        Reads(),
    ] = None
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="OLD.json NEW.json", help="Only compare two cards."),
        Reads(),
    ] = None
