"""What a reader sees of a graph and of a run: pictures, tables, progress."""

from dagengine.report.pictures.drawing import Picture, draw
from dagengine.report.progress import progress_bar
from dagengine.report.tables import print_steps, print_table
from dagengine.report.tally import Tally
from dagengine.unknown import answer_absent

__all__ = ["Picture", "Tally", "draw", "print_steps", "print_table", "progress_bar"]

answer_absent(__name__)
