"""Engines from the files that the command line names, in this process or in a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dagengine.cli.common.streams import say

if TYPE_CHECKING:
    from pathlib import Path

    from dagengine.execution.local_executor import LocalExecutor
    from dagengine.gateway.limits import Limits
    from dagengine.graph.quoting import Quotes
    from dagengine.store.answers import Store


@dataclass(frozen=True, slots=True)
class FileJob:
    """Builds the engine of a run by loading files; can be sent to the workers of a cluster.

    The fields are what the command line takes. Workers need the same files under the same
    paths (see `absolute`), and the folder of `store`.
    """

    metrics: str
    app: str | None = None
    judge: str | None = None
    base_url: str | None = None
    store: Store | None = None
    batch: bool = False
    journal: Path | None = None
    trace: bool = False
    quoting: Quotes | None = None
    batch_files: Path | None = None

    def __call__(self, limits: Limits, app_in_flight: int) -> LocalExecutor:
        """The engine of one process; raises InputError, GraphError and MissingExtraError."""
        from dagengine.errors import load_extra
        from dagengine.execution.local_executor import LocalExecutor
        from dagengine.loading import (
            chosen_judge,
            load_app,
            load_batch_judge,
            load_file_judge,
            load_metrics,
        )

        metrics = load_metrics(self.metrics, self.quoting)
        app = None if self.app is None else load_app(self.app, app_in_flight)
        tracer: Any = None
        if self.trace:
            # The provider is what the caller set up (`opentelemetry-instrument`), not ours.
            trace = load_extra("opentelemetry.trace", "--trace needs", "otel")
            tracer = trace.get_tracer("dagengine")

        # The judge of metrics that name none; None is the library's own default.
        model: Any
        if self.batch_files is not None:
            model = load_file_judge(self.judge, self.batch_files, partial(say, err=True))
        elif self.batch:
            model = load_batch_judge(self.judge, self.base_url, self.journal)
        else:
            model = chosen_judge(self.judge, self.base_url)
        return LocalExecutor(
            metrics,
            {"app": app, "model": model, "limits": limits, "store": self.store, "tracer": tracer},
        )

    def absolute(self) -> FileJob:
        """The same for processes in other folders: every file by its absolute path."""
        from dagengine.loading import Target

        judge, app = (name and str(Target.absolute(name)) for name in (self.judge, self.app))
        return replace(
            self,
            metrics=Target.absolute(self.metrics),
            app=app,
            judge=judge,
            store=None if self.store is None else self.store.absolute(),
        )
