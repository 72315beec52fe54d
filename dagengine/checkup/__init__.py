"""Whether a judge can be used, and how: about 40 short questions in one minute."""

from dagengine.checkup.checkup import check_judge
from dagengine.checkup.values import Checkup

__all__ = ["Checkup", "check_judge"]
