"""A stream of traces, judged as it comes: sampled, within a budget, with alarms that know noise."""

from dagengine.unknown import answer_absent
from dagengine.watch.causes import Alert
from dagengine.watch.strata import Sampling
from dagengine.watch.tailing import Folder
from dagengine.watch.watching import Watch, WatchSettings

__all__ = ["Alert", "Folder", "Sampling", "Watch", "WatchSettings"]

answer_absent(__name__)
