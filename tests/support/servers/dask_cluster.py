"""A Dask cluster on this machine, whose workers are replaced when they die."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver

import programs.commands  # noqa: F401 - which says what the fork server imports
import pytest


@contextmanager
def dask_cluster(workers: int = 2, deaths: int = 1) -> Iterator[str]:
    """The address of its scheduler; so many workers may die over one chunk.

    Skips without Dask.
    """
    distributed = pytest.importorskip("distributed")
    import dask.config

    settings = {
        "distributed.comm.timeouts.connect": "5s",
        "distributed.scheduler.allowed-failures": deaths,
        # Idle workers would take a tenth of a processor for what nobody looks at.
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.admin.tick.interval": "1s",
        "distributed.worker.profile.enabled": False,
        # Workers are forked from the process that commands are forked from, too.
        "distributed.worker.multiprocessing-method": "forkserver",
    }
    own = {"threads_per_worker": 2, "memory_limit": 0, "dashboard_address": ":0"}
    forkserver.ensure_running()  # Dask would have one with imports of its own
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set(settings),
        distributed.LocalCluster(host="127.0.0.1", n_workers=workers, **own) as cluster,
    ):
        # Also where every processor is busy.
        patch.setattr("dagengine.execution.cluster.dask_cluster._PATIENCE", 120)
        yield cluster.scheduler_address
