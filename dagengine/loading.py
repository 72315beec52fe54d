"""Files that the command line names: metrics, judges, apps, cases."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self, cast

from dagengine import metrics as _metrics
from dagengine.data.app import App
from dagengine.data.cases import read_cases, valid_cases
from dagengine.errors import InputError
from dagengine.graph.examples_and_quotes import Quotes
from dagengine.graph.graph import Graph
from dagengine.graph.node import BaseNode
from dagengine.judges.default import judge_settings
from dagengine.judges.lexical import LexicalJudge
from dagengine.judges.resolve import FILE, PROVIDERS, as_judge, require_provider
from dagengine.metrics.common.base import BaseMetric
from dagengine.metrics.dag import DAGMetric
from dagengine.question import Judge
from dagengine.system import entry_points
from dagengine.system.terminal_text import text_if
from dagengine.test_case import TestCase
from dagengine.trees import load_module, metrics_of, read_document
from dagengine.voting.metric_rewrites import RewrittenMetric, quoted

TREE = ".json"


def split_target(target: str) -> tuple[Path, str | None]:
    """`file.py:name` as its parts (a Windows drive letter is not a name); also of `tree.json`."""
    path, colon, name = target.rpartition(":")
    if colon and (path.endswith(TREE) or (name.isidentifier() and path.endswith(".py"))):
        return Path(path), name
    return Path(target), None


class Target(str):
    """What names metrics, and what a document that it names may do: run code, choose judges."""

    def __new__(cls, text: str, **allowed: bool) -> Self:
        target = super().__new__(cls, text)
        target.allowed = allowed
        return target

    allowed: Mapping[str, bool] = {}

    def absolute(self: str) -> Target:
        """The same for processes in other folders; also of a plain text."""
        is_file = split_target(self)[0].suffix in (".py", TREE)
        return Target(os.path.abspath(self) if is_file else self, **getattr(self, "allowed", {}))

    def __repr__(self) -> str:
        allowed = "".join(f", {name}=True" for name, may in self.allowed.items() if may)
        return f"Target({str(self)!r}{allowed})"


def names_a_file(target: str) -> bool:
    """Return whether `--judge` is an object in a Python file, and not a model."""
    return target.endswith(".py") or ".py:" in target


def is_code(target: str, base_url: str | None = None) -> bool:
    """Return whether `--judge` is an object of a file or of a module, and not a model.

    Of a module if a package offers it, or if the module has a dot and is installed, and never at a
    server of one's own. Nothing is imported to know it.
    """
    module, colon, name = target.partition(":")
    if names_a_file(target) or base_url or not colon:
        return names_a_file(target)
    offered = entry_points.offers(entry_points.JUDGES).values()
    is_offered = any(target in packages.values() for packages in offered)
    is_dotted = "." in module and name.isidentifier()
    return is_offered or (is_dotted and entry_points.is_importable(module))


def load_code(target: str, group: str) -> tuple[Any, Path, str | None]:
    """The module of a file or of `module:name`, its file, and the name of the object in it.

    For a name that packages offer in a group the object itself. Raises InputError for all else.
    """
    path, name = split_target(target)
    module, _, own = target.partition(":")
    if path.suffix == ".py" or path.exists():
        return load_module(path), path, name
    if target in entry_points.offers(group):
        return entry_points.load_offer(group, target), Path(target), None
    if not own or not entry_points.is_importable(module):
        words = entry_points.installed_words(group, target)
        raise InputError(f"there is no file {target}, and no such module or name; {words}")
    code = entry_points.load_value(module, f"the module {module}")
    return code, Path(code.__file__ or module), own


def load_metrics(
    target: str,
    quoting: Quotes | None = None,
    on_copy: Callable[[str], None] | None = None,
) -> list[BaseMetric]:
    """The metrics of `metrics.py`, or the one or the list called `name` of `metrics.py:name`.

    Also `module:name`, and a name that a package offers. Of a file, a copy (`voted`, `judged_by` …)
    takes the place of its original; `on_copy` gets a line on each. With `quoting` the verdicts of
    metrics that judge the material quote it. Raises InputError for a file without metrics, or with
    two copies of one original, for a name of something else, and where nothing can quote.
    """
    path, name = split_target(target)
    if path.suffix == TREE:
        return _with_quotes(_of_document(target, path, name), path, quoting)
    code, path, name = load_code(target, entry_points.METRICS)
    if name is not None:
        values = _metrics_called(code, path, name)
    elif isinstance(code, ModuleType):
        announce = on_copy or (lambda line: None)
        values = _without_originals(_metrics_in(code), code, path, announce)
    else:
        values = _members(code)
    metrics = [_as_metric(value, path) for value in dict.fromkeys(values)]
    if not metrics:
        # A class may stand where a metric was meant; to import one alone is not a mistake.
        hint = ""
        for own, value in getattr(code, "__dict__", {}).items():
            if isinstance(value, type) and issubclass(value, BaseMetric):
                local = value.__module__ == getattr(code, "__name__", "")
                if not hint and (local or own not in (value.__name__, *_metrics.__all__)):
                    hint = f"; {own} is a class, of which `{own}(…)` makes a metric"
        raise InputError(
            f"{path} defines no metric: create one at module level, `m = DAGMetric(…)`{hint}"
        )
    return _with_quotes(metrics, path, quoting)


def _of_document(target: str, path: Path, name: str | None) -> list[BaseMetric]:
    """The metrics of a tree file, or the one with a name."""
    allowed = getattr(target, "allowed", {})
    metrics = metrics_of(read_document(path), path.parent, str(path), **allowed)
    named_metrics = [metric for metric in metrics if name in (None, metric.__name__)]
    if not named_metrics:
        names = ", ".join(metric.__name__ for metric in metrics)
        raise InputError(f"{path} has no metric {name or ''!r}; it has {names or 'none'}")
    return named_metrics


def _with_quotes(
    metrics: Sequence[BaseMetric], path: Path, quoting: Quotes | None
) -> list[BaseMetric]:
    """The metrics with quotes, if they are wanted; raises InputError if none can quote."""
    if quoting is None:
        return [*metrics]
    copies: list[BaseMetric] = []
    for metric in metrics:
        nodes = metric.spec().graph.nodes()
        able = any(node.quotes for node in nodes if isinstance(node, BaseNode))
        mode, unsupported = quoting.mode, quoting.unsupported
        copies.append(quoted(metric, mode, unsupported=unsupported) if able else metric)
    if copies == [*metrics]:
        raise InputError(f"{path}: --quotes: no metric has a verdict that could quote anything")
    return copies


def _metrics_in(module: ModuleType) -> list[Any]:
    """The metrics of a file, alone or in lists; of a file without any its DAGs."""
    values = list(vars(module).values())
    candidates: list[Any] = []
    for value in values:
        if _has_a(BaseMetric, value):
            candidates += _members(value)
    nested = set(map(id, _inner_metrics(candidates)))
    outer = [value for value in candidates if id(value) not in nested]
    return outer or [value for value in values if isinstance(value, Graph)]


def _members(value: Any) -> list[Any]:
    """The members of a list or tuple; anything else alone."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _has_a(kind: Any, value: object) -> bool:
    """Return whether a value is of a kind, or a list or tuple with a member of it."""
    return any(isinstance(member, kind) for member in _members(value))


def _inner_metrics(candidates: Sequence[Any]) -> Iterator[BaseMetric]:
    """The metrics that verdicts lead to: each runs as part of the metric above it."""
    for metric in candidates:
        graph = metric.spec().graph if isinstance(metric, BaseMetric) else None
        for node in graph.nodes() if isinstance(graph, Graph) else ():
            for branch in node.branches():
                if isinstance(branch.target, BaseMetric) and branch.target is not metric:
                    yield branch.target


def _without_originals(
    values: list[Any], module: ModuleType, path: Path, on_copy: Callable[[str], None]
) -> list[Any]:
    """The values without those that another one was made from; raises InputError for two copies."""
    lines = [list(_originals(value)) for value in values]
    original_ids = {id(original) for line in lines for original in line}
    value_ids = set(map(id, values))
    remaining: list[Any] = []
    copies: dict[int, Any] = {}
    for value, line in zip(values, lines, strict=True):
        if id(value) in original_ids:
            continue
        remaining.append(value)
        if not line:
            continue
        own = _variable(module, value)
        twin = copies.setdefault(id(line[-1]), value)
        if twin is not value:
            name = _variable(module, twin)
            raise InputError(
                f"{path}: {name} and {own} are copies of one metric, and results are told apart "
                f"by its name: choose one of them, {path}:{name} or {path}:{own}"
            )
        replaced = [_variable(module, original) for original in line if id(original) in value_ids]
        if replaced:
            on_copy(f"{own} takes the place of {' and '.join(replaced)}, which it was made from")
    return remaining


def _originals(value: Any) -> Iterator[Any]:
    """The metric that a copy was made from, then the one that this was made from, and so on."""
    while value is not None:
        rewritten = isinstance(value, RewrittenMetric)
        value = value.metric if rewritten else getattr(value, "original", None)
        if value is not None:
            yield value


def _variable(module: ModuleType, value: object) -> str:
    """The name of the variable that holds a value, alone or in a list."""
    for name, variable in vars(module).items():
        if any(member is value for member in _members(variable)):
            return name
    return "a metric"


def _metrics_called(module: ModuleType, path: Path, name: str) -> list[Any]:
    value = getattr(module, name, None)
    if value is None:
        kinds = (BaseMetric, Graph)
        own = vars(module).items()
        names = [name for name, value in own if _has_a(kinds, value)]
        raise InputError(f"{path} has no {name!r}; it has {', '.join(names) or 'no metric at all'}")
    members = _members(value)
    if not members:
        raise InputError(f"{path}: the list {name} is empty; add metrics to it")
    return members


def _as_metric(value: object, path: Path) -> BaseMetric:
    if isinstance(value, BaseMetric):
        return value
    if isinstance(value, Graph):
        return DAGMetric(name=path.stem, dag=value)
    if isinstance(value, type) and issubclass(value, BaseMetric):
        name = value.__name__
        raise InputError(f"{path}: {name} is a class; create a metric, `{name}(…)`")
    hint = text_if(
        isinstance(value, BaseNode), "; put it into a metric, DAGMetric(name=…, dag=DAG(…))"
    )
    raise InputError(f"{path}: {value!r:.200} is neither a metric nor a DAG{hint}")


def chosen_judge(target: str | None, base_url: str | None) -> Judge | None:
    """The judge of `--judge` and `--base-url`; None where neither is given."""
    return load_judge(target, base_url) if target or base_url else None


def load_judge(target: str | None, base_url: str | None) -> Judge:
    """The judge for `--judge`: what `as_judge` takes, `lexical`, `file.py:NAME`, `module:NAME`."""
    if target == "lexical" and base_url is None:
        return LexicalJudge()
    if target is None or not is_code(target, base_url):
        judge = as_judge(target, base_url=base_url)
        if target is not None and base_url is None and not target.startswith(FILE):
            require_provider(target)
        return judge
    return as_judge(load_function(target, "judge"))


def load_batch_judge(model: str | None, base_url: str | None, journal: Path | None = None) -> Judge:
    """The judge for `--batch`; raises InputError for what has no batch API.

    `journal` is where its batches in progress are written down.
    """
    from dagengine.judges.batches.anthropic_batch import AnthropicBatchJudge
    from dagengine.judges.batches.openai_batch import OpenAIBatchJudge

    chosen = judge_settings(model, base_url)
    path = "" if chosen.base_url else chosen.model  # what a server calls its models says nothing
    provider, _, own_name = path.partition("/")
    if provider == "anthropic" and own_name:
        return AnthropicBatchJudge(own_name, journal=journal)
    if (own_name and provider in PROVIDERS - {"openai"}) or is_code(chosen.model, chosen.base_url):
        raise InputError(
            f"--batch needs a model with OpenAI's or Anthropic's batch API, not {chosen.model!r}"
        )
    name = own_name if provider == "openai" and own_name else chosen.model
    return OpenAIBatchJudge(name, base_url=chosen.base_url, api_key=chosen.key(), journal=journal)


def load_file_judge(
    model: str | None, folder: Path, announce: Callable[[str], None] | None = None
) -> Judge:
    """The judge for `--batch-files`; raises InputError for what is not the name of a model."""
    from dagengine.judges.batches.openai_batch import FileBatchJudge

    name = judge_settings(model, None).model
    if is_code(name) or name.startswith(FILE):
        raise InputError(
            f"--batch-files needs the name of the model that the engine serves, not {name!r}"
        )
    return FileBatchJudge(name, folder, announce=announce)


def load_app(target: str, max_in_flight: int) -> App:
    """The app for `--app file.py:function` (by default `app`), or `module:function`."""
    return App(load_function(target, "app"), max_in_flight)


def load_function(target: str, name: str) -> Any:
    """The object that `file.py:function` names, by default `name`; raises InputError without it."""
    code, path, own = load_code(target, entry_points.JUDGES)
    value = getattr(code, own or name, None)
    if value is None:
        raise InputError(f"{path} has no {own or name!r}; write {path}:NAME")
    return value


def load_cases(path: str | Path) -> list[TestCase]:
    """All test cases of a file; raises InputError that names the first invalid line."""
    return [*cast("Iterator[TestCase]", valid_cases(read_cases(path)))]
