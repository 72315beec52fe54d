"""A judge card in words: names of measures, numbers with their intervals, differences."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from dagengine.question import judge_name
from dagengine.reliability.card.values import (
    Contest,
    Contrast,
    CorrectedFigure,
    Disagreement,
    Figure,
    JudgeCard,
    MetricCard,
    Segment,
    SettingCard,
    VoteCost,
    every_setting,
)
from dagengine.reliability.statistics.measures import measure_of
from dagengine.system.terminal import counted


def title(measure: Figure) -> str:
    """The name of a measure on the card."""
    return measure_of(measure.name).title


def is_signed(measure: Figure) -> bool:
    """Whether a measure goes from -1 to 1."""
    return measure_of(measure.name).unit == "coefficient"


def in_unit(measure: Figure, value: float) -> str:
    """A value of a measure, in per cent where it is a share, without the sign."""
    return f"{100 * value:.1f}" if _unit(measure) else f"{value:.3f}"


def _unit(measure: Figure) -> str:
    return " %" * (measure_of(measure.name).unit == "share")


def number(measure: Figure) -> str:
    """The value, in per cent where it is a share; a dash if it is undefined."""
    if measure.value is None:
        return "–"  # noqa: RUF001 - a dash for nothing
    return in_unit(measure, measure.value) + _unit(measure)


def interval(measure: Figure) -> str:
    """The interval in words, or nothing; a one-sided bound as "at most" or "at least"."""
    low, high = ("" if end is None else in_unit(measure, end)
                 for end in (measure.low, measure.high))  # fmt: skip
    if low and high:
        return f"{low} to {high}"
    if low or high:
        return f"{'at least' if low else 'at most'} {low or high}{_unit(measure)}"
    return ""


def estimate(measure: Figure) -> str:
    """The value with its interval, if there is one."""
    bounds = interval(measure)
    return f"{number(measure)} ({bounds})" if bounds else number(measure)


def full(measure: Figure) -> str:
    """Value, interval and number of items on one line; the note where it is undefined."""
    if measure.value is None:
        return f"undefined: {measure.note}"
    bounds = interval(measure)
    sure = f" ({100 * measure.confidence:g} % interval {bounds})" * bool(bounds)
    return f"{number(measure)}{sure}, n = {measure.items}"


def identity_hash(identity: str) -> str:
    """The SHA-256 of a judge's whole identity, settings included."""
    return hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()


def judges_of(card: JudgeCard) -> str:
    """The judges of a card, by name."""
    return " and ".join(dict.fromkeys(map(judge_name, card.binding.judges)))


def corrected_said(one: CorrectedFigure) -> str:
    """Sentence about all cases from labels on a random sample."""
    passing = one.estimate.name == "corrected-pass-rate"
    if one.estimate.value is None or one.alone is None or one.judge is None:
        title = "pass rate" if passing else "mean score"
        return f"The {title} of all cases by the human standard is not known: {one.estimate.note}."
    judge = number(replace(one.estimate, value=one.judge))
    worth = (
        f"With the judge, {counted(one.labelled, 'label')} are worth {one.worth or 0:.0f}"
        if one.telling
        else f"The judge adds nothing to the {counted(one.labelled, 'label')}"
    )
    rate = "{} of all cases pass" if passing else "the mean score of all cases is {}"
    result = rate.format(estimate(one.estimate))
    return (
        f"By the human standard, {result}. The judge alone says {judge}. "
        f"The labels alone say {estimate(one.alone)}. {worth}."
    )


def headline(card: JudgeCard) -> str:
    """Headline: questions, judges and repetitions."""
    settings = f" under each of {len(card.settings)} settings" * (len(card.settings) > 1)
    cases = counted(card.binding.cases, "case")
    unders = [under for _, under in every_setting(card)]
    ran = {case for under in unders for case, line in enumerate(under.outcomes.scores) if line}
    if 0 < len(ran) < card.binding.cases:
        cases = f"{len(ran)} of {cases}"
    fewest = min((count for under in unders for count in runs_of_cases(under)), default=card.times)
    span = f"{fewest} to {card.times}" if fewest < card.times else f"{card.times}"
    return f"{cases}, {span} {'run' if card.times == 1 else 'runs'} of each{settings}"


def runs_of_cases(under: SettingCard) -> list[int]:
    """Number of runs of each case that ran."""
    return [len(line.split()) for line in under.outcomes.scores if line]


def place(card: JudgeCard, metric: MetricCard, under: SettingCard) -> str:
    """The heading of a metric under a setting; a single setting needs no name."""
    return metric.metric if len(card.settings) < 2 else f"{metric.metric}: {under.setting}"


def difference(contrast: Contrast) -> str:
    """A difference with its interval and its p, in words."""
    figure = contrast.difference
    if figure.value is None:
        return f"not known: {figure.note}"
    sign = "+" if figure.value > 0 else ""
    p = contrast.p if contrast.corrected is None else contrast.corrected
    note = "" if p is None else f", p = {p:.2g}" if p >= 0.001 else ", p < 0.001"
    note = f"; {figure.note}" if figure.note else note
    return f"{sign}{estimate(figure)}{note}{'' if contrast.paired else ' (unpaired: other cases)'}"


def visible(contrast: Contrast) -> str:
    """The smallest detectable difference, or nothing."""
    if contrast.visible is None:
        return ""
    return number(replace(contrast.difference, value=contrast.visible))


def understood(metric: MetricCard) -> str:
    """Sentence on the reading of human labels."""
    meanings = (
        f"{meaning.label!r} as {meaning.means or 'no outcome'} ({meaning.cases})"
        for meaning in metric.labels
    )
    return f"How labels were read: {', '.join(meanings)}."


def votes_of(votes: VoteCost | None) -> str:
    """Number of votes that a node needs, in few words; a dash if it has none."""
    if votes is None:
        return "–"  # noqa: RUF001 - a dash for nothing
    if votes.by_chance:
        return "votes cannot help: its answers agree by chance"
    if votes.kind == "none":
        return "no number of votes up to 99"
    if votes.kind == "not known":
        return f"not known from {counted(votes.runs, 'run')}"
    if votes.kind == "more than":
        return f"more than {counted((votes.least or 3) - 2, 'vote')}"
    if votes.least == votes.most and votes.most is not None:
        return counted(votes.most, "vote")
    between = "between {} and {} votes" if votes.kind == "range" else "{} to {} votes"
    return between.format(votes.least, votes.most)


# The first screen.

_WIDE = 0.5


def bounded_or_why(measure: Figure) -> str:
    """A figure with its interval, or why there is none that says anything."""
    if measure.ends is None:
        return f"unknown, because {measure.note.removeprefix('no interval: ') or 'no interval'}"
    return bounded_or_unknown(measure)


def bounded_or_unknown(measure: Figure) -> str:
    """A figure with its interval, in the few words of a table; reasons stand above it."""
    if measure.ends is None:
        return "not known"
    if measure.ends[1] - measure.ends[0] > _WIDE:
        return f"{number(measure)}, too wide to tell ({interval(measure)})"
    return estimate(measure)


def segment(part: Segment) -> str:
    """A segment of the cases in which the judge is right less often."""
    return (
        f"{part.name}: {part.cases - part.right} of {part.cases} wrong, others "
        f"{part.others - part.others_right} of {part.others}: more than chance"
    )


def disagreement(differs: Disagreement) -> str:
    """Answers of people and judge on one case."""
    path = f"   {differs.path}" * bool(differs.path)
    return (
        f"{differs.case}: people {differs.people}, judge {differs.judge} "
        f"{differs.votes}/{differs.runs}{path}"
    )


def scores_needed(contest: Contest) -> str:
    """Say how many scores of a candidate are enough."""
    most, within = len(contest.curve), f"{100 * contest.within:g}"
    points = f"{within} point{'s' * (within != '1')}"
    if most == 1:
        return "One score was seen; what more of them buy is not known."
    if contest.gain.value is None:
        return "How many scores are enough is not known: no labels were given."
    short = contest.curve[contest.enough - 1].short
    if contest.enough == most:
        last = contest.curve[-2]
        return (
            f"Fewer than {most} scores are not known to be enough: {last.scores} may be more than "
            f"{points} short of {most} ({estimate(last.short)})."
        )
    enough = counted(contest.enough, "score") + (" is" if contest.enough == 1 else " are")
    return f"{enough} enough: surely at most {points} short of {most} ({estimate(short)})."


def bought(contest: Contest) -> Iterator[str]:
    """Say what all scores buy over one."""
    most = len(contest.curve)
    if contest.gain.value is None or most < 2:
        return
    gain, noise, unties = (_in_points(part) for part in
                           (contest.gain, contest.noise, contest.unties))  # fmt: skip
    yield f"{most} scores instead of 1, if a tie is wrong: {gain}."
    yield f"  {noise} of these are less noise (the gain if ties are shared);"
    yield f"  {unties} only that means of {most} tie less often than single scores."


def _in_points(measure: Figure) -> str:
    bounds = f" ({interval(measure)})" * bool(interval(measure))
    return f"{100 * (measure.value or 0.0):+.1f} points{bounds}"


def contest_title(under: SettingCard) -> str:
    """The title of the table of a contest."""
    assert under.contest is not None
    return f"Right in per cent of cases: best of {under.contest.candidates} by the mean of k scores"


CONTEST_HEADS = ("k", "a tie is wrong", "a tie is shared", "ties", "short of all k")


def contest_rows(contest: Contest) -> Iterator[tuple[str, ...]]:
    """The cells of the table of a contest, a row for each number of scores."""
    for row in contest.curve:
        last = row.scores == len(contest.curve)
        figures = (row.wrong, row.share, replace(row.ties, low=None, high=None), row.short)
        cells = [estimate(figure).replace(" %", "") for figure in figures[: 4 - last]]
        yield (str(row.scores), *cells, *[""] * last)


def position_biases(metric: MetricCard) -> list[str]:
    """Preferences for a place, where they are more than chance."""
    biases: list[str] = []
    for measure in metric.across:
        low, high = measure.ends or (0.5, 0.5)
        if measure.name.startswith("position-preference") and not low <= 0.5 <= high:
            biases.append(f"{title(measure)}: {estimate(measure)}")
    return biases


def compared_together(card: JudgeCard) -> str:
    """Sentence on the joint level of the intervals of several settings; empty for one."""
    count = len(card.settings)
    return f"All intervals hold for the {count} settings together (95 %)." * (count > 1)


def what_n_is(card: JudgeCard, under: SettingCard) -> str:
    """Sentences on the unit that is counted."""
    runs = runs_of_cases(under)
    labelled = sum(map(bool, under.outcomes.labels))
    ran = f"{counted(len(runs), 'case')}; each counts once, however often it ran"
    people = f"{labelled} {'has' if labelled == 1 else 'have'} a label"
    people = people + " drawn at random" * card.labels_random if labelled else "none has a label"
    missing = sum(line.split().count("-") for line in under.outcomes.scores)
    has = "has" if missing == 1 else "have"
    how = "left out" if under.contest else "counted both ways"
    lost = f" {missing} of {counted(sum(runs), 'run')} {has} no score: {how}."
    return f"n: {ran}; {people}.{lost * bool(missing)}"
