"""What to do with a judge: one verdict from the intervals of a card, and one next step.

No verdict reads a value: a demand is met if the near end of an interval meets it, missed if the far
end fails it, and open otherwise. The first row of the table that holds is the verdict. All demands
of one way of using the judge have to be met at once, so their errors do not add up; "do not use"
needs a demand that every way misses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import Literal

from dagengine.errors import InputError
from dagengine.reliability.card.sentences import bounded_or_why, estimate, number, runs_of_cases
from dagengine.reliability.card.types import (
    Figure,
    JudgeCard,
    MetricCard,
    Needs,
    SettingCard,
    Voted,
)
from dagengine.reliability.statistics.accuracy_and_kappa import accuracy, labels_to_settle
from dagengine.reliability.statistics.intervals import Unknown, bootstrap
from dagengine.reliability.statistics.paired_comparisons import compare_shares, labels_within
from dagengine.reliability.statistics.sums import present
from dagengine.system.terminal_text import counted, text_if

State = Literal["met", "missed", "open"]
Kind = Literal["stop", "no", "use", "use_with", "open"]

SIGNS: dict[Kind, str] = {"stop": "⊘", "no": "✕", "use": "✓", "use_with": "✓", "open": "○"}
MARKS: dict[State, str] = {"met": "✓", "missed": "✕", "open": "○"}


@dataclass(frozen=True, slots=True)
class Demand:
    """One of the needs: a line that a figure must not exceed, or else must reach.

    `name` is that of the line in `Needs`, of the figure in `Voted`, and in `--need`.
    """

    name: str
    title: str
    most: bool = False
    percent: bool = True

    @property
    def side(self) -> str:
        """On which side of the line the figure has to be."""
        return "at most" if self.most else "at least"

    def line(self, needs: Needs) -> str:
        """The line in words."""
        line = getattr(needs, self.name)
        return f"{100 * line:g} %" if self.percent else f"{line:g}"

    def against(self, needs: Needs, measured: str) -> str:
        """A measured figure, in words, and its line."""
        return f"{self.name} {measured}, target {self.side} {self.line(needs)}"

    def figure(self, voted: Voted) -> Figure:
        """The figure that is held against the line."""
        measure: Figure = getattr(voted, self.name)
        return measure

    def state(self, voted: Voted, needs: Needs) -> State:
        """Whether the interval meets the line, misses it, or leaves it open."""
        line, ends = getattr(needs, self.name), self.figure(voted).ends
        if ends is None:
            return "open"
        if self.most:
            line, ends = -line, (-ends[1], -ends[0])
        if ends[0] >= line:
            return "met"
        return "missed" if ends[1] < line else "open"


DEMANDS = (
    Demand("flips", "flips", most=True),
    Demand("agreement", "agrees with people"),
    Demand("kappa", "kappa", percent=False),
)

# A judge that flips this often, or tells cases apart this little, is close to a coin.
_COIN_FLIPS, _COIN_RELIABILITY = 0.4, 0.2
# Runs that are asked for where every case ran once.
_RUNS = 8
_LABELS = 60
# Fewer cases of a label leave kappa wide, however many of the others there are.
_RARE = 10
# More runs of each case than this are no advice.
_MOST_RUNS = 40


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, why, and the next step with its price, in words.

    `row` is that of the table of verdicts in the documentation. `votes` is what the judge is to be
    used with.
    """

    kind: Kind
    row: str
    headline: str
    why: str
    step: str
    votes: int = 1

    def __str__(self) -> str:
        return f"{SIGNS[self.kind]} {self.headline}"

    def chooses(self, voted: Voted) -> bool:
        """Return whether these are the votes to use the judge with."""
        return self.kind in ("use", "use_with") and voted.votes == self.votes


def parse_needs(text: str | None, flips: float = 0.05) -> Needs:
    """Parse demands such as `agreement=85,kappa=.4,flips=5`; agreement and flips are per cent.

    Raises InputError for another name, and for what is no number in its range.
    """
    values = {"agreement": 80.0, "kappa": 0.4, "flips": 100 * flips}
    for part in (text or "").split(",") if text else ():
        name, _, value = (piece.strip() for piece in part.partition("="))
        try:
            level, _ = float(value), values[name]
            # An agreement of at most 1 % is a share, which nobody would miss.
            if not 0 <= level <= 100 or (name == "agreement" and 0 < level <= 1):
                raise ValueError
        except (KeyError, ValueError):
            raise InputError(
                f"--need {part!r}: write agreement=85,kappa=0.4,flips=5; agreement and flips are "
                "per cent"
            ) from None
        values[name] = level
    if values["kappa"] > 1:
        raise InputError(f"--need kappa={values['kappa']:g}: kappa is at most 1")
    return Needs(values["agreement"] / 100, values["kappa"], values["flips"] / 100)


def verdict(card: JudgeCard, metric: MetricCard, under: SettingCard) -> Verdict:
    """Advise on the judge of a metric under one setting."""
    return _Table(card, metric, under).verdict()


class _Table:
    """The table of verdicts; see docs/statistics.md, which has the same rows."""

    def __init__(self, card: JudgeCard, metric: MetricCard, under: SettingCard) -> None:
        self.card, self.metric, self.under, self.needs = card, metric, under, card.needs
        self.voted = under.voted or (Voted(1, *[Figure("", None)] * len(DEMANDS)),)
        # The state of each demand by its name, with every number of votes.
        self.states: list[dict[str, State]] = [
            {demand.name: demand.state(voted, card.needs) for demand in DEMANDS}
            for voted in self.voted
        ]
        self.costs = present(node.votes for node in under.nodes)
        self.cases = len(runs_of_cases(under))
        self.runs = max(runs_of_cases(under), default=0)

    def verdict(self) -> Verdict:
        rows = (self._nothing, self._unusable, self._coin, self._little, self._wrong,
                self._unsteady, self._never_both, self._use, self._open)  # fmt: skip
        # The first row that applies is the verdict: what makes others meaningless comes first.
        return next(made for row in rows if (made := row()) is not None)

    def _always_missed(self, demand: str) -> bool:
        return all(states[demand] == "missed" for states in self.states)

    def _most(self, measure: str) -> float:
        """The upper end of a measure; 1 if it is not known."""
        figure = self.under.figure(measure)
        return 1.0 if figure is None or figure.high is None else figure.high

    def _first(self, *met: str) -> int | None:
        """Index of the fewest votes that miss no demand and meet these; None without any."""
        for index, states in enumerate(self.states):
            if "missed" not in states.values() and {*map(states.get, met)} <= {"met"}:
                return index
        return None

    def _advice(
        self, kind: Kind, row: str, headline: str, why: str, step: str, place: int = 0
    ) -> Verdict:
        # That no price is known is said once.
        first, unpriced, rest = step.partition(_UNPRICED)
        step = first + unpriced * (unpriced not in headline) + rest.replace(unpriced, "")
        return Verdict(kind, row, headline, why, step, self.voted[place].votes)

    # Prices.

    def _again(self, runs: int) -> str:
        return self._price(self.cases * self.under.calls * runs)

    def _price(self, questions: float) -> str:
        """So many questions, and what they cost."""
        asked = counted(math.ceil(questions), "question")
        if self.card.price is None:
            return f"{asked}{_UNPRICED}"
        return f"{asked}, ${questions * self.card.price:,.2f}"

    def _per_thousand(self, votes: int) -> str:
        questions = 1000 * self.under.calls * votes
        if self.card.price is None:
            return f"{questions:,.0f} questions per 1,000 cases{_UNPRICED}"
        return f"${questions * self.card.price:,.2f} per 1,000 cases"

    # Rows.

    def _nothing(self) -> Verdict | None:
        if any(mark != "-" for line in self.under.outcomes.scores for mark in line.split()):
            return None
        why = next(iter(self.under.notes), "no run has a score")
        step = f"Mend the answers, then ask again: {self._again(self.runs)}."
        return self._advice("stop", "1", "Nothing to judge: no run has a score", why, step)

    def _unusable(self) -> Verdict | None:
        departures = self.under.departures
        if not departures or self._wrong_in_every_run():
            return None
        alone = len(departures) == 1 and "stands apart" in departures[0]
        step = (
            f"Ask that run again: {self._again(1)}." if alone
            else f"Ask all again without caches: {self._again(self.runs)}."
        )  # fmt: skip
        return self._advice(
            "stop", "2", f"These runs cannot answer: {departures[0]}",
            "Runs of a case have to be repeats of each other. These are not (p < 0.02), so nothing "
            "follows about votes, nodes or how steady the judge is.", step,
        )  # fmt: skip

    def _wrong_in_every_run(self) -> bool:
        """Whether the judge agrees too little in each run by itself."""
        runs = list(zip_longest(*self.under.outcomes.right, fillvalue="-"))
        for run in runs:
            pairs = [(True, mark == "1") for mark in run if mark != "-"]
            # Only the upper ends are read: 95 % one-sided, for all runs together.
            hits = bootstrap(pairs, accuracy, level=1 - 0.1 / len(runs))
            if hits is None or hits.high >= self.needs.agreement:
                return False
        return bool(runs)

    def _coin(self) -> Verdict | None:
        flips = self.voted[0].flips
        least = -1.0 if flips.low is None else flips.low
        alike = self._most("test-retest") < _COIN_RELIABILITY and least > self.needs.flips
        if least < _COIN_FLIPS and not alike:
            return None
        return self._advice(
            "no", "3", "Do not use: close to a coin",
            f"Asked again, {estimate(flips)} of results differ. Votes cannot help: they bring the "
            "same answer to every case.", _OTHER_JUDGE,
        )  # fmt: skip

    def _little(self) -> Verdict | None:
        if not self._always_missed("kappa"):
            return None
        kappa = max(voted.kappa.high or 0.0 for voted in self.voted)
        constant = self._best_constant()
        if constant:
            return self._advice(
                "no", "4a", f"Do not use: no better than always “{constant}”",
                f"Always saying “{constant}” would agree with people as often.", _OTHER_JUDGE,
            )  # fmt: skip
        return self._advice(
            "no", "4b", f"Do not use: it tells little (kappa at most {kappa:.2f})",
            f"Beyond chance it agrees with people by {estimate(self.voted[0].kappa)}; "
            f"you need {self.needs.kappa:g}.", _OTHER_JUDGE,
        )  # fmt: skip

    def _best_constant(self) -> str:
        """The label that could always be given and would be right as often as the judge."""
        outcomes = self.under.outcomes
        if not outcomes.said:
            return ""
        pairs = zip(outcomes.labels, outcomes.hits, strict=True)
        rows = [(label, hit == "1") for label, hit in pairs if label and hit != "-"]
        # Of labels that are as common, the one that came first: the same card, the same words.
        ((most, _),) = Counter(label for label, _ in rows).most_common(1) or [("", 0)]
        gain = compare_shares([(label == most, hit) for label, hit in rows])
        if isinstance(gain, Unknown):
            return ""
        better = isinstance(gain.interval, Unknown) or gain.interval.high > 0
        return "" if better and gain.differing else most

    def _wrong(self) -> Verdict | None:
        if not self._always_missed("agreement"):
            return None
        most = max(voted.agreement.high or 0.0 for voted in self.voted)
        need = f"you need {100 * self.needs.agreement:g}"
        ceiling = self._most("ceiling")
        if ceiling < self.needs.agreement:
            return self._advice(
                "open", "5", "Settle the labels first: people disagree too often",
                f"One person's label is met in at most {100 * ceiling:.0f} % of cases by any "
                f"judge; {need}.", "Let the people agree on the cases that they label differently.",
            )  # fmt: skip
        bounds = [(node.people.high, node.node) for node in self.under.nodes
                  if node.people is not None and node.people.high is not None]  # fmt: skip
        # By people who walked the tree; the worst of the nodes, so that luck names none of several.
        high, node = min(bounds, default=(1.0, ""))
        if high < self.needs.agreement:
            return self._advice(
                "no", "5a", f"Not as it is. Rewrite {node}: it answers as people do in at "
                f"most {100 * high:.0f} %",
                f"All in all the judge is right in at most {100 * most:.0f} %, {need}.",
                f"Rewrite {node}, then ask again: {self._again(self.runs)}.",
            )  # fmt: skip
        return self._advice(
            "no", "5b", f"Do not use: right in at most {100 * most:.0f} %, {need}",
            f"It agrees with people in {estimate(self.voted[0].agreement)} of cases.",
            f"{_OTHER_JUDGE} The cases it gets wrong are below.",
        )  # fmt: skip

    def _unsteady(self) -> Verdict | None:
        if not self._always_missed("flips"):
            return None
        last, votes = self.voted[-1], self._with_votes(-1)
        return self._advice(
            "no", "6", f"Not steady: {number(last.flips)} of results flip{votes}",
            f"Asked again{votes}, {estimate(last.flips)} of results differ; "
            f"you need at most {100 * self.needs.flips:g} %.", self._steadier(), -1,
        )  # fmt: skip

    def _with_votes(self, place: int) -> str:
        """The number of votes that figures are of, where it is not one."""
        votes, asked = self.voted[place].votes, "scores" if self.under.contest else "votes"
        return text_if(votes > 1, f" with {votes} {asked}")

    def _steadier(self) -> str:
        """The step that makes it flip less: another node, or more votes if runs would show that."""
        nodes, keys = self.under.nodes, self.under.keys
        if self.under.contest is not None and 2 * self.runs <= _MOST_RUNS:
            return (
                f"Score each candidate {2 * self.runs} times, means of more scores flip less: "
                f"{self._again(self.runs)}."
            )
        noisy = next((key for key in keys if key.noisy), None)
        if noisy is not None:
            return f"Rewrite “{noisy.key}”: it causes {estimate(noisy.share)} of the noise."
        cause = next((node for node in nodes if (node.share.low or 0.0) >= 0.5), None)
        if len(nodes) > 1 and cause is not None:
            return f"Rewrite {cause.node}: it causes {estimate(cause.share)} of the flips."
        return self._more_votes()

    def _more_votes(self) -> str:
        """The runs that would show that more votes are enough, if they are few enough to ask."""
        enough = max((votes.most or 0 for votes in self.costs), default=0)
        # Whether two majorities of n votes differ is seen in 2n runs.
        if len(self.under.nodes) == 1 and 0 < 2 * enough <= _MOST_RUNS:
            return (
                f"{enough} votes would be enough, by the spread of the flips over cases; ask "
                f"{2 * enough} runs to see it: {self._again(2 * enough - self.runs)}."
            )
        runs = self._runs_to_tell()
        if not runs:
            return _OTHER_JUDGE
        price = self._again(runs - self.runs)
        return f"Ask {runs} runs of each case, more votes may be enough: {price}."

    def _runs_to_tell(self) -> int:
        """The runs that would show how many votes are enough; 0 if they are too many to ask."""
        most = max((votes.runs_to_tell or 0 for votes in self.costs), default=0)
        return most if most <= _MOST_RUNS else 0

    def _never_both(self) -> Verdict | None:
        rows = [[name for name, state in states.items() if state == "missed"]
                for states in self.states]  # fmt: skip
        if not all(rows):
            return None
        missed = min(rows, key=len)
        fewest = rows.index(missed)
        return self._advice(
            "no", "7", "No number of votes is both right and steady",
            f"{counted(self.voted[fewest].votes, 'vote')}: {' and '.join(missed)} missed.",
            _OTHER_JUDGE, fewest,
        )  # fmt: skip

    def _use(self) -> Verdict | None:
        index = self._first("flips", "agreement", "kappa")
        if index is None:
            return None
        voted = self.voted[index]
        why = (
            f"Asked again, {estimate(voted.flips)} of results differ. It agrees with people in "
            f"{estimate(voted.agreement)} of cases, kappa {estimate(voted.kappa)}."
        )
        if index == 0:
            return self._advice("use", "8", "Use it", why,
                              f"Using it takes {self._per_thousand(1)}.")  # fmt: skip
        cheaper = self._first()
        # Votes at a node are what whole runs showed only if it is the only one that speaks.
        asked, how = "votes", (
            f"Run the metric {voted.votes} times and take the majority: votes at single nodes were "
            "not seen."
        )  # fmt: skip
        if len(self.under.nodes) == 1:
            asked = f"votes at {self.under.nodes[0].node}"
            how = f"Set {voted.votes} {asked}."
        if self.under.contest is not None:
            asked = "scores of each candidate"
            how = f"Score each candidate {voted.votes} times and take the highest mean."
        buy = f"{how} {self._per_thousand(1)} becomes {self._per_thousand(voted.votes)}."
        if cheaper is not None and cheaper < index:
            return self._fewer_open(cheaper, voted, buy)
        headline = f"Use it with {voted.votes} {asked}"
        more = self._per_thousand(voted.votes - 1)
        return self._advice("use_with", "9", f"{headline}: +{more}", why, buy, index)

    def _fewer_open(self, place: int, enough: Voted, buy: str) -> Verdict:
        """More votes meet all demands, but fewer may as well: nobody should pay for them unseen."""
        states, votes = self.states[place], self.voted[place].votes
        settle = self._run_step() if states["flips"] == "open" else self._label_step(place)
        return self._advice(
            "open", "10",
            f"Not known yet whether {counted(votes, 'vote')} {'is' if votes == 1 else 'are'} "
            f"enough; {enough.votes} are", self._reason(place), f"{settle} Or pay: {buy}", place,
        )  # fmt: skip

    # What is not known yet.

    def _open(self) -> Verdict:
        if self.metric.threshold is None and self.voted[0].agreement.value is None:
            return self._advice(
                "open", "13", "Not known: the metric has no threshold, so nothing passes or fails",
                "Without pass and fail there is no result that flips, or that people share.",
                "Give the metric a threshold; that makes no new calls with --store.",
            )  # fmt: skip
        steady = self._first("flips")
        if steady is not None:
            return self._label_more(steady)
        right = self._first("agreement", "kappa")
        if right is None:
            return self._more_of_both()
        headline = "Right, but not known to be steady"
        if self.voted[right].flips.value is None:
            headline = "Right, but steadiness was not measured"
        return self._advice("open", "12", headline, self._reason(right), self._run_step(), right)

    def _more_of_both(self) -> Verdict:
        """Labels and runs are too few; labels do not mend what one vote has missed."""
        missed = [demand for demand in DEMANDS if self.states[0][demand.name] == "missed"]
        labels, runs = self._label_step(0), self._run_step()
        if not missed:
            return self._advice(
                "open", "13", "Not known yet: labels and runs are too few", self._reason(0),
                f"First {labels[:1].lower()}{labels[1:]} Then {runs[:1].lower()}{runs[1:]}",
            )  # fmt: skip
        names = " and ".join(
            demand.against(self.needs, estimate(demand.figure(self.voted[0]))) for demand in missed
        )
        mend = self._steadier() if missed[0].name == "flips" else runs
        return self._advice(
            "open", "13", f"One vote is not enough: {names}", self._reason(0),
            f"{mend} Then {labels[:1].lower()}{labels[1:]}",
        )  # fmt: skip

    def _reason(self, place: int) -> str:
        """Reason against that many votes: what is missed comes before what is open."""
        voted = self.voted[place]
        sentences: list[str] = []
        for state, name in (("missed", "Missed"), ("open", "Undecided")):
            lines = [demand.against(self.needs, bounded_or_why(demand.figure(voted)))
                     for demand in DEMANDS if self.states[place][demand.name] == state]  # fmt: skip
            if lines:
                sentences.append(f"{name}{self._with_votes(place)}: {'; '.join(lines)}.")
        return " ".join(sentences)

    def _label_more(self, index: int) -> Verdict:
        agreement, states = self.voted[index].agreement, self.states[index]
        if not any(self.under.outcomes.labels):
            headline = "Steady, but nobody compared it with people"
        elif agreement.value is None:
            headline = "Steady, but these labels do not say how often it is right"
        elif "random" in agreement.note:
            headline = "Not known: these labels do not say how right it is on all cases"
        else:
            names = " and ".join(name for name in ("agreement", "kappa") if states[name] == "open")
            headline = f"Steady, but {names} not known yet: label more cases"
        reason, step = self._reason(index), self._label_step(index)
        return self._advice("open", "11", headline, reason, step, index)

    def _label_step(self, place: int) -> str:
        """The next labels: at most as many cases as there are, then the card is read again."""
        agreement = self.voted[place].agreement
        labelled = sum(map(bool, self.under.outcomes.labels))
        free = self.cases - labelled
        if agreement.value is None or not agreement.items:
            count = min(max(_LABELS, labels_within(0.8, 0.1)), self.cases)
            # Numbers of people are compared by rank; they do not say how often a result is right.
            how = text_if(labelled, "as pass or fail, ")
            half = 196 * math.sqrt(0.16 / max(count, 1))
            return f"Label {counted(count, 'case')} {how}drawn at random (±{half:.0f} points)."
        if "random" in agreement.note:
            count = min(_LABELS, self.cases)
            return f"Label {counted(count, 'case')} drawn at random, and add --labels-random."
        table = self.under.confusion
        needs = self.needs
        more = None if table is None else _forecast(table.counts, needs.agreement, needs.kappa)
        number = min(more or self.cases, free or self.cases)
        which = f"{number} more {'case' if number == 1 else 'cases'}, drawn at random"
        if not free:  # new cases run as often as votes are taken
            runs = self.voted[place].votes
            asked = self._price(number * self.under.calls * runs)
            which = f"{counted(number, 'new case')} ({asked})"
        if number == more:
            which += ": enough in 8 of 10 benchmarks like this"
        return f"Label {which}, then look again. {self._rests(place)}".rstrip()

    def _rests(self, place: int) -> str:
        """Grounds of an open demand: few cases of a label, or a line that is near."""
        table, states = self.under.confusion, self.states[place]
        rows = [] if table is None else zip(map(sum, table.counts), table.kinds, strict=True)
        count, kind = min((row for row in rows if row[0]), default=(0, ""))
        if states["kappa"] == "open" and 0 < count < _RARE:
            return f"Kappa rests on {counted(count, 'case')} labelled {kind}: label more of those."
        if states["agreement"] != "open":
            return ""
        return f"Or change the target of {100 * self.needs.agreement:g} %, which agreement is near."

    def _run_step(self) -> str:
        if self.voted[0].flips.value is None or self.runs < 2:
            return f"Ask each case {_RUNS - 1} more times: {self._again(_RUNS - 1)}."
        runs = max(self._runs_to_tell(), 2 * self.runs) - self.runs
        cases = counted(math.ceil(self.cases * runs / self.runs), "case")
        return f"Ask each case {runs} more times, or add {cases}: {self._again(runs)}."


# Number of labels that settle the demands: the same card asks several times.
_forecast = cache(labels_to_settle)
_UNPRICED = ", no price known"
_OTHER_JUDGE = "Try another judge, or another question, on the same cases and labels."


def errors(under: SettingCard) -> Iterator[str]:
    """Sentences on the direction of errors of pass or fail."""
    table = under.confusion
    if table is None or not {*table.kinds} <= {"pass", "fail", "no outcome"}:
        return
    for label, verdict, words in (("fail", "pass", "It passes {} of {}."),
                                  ("pass", "fail", "It fails {} of {}.")):  # fmt: skip
        if label in table.kinds and verdict in table.kinds:
            row = table.counts[table.kinds.index(label)]
            answers = counted(sum(row), "good answer" if label == "pass" else "bad answer")
            yield words.format(row[table.kinds.index(verdict)] or "none", answers)
