"""Whether a judge can be used, and how: about 40 short questions in one minute."""

from dagengine.checkup.checkup import check_judge
from dagengine.checkup.checkup_report import Checkup
from dagengine.unknown import answer_absent

__all__ = ["Checkup", "check_judge"]

answer_absent(__name__)
