"""The commands that fit numbers to human labels: `fit escalation`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagengine.cli.common.command import Commands
from dagengine.cli.common.files import Given, Reads, Writes, sole
from dagengine.cli.common.options import BaseUrl, Delimiters, Mapped, cases_of
from dagengine.cli.common.streams import say, shown
from dagengine.errors import InputError
from dagengine.terminal import counted

if TYPE_CHECKING:
    from dagengine.improvement.replaying import Replayed
    from dagengine.metrics.common.base import BaseMetric
    from dagengine.reliability.fitting.escalation import Fitted, Proof

LEAST = 100
"""Labelled cases (or groups of them) below which no threshold is fitted."""
_NAMES = {
    "small": "small judge alone", "cascade": "cascade", "chance": "as many by chance",
    "large": "large judge alone",
}  # fmt: skip

app = Commands(
    name="fit",
    help="Fit a number of a metric to human labels, and prove it on cases that were sealed.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.callback()
def about() -> None:
    """Fit a number of a metric to human labels, and prove it on cases that were sealed."""


def _files(out: Path, _: Given) -> Iterable[Path]:
    from dagengine.improvement.files import PATCH, PROGRAM, RECORD

    yield from (out / name for name in (RECORD, PATCH, PROGRAM))


@app.command()
def escalation(
    small: Annotated[
        str,
        typer.Option(
            metavar="RUN|FILE|MODEL",
            help="What the small judge said: a run, a file of verdicts with a column `confidence`, "
            "or with --store the judge.",
        ),
        Reads(),
    ],
    large: Annotated[
        str,
        typer.Option(metavar="RUN|FILE|MODEL", help="What the large judge said of the same cases."),
        Reads(),
    ],
    metrics: Annotated[
        str | None,
        typer.Argument(
            metavar="[METRICS.py[:NAME]]",
            help="The metric, with `escalated` or without: the threshold is written as a patch.",
        ),
        Reads(),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Test cases in a file; then each node of the metric is replayed."),
        Reads(),
    ] = None,
    mapped: Mapped = None,
    delimiter: Delimiters = None,
    store: Annotated[
        Path | None, typer.Option(help="A store that has the answers of both judges."), Reads()
    ] = None,
    base_url: BaseUrl = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD|FILE",
            help="Human labels, as for `improve`. Default: the column `label` of the verdicts.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Cases with an equal value here stay together."),
    ] = None,
    segments: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD",
            help="Say for which values of this field or column the large judge is worse. "
            "Repeatable.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="The metric, if files of verdicts have several.")
    ] = None,
    distance: Annotated[
        float, typer.Option(min=0, max=100, help="Points below the best accuracy that are as good.")
    ] = 0.5,
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="SMALL,LARGE",
            help="US dollars of one judgement of each judge. Default: what the answers of runs "
            "cost.",
        ),
    ] = None,
    sealed: Annotated[
        float,
        typer.Option(min=0.1, max=0.9, help="The share of the labelled cases that is sealed."),
    ] = 0.4,
    seed: Annotated[int, typer.Option(help="Another number seals other cases.")] = 0,
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="The folder for the record and the patch."),
        Writes(_files),
    ] = Path("escalation"),
) -> None:
    """Fit below which confidence a large judge should decide, and prove it. Makes no judge calls.

    Replays a small and a large judge from runs, files of verdicts or a store. Fits the threshold
    on one part of the labelled cases. Opens the sealed part once, if a threshold is better there
    than the small judge alone. The cascade is proved if it is better than the small judge alone,
    and better than as many judgements escalated by chance.

    Exit codes: 0 done, whether or not the threshold is proved; 2 invalid input; 130 interrupted.
    """
    from dagengine.improvement.files import RECORD, Folder

    loaded = _metric(metrics)
    replayed, to, known = _replay(
        loaded, (small, large), data, mapped, delimiter, store, base_url, labels, groups, metric
    )
    paid = _prices(prices) or known
    for note in replayed.notes:
        say(f"warning: {shown(note)}", err=True)
    out.mkdir(parents=True, exist_ok=True)
    with sole(out / RECORD):
        _fit(replayed, loaded, metrics, to, paid, distance / 100, sealed, seed, segments or (),
             Folder(out))  # fmt: skip


def _metric(metrics: str | None) -> BaseMetric | None:
    from dagengine.loading import load_metrics

    loaded = [] if metrics is None else load_metrics(metrics)
    if len(loaded) > 1:
        names = ", ".join(repr(each.spec().name) for each in loaded)
        raise InputError(f"{metrics} has several metrics ({names}): choose one, metrics.py:NAME")
    return loaded[0] if loaded else None


def _replay(
    loaded: BaseMetric | None, sources: tuple[str, str], data: Path | None, mapped: Any,
    delimiter: Any, store: Path | None, base_url: str | None, labels: str | None,
    groups: str | None, metric: str | None,
) -> tuple[Replayed, str | None, tuple[float, float] | None]:  # fmt: skip
    """Both judges, the name of the large one, and what an answer of each costs, if it is known."""
    from dagengine.execution.interrupts import sync
    from dagengine.improvement.replaying import (
        SIDES,
        judge_of,
        observe_run,
        observe_store,
        replay_tables,
        replay_tree,
    )
    from dagengine.improvement.rungs import escalation_of, with_escalation
    from dagengine.loading import load_judge
    from dagengine.record.run import run_at
    from dagengine.reliability.verdict_files import collected_of_two

    paths = [Path(source) for source in sources]
    runs = [judge_of(path) for path in paths] if store is None and all(map(run_at, paths)) else []
    costs = [price for _, price in runs if price is not None]
    known = (costs[0], costs[1]) if len(costs) == len(SIDES) else None
    to = sources[1] if store is not None else runs[1][0] if runs else None
    if data is None:
        if store is not None:
            raise InputError("--store needs METRICS.py and --data: a store does not name its cases")
        verdicts = collected_of_two(*paths, metric=metric)
        return replay_tables(verdicts, labels, groups), to, known
    if loaded is None or labels is None or not (runs or store):
        raise InputError("--data goes with METRICS.py, --labels, and runs or a --store")
    panel = escalation_of(loaded)
    if panel is not None and (panel.votes > 1 or panel.unsure):
        raise InputError("escalated(votes=…) and unsure= cannot be replayed: leave below= alone")
    cases = list(cases_of(data, mapped, delimiter))
    rows: list[Any] = []
    for side, source, path in zip(SIDES, sources, paths, strict=True):
        if store is None:
            rows += observe_run(path, loaded, cases, side)
        else:
            judge = load_judge(source, base_url)
            rows += sync(lambda: observe_store(store, loaded, cases, side, judge))  # noqa: B023
    cascade = loaded if panel is not None else with_escalation(loaded, 0.5, to or SIDES[1])
    return replay_tree(cascade, rows, cases, labels, groups), to, known


def _prices(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        few, many = (float(part) for part in text.split(","))
        if 0 <= few < float("inf") and 0 <= many < float("inf"):
            return few, many
    except ValueError:
        pass
    raise InputError(f"--prices is SMALL,LARGE, two numbers from 0 on, not {text!r}")


def _fit(
    replayed: Replayed, loaded: BaseMetric | None, target: str | None, to: str | None,
    paid: tuple[float, float] | None, distance: float, sealed: float, seed: int,
    segments: Iterable[str], folder: Any,
) -> None:  # fmt: skip
    """Fit on one part, prove on the other, and say and write what came of it."""
    from pydantic_core import to_jsonable_python

    from dagengine.data.case_numbers import read_digest
    from dagengine.improvement.rungs import escalation_of, with_escalation
    from dagengine.improvement.splitting import split_cases
    from dagengine.improvement.values import FORMAT, Candidate
    from dagengine.reliability.fitting.escalation import (
        NEVER,
        UNKNOWN,
        Cascade,
        fit_escalation,
        prove_escalation,
        worse_segments,
    )
    from dagengine.reliability.statistics.comparisons import visible_difference

    judged, groups = replayed.judged, replayed.groups
    numbers = sorted(judged)
    sure = [turn[0] for n in numbers for way in judged[n].ways for turn in way.turns]
    if not any(known != UNKNOWN for known in sure):
        raise InputError(
            "no confidence of the small judge is known, so every judgement would escalate: give "
            "verdicts a column `confidence`, nodes `options=Options(top_logprobs=5)`, or run "
            "`benchmark --times 1 --probabilities --store FILE`; a run of several nodes needs "
            "METRICS.py and --data"
        )
    size = len({groups.get(n, n) for n in numbers})
    differing = sum(judged[n].small != judged[n].large for n in numbers) / len(numbers)
    if size < LEAST:
        # A difference that half of the samples show is as large as half of the interval.
        half = visible_difference(max(1, round(sealed * size)), differing or 1.0, power=0.5)
        raise InputError(
            f"{size} labelled cases (or groups) with verdicts of both judges are too few: on the "
            f"sealed ones a gain would be known to ± {100 * half:.0f} points; label at least "
            f"{LEAST}"
        )
    if unknown := sum(known == UNKNOWN for known in sure):
        say(f"warning: {unknown} of {counted(len(sure), 'judgement')} have no confidence: they "
            "always escalate", err=True)  # fmt: skip

    def cascade(part: Iterable[int]) -> Cascade:
        own = list(part)
        names = [groups.get(n, n) for n in own]
        return Cascade([judged[n] for n in own], names if len(set(names)) < len(names) else None)

    labels = {n: replayed.labels[n] for n in numbers}
    split = split_cases(
        replayed.cases, labels, groups, sealed, replayed.reads, f"escalation {seed}"
    )
    fitted = fit_escalation(cascade(split.tried), distance=distance, prices=paid or (0.0, 1.0))
    proof, earlier = None, 0
    # Other seeds seal other cases of the same: they are looks at the same labels.
    contents = sorted(f"{read_digest(replayed.cases[n], replayed.reads)} {labels[n]!r}"
                      for n in numbers)  # fmt: skip
    sha256 = hashlib.sha256("\n".join(contents).encode()).hexdigest()
    if fitted.below != NEVER:
        tried = repr((seed, sealed, distance, paid, sorted(judged.items())))
        earlier = folder.look(sha256, hashlib.sha256(tried.encode()).hexdigest())
        proof = prove_escalation(cascade(split.sealed), fitted.below, prices=paid)
    named = replayed.segments(list(segments), split.tried)
    worse = worse_segments([judged[n] for n in split.tried], named)
    accepted, left = [], None
    if loaded is not None and proof is not None and proof.proved:
        here = escalation_of(loaded) is not None
        if 0 < fitted.below <= 1 and (here or to is not None):
            detail = {"below": fitted.below, **({} if here else {"to": to})}
            accepted = [Candidate("escalation", "escalation", "", detail=detail)]
            improved = with_escalation(loaded, **detail)
            left = folder.change(target, loaded, accepted, improved)
    for line in _lines(fitted, proof, distance, (len(split.tried), len(split.sealed)), left):
        say(line)
    for name, cases, loss in worse:
        say(shown(f"  worse    the large judge is, by {100 * loss:.1f} points, in {name} "
                  f"({counted(cases, 'tried case')})"))  # fmt: skip
    if earlier:
        say(f"warning: these labels were looked at {counted(earlier, 'time')} before, with other "
            "judges, seeds or shares: the gain is no longer that of cases that nobody has seen; "
            "label new cases", err=True)  # fmt: skip
    record = {
        "format": FORMAT,
        "sealed_part": {"sha256": sha256, "looks": folder.looks(sha256)},
        "seed": seed, "distance": distance, "fitted": fitted._asdict(), "proof": proof,
        "proved": proof is not None and proof.proved, "worse": worse, "next": left,
    }  # fmt: skip
    folder.record(to_jsonable_python(record, inf_nan_mode="null"))
    say(f"\nrecord: {folder.path / 'improve.json'}")


def _lines(
    fitted: Fitted, proof: Proof | None, distance: float, sizes: tuple[int, int], left: str | None
) -> Iterator[str]:
    """The headline, what to do next, the figures by judge, and what they are of."""
    tried, sealed = sizes
    if proof is None:
        yield (
            f"✕ Nothing to escalate: the small judge alone is within {100 * distance:g} points of "
            f"the best threshold ({100 * fitted.accuracy:.1f} and {100 * fitted.best:.1f} %)\n"
        )
        yield f"  labels   {tried + sealed}: {tried} to fit on, {sealed} sealed, not opened"
        return
    gains = {name: _points(gain) for name, gain in proof.gains.items()}
    if proof.proved:
        gain = gains["small"].partition(" ")[0]
        yield f"✓ Escalate below {fitted.below:g}: {gain} points on cases it was not fitted on\n"
        yield f"  next     {left or f'write below={fitted.below:g}'}\n"
    else:
        yield f"○ Escalating below {fitted.below:g} is not proved to be worth it\n"
        yield "  next     keep the small judge, or label more cases\n"
    yield f"  {'':18} {'right, per cent':>22} {'the cascade gains':>20} {'US dollars a case':>32}"
    for key, name in _NAMES.items():
        price = _figure(proof.price[key], 1, "{:.3g}") if proof.price else "not known: --prices"
        right = _figure(proof.accuracy[key], 100, "{:.1f}")
        yield f"  {name:18} {right:>22} {gains.get(key, ''):>20} {price:>32}"
    low = "never" if fitted.low < -1e300 else f"{fitted.low:g}"
    yield (
        f"\n  below    {fitted.below:g}: the cheapest within {100 * distance:g} points of the best "
        f"({100 * fitted.best:.1f} %); {low} to {fitted.high:g} are as good"
    )
    yield f"  share    {100 * proof.share:.0f} % of judgements escalate"
    yield f"  labels   {tried + sealed}: {tried} to fit on, {sealed} sealed, opened once"
    for node, cases in proof.lacking.items():
        yield f"  lacking  {counted(cases, 'case')} lead to {shown(node)}, which nobody asked: wrong"


def _points(gain: Any) -> str:
    interval = getattr(gain, "interval", gain)
    value = getattr(gain, "value", None)
    if value is None or not hasattr(interval, "low"):
        return "not known"
    return f"{100 * value:+.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def _figure(interval: Any, factor: float, form: str) -> str:
    if not hasattr(interval, "low"):
        return "the same for all" if interval.reason == "no variation" else interval.reason
    value, low, high = (form.format(factor * x) for x in (interval.value, interval.low,
                                                         interval.high))  # fmt: skip
    return f"{value} ({low} to {high})"
