"""One file of answers: cache, journal to resume from, replay."""

from dagengine.store.answers import Answers, Store, as_store

__all__ = ["Answers", "Store", "as_store"]
