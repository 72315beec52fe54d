"""A stream of traces, judged as it comes: sampled, within a budget, with alarms that know noise."""

from dagengine.unknown import answer_absent
from dagengine.watch.alarm_causes import Alert
from dagengine.watch.file_tail import Folder
from dagengine.watch.trace_sampling import Sampling
from dagengine.watch.watch_loop import Watch, WatchSettings

__all__ = ["Alert", "Folder", "Sampling", "Watch", "WatchSettings"]

answer_absent(__name__)
