"""Answers kept beside the tests: the text file of each test file, and what asks it first."""

from dagengine.testing.recorded.recorder import recording_of
from dagengine.testing.recorded.recordings import Recording

__all__ = ["Recording", "recording_of"]
