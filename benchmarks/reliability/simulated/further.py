"""Whole cards of judges of a second examination: populations on which no estimator was tuned.

Labels that are wrong where texts are long, a class of 2 %, labels in an order, odds with heavy
tails, a judge that learns, groups of which one holds a third of all cases, answers that are lost
where they say fail, scores at the threshold, cases that are sure or coins, labels on what the judge
fails, caches of single cases, runs that are broken in part, ratings that are mostly the best,
dialogues whose answers move together, people of whom one is strict.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
from rows import Trial

from simulated.examined import Draw, Drawn, Kind, of_two_nodes, trials_of


def _flipped(random: np.random.Generator, truth: Any, wrong: Any, runs: int) -> Any:
    """What is said of cases that are answered wrongly with these chances."""
    return truth[:, None] ^ (random.random((len(truth), runs)) < np.asarray(wrong)[..., None])


def wrong_where_long(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """People err on long texts; a third of the cases, drawn at random, has labels."""
    lengths = np.clip(random.lognormal(4, 0.8, cases), 5, 900).round()
    truth = random.random(cases) < 0.7
    labels = truth ^ (random.random(cases) < np.clip(lengths / 400, 0, 0.35))
    labelled = np.zeros(cases, bool)
    labelled[random.permutation(cases)[: cases // 3]] = True
    said = _flipped(random, truth, np.full(cases, 0.1), runs)
    return Drawn(said, labels, labelled=labelled, lengths=lengths)


def rare_fails(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Of 100 cases two fail, and the judge sees four of ten of them."""
    truth = random.random(cases) > 0.02
    return Drawn(_flipped(random, truth, np.where(truth, 0.02, 0.6), runs), truth)


def ordered(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Three labels; the judge gives a neighbour now and then."""
    truth = random.choice(3, size=cases, p=[0.5, 0.3, 0.2])
    own = np.where(random.random(cases) < 0.15, 1, truth)
    off = np.where(random.random((cases, runs)) < 0.12, random.choice([-1, 1], (cases, runs)), 0)
    return Drawn(np.clip(own[:, None] + off, 0, 2), truth)


def heavy_tails(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Odds of an error that are near 0 or near 1, and anything between now and then."""
    truth = random.random(cases) < 0.65
    return Drawn(_flipped(random, truth, random.beta(0.12, 0.6, cases), runs), truth)


def learning(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Errors become fewer from run to run, 30 to 5 of 100."""
    truth = random.random(cases) < 0.7
    return Drawn(truth[:, None] ^ (random.random((cases, runs)) < np.linspace(0.3, 0.05, runs)),
                 truth)  # fmt: skip


def one_large_group(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Groups of 1 to 40 cases that have nearly all in common."""
    sizes: list[int] = []
    while sum(sizes) < cases:
        sizes.append(int(random.choice([1, 2, 5, 12, 40], p=[0.35, 0.3, 0.2, 0.1, 0.05])))
    of = np.repeat(np.arange(len(sizes)), sizes)[:cases]
    truth = (random.random(len(sizes)) < 0.6)[of] ^ (random.random(cases) < 0.05)
    wrong = random.choice([0.02, 0.5, 0.98], size=len(sizes), p=[0.7, 0.2, 0.1])[of]
    return Drawn(_flipped(random, truth, wrong, runs), truth, of)


def fails_lost(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """A third of the answers that say fail cannot be read."""
    truth = random.random(cases) < 0.65
    whole = _flipped(random, truth, random.choice([0.02, 0.3], size=cases, p=[0.7, 0.3]), runs)
    lost = random.random((cases, runs)) < np.where(whole, 0.03, 0.35)
    return Drawn(np.where(lost, np.nan, whole), truth, whole=whole)


def at_the_threshold(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Scores by hundredths, most of them near the threshold."""
    centre = np.clip(0.52 + 0.07 * random.standard_normal(cases), 0.05, 0.95)
    scores = centre[:, None] + 0.04 * random.standard_normal((cases, runs))
    return Drawn(np.round(np.clip(scores, 0, 1), 2), centre >= 0.5)


def sure_or_coins(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Seven of ten cases are never wrong, of the others nearly half of the answers are."""
    truth = random.random(cases) < 0.7
    wrong = np.where(random.random(cases) < 0.7, 0, 0.45)
    return Drawn(_flipped(random, truth, wrong, runs), truth)


def labels_on_fails(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """People looked at what the judge fails four times as often."""
    truth = random.random(cases) < 0.7
    said = _flipped(random, truth, np.where(truth, 0.1, 0.25), runs)
    return Drawn(said, truth, labelled=random.random(cases) < np.where(said[:, 0], 0.15, 0.6))


def labels_on_clear(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """People labelled clear cases three times as often; nothing that is recorded tells them."""
    clear = random.random(cases) < 0.6
    truth = random.random(cases) < np.where(clear, 0.75, 0.6)
    said = _flipped(random, truth, np.where(clear, 0.03, 0.3), runs)
    return Drawn(said, truth, labelled=random.random(cases) < np.where(clear, 0.5, 0.15))


def _cached(share: float) -> Draw:
    """So many cases are answered from a cache after the first run, with the same text."""

    def draw(random: np.random.Generator, cases: int, runs: int) -> Drawn:
        truth = random.random(cases) < 0.7
        wrong = random.choice([0, 0.2, 0.4], size=cases, p=[0.5, 0.3, 0.2])
        whole = _flipped(random, truth, wrong, runs)
        cached = random.random(cases) < share
        texts = random.integers(1_000_000, size=(cases, runs))
        return Drawn(
            np.where(cached[:, None], whole[:, :1], whole), truth, whole=whole,
            texts=np.where(cached[:, None], texts[:, :1], texts),
        )  # fmt: skip

    return draw


def _partly_broken(share: float) -> Draw:
    """In one run this share of the answers is random."""

    def draw(random: np.random.Generator, cases: int, runs: int) -> Drawn:
        truth = random.random(cases) < 0.75
        wrong = random.choice([0, 0.1, 0.35], size=cases, p=[0.6, 0.25, 0.15])
        whole = _flipped(random, truth, wrong, runs)
        said = whole.copy()
        broken = random.random(cases) < share
        said[broken, random.integers(runs)] = random.random(broken.sum()) < 0.5
        return Drawn(said, truth, whole=whole)

    return draw


def mostly_fives(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Ratings and labels from 1 to 5, mostly the best; half of the cases has labels."""
    quality = random.beta(3, 1, cases)
    labels = np.clip(np.round(1 + 4 * quality + 0.5 * random.standard_normal(cases)), 1, 5)
    noise = 0.7 * random.standard_normal((cases, runs))
    said = np.clip(np.round(1.5 + 4 * quality[:, None] + noise), 1, 5)
    return Drawn((said - 1) / 4, labels, labelled=random.random(cases) < 0.5)


def moving_dialogues(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """In a third of the dialogues all five turns change together from run to run."""
    count = -(-cases // 5)
    of = np.repeat(np.arange(count), 5)[:cases]
    truth = random.random(cases) < random.beta(3, 1, count)[of]
    moved = random.random((count, runs)) < np.where(random.random(count) < 1 / 3, 0.3, 0)[:, None]
    wrong = moved[of] & (random.random(cases) < 0.8)[:, None]
    return Drawn(truth[:, None] ^ wrong, truth, of)


def strict_and_lenient(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Two people, of whom one passes nearly all, and the other half of it."""
    quality = random.beta(2, 1.5, cases)
    odds = np.stack([np.clip(1.8 * quality, 0.05, 0.97), np.clip(1.5 * quality - 0.5, 0.03, 0.95)])
    people = (random.random((2, cases)) < odds).T
    said = _flipped(random, quality > 0.5, np.full(cases, 0.1), runs)
    return Drawn(said, people[:, 0], people=people, whole=odds.mean(0))


def few_and_twice(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Half of the cases is answered wrongly in 20 of 100 runs."""
    truth = random.random(cases) < 0.7
    wrong = np.where(random.random(cases) < 0.5, 0.2, 0.01)
    return Drawn(_flipped(random, truth, wrong, runs), truth)


def nearly_perfect(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """The judge never errs; one label of 100 is wrong."""
    truth = random.random(cases) < 0.8
    return Drawn(np.repeat(truth[:, None], runs, 1), truth ^ (random.random(cases) < 0.01))


def tailed_nodes(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Two nodes whose odds of a yes are near 0 or 1, and anything between now and then."""
    odds = np.stack([random.beta(0.8, 0.15, cases), random.beta(0.5, 0.25, cases)])
    first, second = random.random((2, cases, runs)) < odds[:, :, None]
    return Drawn(first & second, odds.prod(0) > 0.5, nodes=(first, second), odds=odds)


# The truth.


def _repeats(drawn: Drawn) -> dict[str, float]:
    """What says how steady scores are, of whole runs."""
    said = np.asarray(drawn.said if drawn.whole is None else drawn.whole, float)
    runs = said.shape[1]
    within = said.var(1, ddof=1).mean()
    between = said.mean(1).var(ddof=1) - within / runs
    passes = (said >= 0.5).sum(1)
    return {
        "flip-rate": float(np.mean(2 * passes * (runs - passes) / (runs * (runs - 1)))),
        "pass-rate": float(passes.mean() / runs),
        "test-retest": float(between / (between + within)),
    }


def _scores(drawn: Drawn) -> dict[str, float]:
    said = drawn.said
    runs = said.shape[1]
    same = (said[:, :, None] == said[:, None, :]).sum((1, 2)) - runs
    return {
        **_repeats(drawn),
        "mean-score": float(said.mean()),
        "score-spread": float(said.std(1, ddof=1).mean()),
        "score-flip-rate": float(1 - same.mean() / (runs * (runs - 1))),
    }


def _table(majority: Any, labels: Any) -> dict[str, float]:
    """Agreement of majorities with labels; -1 is no majority."""
    kinds = np.unique(labels)
    agree = float((majority == labels).mean())
    shares = [((majority == kind).mean(), (labels == kind).mean()) for kind in kinds]
    chance = float(sum(judge * people for judge, people in shares))
    recall = [float((majority == kind)[labels == kind].mean()) for kind in kinds]
    return {
        "accuracy": agree,
        "kappa": (agree - chance) / (1 - chance),
        "balanced-accuracy": float(np.mean(recall)),
        "baseline": float(max(people for _, people in shares)),
    }


def _whole(drawn: Drawn) -> dict[str, float]:
    """Every figure of pass or fail."""
    said = drawn.said if drawn.whole is None else drawn.whole
    votes, runs = said.sum(1), said.shape[1]
    majority = np.where(2 * votes == runs, -1, 2 * votes > runs)
    truth = drawn.labels.astype(int)
    shares = [((majority == kind).mean() + (truth == kind).mean()) / 2 for kind in (0, 1)]
    chance = sum(share * (1 - share) for share in shares)
    table = _table(majority, truth)
    return {
        **_repeats(drawn), **table,
        "ac1": float((table["accuracy"] - chance) / (1 - chance)),
        "sensitivity of pass": float((majority == 1)[truth == 1].mean()),
        "specificity of pass": float((majority == 0)[truth == 0].mean()),
        "single-run-accuracy": float((said == truth[:, None]).mean()),
    }  # fmt: skip


def _of_labels(drawn: Drawn) -> dict[str, float]:
    counts = np.stack([(drawn.said == kind).sum(1) for kind in np.unique(drawn.labels)])
    most = counts.max(0)
    majority = np.where((counts == most).sum(0) > 1, -1, counts.argmax(0))
    return {
        **_table(majority, drawn.labels),
        "single-run-accuracy": float((drawn.said == drawn.labels[:, None]).mean()),
    }


def _moved(drawn: Drawn) -> dict[str, float]:
    places = np.linspace(-0.5, 0.5, drawn.said.shape[1])
    return {"drift": float(np.mean(drawn.said @ places) / (places @ places)), **_whole(drawn)}


def _corrected(drawn: Drawn) -> dict[str, float]:
    return {"corrected-pass-rate": float(drawn.labels.mean())}


def _labelled(drawn: Drawn) -> dict[str, float]:
    return {**_whole(drawn), **_corrected(drawn)}


def _rated(drawn: Drawn) -> dict[str, float]:
    stats = import_module("scipy.stats")
    means = drawn.said.mean(1)
    few = slice(0, 20_000)
    return {
        **_scores(drawn),
        "corrected-mean-score": float(drawn.labels.mean()),
        "pearson": float(np.corrcoef(means, drawn.labels)[0, 1]),
        "spearman": float(stats.spearmanr(means, drawn.labels).statistic),
        "kendall": float(stats.kendalltau(means[few], drawn.labels[few]).statistic),
    }


def _people(drawn: Drawn) -> dict[str, float]:
    return {
        "ceiling": float(np.maximum(drawn.whole, 1 - drawn.whole).mean()),
        "people-agreement": float((drawn.people[:, 0] == drawn.people[:, 1]).mean()),
    }


KINDS = (
    Kind("labels wrong where long, a third labelled", wrong_where_long, _labelled,
         ((90, 3), (240, 3)), random=True),
    Kind("2 of 100 fail", rare_fails, _whole, ((100, 3), (298, 3))),
    Kind("three ordered labels", ordered, _of_labels, ((50, 3), (200, 3)), "eight"),
    Kind("odds with heavy tails", heavy_tails, _whole, ((60, 5), (200, 8))),
    Kind("a judge that learns", learning, _moved, ((60, 5), (150, 9))),
    Kind("one large group", one_large_group, _whole, ((100, 3), (298, 3))),
    Kind("answers that say fail are lost", fails_lost, _whole, ((60, 3), (200, 5))),
    Kind("scores at the threshold", at_the_threshold, _scores, ((30, 5), (100, 5)), "rating"),
    Kind("sure or coins", sure_or_coins, _whole, ((50, 5), (150, 9))),
    Kind("labels on what the judge fails", labels_on_fails, _corrected, ((100, 1), (298, 1)),
         random=True),
    Kind("labels on clear cases", labels_on_clear, _corrected, ((100, 1), (298, 1)), random=True),
    *(Kind(f"{100 * share:.0f} % of cases cached", _cached(share), _repeats,
           ((60, 5), (150, 5))) for share in (0.15, 0.5)),
    *(Kind(f"{100 * share:.0f} % of one run of five broken", _partly_broken(share), _repeats,
           ((60, 5), (150, 5))) for share in (0.25, 0.6)),
    Kind("mostly fives", mostly_fives, _rated, ((60, 3), (150, 3)), "rating", random=True,
         scale=(1.0, 5.0)),
    Kind("dialogues that move together", moving_dialogues, _whole, ((100, 3), (250, 5))),
    Kind("a strict and a lenient person", strict_and_lenient, _people, ((50, 3), (200, 3))),
    Kind("few cases, twice", few_and_twice, _whole, ((20, 2), (60, 2))),
    Kind("nearly perfect", nearly_perfect, _whole, ((50, 3), (200, 3))),
    Kind("two nodes with heavy tails", tailed_nodes, of_two_nodes, ((60, 5), (100, 8)), "tree"),
)  # fmt: skip


def trials() -> Iterator[Trial]:
    """Every population with its numbers of cases and runs."""
    return trials_of(KINDS)
