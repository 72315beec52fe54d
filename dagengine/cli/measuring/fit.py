"""The commands that fit numbers to human labels: `fit escalation`, the threshold of a cascade."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.commands_and_help import Commands
from dagengine.cli.common.files import Reads, sole, within
from dagengine.cli.common.output import report, say, warn
from dagengine.errors import InputError
from dagengine.system.terminal_text import counted

if TYPE_CHECKING:
    from dagengine.improvement.escalation import FittedEscalation, Proof, Replayed
    from dagengine.improvement.experiment import Split
    from dagengine.improvement.folder import PatchFolder
    from dagengine.metrics.common.base import BaseMetric

LEAST = 100  # labelled cases (or groups of them); fewer cannot show what a threshold is worth
_ARMS = {  # what a `Proof` compares
    "small": "small judge alone", "cascade": "cascade", "chance": "as many by chance",
    "large": "large judge alone",
}  # fmt: skip
app = Commands(
    "fit", "Fit a number of a metric to human labels, and prove it on cases that were sealed."
)
_Source = Option(
    metavar="RUN|FILE|MODEL",
    help="What this judge said: a run, a file of verdicts (of the small judge with a column "
    "`confidence`), or the judge itself with --store.",
)


@dataclass(frozen=True, kw_only=True)
class EscalationOptions(shared.ColumnOptions):
    """The options of one fit, as they were typed."""

    metrics: Annotated[str | None, Argument(metavar="[METRICS.py[:NAME]]"), Reads()] = None
    """The metric, with `escalated` or without: the threshold is written as a patch."""
    small: Annotated[str, _Source, Reads()]
    large: Annotated[str, _Source, Reads()]
    data: Annotated[Path | None, Reads()] = None
    """Test cases in a file: each node of METRICS.py is replayed by itself."""
    store: Annotated[Path | None, Reads()] = None
    """A store with the answers of both judges."""
    base_url: shared.BaseUrl = None
    labels: Annotated[str | None, Option(metavar="FIELD|FILE")] = None
    """Human labels, as for `improve`. Default: the column `label` of the verdicts."""
    groups: shared.Groups = None
    segments: Annotated[list[str] | None, Option(metavar="FIELD")] = None
    """For which values of this field or column is the large judge worse? Repeatable."""
    metric: str | None = None
    """The metric, if files of verdicts have several."""
    distance: Annotated[float, Option(min=0, max=100)] = 0.5
    """Points below the best accuracy that are as good."""
    prices: Annotated[str | None, Option(metavar="SMALL,LARGE")] = None
    """US dollars of one judgement. Default: what the answers of runs cost."""
    sealed: shared.SealedShare = 0.4
    seed: int = 0
    """Another number seals other cases."""
    out: Annotated[
        Path, Option(metavar="DIR"), within("improve.json", "metrics.patch", "improved.py")
    ] = Path("escalation")
    """The folder for the record and the patch."""

    def replay_files(self) -> Replayed:
        """Both judges from files of verdicts, or from runs of one judgement."""
        from dagengine.improvement.escalation import observe_verdicts, replay_judges
        from dagengine.reliability.verdict_cases import read_two_files

        seen = read_two_files(Path(self.small), Path(self.large), metric=self.metric)
        rows = [*observe_verdicts(seen)]
        columns = {number: row.columns for number, row in reversed(seen.runs)}
        labels, groups = self.labels or seen.labels, self.groups or seen.groups
        return replay_judges(seen.metric, rows, seen.cases, labels, groups, columns)

    def replay_tree(self, metric: BaseMetric | None, large_model: str | None) -> Replayed:
        """Both judges at each node of a metric, from runs or from a store."""
        from dagengine.execution.interrupts import sync
        from dagengine.improvement import escalation
        from dagengine.improvement.candidates import escalation_of, with_escalation
        from dagengine.loading import load_judge

        if metric is None or self.data is None or self.labels is None:
            raise InputError("--data and --store need METRICS.py, --data and --labels")
        panel, rows = escalation_of(metric), list[Any]()
        if panel is not None and (panel.votes > 1 or panel.unsure):
            raise InputError(
                "votes= and unsure= of `escalated` cannot be replayed: leave below= alone"
            )
        cases: list[Any] = [*self.cases_in(self.data)]
        for side, source in zip(escalation.SIDES, (self.small, self.large), strict=True):
            if self.store is None:
                rows += escalation.observe_run(Path(source), metric, cases, side)
            else:
                stored = partial(escalation.observe_store, self.store, metric, cases, side)
                rows += sync(partial(stored, load_judge(source, self.base_url)))
        # Any threshold makes a cascade to replay; the one to write comes from the fit.
        cascade = metric if panel else with_escalation(metric, 0.5, large_model or "large")
        return escalation.replay_judges(cascade, rows, cases, self.labels, self.groups)

    def model_and_prices(self) -> tuple[str | None, tuple[float, float] | None]:
        """The model of the large judge, and what a judgement of each costs, if they are known."""
        from dagengine.improvement.escalation import judge_of
        from dagengine.loading import is_code
        from dagengine.record.reader import run_at

        large_model = self.large if self.store and not is_code(self.large) else None
        prices = None
        if self.store is None and run_at(self.small) and run_at(self.large):
            _, cheap = judge_of(Path(self.small))
            large_model, dear = judge_of(Path(self.large))
            prices = None if cheap is None or dear is None else (cheap, dear)
        if self.prices is not None:
            prices = shared.two_numbers(self.prices, "--prices is SMALL,LARGE")
        return large_model, prices


@app.command()
def escalation(options: EscalationOptions) -> None:
    """Fit below which confidence a large judge decides, and prove it. Makes no judge calls.

    Replays a small and a large judge from runs, files of verdicts or a store. Fits the threshold
    on one part of the labelled cases. The sealed part is opened once, if some threshold is better
    than the small judge alone. There the cascade has to be better than the small judge alone, and
    better than as many judgements escalated by chance.

    Exit codes: 0 done, whether or not the threshold is proved; 2 invalid input; 130 interrupted.
    """
    from dagengine.improvement.folder import RECORD, PatchFolder

    metric = None if options.metrics is None else shared.sole_metric(options.metrics)
    large_model, prices = options.model_and_prices()
    files = options.data is None and options.store is None
    replayed = options.replay_files() if files else options.replay_tree(metric, large_model)
    warn(*replayed.notes)
    _require_enough(replayed, options.sealed)
    options.out.mkdir(parents=True, exist_ok=True)
    folder = PatchFolder(options.out)
    with sole(options.out / RECORD):
        fit = _fit(options, replayed, prices, folder)
        hint = None
        if metric is not None and fit.proof is not None and fit.proof.proved:
            below = fit.fitted.below
            hint = _write_patch(below, str(options.metrics), metric, large_model, folder)
        _report_fit(options, fit, hint, folder)


def _require_enough(replayed: Replayed, sealed: float) -> None:
    """Raise InputError if labels or confidences are too few to fit; warn if they show little."""
    from dagengine.improvement.escalation import UNKNOWN
    from dagengine.reliability.statistics.paired_comparisons import visible_difference

    cases = replayed.judged.values()
    confidences = [sure for case in cases for way in case.ways for sure, _ in way.turns]
    unknown = confidences.count(UNKNOWN)
    size = len({replayed.groups.get(number, number) for number in replayed.judged})
    proving = max(1, round(sealed * size))
    differing = sum(case.small != case.large for case in cases) / max(1, len(cases))
    if size < LEAST:
        # A difference that half of the samples show is as large as half of the interval.
        half = visible_difference(proving, differing or 1.0, power=0.5)
        raise InputError(
            f"{size} labelled cases (or groups) that both judges judged are too few: on those that "
            f"are sealed a gain is known to ± {100 * half:.0f} points; label at least {LEAST}"
        )
    if unknown == len(confidences):
        raise InputError(
            "no confidence of the small judge is known, so every judgement would escalate: give "
            "verdicts a column `confidence`, nodes `options=Options(top_logprobs=5)`, or run "
            "`benchmark --times 1 --probabilities --store FILE`; a run of several nodes needs "
            "METRICS.py and --data"
        )
    if size <= 2 * LEAST:
        points = 100 * visible_difference(proving, differing)
        warn(f"about {proving} sealed cases show a gain of {points:.0f} points in 80 of 100 draws: "
             "label more cases to prove a smaller one")  # fmt: skip
    if unknown:
        judgements = counted(len(confidences), "judgement")
        warn(f"{unknown} of {judgements} have no known confidence: they always escalate")


@dataclass(frozen=True)
class _Fit:
    """A threshold fitted on one part of the labelled cases, and proved on the other.

    The sealed part stays closed (no `proof`) if no threshold is better than the small judge alone.
    `sha256` is that of all labels, which had some `earlier_looks` for other judges or seeds.
    """

    split: Split
    fitted: FittedEscalation
    worse: list[tuple[str, int, float]]
    sha256: str
    proof: Proof | None = None
    earlier_looks: int = 0


def _fit(
    options: EscalationOptions, replayed: Replayed, prices: tuple[float, float] | None,
    folder: PatchFolder,
) -> _Fit:  # fmt: skip
    """Fit on one part and prove on the other, which the folder notes before."""
    from dagengine.improvement import escalation as law
    from dagengine.improvement.experiment import labels_digest, split_cases

    labels = {number: replayed.labels[number] for number in sorted(replayed.judged)}
    split = split_cases(
        replayed.cases, labels, replayed.groups, options.sealed, replayed.reads,
        f"escalation {options.seed}",
    )  # fmt: skip
    tried = replayed.cascade(split.tried)
    fitted = law.fit_escalation(tried, distance=options.distance / 100, prices=prices or (0.0, 1.0))
    segments = replayed.segments(options.segments or (), split.tried)
    worse = law.worse_segments(tried.cases, segments)
    # Of all labels: another seed, or other judges, are one more look at the same ones.
    sha256 = labels_digest(replayed.cases, labels, replayed.reads)
    if fitted.below == law.NEVER:
        return _Fit(split, fitted, worse, sha256)
    look = repr((options.seed, options.sealed, options.distance, prices, replayed.judged))
    earlier_looks = folder.look(sha256, hashlib.sha256(look.encode()).hexdigest())
    sealed = replayed.cascade(split.sealed)
    proof = law.prove_escalation(sealed, fitted.below, prices=prices)
    return _Fit(split, fitted, worse, sha256, proof, earlier_looks)


def _report_fit(
    options: EscalationOptions, fit: _Fit, hint: str | None, folder: PatchFolder
) -> None:
    """Say what was fitted and what the sealed part shows, and write the record."""
    from pydantic_core import to_jsonable_python

    from dagengine.improvement.improvement_report import FORMAT

    for line in _result_lines(fit, options.distance, hint):
        say(line)
    for name, cases, loss in fit.worse:
        where = f"{name} ({counted(cases, 'case')} to fit on)"
        say(f"  worse    the large judge is, by {100 * loss:.1f} points, in {where}")
    if fit.earlier_looks:
        times = counted(fit.earlier_looks, "time")
        warn(f"these labels were looked at {times} before, for other judges or seeds: they are no "
             "longer cases that nobody has seen")  # fmt: skip
    record = {
        "format": FORMAT,
        "sealed_part": {"sha256": fit.sha256, "looks": folder.looks(fit.sha256)},
        "seed": options.seed, "distance": options.distance, "fitted": fit.fitted._asdict(),
        "proof": fit.proof, "proved": fit.proof is not None and fit.proof.proved,
        "worse": fit.worse, "next": hint,
    }  # fmt: skip
    report(**record)
    folder.record(to_jsonable_python(record, inf_nan_mode="null"))
    say(f"\nrecord: {folder.path / 'improve.json'}")


def _write_patch(
    below: float, target: str, metric: BaseMetric, large_model: str | None, folder: PatchFolder
) -> str | None:
    """Write the threshold into what the metric is written in; returns how to apply it, if it is."""
    from dagengine.improvement.candidates import escalation_of, with_escalation
    from dagengine.improvement.improvement_report import Candidate

    panel = escalation_of(metric)
    if panel is not None and panel.below == below:
        return "nothing: this is the threshold that it has"
    if not 0 < below <= 1 or (panel is None and large_model is None):
        return None
    detail: dict[str, Any] = {"below": below, **({} if panel else {"to": large_model})}
    change = [Candidate("escalation", "escalation", "", detail=detail)]
    return folder.change(target, metric, change, with_escalation(metric, **detail))


def _result_lines(fit: _Fit, distance: float, hint: str | None) -> Iterator[str]:
    """The headline, what to do next, the figures of each arm, and what they were measured on."""
    fitted, proof, split = fit.fitted, fit.proof, fit.split
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
        yield f"  next     {hint or f'write below={fitted.below}'}\n"
    else:
        yield f"○ Escalating below {fitted.below} is not proved to be worth it\n"
        yield "  next     keep the small judge, or label more cases\n"
    yield f"  {'':18}{'right, per cent':>22}{'the cascade gains':>22}{'US dollars a case':>32}"
    for arm, name in _ARMS.items():
        price = _figure(proof.price[arm], ".3g", 1) if proof.price else "not known: --prices"
        right, gain = _figure(proof.accuracy[arm], ".1f"), gains[arm] if arm != "cascade" else ""
        yield f"  {name:18}{right:>22}{gain:>22}{price:>32}"
    low = "never" if math.isinf(fitted.low) else f"{fitted.low:g}"
    yield (
        f"\n  below    {fitted.below}: the cheapest {best}; {low} to {fitted.high:g} are as good"
    )
    yield f"  share    {100 * proof.share:.0f} % of the judgements escalate"
    yield f"{labels}, opened once"
    for node, cases in proof.lacking.items():
        yield f"  lacking  {counted(cases, 'case')} wrong, as they lead to {node}: nobody asked it"


def _figure(measured: Any, form: str, factor: float = 100) -> str:
    """The text of an Interval or a Comparison; for Unknown the reason."""
    interval = getattr(measured, "interval", measured)
    if not hasattr(interval, "low"):
        return f"not known: {interval.reason}"
    unsigned = form.lstrip("+")
    low, high = (f"{factor * end:{unsigned}}" for end in (interval.low, interval.high))
    return f"{factor * measured.value:{form}} ({low} to {high})"
