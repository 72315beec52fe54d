"""Every question again: would I get this score again, which node is to blame, do people agree?"""

from typing import TYPE_CHECKING

from dagengine.reliability.jury import jury_report
from dagengine.reliability.observations import Observations
from dagengine.reliability.perturbations import Symmetry
from dagengine.unknown import answer_absent

if TYPE_CHECKING:
    from dagengine.reliability.repetition import a_repeat as a_repeat
    from dagengine.reliability.repetition import repeat as repeat

__all__ = ["Observations", "Symmetry", "a_repeat", "jury_report", "repeat"]

# A card of verdicts that exist already asks nothing, so it needs no engine.
answer_absent(__name__, dict.fromkeys(("a_repeat", "repeat"), "dagengine.reliability.repetition"))
