"""The accepted change as a patch of the file that the metric was written in.

The change is made at the literal text of the node. It counts only if the changed file, loaded
again, defines the very metric that was accepted; otherwise there is no patch, and `program` writes
the change as Python of its own.
"""

from __future__ import annotations

import ast
import difflib
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagengine.errors import DagengineError
from dagengine.graph.nodes import BinaryJudgementNode
from dagengine.improvement.rungs import asking_node, holistic
from dagengine.improvement.values import Candidate
from dagengine.loading import load_metrics
from dagengine.metrics.common.base import BaseMetric
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.labels import metric_hash

_WIDE = 88


class _NotLiteralError(Exception):
    """Raised where the source does not have a node as one literal call."""


@dataclass(frozen=True, slots=True)
class _Edit:
    """Bytes of the source from `start` to `end`, and what takes their place."""

    start: int
    end: int
    new: str


def patch(
    path: Path, metric: BaseMetric, accepted: Sequence[Candidate], improved: BaseMetric
) -> str | None:
    """A unified diff that makes the file at `path` define the improved metric, or None."""
    old = path.read_text(encoding="utf-8")
    new = old
    try:
        for candidate in accepted:
            for part in _parts(candidate):
                new = _Source(new).changed(metric, part)
    except (_NotLiteralError, SyntaxError):
        return None
    if new == old or not _defines(path, new, metric.spec().name, improved):
        return None
    name = path.as_posix().lstrip("/")
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _parts(candidate: Candidate) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The single changes of a candidate: their kind, their node, their words.

    Examples first: a new criterion is not found by the old one.
    """
    detail = candidate.detail
    if candidate.rung in ("examples", "together"):
        yield "examples", candidate.where, detail
    if candidate.rung in ("criterion", "together"):
        yield "criterion", candidate.where, detail
    if candidate.rung in ("threshold", "scores", "votes", "rival"):
        yield candidate.rung, candidate.where, detail


def _defines(path: Path, source: str, name: str, improved: BaseMetric) -> bool:
    """Whether a source, in the place of the file, defines the improved metric."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_text(source, encoding="utf-8")
        sys.path.insert(0, str(path.resolve().parent))
        try:
            with suppress(DagengineError):
                wanted = metric_hash(Counterfactual(improved))
                return any(
                    metric_hash(Counterfactual(made)) == wanted
                    for made in load_metrics(str(copy))
                    if made.spec().name == name
                )
        finally:
            sys.path.remove(str(path.resolve().parent))
    return False


class _Source:
    """A file of Python, and the places of calls in it."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode()
        self._tree = ast.parse(text)
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def changed(self, metric: BaseMetric, part: tuple[str, str, Mapping[str, Any]]) -> str:
        """The source with a change; raises _NotLiteralError if it has no place for it."""
        kind, title, detail = part
        if kind == "threshold":
            edits = [self._threshold(metric, detail["threshold"])]
        elif kind == "votes":
            edits = list(self._votes(metric, title, detail["votes"]))
        elif kind == "rival":
            raise _NotLiteralError
        else:
            node = asking_node(metric, title)
            if node is None:
                raise _NotLiteralError
            call = self._call(node.text, node.name)
            if kind == "criterion":
                edits = [self._criterion(call, node.text, detail["criterion"])]
            elif kind == "scores":
                edits = [self._score(call, detail["verdict"], detail["score"])]
            else:
                shown = f"examples={_examples(detail['examples'])}"
                edits = [
                    self._added(call, shown),
                    *self._imported("dagengine.metrics.dag", "Example"),
                ]
        changed = self._bytes
        for edit in sorted(edits, key=lambda edit: -edit.start):
            changed = changed[: edit.start] + edit.new.encode() + changed[edit.end :]
        return changed.decode()

    def _call(self, words: str, name: str | None) -> ast.Call:
        """The one call with these words among its arguments, or with this name."""
        calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call)]
        for wanted in (words, name):
            with_it = [
                call for call in calls if any(_is(each, wanted) for each in _arguments(call))
            ]
            if len(with_it) == 1:
                return with_it[0]
        raise _NotLiteralError

    def _criterion(self, call: ast.Call, old: str, new: str) -> _Edit:
        place = next((each for each in _arguments(call) if _is(each, old)), None)
        if place is None:
            raise _NotLiteralError
        return _Edit(*self._span(place), _literal(new, place.col_offset))

    def _score(self, call: ast.Call, verdict: Any, score: int) -> _Edit:
        for node in ast.walk(call):
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                value = next((v for k, v in pairs if k is not None and _is(k, verdict)), None)
                if isinstance(value, ast.Constant):
                    return _Edit(*self._span(value), str(score))
            if isinstance(node, ast.Call) and node.args and _is(node.args[0], verdict):
                own = [k.value for k in node.keywords if k.arg == "score"] or node.args[1:2]
                if own and isinstance(own[0], ast.Constant):
                    return _Edit(*self._span(own[0]), str(score))
        raise _NotLiteralError

    def _threshold(self, metric: BaseMetric, threshold: float) -> _Edit:
        call = self._call(metric.spec().name, None)
        for keyword in call.keywords:
            if keyword.arg == "threshold":
                return _Edit(*self._span(keyword.value), f"{threshold:g}")
        return self._added(call, f"threshold={threshold:g}")

    def _votes(self, metric: BaseMetric, title: str, votes: int) -> Iterator[_Edit]:
        """A line that lets the variable of the metric vote, and the import of what it needs."""
        call = self._call(metric.spec().name, None)
        names = [
            statement.targets[0].id
            for statement in self._tree.body
            if isinstance(statement, ast.Assign)
            and statement.value is call
            and isinstance(statement.targets[0], ast.Name)
        ]
        if not names:
            raise _NotLiteralError
        end = self._starts[-1]
        line = f"{names[0]} = voted({names[0]}, {votes}, [{title!r}], stop=Curtailed())\n"
        gap = "" if self._bytes.endswith(b"\n") else "\n"
        yield _Edit(end, end, f"{gap}{line}")
        yield from self._imported("dagengine.voting", "Curtailed, voted")

    def _imported(self, module: str, names: str) -> Iterator[_Edit]:
        """An import after the last one at the head of the file, unless it is there."""
        imports = [n for n in self._tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        have = {alias.name for n in imports for alias in n.names}
        if set(names.split(", ")) <= have:
            return
        after = self._starts[(imports[-1].end_lineno or 0) if imports else 0]
        yield _Edit(after, after, f"from {module} import {names}\n")

    def _added(self, call: ast.Call, argument: str) -> _Edit:
        """One more keyword argument at the end of a call."""
        parts = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not parts:
            raise _NotLiteralError
        last = max(self._span(part)[1] for part in parts)
        end = self._span(call)[1] - 1
        own_line = b"\n" in self._bytes[last:end]
        if own_line:
            indent = " " * min(part.col_offset for part in parts)
            if call.keywords:
                indent = " " * (
                    len(self._line(call.keywords[-1].lineno))
                    - len(self._line(call.keywords[-1].lineno).lstrip())
                )
            written = textwrap.indent(argument, indent).strip()
            return _Edit(last, last, f",\n{indent}{written}")
        return _Edit(last, last, f", {argument}")

    def _line(self, number: int) -> str:
        return self._bytes[self._starts[number - 1] : self._starts[number]].decode()

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is(node: ast.expr, value: Any) -> bool:
    return (
        isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value
    )


def _quoted(text: str) -> str:
    """A text as a literal between double quotes."""
    whole = repr(text)
    return (
        whole
        if whole[0] == '"'
        else '"' + whole[1:-1].replace('"', '\\"').replace("\\'", "'") + '"'
    )


def _literal(text: str, indent: int) -> str:
    """A text as one literal, or as several lines of them."""
    if len(text) + indent <= _WIDE:
        return _quoted(text)
    lines = textwrap.wrap(
        text, max(40, _WIDE - indent), drop_whitespace=False, break_long_words=False
    )
    if "".join(lines) != text:
        return _quoted(text)
    return ("\n" + " " * indent).join(map(_quoted, lines))


def _examples(shown: Sequence[Mapping[str, Any]]) -> str:
    """Examples as the source of a list of them."""
    rows = []
    for example in shown:
        reads = ", ".join(f"{_quoted(k)}: {_source(v)}" for k, v in example["reads"].items())
        reason = f", {_source(example['reason'])}" if example.get("reason") else ""
        rows.append(f"    Example({{{reads}}}, {_source(example['answer'])}{reason}),\n")
    return "[\n" + "".join(rows) + "]"


def _source(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else repr(value)


# The change as Python of its own.


def program(path: Path, metric: BaseMetric, accepted: Sequence[Candidate]) -> str:
    """A file that takes the metric from `path`, which stays as it is, and changes a copy of it."""
    name = metric.spec().name
    imports, lines = {"from dagengine.loading import load_metrics"}, list[str]()
    lines.append(
        f"metrics = {{metric.spec().name: metric for metric in load_metrics({str(path)!r})}}\n"
        f"improved = metrics[{name!r}]"
    )
    for candidate in accepted:
        for kind, title, detail in _parts(candidate):
            imports.update(_NEEDS[kind])
            lines.append(_line_of(kind, title, detail, metric))
    head = f'"""The metric {name!r} with what people\'s labels showed to be better."""'
    return "\n".join([head, "", *sorted(imports), "", *lines, "", "del metrics", ""])


_NEEDS = {
    "threshold": ("from dagengine.improvement.rungs import with_threshold",),
    "scores": ("from dagengine.improvement.rungs import with_score",),
    "votes": ("from dagengine.voting import Curtailed, voted",),
    "examples": (
        "from dagengine.metrics.dag import Example",
        "from dagengine.voting import exemplified",
    ),
    "criterion": ("from dagengine.voting import reworded",),
    "rival": (
        "from dagengine.metrics import DAGMetric",
        "from dagengine.metrics.dag import DAG, BinaryJudgementNode",
    ),
}


def _line_of(kind: str, title: str, detail: Mapping[str, Any], metric: BaseMetric) -> str:
    if kind == "threshold":
        return f"improved = with_threshold(improved, {detail['threshold']:g})"
    if kind == "scores":
        leaf = f"({title!r}, {detail['verdict']!r})"
        return f"improved = with_score(improved, {leaf}, {detail['score']})"
    if kind == "votes":
        return f"improved = voted(improved, {detail['votes']}, [{title!r}], stop=Curtailed())"
    if kind == "examples":
        return f"improved = exemplified(improved, {{{title!r}: {_examples(detail['examples'])}}})"
    if kind == "criterion":
        return (
            f"improved = reworded(\n    improved, {{{title!r}: {_quoted(detail['criterion'])}}}\n)"
        )
    rival = holistic(metric)
    assert rival is not None
    (node,) = rival.spec().graph.nodes()
    assert isinstance(node, BinaryJudgementNode)
    return (
        f"whole = BinaryJudgementNode(\n    {_quoted(node.criteria)},\n"
        f"    evaluation_params={list(node.evaluation_params)!r},\n"
        f"    then={{True: 10, False: 0}},\n    name='Whole',\n)\n"
        f"improved = DAGMetric({metric.spec().name!r}, DAG(whole))"
    )
