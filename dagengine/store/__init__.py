"""One file of answers: cache, journal to resume from, replay."""

from dagengine.store.answers import OpenStore, Store, as_store

__all__ = ["OpenStore", "Store", "as_store"]
