"""Every question again: would I get this score again, which node is to blame, do people agree?"""

from dagengine.reliability.jury import jury_report
from dagengine.reliability.observations import Observations
from dagengine.reliability.perturbations import Symmetry
from dagengine.reliability.repetition import a_repeat, repeat
from dagengine.unknown import answer_absent

__all__ = ["Observations", "Symmetry", "a_repeat", "jury_report", "repeat"]

answer_absent(__name__)
