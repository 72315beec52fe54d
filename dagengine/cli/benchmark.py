"""`dagengine benchmark`: how far a judge can be trusted, as a card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dagengine.cli.benchmark_job import BenchmarkJob, symmetry_of, ways_of
from dagengine.cli.options import (
    EXIT_FAILED,
    BaseUrl,
    Delimiters,
    Mapped,
    MaxInFlight,
    StorePath,
    cases_of,
)
from dagengine.errors import InputError

if TYPE_CHECKING:
    from dagengine.metrics import BaseMetric
    from dagengine.reliability.card.conditions import FailIf
    from dagengine.reliability.card.values import JudgeCard
    from dagengine.reliability.fingerprint import Binding
    from dagengine.test_case import TestCase


def benchmark(
    metrics: Annotated[
        str | None,
        typer.Argument(metavar="METRICS.py[:NAME]", help="A Python file with metrics."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Test cases, as for `run`: JSON lines, CSV, Parquet …")
    ] = None,
    mapped: Mapped = None,
    delimiter: Delimiters = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Who answers, as for `run`; several are compared."),
    ] = None,
    base_url: BaseUrl = None,
    times: Annotated[int, typer.Option(min=1, help="How often every question is asked.")] = 20,
    orders: Annotated[
        str, typer.Option(help="Orders of presentation, with commas: given, swapped, reversed.")
    ] = "given",
    temperatures: Annotated[
        str | None,
        typer.Option(help="Temperatures, with commas between; by default the nodes' own."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds that the judge is asked with, with commas between.")
    ] = None,
    paraphrases: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help='Other words for nodes: {"short": {"name of a node": "other words"}, …}.',
        ),
    ] = None,
    swap: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST,SECOND",
            help="The two fields that the order `swapped` exchanges; by default two contestants.",
        ),
    ] = None,
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            help="Ask for token probabilities, to see whether the judge knows how sure it is.",
        ),
    ] = False,
    second_answers: Annotated[
        bool,
        typer.Option(help="Ask nodes that a case reached only once a second time, by themselves."),
    ] = True,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD|FILE",
            help="What people say: a case field such as `additional_metadata.label`, or a file "
            "with the columns `case` (name, or place from 0) and `label`.",
        ),
    ] = None,
    labels_random: Annotated[
        bool,
        typer.Option(
            "--labels-random",
            help="State that the labelled cases are a random part of all, which lets the card "
            "correct the judge's pass rate by them.",
        ),
    ] = False,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The case field that cases of one document or dialogue have in common.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the card.")] = Path("benchmark"),
    fail_if: Annotated[
        list[str] | None,
        typer.Option(metavar="MEASURE>NUMBER", help="Exit with 1 when this holds; repeatable."),
    ] = None,
    target: Annotated[
        float, typer.Option(min=0, max=0.5, help="The flip rate that votes are counted for.")
    ] = 0.05,
    max_calls: Annotated[
        int | None,
        typer.Option(min=0, help="Ask nothing if more calls may be needed; never make more."),
    ] = None,
    max_in_flight: MaxInFlight = 64,
    store: StorePath = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="CARD.json", help="Only say whether a card still holds; asks nothing."
        ),
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="OLD.json NEW.json", help="Only compare two cards."),
    ] = None,
) -> None:
    """Measure how far a judge can be trusted: would I get this score again?

    Asks every question of every case again and again and says how often scores flip, which
    node is to blame, how many votes would settle it, and whether people agree. Writes
    `card.html`, `card.json` and `card.md`. Prints the calls it will make before it asks.

    With --store a run that was interrupted goes on where it was, and one that was finished
    asks nothing.

    Exit codes: 0 done, 1 a --fail-if holds or the card is stale, 2 bad input, 130 interrupted.
    """
    from dagengine.gateway.limits import Limits
    from dagengine.reliability.card.conditions import parse

    if compare is not None:
        _compare(*compare, [parse(text) for text in fail_if or ()])
        return
    if metrics is None or data is None:
        raise typer.BadParameter("METRICS.py and --data are needed (but for --compare)")
    failing = [parse(text) for text in fail_if or ()]
    from dagengine.data.cases import strict
    from dagengine.loading import load_metrics
    from dagengine.reliability.card.build import check_labels, make_card
    from dagengine.reliability.card.comparison import could_be_seen
    from dagengine.test_case import TestCase

    loaded = load_metrics(metrics)
    source = strict(cases_of(data, mapped, delimiter))
    cases = list(cast(Iterable[TestCase], source))
    judges = _judges(judge or (), base_url)
    if check is not None:
        _check(check, _binding(loaded, cases, judges), failing)
        return
    _require_intervals()
    if labels is not None:
        check_labels(loaded, cases, labels)  # or there is no use in asking
    symmetry = symmetry_of(swap)
    ways = ways_of(times, orders, temperatures, seeds, paraphrases)
    asking = BenchmarkJob(loaded, cases, judges, ways, symmetry, probabilities, second_answers)
    most = asking.print_plan(max_in_flight)
    typer.echo(could_be_seen(len(cases), times))
    if max_calls is not None:
        asking.require_calls(most, max_calls, store)
    limits = Limits(max_in_flight=max_in_flight, max_calls=max_calls)
    card = make_card(
        asking.all(store, limits=limits),
        loaded,
        cases,
        _identities(loaded, judges),
        labels=labels,
        labels_random=labels_random,
        groups=groups,
        target=target,
        symmetry=symmetry,
    )
    _write(card, out)
    _exit_as(card, failing)


def _require_intervals() -> None:
    """Raise MissingExtraError now, and not when everything has been asked."""
    from statistics import fmean

    from dagengine.reliability.statistics.intervals import bootstrap

    bootstrap([0.0, 1.0], fmean, resamples=2)


def _judges(names: Sequence[str], base_url: str | None) -> dict[str, Any]:
    """The judges by name; none at all means each metric's own."""
    from dagengine.loading import load_judge

    if not names:
        return {} if base_url is None else {"": load_judge(None, base_url)}
    if len(set(names)) < len(names):
        raise InputError(f"--judge is given twice: {', '.join(names)}")
    return {name: load_judge(name, base_url) for name in names}


def _identities(loaded: Sequence[BaseMetric], judges: dict[str, Any]) -> list[str]:
    """Who answers: the name that a judge has in every process, where it has one."""
    from dagengine.compiler.lowering import compile_metrics
    from dagengine.judges import as_judge
    from dagengine.question import durable_identity

    plan = compile_metrics(loaded)
    asked = sorted({judge for unit in plan.units if unit.node.asks for judge in unit.judges})
    found = [
        as_judge(given if plan.models[place] is None else plan.models[place])
        for given in judges.values() or [None]
        for place in asked
    ]
    return list(dict.fromkeys(durable_identity(judge) or judge.identity for judge in found))


def _binding(
    loaded: Sequence[BaseMetric], cases: Sequence[TestCase], judges: dict[str, Any]
) -> Binding:
    from dagengine.reliability.fingerprint import bind

    return bind(loaded, _identities(loaded, judges), cases)


def _write(card: JudgeCard, out: Path) -> None:
    from dagengine.reliability.card.files import write_card
    from dagengine.reliability.card.page import card_page
    from dagengine.reliability.card.table import print_card
    from dagengine.reliability.card.words import markdown

    print_card(card)
    out.mkdir(parents=True, exist_ok=True)
    (out / "card.html").write_text(card_page(card), encoding="utf-8", errors="backslashreplace")
    (out / "card.md").write_text(markdown(card), encoding="utf-8", errors="backslashreplace")
    write_card(card, out / "card.json")
    typer.echo(f"card: {out / 'card.html'} (also card.json, card.md)")


def _exit_as(card: JudgeCard, conditions: Sequence[FailIf]) -> None:
    from dagengine.reliability.card.conditions import failures, undecided

    for line in undecided(card, conditions):
        typer.echo(f"cannot tell: {line}", err=True)
    lines = failures(card, conditions)
    for line in lines:
        typer.echo(f"fails: {line}", err=True)
    if lines:
        raise typer.Exit(EXIT_FAILED)


def _check(path: Path, now: Binding, conditions: Sequence[FailIf]) -> None:
    """Say whether a card still speaks about what there is now."""
    from dagengine.reliability.card.files import read_card
    from dagengine.reliability.fingerprint import changes

    card = read_card(path)
    found = changes(card.binding, now)
    if found:
        typer.echo(f"stale: {path} was made of something else")
        for line in found:
            typer.echo(f"  {line}")
        raise typer.Exit(EXIT_FAILED)
    typer.echo(f"holds: {path} ({card.sha256[:16]})")
    _exit_as(card, conditions)


def _compare(old: Path, new: Path, conditions: Sequence[FailIf]) -> None:
    """Print what two cards differ in, case by case; conditions name the measures that count."""
    from dagengine.reliability.card.comparison import MEASURES, between_cards
    from dagengine.reliability.card.conditions import worse
    from dagengine.reliability.card.files import read_card
    from dagengine.reliability.card.table import print_contrasts
    from dagengine.reliability.fingerprint import changes

    before, after = read_card(old), read_card(new)
    found = between_cards(before, after, [one.measure for one in conditions] or MEASURES)
    print_contrasts(found)
    lines = changes(before.binding, after.binding)
    typer.echo("made of the same" if not lines else "what is not the same:")
    for line in lines:
        typer.echo(f"  {line}")
    failing = worse(found, conditions)
    for line in failing:
        typer.echo(f"fails: {line}", err=True)
    if failing:
        raise typer.Exit(EXIT_FAILED)
