"""Folders that are made once for all workers of a run: the gallery, and the site that shows it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import make_gallery
import pytest

from dagengine.system.file_locks import one_writer


def made_once(places: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first worker of a run makes that needs it."""
    base = places.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # that of the whole run
    kept = base / f"made_once_{name}"
    with one_writer(kept, wait=True):
        if not kept.exists():
            begun = base / f"{kept.name}_by_{os.getpid()}"
            make(begun)
            begun.rename(kept)
    return kept


@contextmanager
def gallery_made_once(places: pytest.TempPathFactory) -> Iterator[None]:
    """What the commands of its examples leave: pages of the gallery and the site show the same."""
    follow = make_gallery.left

    def left(folder: Path) -> Path:
        return made_once(places, folder.name, lambda kept: shutil.copytree(follow(folder), kept))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_gallery, "left", left)
        yield
