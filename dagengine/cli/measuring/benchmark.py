"""`dagengine benchmark`: measure how reliable a judge is, and write a judge card."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dagengine.cli.common.files import name_in_errors, sole
from dagengine.cli.common.output import EXIT_FAILED, fail_if_any, outlive_reader, report, say, warn
from dagengine.cli.measuring.benchmark_options import BenchmarkJob, BenchmarkOptions
from dagengine.errors import InputError
from dagengine.system.safe_files import write_whole
from dagengine.system.terminal_text import plain, text_if

if TYPE_CHECKING:
    from dagengine.reliability.card.fail_if import FailIf, FailUnlessUse
    from dagengine.reliability.card.types import JudgeCard, Needs
    from dagengine.reliability.fingerprint import Binding
    from dagengine.reliability.observations import Observations

_FEW_SETTINGS = 2  # more take a while: then the progress is printed


def benchmark(options: BenchmarkOptions) -> None:
    """Measure how reliable a judge is: would I get this score again?

    Asks every question of every test case several times. Reports how often results flip, which node
    causes it, how many votes would fix it, and whether human labels agree. Writes the judge card as
    `card.html`, `card.json` and `card.md`. Prints the number of calls before the first call.

    With --verdicts, the card describes existing verdicts of a judge; no calls are made.

    With --store, an interrupted run continues where it stopped, and a finished run makes no calls.

    Exit codes: 0 done; 1 a --fail-if condition holds or the card is stale; 2 invalid input; 130
    interrupted.
    """
    from dagengine.reliability.card.fail_if import condition, parse
    from dagengine.reliability.fingerprint import bind

    options.require_no_asking()
    if options.compare is not None:
        _compare(*options.compare, list(map(parse, options.fail_if or ())))
        return
    conditions = list(map(condition, options.fail_if or ()))
    if options.metrics is None and options.verdicts is not None:
        gc.disable()  # of millions of rows none is part of a cycle, and each would be looked at
        try:
            _write(_card_of_file(options), options, conditions)
        finally:
            gc.enable()
        return
    job = BenchmarkJob.of(options)
    if options.check is not None:
        judges = job.identities() if options.verdicts is None else _load_observations(job)[1]
        _check(options.check, bind(job.metrics, judges, job.cases), conditions)
        return
    outlive_reader()  # the card is not written yet
    with sole(options.out / "card.json"):
        _measure(job, conditions)


def _measure(job: BenchmarkJob, conditions: Sequence[FailIf | FailUnlessUse]) -> None:
    """Ask every question several times, or read the verdicts, and write the card."""
    from dagengine.reliability.card.card_maker import make_card

    options = job.options
    if options.verdicts is None:
        observations, judges = job.ask(), job.identities()
    else:
        observations, judges = _load_observations(job)
    totals = observations.totals
    card = make_card(
        observations,
        job.metrics,
        job.cases,
        judges,
        labels=options.labels,
        labels_random=options.labels_random,
        label_scale=_label_scale(options),
        groups=options.groups,
        target=options.target,
        symmetry=job.symmetry,
        needs=_needs(options),
        price=totals.cost / totals.calls if totals.cost is not None and totals.calls else None,
    )
    _write(card, options, conditions)


def _load_observations(job: BenchmarkJob) -> tuple[Observations, list[str]]:
    """The observations in the file of --verdicts, and their judges."""
    from dagengine.record.reader import run_at
    from dagengine.reliability.observations import Observations

    path = job.options.verdicts
    assert path is not None
    if run_at(path) is not None:
        raise typer.BadParameter("a run names metrics and cases: leave out METRICS.py and --data")
    job.check()
    observations = Observations.load(path, job.cases, scale=_ends(job.options.scale))
    judges = dict.fromkeys(at.judge for at in observations.conditions if at.judge)
    return observations, [*judges] or [path.name]


def _ends(scale: str | None, option: str = "--scale") -> tuple[float, float]:
    """The lowest and the highest score of a scale, as an option gives them."""
    try:
        low, high = map(float, (scale or "0,1").split(","))
    except ValueError:
        raise InputError(f"{option} takes two numbers, for instance 1,5, not {scale!r}") from None
    return low, high


def _card_of_file(options: BenchmarkOptions) -> JudgeCard:
    """The card of a file of verdicts, which names its metric and its cases itself."""
    from dagengine.reliability.card.best_of_n import contest_card
    from dagengine.reliability.card.card_maker import check_labels, make_card
    from dagengine.reliability.human_labels import labels_among
    from dagengine.reliability.statistics.intervals import require_benchmark_extra
    from dagengine.reliability.verdict_cases import read_verdicts

    assert options.verdicts is not None
    if options.data is not None:
        raise typer.BadParameter("--data needs METRICS.py; without it the file names the cases")
    require_benchmark_extra()
    verdicts = read_verdicts(
        options.verdicts, metric=options.metric, scale=_ends(options.scale),
        threshold=options.threshold,
    )  # fmt: skip
    verdicts = replace(verdicts, runs=())  # the rows take as much memory as the card
    contests = verdicts.contests
    conditions = verdicts.observations.conditions if contests is None else [*contests.scores]
    judges = dict.fromkeys(condition.judge for condition in conditions if condition.judge)
    labels: str | Mapping[int, Any] | None = options.labels or verdicts.labels or None
    if options.labels is not None:
        labels, line = labels_among(options.labels, verdicts.cases)
        if line:
            warn(line)
    count = len({condition.setting for condition in conditions})
    numbers = itertools.count(1)

    def progress(name: str) -> None:
        if count > _FEW_SETTINGS:
            say(f"setting {next(numbers)} of {count}: {plain(name)}", err=True)

    names = [*judges] or [options.verdicts.name]
    shared: dict[str, Any] = {
        "labels": labels, "labels_random": options.labels_random,
        "groups": options.groups or verdicts.groups, "needs": _needs(options),
        "progress": progress,
    }  # fmt: skip
    if contests is not None:
        return contest_card(
            contests, verdicts.metric, verdicts.cases, names,
            ties=options.ties, within=options.within / 100, **shared,
        )  # fmt: skip
    if labels is not None:
        warn(*check_labels([verdicts.metric], verdicts.cases, labels))
    return make_card(
        verdicts.observations, [verdicts.metric], verdicts.cases, names,
        label_scale=_label_scale(options), target=options.target, **shared,
    )  # fmt: skip


def _label_scale(options: BenchmarkOptions) -> tuple[float, float] | None:
    scale = options.label_scale
    return None if scale is None else _ends(scale, "--label-scale")


def _needs(options: BenchmarkOptions) -> Needs:
    from dagengine.reliability.card.recommendation import parse_needs

    return parse_needs(options.need, options.target)


def _write(
    card: JudgeCard, options: BenchmarkOptions, conditions: Sequence[FailIf | FailUnlessUse]
) -> None:
    """Print the card, write its files, and exit as the conditions say."""
    from dagengine.reliability.card.card_formats import card_page, markdown, print_card, write_card

    report(card=card)
    print_card(card, verbose=options.verbose)
    out = options.out
    with name_in_errors(out):
        write_whole(out / "card.html", card_page(card))
        write_whole(out / "card.md", markdown(card))
        # Last, since `--check` and `--compare` read this file: if it is there, all three are.
        write_card(card, out / "card.json")
    say(f"card: {out / 'card.html'} (also card.json, card.md)")
    _exit_as(card, conditions)


def _exit_as(card: JudgeCard, conditions: Sequence[FailIf | FailUnlessUse]) -> None:
    from dagengine.reliability.card.fail_if import failures, undecided_lines

    for line in undecided_lines(card, conditions):
        say(f"cannot tell: {line}", err=True)
    fail_if_any(failures(card, conditions))


def _check(path: Path, now: Binding, conditions: Sequence[FailIf | FailUnlessUse]) -> None:
    """Say whether a card is still valid for the current metrics and judges."""
    from dagengine.reliability.card.card_formats import read_card
    from dagengine.reliability.fingerprint import changes

    card = read_card(path)
    differing = changes(card.binding, now)
    report(holds=not differing, differing=differing)
    if differing:
        say(f"stale: {path} was made from other metrics, prompts, judges or cases")
        for line in differing:
            say(f"  {line}")
        raise typer.Exit(EXIT_FAILED)
    say(f"holds: {path} ({card.sha256[:16]})")
    _exit_as(card, conditions)


def _card_name(path: Path) -> str:
    """The file of a card in a few words: its folder, if a benchmark wrote it there."""
    if path.name == "card.json" and path.parent != Path():
        return str(path.parent)
    return str(path)


def _compare(old: Path, new: Path, conditions: Sequence[FailIf]) -> None:
    """Print how two cards differ, case by case; conditions name the measures to compare."""
    from dagengine.reliability.card.card_formats import print_contrasts, read_card
    from dagengine.reliability.card.differences import COMPARED, between_cards
    from dagengine.reliability.card.fail_if import worse
    from dagengine.reliability.fingerprint import changes

    before, after = read_card(old), read_card(new)
    measures = [condition.measure for condition in conditions] or COMPARED
    contrasts = between_cards(before, after, measures, (_card_name(old), _card_name(new)))
    print_contrasts(contrasts)
    lines = changes(before.binding, after.binding)
    say(text_if(lines, "what differs:") or "made from the same metrics, prompts, judges and cases")
    for line in lines:
        say(f"  {line}")
    report(contrasts=contrasts, differing=lines)
    fail_if_any(worse(contrasts, conditions))
