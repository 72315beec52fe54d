"""The commands that fit numbers to human labels: `fit escalation`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagengine.cli.common.command import Commands
from dagengine.cli.common.files import Reads, sole, within
from dagengine.cli.common.options import (
    BaseUrl,
    Delimiters,
    Groups,
    Mapped,
    SealedShare,
    cases_of,
    sole_metric,
    two_numbers,
)
from dagengine.cli.common.streams import say, shown
from dagengine.errors import InputError
from dagengine.terminal import counted

if TYPE_CHECKING:
    from dagengine.improvement.files import Folder
    from dagengine.improvement.replaying import Replayed
    from dagengine.improvement.values import Split
    from dagengine.metrics.common.base import BaseMetric
    from dagengine.reliability.fitting.escalation import Fitted, Proof

LEAST = 100  # labelled cases (or groups of them); fewer cannot show what a threshold is worth
_ARMS = {
    "small": "small judge alone", "cascade": "cascade", "chance": "as many by chance",
    "large": "large judge alone",
}  # fmt: skip
_HELP = "Fit a number of a metric to human labels, and prove it on cases that were sealed."
app = Commands(name="fit", help=_HELP, no_args_is_help=True, rich_markup_mode="markdown")
_Source = typer.Option(
    metavar="RUN|FILE|MODEL",
    help="What this judge said: a run, a file of verdicts (of the small judge with a column "
    "`confidence`), or the judge itself with --store.",
)


@app.callback()
def about() -> None:
    """Fit a number of a metric to human labels, and prove it on cases that were sealed."""


@dataclass(frozen=True, kw_only=True)
class EscalationOptions:
    """The options of one fit, as they were typed."""

    metrics: Annotated[
        str | None,
        typer.Argument(
            metavar="[METRICS.py[:NAME]]",
            help="The metric, with `escalated` or without: the threshold is written as a patch.",
        ),
        Reads(),
    ] = None
    small: Annotated[str, _Source, Reads()]
    large: Annotated[str, _Source, Reads()]
    data: Annotated[
        Path | None,
        typer.Option(help="Test cases in a file: each node of METRICS.py is replayed by itself."),
        Reads(),
    ] = None
    mapped: Mapped = None
    delimiter: Delimiters = None
    store: Annotated[
        Path | None, typer.Option(help="A store with the answers of both judges."), Reads()
    ] = None
    base_url: BaseUrl = None
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD|FILE",
            help="Human labels, as for `improve`. Default: the column `label` of the verdicts.",
        ),
    ] = None
    groups: Groups = None
    segments: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD",
            help="For which values of this field or column is the large judge worse? Repeatable.",
        ),
    ] = None
    metric: Annotated[
        str | None, typer.Option(help="The metric, if files of verdicts have several.")
    ] = None
    distance: Annotated[
        float, typer.Option(min=0, max=100, help="Points below the best accuracy that are as good.")
    ] = 0.5
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="SMALL,LARGE",
            help="US dollars of one judgement. Default: what the answers of runs cost.",
        ),
    ] = None
    sealed: SealedShare = 0.4
    seed: Annotated[int, typer.Option(help="Another number seals other cases.")] = 0
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="The folder for the record and the patch."),
        within("improve.json", "metrics.patch", "improved.py"),
    ] = Path("escalation")


@app.command()
def escalation(options: EscalationOptions) -> None:
    """Fit below which confidence a large judge decides, and prove it. Makes no judge calls.

    Replays a small and a large judge from runs, files of verdicts or a store. Fits the threshold
    on one part of the labelled cases. The sealed part is opened once, if some threshold is better
    than the small judge alone. There the cascade has to be better than the small judge alone, and
    better than as many judgements escalated by chance.

    Exit codes: 0 done, whether or not the threshold is proved; 2 invalid input; 130 interrupted.
    """
    from dagengine.improvement.files import RECORD, Folder

    metric = None if options.metrics is None else sole_metric(options.metrics)
    replayed, to, costs = _replay(options, metric)
    paid = (costs[0], costs[1]) if len(costs) == 2 else None
    if options.prices is not None:
        paid = two_numbers(options.prices, "--prices is SMALL,LARGE")
    for note in replayed.notes:
        say(f"warning: {shown(note)}", err=True)
    _check(replayed, options.sealed)
    options.out.mkdir(parents=True, exist_ok=True)
    with sole(options.out / RECORD):
        _fit(options, replayed, metric, to, paid, Folder(options.out))


def _replay(
    options: EscalationOptions, metric: BaseMetric | None
) -> tuple[Replayed, str | None, list[float]]:
    """Both judges, the name of the large one, and what an answer of each costs, where known."""
    from dagengine.execution.interrupts import sync
    from dagengine.improvement import replaying
    from dagengine.improvement.rungs import escalation_of, with_escalation
    from dagengine.loading import load_judge, names_a_file
    from dagengine.record.run import run_at
    from dagengine.reliability.verdict_files import collected_of_two

    sources, store, labels = (options.small, options.large), options.store, options.labels
    runs = [replaying.judge_of(Path(name)) for name in sources if not store and run_at(name)]
    costs = [cost for _, cost in runs if cost is not None]
    to = runs[-1][0] if len(runs) == len(sources) else None
    if options.data is None and store is None:
        seen = collected_of_two(*map(Path, sources), metric=options.metric)
        rows: list[Any] = [*replaying.observe_verdicts(seen)]
        columns = {number: row.columns for number, row in reversed(seen.runs)}
        groups = options.groups or seen.groups
        return replaying.replay_judges(
            seen.metric, rows, seen.cases, labels or seen.labels, groups, columns
        ), to, costs  # fmt: skip
    if metric is None or options.data is None or labels is None:
        raise InputError("--data and --store need METRICS.py, --data and --labels")
    panel, rows = escalation_of(metric), []
    if panel is not None and (panel.votes > 1 or panel.unsure):
        raise InputError("votes= and unsure= of `escalated` cannot be replayed: leave below= alone")
    cases: list[Any] = [*cases_of(options.data, options.mapped, options.delimiter)]
    for side, name in zip(replaying.SIDES, sources, strict=True):
        if store is None:
            rows += replaying.observe_run(Path(name), metric, cases, side)
        else:
            judge = load_judge(name, options.base_url)
            rows += sync(partial(replaying.observe_store, store, metric, cases, side, judge))
            to = None if names_a_file(name) else name
    cascade = metric if panel is not None else with_escalation(metric, 0.5, to or "large")
    return replaying.replay_judges(cascade, rows, cases, labels, options.groups), to, costs


def _check(replayed: Replayed, sealed: float) -> None:
    """Raise InputError before anything is fitted if nothing can be shown; say what is unknown."""
    from dagengine.reliability.fitting.escalation import UNKNOWN
    from dagengine.reliability.statistics.comparisons import visible_difference

    judged = replayed.judged
    sure = [turn[0] for case in judged.values() for way in case.ways for turn in way.turns]
    unknown = sum(known == UNKNOWN for known in sure)
    size = len({replayed.groups.get(number, number) for number in judged})
    if size < LEAST:
        differing = sum(case.small != case.large for case in judged.values()) / max(1, len(judged))
        # A difference that half of the samples show is as large as half of the interval.
        half = visible_difference(max(1, round(sealed * size)), differing or 1.0, power=0.5)
        raise InputError(
            f"{size} labelled cases (or groups) that both judges judged are too few: on those that "
            f"are sealed a gain is known to ± {100 * half:.0f} points; label at least {LEAST}"
        )
    if unknown == len(sure):
        raise InputError(
            "no confidence of the small judge is known, so every judgement would escalate: give "
            "verdicts a column `confidence`, nodes `options=Options(top_logprobs=5)`, or run "
            "`benchmark --times 1 --probabilities --store FILE`; a run of several nodes needs "
            "METRICS.py and --data"
        )
    if unknown:
        judgements = counted(len(sure), "judgement")
        say(
            f"warning: {unknown} of {judgements} have no known confidence: they always escalate",
            err=True,
        )


def _fit(
    options: EscalationOptions, replayed: Replayed, metric: BaseMetric | None, to: str | None,
    paid: tuple[float, float] | None, folder: Folder,
) -> None:  # fmt: skip
    """Fit on one part, prove on the other, and say and write what came of it."""
    from pydantic_core import to_jsonable_python

    from dagengine.data.case_numbers import read_digest
    from dagengine.improvement.rungs import escalation_of, with_escalation
    from dagengine.improvement.splitting import split_cases
    from dagengine.improvement.values import FORMAT, Candidate
    from dagengine.reliability.fitting import escalation as law

    def cascade(part: Iterable[int]) -> law.Cascade:
        own = [*part]
        names = [replayed.groups.get(number, number) for number in own]
        several = len(set(names)) < len(names)
        return law.Cascade([replayed.judged[n] for n in own], names if several else None)

    labels = {number: replayed.labels[number] for number in sorted(replayed.judged)}
    split = split_cases(
        replayed.cases, labels, replayed.groups, options.sealed, replayed.reads,
        f"escalation {options.seed}",
    )  # fmt: skip
    tried = cascade(split.tried)
    fitted = law.fit_escalation(tried, distance=options.distance / 100, prices=paid or (0.0, 1.0))
    segments = replayed.segments(options.segments or (), split.tried)
    worse = law.worse_segments(tried.cases, segments)
    # A look with another seed, or at other judges, is one more look at the same labels.
    read = [f"{read_digest(replayed.cases[n], replayed.reads)} {labels[n]!r}" for n in labels]
    sha256 = hashlib.sha256("\n".join(sorted(read)).encode()).hexdigest()
    proof, earlier, left = None, 0, None
    if fitted.below != law.NEVER:
        look = repr((options.seed, options.sealed, options.distance, paid, replayed.judged))
        earlier = folder.look(sha256, hashlib.sha256(look.encode()).hexdigest())
        proof = law.prove_escalation(cascade(split.sealed), fitted.below, prices=paid)
    if metric is not None and options.metrics and proof is not None and proof.proved:
        now = escalation_of(metric)
        detail: dict[str, Any] = {"below": fitted.below, **({} if now else {"to": to})}
        if now is not None and now.below == fitted.below:
            left = "nothing: this is the threshold that it has"
        elif 0 < fitted.below <= 1 and (now or to):
            change = [Candidate("escalation", "escalation", "", detail=detail)]
            left = folder.change(options.metrics, metric, change, with_escalation(metric, **detail))
    for line in _lines(fitted, proof, options.distance, split, left):
        say(shown(line))
    for name, cases, loss in worse:
        where = f"{shown(name)} ({counted(cases, 'case')} to fit on)"
        say(f"  worse    the large judge is, by {100 * loss:.1f} points, in {where}")
    if earlier:
        say(f"warning: these labels were looked at {counted(earlier, 'time')} before, for other "
            "judges or seeds: they are no longer cases that nobody has seen", err=True)  # fmt: skip
    record = {
        "format": FORMAT, "sealed_part": {"sha256": sha256, "looks": folder.looks(sha256)},
        "seed": options.seed, "distance": options.distance, "fitted": fitted._asdict(),
        "proof": proof, "proved": proof is not None and proof.proved, "worse": worse, "next": left,
    }  # fmt: skip
    folder.record(to_jsonable_python(record, inf_nan_mode="null"))
    say(f"\nrecord: {folder.path / 'improve.json'}")


def _lines(
    fitted: Fitted, proof: Proof | None, distance: float, split: Split, left: str | None
) -> Iterator[str]:
    """The headline, what to do next, the figures by judge, and what they are of."""
    labels = f"  labels   {len(split.tried):,} to fit on, {len(split.sealed):,} sealed"
    best = f"within {distance:g} points of the best ({100 * fitted.best:.1f} % right)"
    if proof is None:
        yield f"✕ Nothing to escalate: the small judge alone is {best}\n"
        yield f"{labels}, not opened"
        return
    gains = {arm: _figure(gain, "+.1f") for arm, gain in proof.gains.items()}
    if proof.proved:
        gain = gains["small"].partition(" ")[0]
        yield f"✓ Escalate below {fitted.below}: {gain} points on cases it was not fitted on\n"
        yield f"  next     {left or f'write below={fitted.below}'}\n"
    else:
        yield f"○ Escalating below {fitted.below} is not proved to be worth it\n"
        yield "  next     keep the small judge, or label more cases\n"
    yield f"  {'':18}{'right, per cent':>22}{'the cascade gains':>22}{'US dollars a case':>32}"
    for arm, name in _ARMS.items():
        price = _figure(proof.price[arm], ".3g", 1) if proof.price else "not known: --prices"
        right, gain = _figure(proof.accuracy[arm], ".1f"), gains[arm] if arm != "cascade" else ""
        yield f"  {name:18}{right:>22}{gain:>22}{price:>32}"
    low = "never" if fitted.low < -1e300 else f"{fitted.low:g}"
    yield (
        f"\n  below    {fitted.below}: the cheapest {best}; {low} to {fitted.high:g} are as good"
    )
    yield f"  share    {100 * proof.share:.0f} % of the judgements escalate"
    yield f"{labels}, opened once"
    for node, cases in proof.lacking.items():
        yield f"  lacking  {counted(cases, 'case')} wrong, as they lead to {node}: nobody asked it"


def _figure(measured: Any, form: str, factor: float = 100) -> str:
    """A figure with its interval; of one that is not known why."""
    interval = getattr(measured, "interval", measured)
    if not hasattr(interval, "low"):
        return f"not known: {interval.reason}"
    low, high = (f"{factor * end:{form.lstrip('+')}}" for end in (interval.low, interval.high))
    return f"{factor * measured.value:{form}} ({low} to {high})"
