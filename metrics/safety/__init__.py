"""Whether an answer keeps out what it should: personal data, advice, other domains and roles."""

from dagengine.metrics.safety.misuse import MisuseMetric
from dagengine.metrics.safety.non_advice import NonAdviceMetric
from dagengine.metrics.safety.pii_leakage import PIILeakageMetric
from dagengine.metrics.safety.role_violation import RoleViolationMetric

__all__ = ["MisuseMetric", "NonAdviceMetric", "PIILeakageMetric", "RoleViolationMetric"]
