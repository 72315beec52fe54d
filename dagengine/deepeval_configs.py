"""Settings of a run by the names that deepeval gives them: they become settings of ours.

What ours cannot mean, and an argument that nobody knows, is refused with what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, NamedTuple

from dagengine.errors import InputError
from dagengine.limits import DEFAULT_LIMITS
from dagengine.unknown import Answering

Show = bool | Literal["progress", "table"]
STORE = ".dagengine/answers.db"
"""The store of a run that wants a cache (`use_cache`) and names no store."""


@dataclass(frozen=True, slots=True)
class AsyncConfig:
    """How many questions are asked in parallel.

    Without `run_async`, one question is asked at a time. `max_concurrent` limits judge calls (not
    cases). `throttle_value` is the number of seconds between two calls.
    """

    run_async: bool = True
    throttle_value: float = 0
    max_concurrent: int = 20

    def __post_init__(self) -> None:
        if self.max_concurrent < 1:
            raise InputError(f"max_concurrent must be at least 1, got {self.max_concurrent!r}")
        if self.throttle_value < 0:
            raise InputError(f"throttle_value must be at least 0, got {self.throttle_value!r}")


@dataclass(frozen=True, slots=True)
class DisplayConfig(Answering):
    """What is printed: a progress bar, a table, and (`verbose_mode`) the steps of every metric.

    Filtering rows and a folder for results are not supported here: use `failed()` of the result,
    and `out=` of `evaluate`.
    """

    show_indicator: bool = True
    print_results: bool = True
    verbose_mode: bool | None = None
    display_option: str | None = None
    results_folder: str | None = None
    file_output_dir: str | None = None
    inspect_after_run: bool = False

    def __post_init__(self) -> None:
        if self.inspect_after_run:
            raise InputError(
                "inspect_after_run is not supported: give out=FOLDER, then run dagengine view"
            )
        if self.display_option not in (None, "all"):
            hint = "the result has them: result.failed(), or `dagengine show FOLDER`"
            raise InputError(f"display_option={self.display_option!r:.40} is not known; {hint}")
        for name in ("results_folder", "file_output_dir"):
            folder = getattr(self, name)
            if folder is not None:
                raise InputError(f"{name} is called out here: evaluate(…, out={folder!r:.80})")


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Whether a store (`.dagengine/answers.db`) is used: then it is both read and written."""

    write_cache: bool = True
    use_cache: bool = False


@dataclass(frozen=True, slots=True)
class ErrorConfig:
    """Whether a run raises an error if a metric had no score.

    All cases are judged first. With `skip_on_missing_params`, a missing field is not an error.
    """

    ignore_errors: bool = False
    skip_on_missing_params: bool = False


_CONFIGS: dict[str, type[Any]] = {
    "async_config": AsyncConfig,
    "display_config": DisplayConfig,
    "cache_config": CacheConfig,
    "error_config": ErrorConfig,
}
LABELS = ("identifier", "hyperparameters")
"""What a run may say of itself beside its settings; it is in the record."""
_FIELDS = tuple(field.name for config in _CONFIGS.values() for field in fields(config))
NAMES = (*LABELS, *_CONFIGS, *_FIELDS)
"""Every name that is understood: of the run, of the configurations, and of their fields."""
# What is shown, by whether the progress bar is wanted, and the table.
_SHOW: dict[tuple[bool, bool], Show] = {
    (True, True): True,
    (True, False): "progress",
    (False, True): "table",
    (False, False): False,
}


class Translated(NamedTuple):
    """Settings of ours, and what `evaluate` does with the rest.

    `labels` are what the caller says of the run. `forgiven` are the kinds of failure that do not
    end it with an error (None: all kinds).
    """

    settings: dict[str, Any]
    labels: dict[str, Any]
    show: Show
    verbose: bool | None
    forgiven: frozenset[str] | None


def translate_settings(arguments: Mapping[str, Any], show: Show = True) -> Translated:
    """Translate foreign settings into ours; raises InputError for what ours cannot mean."""
    settings = {name: value for name, value in arguments.items() if name not in NAMES}
    values = _flat_values(arguments)
    _set_limits(settings, values)
    reads, writes = bool(values.get("use_cache", False)), values.get("write_cache")
    if writes is not None and bool(writes) != reads:
        raise InputError(
            "use_cache=True reads and writes a store; to read only, "
            "use store=Store(path, replay=True)"
        )
    if reads and settings.get("store") is None:
        settings["store"] = STORE
    if show is True:
        bar, table = values.get("show_indicator", True), values.get("print_results", True)
        show = _SHOW[bool(bar), bool(table)]
    # Here a metric without a score is no error, unless the caller says deepeval's default.
    forgiven = None
    if values.get("ignore_errors") is False:
        forgiven = frozenset({"missing_field"} if values.get("skip_on_missing_params") else ())
    return Translated(settings, _run_labels(arguments), show, values.get("verbose_mode"), forgiven)


def _run_labels(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's labels of the run; raises InputError for what a record cannot hold."""
    labels = {name: arguments[name] for name in LABELS if arguments.get(name) is not None}
    if not isinstance(labels.get("identifier", ""), str):
        raise InputError(f"identifier is a text, got {labels['identifier']!r:.80}")
    hyperparameters = labels.get("hyperparameters", {})
    plain = isinstance(hyperparameters, Mapping) and all(
        isinstance(name, str) and isinstance(value, str | int | float | None)
        for name, value in hyperparameters.items()
    )
    if not plain:
        raise InputError(
            f"hyperparameters maps names to texts and numbers, got {hyperparameters!r:.80}"
        )
    return labels


def _flat_values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names of fields: those of configurations, and those passed by themselves."""
    values: dict[str, Any] = {}
    for name, kind in _CONFIGS.items():
        config = arguments.get(name)
        if config is not None and not isinstance(config, kind):
            raise InputError(f"{name} must be a {kind.__name__}, got {config!r:.80}")
        if config is not None:
            values |= asdict(config)
            if kind is CacheConfig and not config.use_cache:
                values.pop("write_cache")  # True by default, which means nothing without a cache
    for name in _FIELDS:
        if name in arguments:
            if name in values:
                raise InputError(f"{name} is given twice: as an argument and in a configuration")
            values[name] = arguments[name]
    return values


def _set_limits(settings: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set the `limits` in our settings; raises InputError if the caller set some there, too."""
    names = values.keys() & AsyncConfig.__dataclass_fields__
    config = AsyncConfig(**{key: values[key] for key in names})
    changes: dict[str, Any] = {}
    if "max_concurrent" in values:
        changes["max_in_flight"] = config.max_concurrent
    if not config.run_async:
        changes["max_in_flight"] = 1
    if config.throttle_value:
        changes["requests_per_minute"] = 60 / config.throttle_value
    if not changes:
        return
    if settings.get("limits") is not None:
        words = "=…, ".join(changes)
        raise InputError(f"give all limits in one place: limits=Limits({words}=…)")
    settings["limits"] = replace(DEFAULT_LIMITS, **changes)
