"""A judge card in words: names of measures, numbers with their intervals, four answers."""

from __future__ import annotations

from collections.abc import Iterator

from dagengine.reliability.blame import Unknown
from dagengine.reliability.card.values import Figure, JudgeCard, MetricCard, NodeCard

QUESTIONS = (
    "Would I get this score again?",
    "Which node is to blame?",
    "What would it cost to be sure?",
    "Does the judge agree with people?",
)

TITLES = {
    "flip-rate": "pass or fail flips",
    "score-flip-rate": "score differs",
    "score-spread": "standard deviation of the score",
    "test-retest": "test-retest reliability, ICC(1,1)",
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
    "accuracy": "accuracy",
    "kappa": "kappa (beyond chance)",
    "balanced-accuracy": "balanced accuracy",
    "baseline": "baseline: always the commonest label",
    "pearson": "Pearson correlation",
    "spearman": "Spearman rank correlation",
    "kendall": "Kendall rank correlation",
    "node-flip-rate": "answers that differ",
    "flip-effect": "score moved by a flip",
    "variance-share": "share of the noise",
}
# Not shares of something, so not written as percentages.
SIGNED = {"kappa", "pearson", "spearman", "kendall", "test-retest", "length-bias", "list-bias"}
SIGNED |= {"cohen-kappa", "fleiss-kappa", "alpha", "score-alpha"}
_PLAIN = {"score-spread", "flip-effect", "entropy", "repeat-brier", "label-brier", *SIGNED}


def title(measure: Figure) -> str:
    """What people call a measure."""
    return TITLES.get(measure.name, measure.name)


def _figure(measure: Figure, value: float) -> str:
    return f"{value:.3f}" if measure.name in _PLAIN else f"{100 * value:.1f}"


def number(measure: Figure) -> str:
    """The value, in per cent where it is a share; a dash where it is undefined."""
    if measure.value is None:
        return "–"  # noqa: RUF001 - a dash for nothing
    return _figure(measure, measure.value) + ("" if measure.name in _PLAIN else " %")


def interval(measure: Figure) -> str:
    """The interval in words, or nothing."""
    if measure.low is None or measure.high is None:
        return ""
    return f"{_figure(measure, measure.low)} to {_figure(measure, measure.high)}"


def _bounded(measure: Figure) -> str:
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


def noisiest(metric: MetricCard) -> NodeCard | None:
    """The node with the greatest share of the noise."""
    known = [node for node in metric.nodes if node.share.value is not None]
    return max(known, key=lambda node: node.share.value or 0.0, default=None)


def cost(metric: MetricCard) -> tuple[float, float | None]:
    """Questions of all voting nodes: asked once, and as often as steady verdicts need."""
    votes = [node.votes for node in metric.nodes if node.votes is not None]
    voted = [vote.voted for vote in votes]
    known = [calls for calls in voted if calls is not None]
    whole = sum(known) if votes and len(known) == len(voted) else None
    return sum(vote.calls for vote in votes), whole


def answers(metric: MetricCard) -> tuple[str, str, str, str]:
    """One sentence for each of the four questions."""
    return _again(metric), _blame(metric), _price(metric), _people(metric)


def _again(metric: MetricCard) -> str:
    flips = metric.figure("flip-rate")
    what = "pass where the other fails"
    if flips is None or flips.value is None:
        flips, what = metric.figure("score-flip-rate"), "give another score"
    if flips is None or flips.value is None:
        return "Not known: no case was scored twice."
    if not flips.value:
        return f"Yes: no two runs of one case differed ({flips.items} cases)."
    often = interval(flips) and f" ({interval(flips)})"
    return f"Of two runs of one case, one will {what} {number(flips)} of the time{often}."


def _blame(metric: MetricCard) -> str:
    worst = noisiest(metric)
    if worst is None:
        why = next((node.share.note for node in metric.nodes), "")
        if why == Unknown.STEADY:
            return "None: the score never varied within a case."
        return f"Not known: {why or 'no node decides or scores'}."
    whose = f" (it works on {', '.join(worst.reads)})" if worst.reads else ""
    return f"“{worst.node}”{whose} causes {_bounded(worst.share)} of the noise."


def _price(metric: MetricCard) -> str:
    voting = [node for node in metric.nodes if node.votes is not None]
    if not voting:
        return "Not known in votes: no node of this metric decides by a verdict."
    open_ = [node.node for node in voting if node.votes and node.votes.votes is None]
    votes = voting[0].votes
    assert votes is not None
    target = f"{100 * votes.target:g} %"
    if open_:
        names = ", ".join(f"“{name}”" for name in open_)
        return f"No number of votes up to {votes.most} brings {names} to {target} flips."
    once, voted = cost(metric)
    if voted is None or voted == once:
        return f"Nothing more: every verdict flips at most {target} of the time as it is."
    return (
        f"{voted:,.0f} instead of {once:,.0f} questions for all cases bring the flips of every "
        f"verdict to {target}."
    )


def _people(metric: MetricCard) -> str:
    found = {measure.name: measure for measure in metric.people}
    if not found:
        return "Not known: no labels were given."
    accuracy, kappa, base = (found.get(name) for name in ("accuracy", "kappa", "baseline"))
    if accuracy and base and kappa and accuracy.value is not None:
        return (
            f"In {number(accuracy)} of the cases, where always giving the commonest label is "
            f"right in {number(base)}; kappa is {_bounded(kappa)}."
        )
    spearman = found.get("spearman")
    if spearman and spearman.value is not None:
        return f"Spearman's rank correlation with people is {full(spearman)}."
    return f"Not known: {next(iter(found.values())).note}."


def headline(card: JudgeCard) -> str:
    """What was asked, of whom, how often."""
    settings = f" under {len(card.settings)} settings" if len(card.settings) > 1 else ""
    return f"{card.binding.cases} cases, {card.times} runs of each{settings}"


def markdown(card: JudgeCard) -> str:
    """The summary of a card as Markdown."""
    return "\n".join(_lines(card)) + "\n"


def _lines(card: JudgeCard) -> Iterator[str]:
    yield "# Judge card\n"
    yield f"Judge: {' and '.join(card.binding.judges)}. {headline(card)}.\n"
    for metric in card.metrics:
        yield f"## {metric.metric}\n"
        for question, answer in zip(QUESTIONS, answers(metric), strict=True):
            yield f"- **{question}** {answer}"
        yield "\n| measure | value | level |\n|---|---|---|"
        for one in metric.measures:
            yield f"| {one.name} | {full(one)} | {one.level} |"
        yield "\n| node | flips | a flip moves | share of the noise | votes |"
        yield "|---|---|---|---|---|"
        for node in metric.nodes:
            shown = (node.node, number(node.flip_rate), number(node.effect), number(node.share))
            yield f"| {' | '.join(map(_cell, shown))} | {votes_of(node)} |"
        yield ""
        yield from (f"{note}\n" for note in metric.notes)
    yield from (f"- {rule}" for rule in card.rules)
    yield f"\nBound to sha256 {card.sha256} (dagengine {card.binding.version})."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def votes_of(node: NodeCard) -> str:
    """How many votes a node needs, in words."""
    if node.votes is None:
        return "–"  # noqa: RUF001 - a dash for nothing
    return str(node.votes.votes) if node.votes.votes else f"> {node.votes.most}"
