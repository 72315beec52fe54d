"""Measures of judges: pure functions of tables of votes and scores.

The extra `benchmark` computes them (`numpy` and `scipy`); it is loaded when it is used.
"""

from dagengine.reliability.statistics.calibration import (
    brier_score,
    debiased_calibration_error,
    reliability,
)
from dagengine.reliability.statistics.comparisons import (
    Comparison,
    cases_needed,
    compare_means,
    compare_measures,
    compare_repeated,
    compare_shares,
    compare_unpaired,
    holm,
    labels_to_decide,
    labels_within,
    visible_difference,
)
from dagengine.reliability.statistics.confusion import (
    ac1_interval,
    accuracy,
    balanced_accuracy_interval,
    kappa_interval,
    label_kappa,
    majority_baseline,
)
from dagengine.reliability.statistics.consistency import (
    entropy,
    flip_rate,
    majority_share,
    missing_effect,
    missing_rate,
    total_agreement,
)
from dagengine.reliability.statistics.corrected import (
    Corrected,
    corrected_difference,
    corrected_mean,
    corrected_rate,
)
from dagengine.reliability.statistics.correlations import (
    group_correlation,
    kendall,
    majority,
    pearson,
    spearman,
)
from dagengine.reliability.statistics.exchangeability import departures
from dagengine.reliability.statistics.inter_rater import (
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
)
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap
from dagengine.reliability.statistics.majorities import (
    Picks,
    SteadyVotes,
    best_of,
    flips_of_votes,
    steady_votes,
)
from dagengine.reliability.statistics.preferences import (
    first_wins,
    length_bias,
    list_bias,
    longer_wins,
    position_consistency,
    position_preference,
)
from dagengine.reliability.statistics.spread import drift, icc, icc_interval, score_spread

__all__ = [
    "Comparison",
    "Corrected",
    "Interval",
    "Picks",
    "SteadyVotes",
    "Unknown",
    "ac1_interval",
    "accuracy",
    "balanced_accuracy_interval",
    "best_of",
    "bootstrap",
    "brier_score",
    "cases_needed",
    "cohen_kappa",
    "compare_means",
    "compare_measures",
    "compare_repeated",
    "compare_shares",
    "compare_unpaired",
    "corrected_difference",
    "corrected_mean",
    "corrected_rate",
    "debiased_calibration_error",
    "departures",
    "drift",
    "entropy",
    "first_wins",
    "fleiss_kappa",
    "flip_rate",
    "flips_of_votes",
    "group_correlation",
    "holm",
    "icc",
    "icc_interval",
    "kappa_interval",
    "kendall",
    "krippendorff_alpha",
    "label_kappa",
    "labels_to_decide",
    "labels_within",
    "length_bias",
    "list_bias",
    "longer_wins",
    "majority",
    "majority_baseline",
    "majority_share",
    "missing_effect",
    "missing_rate",
    "pearson",
    "position_consistency",
    "position_preference",
    "reliability",
    "score_spread",
    "spearman",
    "steady_votes",
    "total_agreement",
    "visible_difference",
]
