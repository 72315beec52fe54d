"""The statistics beside those of statsmodels and ppi-python, where these have the measure."""

from __future__ import annotations

from importlib import import_module
from random import Random
from typing import Any

import pytest

from dagengine.reliability.statistics.accuracy_and_kappa import (
    cohen_kappa,
    fleiss_kappa,
    kappa_interval,
)
from dagengine.reliability.statistics.corrected import Corrected, corrected_mean
from dagengine.reliability.statistics.intervals import Interval
from dagengine.reliability.statistics.paired_comparisons import Comparison, compare_shares, holm
from dagengine.reliability.statistics.stability import icc

pytest.importorskip("statsmodels")
SEEDS = range(20)


def test_mcnemar_is_that_of_statsmodels_less_half_of_what_was_seen() -> None:
    mcnemar = import_module("statsmodels.stats.contingency_tables").mcnemar
    binom = import_module("scipy.stats").binom
    for seed in SEEDS:
        random = Random(seed)
        pairs = [(random.random() < 0.6, random.random() < 0.75) for _ in range(60)]
        table = [[sum(pair == (a, b) for pair in pairs) for b in (True, False)]
                 for a in (True, False)]  # fmt: skip
        found = compare_shares(pairs)
        assert isinstance(found, Comparison)
        lost, won = table[0][1], table[1][0]
        exact = mcnemar(table, exact=True).pvalue
        half = binom.pmf(min(won, lost), won + lost, 0.5)
        assert found.p == pytest.approx(1.0 if won == lost else exact - half)


def test_kappas_are_those_of_statsmodels() -> None:
    rater = import_module("statsmodels.stats.inter_rater")
    for seed in SEEDS:
        random = Random(seed)
        kinds = [random.choices("abc", (3, 2, 1), k=40) for _ in range(2)]
        pairs = [*zip(*kinds, strict=True), *((kind, kind) for kind in "abc")]
        table = [[pairs.count((a, b)) for b in "abc"] for a in "abc"]
        oracle = rater.cohens_kappa(table)
        assert cohen_kappa(pairs) == pytest.approx(oracle.kappa)
        found = kappa_interval(pairs)
        assert isinstance(found, Interval)
        assert found.value == pytest.approx(oracle.kappa)
        counts = [[pair.count(kind) for kind in "abc"] for pair in pairs]
        assert fleiss_kappa(pairs) == pytest.approx(rater.fleiss_kappa(counts))


def test_the_interval_of_kappa_nears_that_of_statsmodels_with_many_cases() -> None:
    random = Random(1)
    labels = [random.random() < 0.6 for _ in range(2000)]
    pairs = [(label, label ^ (random.random() < 0.15)) for label in labels]
    table = [[pairs.count((a, b)) for b in (True, False)] for a in (True, False)]
    oracle = import_module("statsmodels.stats.inter_rater").cohens_kappa(table)
    found = kappa_interval(pairs)
    assert isinstance(found, Interval)
    assert (found.low, found.high) == pytest.approx((oracle.kappa_low, oracle.kappa_upp), abs=0.01)


def test_holms_correction_is_that_of_statsmodels(monkeypatch: pytest.MonkeyPatch) -> None:
    # It collects garbage at every call, which takes a second among all that tests leave.
    monkeypatch.setattr("gc.collect", lambda: 0)
    corrected = import_module("statsmodels.stats.multitest").multipletests
    for seed in SEEDS:
        values = [Random(f"{seed} {k}").random() ** 3 for k in range(8)]
        assert list(holm(values)) == pytest.approx(list(corrected(values, method="holm")[1]))


def test_icc_is_that_of_a_one_way_analysis_of_variance() -> None:
    f_oneway = import_module("scipy.stats").f_oneway
    for seed in SEEDS:
        random = Random(seed)
        table = [[random.gauss(centre, 0.5) for _ in range(4)] for centre in range(10)]
        ratio = float(f_oneway(*table).statistic)
        assert icc(table) == pytest.approx((ratio - 1) / (ratio + 3))


def test_corrected_means_are_those_of_ppi_python() -> None:
    ppi: Any = pytest.importorskip("ppi_py")
    numpy = import_module("numpy")
    for seed in range(5):
        random = Random(seed)
        people = [random.choice((0, 0.25, 0.5, 0.75, 1)) for _ in range(1000)]
        scores = [0.8 * y + 0.2 * random.random() for y in people]
        known = [y if k < 200 else None for k, y in enumerate(people)]
        found = corrected_mean(scores, known, random=True)
        assert isinstance(found, Corrected)
        labels, said, rest = (
            numpy.array(part) for part in (people[:200], scores[:200], scores[200:])
        )
        low, high = ppi.ppi_mean_ci(labels, said, rest, alpha=0.05)
        assert found.estimate.low == pytest.approx(float(low[0]), abs=5e-3)
        assert found.estimate.high == pytest.approx(float(high[0]), abs=5e-3)
