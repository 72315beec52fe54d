"""A judge card in words: figures, differences, the first screen, and the four answers.

All sentences are made of figures that are on the card.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dagengine.question import judge_name
from dagengine.reliability.card.measures import measure_of
from dagengine.reliability.card.types import (
    Contest,
    Contrast,
    CorrectedFigure,
    Disagreement,
    Figure,
    JudgeCard,
    MetricCard,
    NodeCard,
    Segment,
    SettingCard,
    VoteCost,
    every_setting,
)
from dagengine.reliability.statistics.paired_comparisons import cases_needed, visible_difference
from dagengine.reliability.statistics.sums import present
from dagengine.system.terminal_text import counted, text_if

_NOTHING = "–"  # noqa: RUF001 - a dash for nothing
_TOO_WIDE = 0.5
QUESTIONS = (
    "Would I get this score again?",
    "Which node is to blame?",
    "What would it cost to be sure?",
    "Does the judge agree with people?",
)
# An interval wider than this says little: of shares, and of what lies between -1 and 1.
_WIDE, _WIDE_SIGNED = 0.2, 0.4


def title(measure: Figure) -> str:
    """The name of a measure on the card."""
    return measure_of(measure.name).title


def is_signed(measure: Figure) -> bool:
    """Whether a measure goes from -1 to 1."""
    return measure_of(measure.name).unit == "coefficient"


def in_unit(measure: Figure, value: float | None) -> str:
    """A value of a measure, in per cent where it is a share, without the sign; None is empty."""
    if value is None:
        return ""
    return f"{100 * value:.1f}" if _unit(measure) else f"{value:.3f}"


def _unit(measure: Figure) -> str:
    return text_if(measure_of(measure.name).unit == "share", " %")


def number(measure: Figure) -> str:
    """The value, in per cent where it is a share; a dash if it is undefined."""
    if measure.value is None:
        return _NOTHING
    return in_unit(measure, measure.value) + _unit(measure)


def interval(measure: Figure) -> str:
    """The interval in words, or nothing; a one-sided bound as "at most" or "at least"."""
    low, high = in_unit(measure, measure.low), in_unit(measure, measure.high)
    if low and high:
        return f"{low} to {high}"
    if low or high:
        return f"{'at least' if low else 'at most'} {low or high}{_unit(measure)}"
    return ""


def estimate(measure: Figure) -> str:
    """The value with its interval, if there is one."""
    bounds = interval(measure)
    return number(measure) + text_if(bounds, f" ({bounds})")


def full(measure: Figure) -> str:
    """Value, interval and number of items on one line; the note where it is undefined."""
    if measure.value is None:
        return f"undefined: {measure.note}"
    bounds = interval(measure)
    sure = text_if(bounds, f" ({100 * measure.confidence:g} % interval {bounds})")
    return f"{number(measure)}{sure}, n = {measure.items}"


def identity_hash(identity: str) -> str:
    """The SHA-256 of a judge's whole identity, settings included; the page's template shows it."""
    return hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()


def judges_of(card: JudgeCard) -> str:
    """The judges of a card, by name."""
    return " and ".join(dict.fromkeys(map(judge_name, card.binding.judges)))


def corrected_said(one: CorrectedFigure) -> str:
    """Sentence about all cases from labels on a random sample."""
    name, result = "mean score", f"the mean score of all cases is {estimate(one.estimate)}"
    if one.estimate.name == "corrected-pass-rate":
        name, result = "pass rate", f"{estimate(one.estimate)} of all cases pass"
    if one.estimate.value is None or one.alone is None or one.judge is None:
        return f"The {name} of all cases by the human standard is not known: {one.estimate.note}."
    judge = number(replace(one.estimate, value=one.judge))
    labels = counted(one.labelled, "label")
    worth = f"The judge adds nothing to the {labels}"
    if one.telling:
        worth = f"With the judge, {labels} are worth {one.worth or 0:.0f}"
    return (
        f"By the human standard, {result}. The judge alone says {judge}. "
        f"The labels alone say {estimate(one.alone)}. {worth}."
    )


def headline(card: JudgeCard) -> str:
    """Headline: questions, judges and repetitions."""
    settings = text_if(len(card.settings) > 1, f" under each of {len(card.settings)} settings")
    cases = counted(card.binding.cases, "case")
    unders = [under for _, under in every_setting(card)]
    ran = {case for under in unders for case, line in enumerate(under.outcomes.scores) if line}
    if 0 < len(ran) < card.binding.cases:
        cases = f"{len(ran)} of {cases}"
    fewest = min(chain.from_iterable(map(runs_of_cases, unders)), default=card.times)
    span = text_if(fewest < card.times, f"{fewest} to ")
    return f"{cases}, {span}{card.times} run{text_if(card.times != 1, 's')} of each{settings}"


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
    p, note = contrast.p if contrast.corrected is None else contrast.corrected, ""
    if figure.note:
        note = f"; {figure.note}"
    elif p is not None:
        note = f", p = {p:.2g}" if p >= 0.001 else ", p < 0.001"
    unpaired = text_if(not contrast.paired, " (unpaired: other cases)")
    return f"{text_if(figure.value > 0, '+')}{estimate(figure)}{note}{unpaired}"


def visible(contrast: Contrast) -> str:
    """The smallest detectable difference, or nothing."""
    if contrast.visible is None:
        return ""
    return number(replace(contrast.difference, value=contrast.visible))


def understood(metric: MetricCard) -> str:
    """Sentence on the reading of human labels."""
    meanings = (f"{read.label!r} as {read.means or 'no outcome'} ({read.cases})"
                for read in metric.labels)  # fmt: skip
    return f"How labels were read: {', '.join(meanings)}."


def votes_of(votes: VoteCost | None) -> str:
    """Number of votes that a node needs, in few words; a dash if it has none."""
    if votes is None:
        return _NOTHING
    if votes.by_chance:
        return "votes cannot help: its answers agree by chance"
    if votes.least == votes.most and votes.most is not None:
        return counted(votes.most, "vote")
    return {
        "none": "no number of votes up to 99",
        "not known": f"not known from {counted(votes.runs, 'run')}",
        "more than": f"more than {counted((votes.least or 3) - 2, 'vote')}",
        "range": f"between {votes.least} and {votes.most} votes",
        "number": f"{votes.least} to {votes.most} votes",
    }[votes.kind]


# The first screen.


def bounded_or_why(measure: Figure) -> str:
    """A figure with its interval, or why there is none that says anything."""
    if measure.ends is None:
        return f"unknown, because {measure.note.removeprefix('no interval: ') or 'no interval'}"
    return bounded_or_unknown(measure)


def bounded_or_unknown(measure: Figure) -> str:
    """A figure with its interval, in the few words of a table; reasons stand above it."""
    if measure.ends is None:
        return "not known"
    if measure.ends[1] - measure.ends[0] > _TOO_WIDE:
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
    path = text_if(differs.path, f"   {differs.path}")
    return (
        f"{differs.case}: people {differs.people}, judge {differs.judge} "
        f"{differs.votes}/{differs.runs}{path}"
    )


def disagreements_title(under: SettingCard, most: int) -> str:
    """Title of the `most` disagreements that are shown."""
    count = len(under.disagreements)
    shown = text_if(count > most, f"; the {most} surest")
    return f"People and the judge disagree on {counted(count, 'case')}{shown}"


def labels_next(card: JudgeCard, under: SettingCard) -> str:
    """Sentence on the cases to label next."""
    names = ", ".join(card.cases[number].name for number in under.unlabelled)
    split = text_if(len(under.unlabelled) > 5, ", the others split the runs most")
    return f"Label next: {names} (the first five drawn at random{split})."


def scores_needed(contest: Contest) -> str:
    """Say how many scores of a candidate are enough."""
    most, within = len(contest.curve), f"{100 * contest.within:g}"
    points = f"{within} point{text_if(within != '1', 's')}"
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
    gain, noise, unties = map(_in_points, (contest.gain, contest.noise, contest.unties))
    yield f"{most} scores instead of 1, if a tie is wrong: {gain}."
    yield f"  {noise} of these are less noise (the gain if ties are shared);"
    yield f"  {unties} only that means of {most} tie less often than single scores."


def _in_points(measure: Figure) -> str:
    bounds = text_if(interval(measure), f" ({interval(measure)})")
    return f"{100 * (measure.value or 0.0):+.1f} points{bounds}"


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
    return text_if(count > 1, f"All intervals hold for the {count} settings together (95 %).")


def what_n_is(card: JudgeCard, under: SettingCard) -> str:
    """Sentences on the unit that is counted."""
    runs = runs_of_cases(under)
    labelled = sum(map(bool, under.outcomes.labels))
    ran = f"{counted(len(runs), 'case')}; each counts once, however often it ran"
    people = f"{labelled or 'none'} {has(labelled or 1)} a label"
    people += text_if(card.labels_random and labelled > 0, " drawn at random")
    missing = sum(line.split().count("-") for line in under.outcomes.scores)
    how = "left out" if under.contest else "counted both ways"
    lost = f" {missing} of {counted(sum(runs), 'run')} {has(missing)} no score: {how}."
    return f"n: {ran}; {people}.{text_if(missing, lost)}"


def has(number: int) -> str:
    """The verb after so many."""
    return "has" if number == 1 else "have"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one of the four questions; `weak` says why it says little, or is empty."""

    text: str
    weak: str = ""

    def __str__(self) -> str:
        return self.text + text_if(self.weak, f" (weak: {self.weak})")


def weakness(measure: Figure) -> str:
    """Why a value says little; empty if it says something, or is undefined."""
    ends = present((measure.low, measure.high))
    if measure.value is None:
        return ""
    if not ends:
        return f"no interval, n = {measure.items}"
    wide = _WIDE_SIGNED if is_signed(measure) else _WIDE
    is_wide = max(*ends, measure.value) - min(*ends, measure.value) > wide
    return text_if(is_wide, f"a wide interval, n = {measure.items}")


def answers(under: SettingCard) -> tuple[Answer, Answer, Answer, Answer]:
    """An answer to each of the four questions, about one metric under one setting."""
    if under.contest is not None:
        return _of_contest(under, under.contest)
    blame = _blame(under)
    blame = Answer(f"{blame.text}{_by_key(under)}", blame.weak)
    return _again(under), blame, _price(under), _people(under)


def _of_contest(under: SettingCard, contest: Contest) -> tuple[Answer, Answer, Answer, Answer]:
    """The answers where cases have candidates: no node of ours picks the best one."""
    flips, right = under.again[0], next(iter(under.people), Figure("", None, note="no labels"))
    again = f"The best candidate by one score is another one {estimate(flips)} of the time."
    people = f"The best is the right one in {estimate(right)} of cases (ties: {contest.rule})."
    return (
        _if_counted(again, flips), Answer("Not known: the scores are not those of a tree."),
        Answer(scores_needed(contest)), _if_counted(people, right),
    )  # fmt: skip


def _if_counted(text: str, measure: Figure) -> Answer:
    return Answer(text, weakness(measure)) if measure.items else _not_known(measure)


def _not_known(measure: Figure) -> Answer:
    return Answer(f"Not known: {measure.note}.")


def _figure(under: SettingCard, name: str) -> Figure:
    return under.figure(name) or Figure(name, None, note="nothing ran")


def _flips(under: SettingCard) -> Figure:
    """The flip rate of pass or fail; of the score where that is not known."""
    flips = _figure(under, "flip-rate")
    return _figure(under, "score-flip-rate") if flips.value is None else flips


def _again(under: SettingCard) -> Answer:
    flips = _flips(under)
    outcome = "score" if flips.name == "score-flip-rate" else "result (pass or fail)"
    if flips.value is None:
        return _not_known(flips)
    missing = _figure(under, "unscored")
    lost = text_if(missing.value, f"; {number(missing)} of the runs have no score")
    if flips.value:
        how = f"Two runs of a case give a different {outcome} {estimate(flips)} of the time{lost}."
        return Answer(how, weakness(flips))
    bound = text_if(flips.high, f"; the flip rate is at most {in_unit(flips, flips.high)} %")
    return Answer(
        f"Yes: no two runs of a case differed ({counted(flips.items, 'case')}){bound}{lost}.",
        weakness(flips),
    )


def _blame(under: SettingCard) -> Answer:
    scores = _figure(under, "score-flip-rate")
    blamed = (node for node in under.nodes if node.share.value is not None)
    worst = max(blamed, key=lambda node: node.share.value or 0.0, default=None)
    if scores.value is None:
        return _not_known(scores)
    if not scores.value:
        return Answer("None: the score did not vary within any case.")
    if worst is None:
        if not under.nodes:
            return Answer("Not known: no node of this metric decides or rates.")
        node, count = under.nodes[0], len(under.nodes) - 1
        several = text_if(count, f" and {count} more")
        return Answer(f"Not known for “{node.node}”{several}: {node.share.note}.")
    whose = text_if(worst.reads, f" (it works on {', '.join(worst.reads)})")
    if worst.share.value == worst.share.low == 1:
        return Answer(
            f"“{worst.node}”{whose} causes all of the noise: no other node changes the score."
        )
    sentence = f"“{worst.node}”{whose} causes {estimate(worst.share)} of the noise."
    return Answer(sentence, weakness(worst.share))


def _by_key(under: SettingCard) -> str:
    """The criteria of a rubric that flip more than others; empty for any other metric."""
    if not under.keys:
        return ""
    noisy = "; ".join(
        f"“{key.key}” flips in {estimate(key.flip_rate)}, {estimate(key.share)} of the noise"
        for key in under.keys if key.noisy
    )  # fmt: skip
    return f" Noisy criteria: {noisy}." if noisy else " No tag or criterion stands out."


def _price(under: SettingCard) -> Answer:
    voting = [(node, node.votes) for node in under.nodes if node.votes is not None]
    if not voting:
        return _ratings(under) or Answer(f"Not known: {_why_no_votes(under)}.")
    if random := [pair for pair in voting if pair[1].by_chance]:
        return _by_chance(*max(random, key=_costly), len(random) - 1)
    if needing := [pair for pair in voting if pair[1].most != 1]:
        return _votes_needed(voting, needing)
    if constant := next((node.node for node, votes in voting if votes.constant), ""):
        return Answer(f"Votes change nothing: “{constant}” gave every case the same verdict.")
    target = 100 * voting[0][1].target
    return Answer(f"Nothing: every verdict already flips at most {target:g} % of the time.")


_Voting = tuple[NodeCard, VoteCost]


def _votes_needed(voting: Sequence[_Voting], needing: Sequence[_Voting]) -> Answer:
    """The votes of the costliest node, then the questions of all, if there is an upper limit."""
    sentence = f"{_votes_of_node(*max(needing, key=_costly))}."
    if count := len(needing) - 1:
        sentence += f" {count} more {'node needs' if count == 1 else 'nodes need'} votes."
    most = [votes.most * votes.calls for _, votes in voting if votes.most is not None]
    if len(most) == len(voting):
        once = sum(votes.calls for _, votes in voting)
        sentence += f" This takes at most {sum(most):,.0f} instead of {once:,.0f} questions"
        sentence += " for all cases."
    unsure = [votes for _, votes in needing if votes.kind in ("not known", "more than")]
    if not unsure:
        return Answer(sentence)
    runs = max(votes.runs for votes in unsure)
    telling = next((votes.runs_to_tell for votes in unsure if votes.runs_to_tell), 0)
    enough = text_if(telling, f"; {telling} runs may be enough")
    return Answer(sentence, f"no upper limit from {counted(runs, 'run')}{enough}")


_RELIABLE, _MANY = 0.9, 99


def _ratings(under: SettingCard) -> Answer | None:
    """Number of ratings for a reliable mean, by Spearman and Brown (1910); None without any."""
    single = _figure(under, "test-retest")
    if single.ends is None:
        return None
    # Their formula solved for the number of ratings. Less than a rounding error above a whole
    # number is that number; more than 99 is as good as none.
    least, most = (
        max(math.ceil(_RELIABLE * (1 - share) / (share * (1 - _RELIABLE)) - 1e-9), 1)
        for share in (max(end, 1e-9) for end in reversed(single.ends))
    )
    if least > _MANY:
        return Answer("No mean of ratings gets reliable: they do not tell the cases apart.")
    span, weak = f"{least}" + text_if(least < most, f" to {most}"), ""
    if most > _MANY:
        span, weak = f"{least} or more", weakness(single)
    return Answer(f"A mean of {span} ratings has a reliability of {_RELIABLE:g}.", weak)


def _by_chance(node: NodeCard, votes: VoteCost, more: int) -> Answer:
    """Price of a coin: no number of votes makes its answers tell the cases apart."""
    rest = text_if(more, f" The same holds for {counted(more, 'more node')}.")
    assert votes.agreement is not None
    return Answer(
        f"Votes cannot help: the answers of “{node.node}” to the same question agree no more than "
        f"chance (Krippendorff's alpha {estimate(votes.agreement)}, which is 0 for a coin).{rest}"
    )


def _votes_of_node(node: NodeCard, votes: VoteCost) -> str:
    target = f"{100 * votes.target:g} %"
    sentence = f"“{node.node}” needs {votes_of(votes)} for {target} flips"
    if votes.kind == "none":
        sentence = f"No number of votes up to 99 brings “{node.node}” to {target} flips"
    elif votes.kind == "not known":
        runs = counted(votes.runs, "run")
        sentence = f"Not known from {runs}: the votes that “{node.node}” needs for {target} flips"
    if votes.seen > 1 and (votes.seen_flips.value or 0.0) > votes.target:
        sentence += f" (with {votes.seen}: {estimate(votes.seen_flips)})"
    return sentence


def _costly(pair: _Voting) -> tuple[bool, bool, int, float]:
    """Sort key, most votes last: none is enough, no upper limit, the number, flips."""
    node, votes = pair
    many = votes.most or votes.least or 0
    return votes.kind == "none", votes.most is None, many, node.flip_rate.value or 0.0


def _why_no_votes(under: SettingCard) -> str:
    if apart := [*under.departures, *(text for text in under.warnings if "perhaps" in text)]:
        return apart[0]
    again = under.figure("score-flip-rate")
    if again and again.value is None:
        return again.note
    few = [node.flip_rate for node in under.nodes if node.flip_rate.value is not None]
    if few and all(rate.low is None for rate in few):
        return f"too few independent cases or groups (n = {few[0].items})"
    return "no node of this metric gave a verdict in two runs of a case"


def _people(under: SettingCard) -> Answer:
    measures = {measure.name: measure for measure in under.people}
    scores = _figure(under, "mean-score")
    if not measures:
        return Answer("Not known: no labels were given.")
    if scores.value is None:
        return _not_known(scores)
    if measures.keys() >= {*_BESIDE} and measures["accuracy"].value is not None:
        return _of_accuracy(measures)
    spearman = measures.get("spearman")
    if spearman and spearman.value is not None:
        sentence = f"Spearman's rank correlation with human labels is {full(spearman)}."
        return Answer(sentence, weakness(spearman))
    return _not_known(under.people[0])


def _of_accuracy(measures: Mapping[str, Figure]) -> Answer:
    """The accuracy, and that of one run if that of the majority of several differs."""
    accuracy, kappa, base = (measures[name] for name in _BESIDE)
    beyond = estimate(kappa) if kappa.value is not None else f"undefined: {kappa.note}"
    single, singly = measures.get("single-run-accuracy"), ""
    if single is not None and single.value is not None and number(single) != number(accuracy):
        singly = f" (single run: {number(single)})"
    return Answer(
        f"In {estimate(accuracy)} of cases{singly}. Baseline: {number(base)}. Kappa: {beyond}.",
        weakness(kappa) or weakness(accuracy),
    )


_BESIDE = ("accuracy", "kappa", "baseline")

# What can be detected.

# On how many cases two judges differ, and how often a judge flips, if nothing is known.
_OTHERWISE, _FLIPPING = 0.15, 0.1


def could_be_seen(
    cases: int, times: int, flips: float | None = None, *, more: int | None = None
) -> str:
    """The smallest difference of two judges' pass rates that so many cases and runs can show.

    In 80 of 100 benchmarks on the same cases. `flips` is how often two runs of a case differ, 10 %
    if that is not known. A mean of runs contains its share of these flips. The share of cases on
    which two judges differ is not known beforehand: 15 % is assumed, and the text says so. The
    cases needed are given for one run and for `more` runs, which are `times` by default.
    """
    often, sizes = more or times, list[str]()
    flipping = _FLIPPING if flips is None else flips
    least = visible_difference(cases, _OTHERWISE + flipping / times)
    for points in (2, 5, 10):
        once, several = (
            cases_needed(points / 100, _OTHERWISE + flipping / runs) for runs in (1, often)
        )
        repeated = text_if(often > 1, f", or {several:,} run {often} times")
        sizes.append(f"{points} points: {once:,} cases run once{repeated}")
    return (
        f"{counted(cases, 'case')} with {counted(times, 'run')} each can detect a difference of "
        f"about {100 * least:.1f} points between two judges. This assumes that the judges differ "
        f"on {100 * _OTHERWISE:.0f} % of the cases and that the flip rate is "
        f"{100 * flipping:.1f} %. To detect {'; '.join(sizes)}."
    )


def detectable_difference(under: SettingCard) -> str:
    """The same from the flip rate on the card; nothing if the card has none.

    If cases ran differently often, the harmonic mean counts: a mean of runs contains its
    share of the flips.
    """
    flips = _flips(under)
    if flips.value is None or not flips.items:
        return ""
    times = round(statistics.harmonic_mean(runs_of_cases(under)))
    return could_be_seen(flips.items, times, flips.value).replace(" cases", " independent cases", 1)
