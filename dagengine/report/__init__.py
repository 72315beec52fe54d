"""What a reader sees of a graph and of a run: pictures, tables, progress."""

from typing import TYPE_CHECKING

from dagengine.report.pictures.drawing import Picture, draw
from dagengine.report.progress import progress_bar
from dagengine.report.tally import Tally
from dagengine.unknown import answer_absent

if TYPE_CHECKING:
    from dagengine.report.tables_and_junit import print_steps as print_steps
    from dagengine.report.tables_and_junit import print_table as print_table

__all__ = ["Picture", "Tally", "draw", "print_steps", "print_table", "progress_bar"]

# A metric that is only drawn needs no tables, and nothing of a page.
answer_absent(
    __name__, dict.fromkeys(("print_steps", "print_table"), "dagengine.report.tables_and_junit")
)
