"""A judge card in words: names of measures, numbers with their intervals, four answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dagengine.reliability.card.values import (
    Contrast,
    CorrectedFigure,
    Figure,
    JudgeCard,
    MetricCard,
    NodeCard,
    SettingCard,
    VoteCost,
    every_setting,
)

QUESTIONS = (
    "Would I get this score again?",
    "Which node is to blame?",
    "What would it cost to be sure?",
    "Does the judge agree with people?",
)

TITLES = {
    "flip-rate": "pass or fail flips",
    "pass-rate": "runs that pass",
    "score-flip-rate": "score differs",
    "mean-score": "mean score",
    "score-spread": "standard deviation of the score",
    "test-retest": "test-retest reliability, ICC(1,1)",
    "drift": "drift: score of the last run less the first",
    "within-group-spearman": "Spearman correlation within groups",
    "within-group-kendall": "Kendall correlation within groups",
    "unscored": "runs without a score",
    "position-flip-rate": "score differs when the order does",
    "judge-flip-rate": "score differs when the judge does",
    "temperature-flip-rate": "score differs when the temperature does",
    "seed-flip-rate": "score differs when the seed does",
    "paraphrase-flip-rate": "score differs when the wording does",
    "total-agreement": "all runs give one score (TARa)",
    "raw-agreement": "all runs give one text (TARr)",
    "path-agreement": "all runs take one path",
    "path-flip-rate": "path differs",
    "majority-share": "commonest score's share",
    "entropy": "entropy of the score",
    "unscored-effect": "flips added by runs without a score",
    "cohen-kappa": "agreement of two judges, Cohen's kappa",
    "fleiss-kappa": "agreement of judges, Fleiss' kappa",
    "alpha": "agreement of judges, Krippendorff's alpha",
    "score-alpha": "agreement of judges' scores, alpha",
    "position-consistency": "same verdict in both orders",
    "position-preference": "of other verdicts: for the first place",
    "first-wins": "what is shown first wins",
    "position-consistency-of-options": "same verdict with options reversed",
    "position-preference-of-options": "of other verdicts: for the first option",
    "first-wins-of-options": "the option that stands first wins",
    "length-bias": "score goes with length, correlation",
    "list-bias": "verdict goes with place in the list, correlation",
    "longer-wins": "the longer answer wins",
    "repeat-brier": "Brier score: does the judge repeat itself?",
    "repeat-calibration-error": "calibration error: does it repeat itself?",
    "label-brier": "Brier score: do people agree?",
    "label-calibration-error": "calibration error: do people agree?",
    "accuracy": "accuracy of the majority of runs",
    "single-run-accuracy": "accuracy of a single run",
    "kappa": "kappa (beyond chance)",
    "ac1": "Gwet's AC1 (beyond chance)",
    "sensitivity": "sensitivity: met of a label's cases",
    "specificity": "specificity: met of all other cases",
    "corrected-pass-rate": "cases that pass by people's standard",
    "corrected-mean-score": "mean score by people's standard",
    "ceiling": "ceiling that people's own disagreement sets",
    "people-agreement": "a person agrees with the other people",
    "balanced-accuracy": "balanced accuracy",
    "baseline": "baseline: always the commonest label",
    "pearson": "Pearson correlation",
    "spearman": "Spearman rank correlation",
    "kendall": "Kendall rank correlation",
    "node-flip-rate": "answers that differ",
    "flip-effect": "score moved by a flip",
    "variance-share": "share of the noise",
}
PER_LABEL = {"sensitivity", "specificity"}
"""Measures that stand on the card once for every label."""

# Not shares of something, so not written as percentages.
SIGNED = {"kappa", "pearson", "spearman", "kendall", "test-retest", "length-bias", "list-bias"}
SIGNED |= {
    "drift",
    "within-group-spearman",
    "within-group-kendall",
    "ac1",
    "cohen-kappa",
    "fleiss-kappa",
    "alpha",
    "score-alpha",
}
_PLAIN = {
    "score-spread",
    "mean-score",
    "flip-effect",
    "entropy",
    "repeat-brier",
    "label-brier",
    *SIGNED,
}


# An interval wider than this says little: of shares, and of what lies between -1 and 1.
_WIDE, _WIDE_SIGNED = 0.2, 0.4


@dataclass(frozen=True, slots=True)
class Answer:
    """One sentence for one of the four questions; `weak` says why it is worth little, if it is."""

    text: str
    weak: str = ""

    def __str__(self) -> str:
        return f"{self.text} (weak: {self.weak})" if self.weak else self.text


def title(measure: Figure) -> str:
    """What people call a measure."""
    return TITLES.get(measure.name, measure.name)


def _figure(measure: Figure, value: float) -> str:
    return f"{value:.3f}" if measure.name in _PLAIN else f"{100 * value:.1f}"


def _unit(measure: Figure) -> str:
    return "" if measure.name in _PLAIN else " %"


def number(measure: Figure) -> str:
    """The value, in per cent where it is a share; a dash where it is undefined."""
    if measure.value is None:
        return "–"  # noqa: RUF001 - a dash for nothing
    return _figure(measure, measure.value) + _unit(measure)


def interval(measure: Figure) -> str:
    """The interval in words, or nothing; a one-sided bound as "at most" or "at least"."""
    low = None if measure.low is None else _figure(measure, measure.low)
    high = None if measure.high is None else _figure(measure, measure.high)
    if low is not None and high is not None:
        return f"{low} to {high}"
    if high is not None:
        return f"at most {high}{_unit(measure)}"
    return "" if low is None else f"at least {low}{_unit(measure)}"


def bounded(measure: Figure) -> str:
    """The value with its interval, where there is one."""
    bounds = interval(measure)
    return f"{number(measure)} ({bounds})" if bounds else number(measure)


def full(measure: Figure) -> str:
    """Value, interval and number of items on one line; the note where it is undefined."""
    if measure.value is None:
        return f"undefined: {measure.note}"
    bounds = interval(measure)
    sure = f" ({100 * measure.confidence:g} % interval {bounds})" if bounds else ""
    return f"{number(measure)}{sure}, n = {measure.items}"


def weakness(measure: Figure) -> str:
    """Why a value says little; empty where it says something, or is undefined."""
    if measure.value is None:
        return ""
    if measure.low is None and measure.high is None:
        return f"no interval, n = {measure.items}"
    low = measure.value if measure.low is None else measure.low
    high = measure.value if measure.high is None else measure.high
    wide = _WIDE_SIGNED if measure.name in SIGNED else _WIDE
    return f"a wide interval, n = {measure.items}" if high - low > wide else ""


def judge_name(identity: str) -> str:
    """A judge's identity without its settings, for reading."""
    return re.split(r" with |, ", identity, maxsplit=1)[0]


def judges_of(card: JudgeCard) -> str:
    """The judges of a card, by name."""
    return " and ".join(dict.fromkeys(map(judge_name, card.binding.judges)))


def answers(under: SettingCard) -> tuple[Answer, Answer, Answer, Answer]:
    """One sentence for each of the four questions, about one metric under one setting."""
    return _again(under), _blame(under), _price(under), _people(under)


def _again(under: SettingCard) -> Answer:
    flips, scores = under.figure("flip-rate"), under.figure("score-flip-rate")
    what = "pass where the other fails"
    if flips is None or flips.value is None:
        flips, what = scores, "give another score"
    if flips is None or flips.value is None:
        return Answer(f"Not known: {flips.note if flips else 'nothing ran'}.")
    lost = _unscored(under)
    if flips.value:
        how = f"Of two runs of one case, one will {what} {bounded(flips)} of the time{lost}."
        return Answer(how, weakness(flips))
    bound = f"; at most {_figure(flips, flips.high)} % of pairs would" if flips.high else ""
    cases = "1 case" if flips.items == 1 else f"{flips.items} cases"
    return Answer(f"Yes: no two runs of one case differed ({cases}){bound}{lost}.", weakness(flips))


def _unscored(under: SettingCard) -> str:
    missing = under.figure("unscored")
    return f"; {number(missing)} of the runs have no score" if missing and missing.value else ""


def noisiest(under: SettingCard) -> NodeCard | None:
    """The node with the greatest share of the noise."""
    known = [node for node in under.nodes if node.share.value is not None]
    return max(known, key=lambda node: node.share.value or 0.0, default=None)


def _blame(under: SettingCard) -> Answer:
    worst, scores = noisiest(under), under.figure("score-flip-rate")
    if scores is None or scores.value is None:
        return Answer(f"Not known: {scores.note if scores else 'nothing ran'}.")
    if not scores.value:
        return Answer("None: the score did not vary within any case.")
    if worst is None:
        why = "; ".join(dict.fromkeys(node.share.note for node in under.nodes))
        return Answer(f"Not known: {why or 'no node of this metric decides or rates'}.")
    whose = f" (it works on {', '.join(worst.reads)})" if worst.reads else ""
    said = f"“{worst.node}”{whose} causes {bounded(worst.share)} of the noise."
    return Answer(said, weakness(worst.share))


def _price(under: SettingCard) -> Answer:
    voting = [(node, node.votes) for node in under.nodes if node.votes is not None]
    if not voting:
        return Answer(f"Not known in votes: {_why_no_votes(under)}.")
    target = f"{100 * voting[0][1].target:g} %"
    needing = [(node, votes) for node, votes in voting if votes.most != 1]
    if not needing:
        return Answer(f"Nothing more: every verdict flips at most {target} of the time as it is.")
    said = ", ".join(f"“{node.node}” {votes_of(votes)}" for node, votes in needing)
    unsure = [votes for _, votes in needing if votes.kind in ("not known", "more than")]
    least = [votes for votes in unsure if votes.kind == "more than"]
    open_ = f"; how many is not known from {least[0].runs} runs" if least else ""
    weak = f"{len(unsure)} of {len(voting)} nodes have no upper end" if unsure else ""
    most = max((votes for _, votes in needing), key=lambda votes: votes.seen_flips.value or 0.0)
    return Answer(f"For {target} flips: {said}{open_}{_left(most)}{_calls(voting)}.", weak)


def _why_no_votes(under: SettingCard) -> str:
    again = under.figure("score-flip-rate")
    if again is not None and again.value is None:
        return again.note
    return "no node of this metric decides by a verdict that two runs of a case gave"


def _calls(voting: Sequence[tuple[NodeCard, VoteCost]]) -> str:
    """The questions of all voting nodes, where every number of votes has an upper end."""
    most = [votes.most * votes.calls for _, votes in voting if votes.most is not None]
    if len(most) < len(voting):
        return ""
    once = sum(votes.calls for _, votes in voting)
    return f": at most {sum(most):,.0f} instead of {once:,.0f} questions for all cases"


def _left(votes: VoteCost) -> str:
    """What many votes still leave, where that was seen and is above the target."""
    if votes.seen < 2 or (votes.seen_flips.value or 0.0) <= votes.target:
        return ""
    return f"; {votes.seen} votes would still flip {bounded(votes.seen_flips)}"


def _people(under: SettingCard) -> Answer:
    found = {measure.name: measure for measure in under.people}
    scores = under.figure("mean-score")
    if not found:
        return Answer("Not known: no labels were given.")
    if scores is None or scores.value is None:
        return Answer(f"Not known: {scores.note if scores else 'nothing ran'}.")
    accuracy, kappa, base = (found.get(name) for name in ("accuracy", "kappa", "baseline"))
    if accuracy and base and kappa and accuracy.value is not None:
        beyond = bounded(kappa) if kappa.value is not None else f"undefined, as {kappa.note}"
        return Answer(
            f"In {bounded(accuracy)} of the cases, where always giving the commonest label is "
            f"right in {number(base)}; kappa is {beyond}.",
            weakness(kappa) or weakness(accuracy),
        )
    spearman = found.get("spearman")
    if spearman and spearman.value is not None:
        said = f"Spearman's rank correlation with people is {full(spearman)}."
        return Answer(said, weakness(spearman))
    return Answer(f"Not known: {next(iter(found.values())).note}.")


def corrected_said(one: CorrectedFigure) -> str:
    """What labels on a random part of the cases say about all of them."""
    passing = one.estimate.name == "corrected-pass-rate"
    if one.estimate.value is None or one.alone is None or one.judge is None:
        what = "How many of all cases pass" if passing else "The mean score of all cases"
        return f"{what} by people's standard is not known: {one.estimate.note}."
    judge = number(replace(one.estimate, value=one.judge))
    worth = (
        f"the judge makes {one.labelled} labels worth {one.worth or 0:.0f}"
        if one.telling
        else f"the judge tells nothing here, and the {one.labelled} labels alone say as much"
    )
    rate = "of all cases pass" if passing else "is the mean score of all cases"
    return (
        f"{bounded(one.estimate)} {rate} by people's standard, where the judge alone says {judge} "
        f"and the labels alone {bounded(one.alone)}; {worth}."
    )


def headline(card: JudgeCard) -> str:
    """What was asked, of whom, how often."""
    settings = f" under each of {len(card.settings)} settings" if len(card.settings) > 1 else ""
    cases = "1 case" if card.binding.cases == 1 else f"{card.binding.cases} cases"
    return f"{cases}, {card.times} {'run' if card.times == 1 else 'runs'} of each{settings}"


def place(card: JudgeCard, metric: MetricCard, under: SettingCard) -> str:
    """The heading of a metric under a setting; a single setting needs no name."""
    return metric.metric if len(card.settings) < 2 else f"{metric.metric}: {under.setting}"


def difference(contrast: Contrast) -> str:
    """A difference with its interval and its p, in words."""
    one = contrast.difference
    if one.value is None:
        return f"not known: {one.note}"
    sign = "+" if one.value > 0 else ""
    p = contrast.p if contrast.corrected is None else contrast.corrected
    said = "" if p is None else f", p = {p:.2g}" if p >= 0.001 else ", p < 0.001"
    said = f"; {one.note}" if one.note else said
    return f"{sign}{bounded(one)}{said}{'' if contrast.paired else ' (unpaired: other cases)'}"


def visible(contrast: Contrast) -> str:
    """The smallest difference that would have been seen, or nothing."""
    return (
        ""
        if contrast.visible is None
        else number(replace(contrast.difference, value=contrast.visible))
    )


def markdown(card: JudgeCard) -> str:
    """The summary of a card as Markdown."""
    return "\n".join(_lines(card)) + "\n"


def _lines(card: JudgeCard) -> Iterator[str]:
    yield "# Judge card\n"
    yield f"Judge: {judges_of(card)}. {headline(card)}.\n"
    for metric, under in every_setting(card):
        yield f"## {place(card, metric, under)}\n"
        for question, answer in zip(QUESTIONS, answers(under), strict=True):
            yield f"- **{question}** {answer}"
        yield from (f"- {corrected_said(one)}" for one in under.corrected)
        yield from _measures(under.measures)
        yield "\n| node | share of the noise | flips | a flip moves | votes |"
        yield "|---|---|---|---|---|"
        for node in under.nodes:
            shown = (node.node, number(node.share), number(node.flip_rate), number(node.effect))
            yield f"| {' | '.join(map(_cell, shown))} | {node_votes(node)} |"
        yield ""
        yield from (f"{note}\n" for note in under.notes)
    for metric in card.metrics:
        yield from _together(metric)
    yield from (f"- {rule}" for rule in card.rules)
    yield f"\nBound to sha256 {card.sha256} (dagengine {card.binding.version})."


def _measures(measures: Sequence[Figure]) -> Iterator[str]:
    yield "\n| measure | value | level |\n|---|---|---|"
    for one in measures:
        yield f"| {one.name} | {_cell(full(one))} | {_cell(one.level)} |"


def _together(metric: MetricCard) -> Iterator[str]:
    """What several settings show, and how labels were understood."""
    if metric.across:
        yield f"## {metric.metric}: settings together"
        yield from _measures(metric.across)
        yield ""
    if metric.between:
        yield f"## {metric.metric}: settings against each other\n"
        yield "| measure | from | to | difference | would have been seen |\n|---|---|---|---|---|"
        for one in metric.between:
            cells = (one.difference.name, one.one, one.other, difference(one), visible(one))
            yield f"| {' | '.join(map(_cell, cells))} |"
        yield ""
    if metric.labels:
        yield f"{understood(metric)}\n"


def understood(metric: MetricCard) -> str:
    """How the labels of people were understood."""
    said = (f"{one.label!r} as {one.means or 'no outcome'} ({one.cases})" for one in metric.labels)
    return f"Labels were understood so: {', '.join(said)}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def votes_of(votes: VoteCost) -> str:
    """How many votes a node needs, in few words."""
    if votes.kind == "none":
        return "no number of votes up to 99"
    if votes.kind == "not known":
        return f"not known from {votes.runs} runs"
    if votes.kind == "more than":
        fewer = (votes.least or 3) - 2
        return f"more than {fewer} vote{'' if fewer == 1 else 's'}"
    if votes.least == votes.most:
        return "1 vote" if votes.most == 1 else f"{votes.most} votes"
    between = "between {} and {} votes" if votes.kind == "range" else "{} to {} votes"
    return between.format(votes.least, votes.most)


def node_votes(node: NodeCard) -> str:
    """How many votes a node needs; a dash where it has none."""
    return "–" if node.votes is None else votes_of(node.votes)  # noqa: RUF001 - a dash for nothing
