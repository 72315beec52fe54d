"""Measures of judges: pure functions of tables of votes and scores."""

from dagengine.reliability.statistics.bias import (
    first_wins,
    length_bias,
    list_bias,
    longer_wins,
    position_consistency,
    position_preference,
)
from dagengine.reliability.statistics.calibration import (
    brier_score,
    calibration_error,
    log_loss,
    reliability,
)
from dagengine.reliability.statistics.consistency import (
    entropy,
    flip_rate,
    majority_share,
    missing_effect,
    missing_rate,
    total_agreement,
    unanimity,
)
from dagengine.reliability.statistics.correlations import (
    classification,
    kendall,
    majority,
    pearson,
    rmse,
    spearman,
    win_rate,
)
from dagengine.reliability.statistics.inter_rater import (
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
)
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap
from dagengine.reliability.statistics.labels import (
    accuracy,
    balanced_accuracy,
    label_agreement,
    label_kappa,
    majority_baseline,
    score_agreement,
)
from dagengine.reliability.statistics.spread import (
    icc,
    icc_of_mean,
    repeatability,
    retest_reliability,
    score_spread,
    worst_spread,
)
from dagengine.reliability.statistics.votes import (
    SteadyVotes,
    flips_of_votes,
    leading_share,
    steady_votes,
    votes_needed,
)

__all__ = [
    "Interval",
    "SteadyVotes",
    "Unknown",
    "accuracy",
    "balanced_accuracy",
    "bootstrap",
    "brier_score",
    "calibration_error",
    "classification",
    "cohen_kappa",
    "entropy",
    "first_wins",
    "fleiss_kappa",
    "flip_rate",
    "flips_of_votes",
    "icc",
    "icc_of_mean",
    "kendall",
    "krippendorff_alpha",
    "label_agreement",
    "label_kappa",
    "leading_share",
    "length_bias",
    "list_bias",
    "log_loss",
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
    "repeatability",
    "retest_reliability",
    "rmse",
    "score_agreement",
    "score_spread",
    "spearman",
    "steady_votes",
    "total_agreement",
    "unanimity",
    "votes_needed",
    "win_rate",
    "worst_spread",
]
