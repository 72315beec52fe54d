"""One file of answers: cache, journal to resume from, replay."""

from dagengine.store.answer_journal import OpenStore, Store, as_store
from dagengine.unknown import answer_absent

__all__ = ["OpenStore", "Store", "as_store"]

answer_absent(__name__)
