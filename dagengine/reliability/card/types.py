"""The judge card: what was measured about metrics under a judge, as plain data.

A card answers four questions. Would I get this score again? Which node is to blame? What would it
cost to be sure? Does the judge agree with people? Each is answered separately for every *setting*:
one judge at one temperature, in one order and wording. The card contains hashes of what was
measured, so a card about something else can be recognized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

from pydantic import model_serializer

from dagengine.reliability.fingerprint import Binding
from dagengine.reliability.human_labels import LabelMeaning
from dagengine.reliability.observations import Condition
from dagengine.reliability.statistics.correlation_and_bias import ReliabilityBin
from dagengine.reliability.statistics.majority_votes import Kind as VotesKind
from dagengine.system.terminal_text import counted, one_line

FORMAT = 2
_PAGES: list[Callable[[JudgeCard], str]] = []
CHANCE = 0.1
"""Below this agreement beyond chance (at most 1), answers may agree by chance alone."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, with what is needed to read it.

    `value` is None if the measure is undefined; `note` then says why. `low` and `high` bound it
    with the stated `confidence`. One of them alone is a one-sided bound; with neither, no interval
    is known. `items` is the number of cases, or other units, behind the value; `level` says what
    it is computed from. `best` is the `low` that a judge without errors would have on these cases,
    if it was computed.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    items: int = 0
    level: str = ""
    note: str = ""
    best: float | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval; None if one is not known, or no value is."""
        if self.value is None or self.low is None or self.high is None:
            return None
        return self.low, self.high

    def without_interval(self, note: str) -> Figure:
        """The figure with a note why its interval says nothing; as it is without a value."""
        return self if self.value is None else replace(self, low=None, high=None, note=note)


@dataclass(frozen=True, slots=True)
class VoteCost:
    """What consistent answers of one node cost.

    Two majorities of that many votes on one question must differ with a probability of at most
    `target`. `kind` says what is known (see `SteadyVotes`). By `runs` runs of each case, `least` is
    the lowest number of votes that may be enough, and `most` the lowest that certainly is.
    `seen_flips` is how often majorities of `seen` votes differ, the most that these runs show by
    themselves. `runs_to_tell` runs would show the number of votes. `calls` are questions
    for all cases once, asked singly. `agreement` is that of the answers to one question beyond
    chance (Krippendorff's alpha over runs; None in cards of older versions). It is undefined if
    every answer is the same.
    """

    target: float
    kind: VotesKind
    least: int | None
    most: int | None
    runs: int
    seen: int
    seen_flips: Figure
    runs_to_tell: int | None
    calls: float
    agreement: Figure | None = None

    @property
    def by_chance(self) -> bool:
        """Whether answers to one question agree hardly more than answers to different questions.

        Then votes bring the most common answer to every question, and no information. The interval
        of the agreement contains 0 and its value is below a tenth, or all of it is below two.
        """
        agreement = self.agreement
        if agreement is None or agreement.value is None or agreement.low is None:
            return False
        surely_little = agreement.high is not None and agreement.high < 2 * CHANCE
        return surely_little or (agreement.low <= 0 and agreement.value < CHANCE)

    @property
    def constant(self) -> bool:
        """Whether every answer was the same, whatever the case."""
        return self.agreement is not None and self.agreement.value is None


@dataclass(frozen=True, slots=True)
class NodeCard:
    """One node: how often it flips, what a flip moves, its share of the noise, votes.

    `reads` names what code that is not computed again works on: its noise is theirs. `parts` is for
    comparisons with another card. It has one line per case of the card: the node's part of the
    variance within the case, and all of it (`"0.04 0.1"`). `people` is how often it answers as
    people do; None without an answer of both. `unsupported` is how often a verdict of it has
    neither a true quote nor a named absence; None, and not in files, if it does not quote.
    """

    node: str
    kind: str
    reads: tuple[str, ...]
    flip_rate: Figure
    effect: Figure
    share: Figure
    votes: VoteCost | None = None
    parts: tuple[str, ...] = ()
    people: Figure | None = None
    unsupported: Figure | None = None

    @model_serializer(mode="wrap")
    def _as_row(self, row_of: Callable[[NodeCard], dict[str, Any]]) -> dict[str, Any]:
        return _without_none(row_of(self), "unsupported")


@dataclass(frozen=True, slots=True)
class KeyCard:
    """Criteria of a rubric with one tag, or one criterion: how often its verdicts flip.

    `share` is that of the variance of the unclipped score. `noisy` says that it flips at least half
    as often again as all others. `always` is its verdict where that never varied, in no case.
    `people` is how often it is met where people say so.
    """

    key: str
    kind: str
    cases: int
    flip_rate: Figure
    share: Figure
    noisy: bool = False
    always: str = ""
    people: Figure | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a judge has to meet to be used: shares from 0 to 1, kappa from -1 to 1.

    `agreement` and `kappa` are the least agreement with people, by share and beyond chance, and
    `flips` is the highest flip rate.
    """

    agreement: float = 0.8
    kappa: float = 0.4
    flips: float = 0.05


@dataclass(frozen=True, slots=True)
class Voted:
    """A metric whose result is that of the majority of so many votes, as the runs show it."""

    votes: int
    flips: Figure
    agreement: Figure
    kappa: Figure


@dataclass(frozen=True, slots=True)
class Segment:
    """Cases that have something in common, of which the judge is right about fewer than of others.

    `p` is corrected for all segments that were looked at.
    """

    name: str
    right: int
    cases: int
    others_right: int
    others: int
    p: float


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A case where people and the majority of the runs differ; `votes` of `runs` runs do.

    `path` is the node that ended the run of the majority, and its verdict.
    """

    case: str
    people: str
    judge: str
    votes: int
    runs: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class CaseSpread:
    """The scores of one case: (score, how often), lowest first, and their standard deviation.

    With n - 1 below the line, as that of `score-spread`, which is its mean over cases; 0 with one.
    """

    case: str
    scores: tuple[tuple[float, int], ...]
    deviation: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How often an event happened, by the probability that was stated for it."""

    event: str
    bins: tuple[ReliabilityBin, ...]


@dataclass(frozen=True, slots=True)
class ConfusionTable:
    """How often people said one thing (rows) and the judge another (columns), by case.

    The last of `kinds` is "no outcome" where a case has no majority or a label is none.
    """

    kinds: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class CorrectedFigure:
    """A figure of all cases by the human standard, from labels of a random sample.

    `estimate` is the figure to report. `judge` is what the judge alone says, `alone` what the
    labels alone say. `labelled` of `judged` cases have a label. `worth` is the number of labels
    that would be as precise without the judge. If `estimate` is undefined, its note says why.
    """

    estimate: Figure
    judge: float | None = None
    alone: Figure | None = None
    labelled: int = 0
    judged: int = 0
    worth: float | None = None
    telling: bool = False


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The results of every case, for comparisons by case with another card; no texts.

    `scores` has one line per case of the card, in its order. The line has the scores of the runs,
    in the order of the samples, with blanks between. `-` is a run without a score (`"1 0.6 -"`).
    `right` has, in the same places, `1` if the run agrees with people, `0` if not and `-` for a run
    without a score. It is empty without labels; a line is empty for a case without a label. `hits`
    is one character per case: the same for the majority of its runs, `-` for a case without a
    label. `labels` are what people say of each case, empty without a label. `said` is what the
    majority of its runs says in the same words; labels that are numbers have no `said`.
    """

    scores: tuple[str, ...]
    right: tuple[str, ...] = ()
    hits: str = ""
    labels: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BestOf:
    """The share of cases in which the highest mean of the first `scores` scores is the right one.

    `wrong` counts a tie as wrong, `share` as often as a draw among the best is right; `ties` is how
    often several are the best. `short` is how much less often than with all scores it is right.
    """

    scores: int
    wrong: Figure
    share: Figure
    ties: Figure
    short: Figure


@dataclass(frozen=True, slots=True)
class Contest:
    """The worth of several scores of each of several candidates.

    `curve` has a row for each number of scores that was seen. Agreement, and what is `enough`, are
    by `rule`. `enough` is the least number of scores that is surely at most `within` (0 to 1) short
    of all that were seen, and so is every greater number. `gain` is that of all scores over one if
    a tie is wrong: the sum of `noise` (less noise: the gain if ties are shared) and `unties` (means
    tie less often).
    """

    candidates: int
    rule: Literal["wrong", "share"]
    within: float
    curve: tuple[BestOf, ...]
    enough: int
    gain: Figure
    noise: Figure
    unties: Figure


@dataclass(frozen=True, slots=True)
class Setting:
    """The conditions of runs that are pooled; these runs are exchangeable repeats.

    `name` says in words how it differs from the other settings. `condition` says it as data (its
    sample is 0). `times` is the number of runs of each case.
    """

    name: str
    condition: Condition
    times: int


@dataclass(frozen=True, slots=True)
class SettingCard:
    """One metric under one setting: measures of repetition and of agreement, nodes, cases.

    `voted` are the results of majorities that the runs show, `unlabelled` the numbers of cases to
    label next. `departures` say how the runs are not repeats of each other, the clearest first.
    `warnings` are about missing answers. `people` is empty without labels; `more` are the measures
    that answer none of the four questions by themselves. `calls` are questions that one run asks,
    on average per case. `keys` are the tags and the criteria of a rubric, the noisiest first.
    `contest` is there, and in files, if cases have candidates.
    """

    setting: str
    again: tuple[Figure, ...]
    nodes: tuple[NodeCard, ...]
    people: tuple[Figure, ...]
    spread: tuple[CaseSpread, ...]
    calls: float
    notes: tuple[str, ...] = ()
    more: tuple[Figure, ...] = ()
    calibration: tuple[Calibration, ...] = ()
    outcomes: Outcomes = Outcomes(())
    confusion: ConfusionTable | None = None
    corrected: tuple[CorrectedFigure, ...] = ()
    departures: tuple[str, ...] = ()
    voted: tuple[Voted, ...] = ()
    segments: tuple[Segment, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    warnings: tuple[str, ...] = ()
    unlabelled: tuple[int, ...] = ()
    keys: tuple[KeyCard, ...] = ()
    contest: Contest | None = None

    @model_serializer(mode="wrap")
    def _as_row(self, row_of: Callable[[SettingCard], dict[str, Any]]) -> dict[str, Any]:
        return _without_none(row_of(self), "contest")

    @property
    def measures(self) -> tuple[Figure, ...]:
        """Every measure but those of single nodes."""
        corrected = (figure.estimate for figure in self.corrected)
        return (*self.again, *self.people, *corrected, *self.more)

    def figure(self, name: str) -> Figure | None:
        """The measure of that name, not those of single nodes."""
        return next((m for m in self.measures if m.name == name), None)


@dataclass(frozen=True, slots=True)
class Contrast:
    """One measure under two settings, or on two cards: the second minus the first, by case.

    `paired` says that the difference was taken case by case. `p` is the probability of so large
    a difference if there is none; `corrected` is the same after Holm's correction for all lines
    compared together. `visible` is the smallest detectable difference: 80 of 100 such benchmarks
    detect it.
    """

    one: str
    other: str
    difference: Figure
    p: float | None = None
    corrected: float | None = None
    paired: bool = True
    visible: float | None = None


@dataclass(frozen=True, slots=True)
class MetricCard:
    """One metric under every setting, and the comparisons of settings.

    `across` are measures of several settings together (agreement of judges, of orders);
    `between` are differences between two settings on the same cases. `labels` say how human
    labels were read.
    """

    metric: str
    threshold: float | None
    settings: tuple[SettingCard, ...]
    across: tuple[Figure, ...] = ()
    between: tuple[Contrast, ...] = ()
    labels: tuple[LabelMeaning, ...] = ()

    def figure(self, name: str) -> Figure | None:
        """The measure of that name across settings, else under the first setting."""
        measures = (m for m in self.across if m.name == name)
        return next(measures, self.settings[0].figure(name) if self.settings else None)


@dataclass(frozen=True, slots=True)
class CaseKey:
    """One case of a card: its name, the start of its SHA-256, and the group that it is in.

    `about` is the start of the SHA-256 of its input alone, which is the same for the answers of two
    systems to one input. It is empty if a case has no input.
    """

    name: str
    key: str
    group: str = ""
    about: str = ""


@dataclass(frozen=True, slots=True)
class JudgeCard:
    """A whole judge card. `times` is the highest number of runs of a case in one of `settings`.

    `labels_random` says that the labelled cases were stated to be a random sample of all,
    `label_scale` has the stated ends of labels that are numbers. `price` is that of one question in
    US dollars, None if it is not known.
    """

    binding: Binding
    times: int
    settings: tuple[Setting, ...]
    metrics: tuple[MetricCard, ...]
    cases: tuple[CaseKey, ...] = ()
    rules: tuple[str, ...] = ()
    labels_random: bool = False
    label_scale: tuple[float, float] | None = None
    needs: Needs = Needs()
    price: float | None = None
    format: int = FORMAT

    def __repr__(self) -> str:
        """Subject of the card: a prompt has no room for all of it."""
        names = ", ".join(one_line(metric.metric, 80) for metric in self.metrics)
        return f"<JudgeCard of {names}: {counted(len(self.cases), 'case')}, {self.times} runs each>"

    def _repr_html_(self) -> str:
        """HTML for a notebook: the page of the card, in a frame with its own styles."""
        page = escape(_PAGES[-1](self))
        return f'<iframe title="Judge card" srcdoc="{page}" width="100%" height="600"></iframe>'

    @property
    def sha256(self) -> str:
        """The hash of what the card is bound to."""
        return self.binding.sha256


def _without_none(row: dict[str, Any], name: str) -> dict[str, Any]:
    """A row of a file without a field that is not known."""
    if row[name] is None:
        del row[name]
    return row


def page_form(page: Callable[[JudgeCard], str]) -> Callable[[JudgeCard], str]:
    """Make a function of a card what notebooks show of cards: pages know cards, not cards pages."""
    _PAGES.append(page)
    return page


def every_setting(card: JudgeCard) -> Iterator[tuple[MetricCard, SettingCard]]:
    """Every metric under every setting."""
    return ((metric, under) for metric in card.metrics for under in metric.settings)
