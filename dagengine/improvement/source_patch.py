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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from pprint import pformat
from typing import Any

from dagengine.errors import DagengineError
from dagengine.graph.node import AskingNode
from dagengine.improvement.candidates import asking_node
from dagengine.improvement.improvement_report import Candidate
from dagengine.loading import Target, load_metrics
from dagengine.metrics.common.base import BaseMetric
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.human_labels import metric_hash
from dagengine.system.terminal_text import text_if
from dagengine.voting.metric_rewrites import halves, pair_at

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
            # Examples first: a new criterion is not found by the old one.
            parameters = ("examples", "criterion")
            for kind in parameters if candidate.rung == "together" else (candidate.rung,):
                new = _Source(new).apply_change(metric, kind, candidate.where, candidate.detail)
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


def _defines(path: Path, source: str, name: str, improved: BaseMetric) -> bool:
    """Whether a source, in the place of the file, defines the improved metric."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_text(source, encoding="utf-8")
        sys.path.insert(0, str(path.resolve().parent))
        try:
            metrics = (own for own in load_metrics(str(copy)) if own.spec().name == name)
            hashes = {metric_hash(Counterfactual(metric)) for metric in metrics}
            return metric_hash(Counterfactual(improved)) in hashes
        except DagengineError:
            return False
        finally:
            sys.path.remove(str(path.resolve().parent))


class _Source:
    """A file of Python, and the places of calls in it."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode()
        self._tree = ast.parse(text)
        self._calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call)]
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def apply_change(
        self, metric: BaseMetric, kind: str, title: str, detail: Mapping[str, Any]
    ) -> str:
        """The source with a change; raises _NotLiteralError if it has no place for it."""
        node = asking_node(metric, title)
        edits: Iterable[_Edit]
        if kind == "threshold":
            call = self._call(metric.spec().name)
            edits = [self._set(call, "threshold", f"{detail['threshold']:g}")]
        elif kind == "votes":
            arguments = f"{detail['votes']}, [{title!r}], stop=Curtailed()"
            edits = self._wrap(metric, "voted", arguments, "Curtailed, voted")
        elif kind == "escalation":
            edits = self._escalation(metric, **detail)
        elif kind == "rival" or node is None:
            raise _NotLiteralError
        elif kind == "merge":
            edits = self._merge_edits(metric, title)
        else:
            call = self._call(node.text, node.name)
            if kind == "criterion":
                edits = self._criterion(call, node.text, detail["criterion"])
            elif kind == "split":
                edits = self._split_edits(call, node, detail["criterion"])
            elif kind == "scores":
                target = self._target(call, detail["verdict"])
                if not isinstance(target, ast.Constant):  # the score is computed, or a variable
                    raise _NotLiteralError
                edits = [_Edit(*self._span(target), str(detail["score"]))]
            else:
                edits = self._examples(call, detail["examples"])
        return self._apply_edits(edits, 0, len(self._bytes))

    def _apply_edits(self, edits: Iterable[_Edit], start: int, end: int) -> str:
        """A part of the source with changes in it."""
        changed = self._bytes[:end]
        # From the last one up, so that what is before an edit stays where it is.
        for edit in sorted(edits, key=attrgetter("start"))[::-1]:
            changed = changed[: edit.start] + edit.new.encode() + changed[edit.end :]
        return changed[start:].decode()

    def _call(self, *values: str | None) -> ast.Call:
        """The one call with a value among its arguments: the words of a node, or else its name."""
        for value in filter(None, values):
            with_it = [call for call in self._calls if _argument(call, value) is not None]
            if len(with_it) == 1:
                return with_it[0]
        raise _NotLiteralError

    def _assignment(self, call: ast.Call) -> tuple[ast.Assign, str]:
        """The statement that gives a call its variable, and the variable."""
        for statement in self._tree.body:
            if isinstance(statement, ast.Assign) and statement.value is call:
                (target, *_) = statement.targets
                if isinstance(target, ast.Name):
                    return statement, target.id
        raise _NotLiteralError

    def _criterion(self, call: ast.Call, old: str, new: str) -> Iterator[_Edit]:
        target = _argument(call, old)
        if target is None:
            raise _NotLiteralError
        yield _Edit(*self._span(target), _literal(new, target.col_offset))

    def _target(self, call: ast.Call, verdict: Any) -> ast.expr:
        """Target of a verdict, as it is written."""
        for node in ast.walk(call):
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                value = next((v for k, v in pairs if k is not None and _is(k, verdict)), None)
                if value is not None:
                    return value
            if isinstance(node, ast.Call):
                keywords = {keyword.arg: keyword.value for keyword in node.keywords}
                head = keywords.get("verdict") or next(iter(node.args), None)
                second = next(iter(node.args[1:]), None)
                leads = keywords.get("score") or keywords.get("child") or second
                if head is not None and leads is not None and _is(head, verdict):
                    return leads
        raise _NotLiteralError

    def _lead(self, call: ast.Call, verdict: Any, written: str) -> _Edit:
        """A verdict that leads elsewhere; under a VerdictNode a score and a node have two names."""
        start, end = self._span(self._target(call, verdict))
        name = "score=" if written.isdecimal() else "child="
        if self._bytes[start - 6 : start] in (b"score=", b"child="):
            return _Edit(start - 6, end, name + written)
        return _Edit(start, end, written)

    def _set(self, call: ast.Call, name: str, value: str) -> _Edit:
        """A keyword argument with another value, or one more."""
        written = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
        if written is None:
            return self._keyword_edit(call, f"{name}={value}")
        return _Edit(*self._span(written), value)

    def _wrap(
        self, metric: BaseMetric, function: str, arguments: str, names: str
    ) -> Iterator[_Edit]:
        """A line that calls a function with the variable of the metric, and what it imports."""
        _, name = self._assignment(self._call(metric.spec().name))
        line, end = f"{name} = {function}({name}, {arguments})\n", self._starts[-1]
        yield _Edit(end, end, line if self._bytes.endswith(b"\n") else f"\n{line}")
        yield from self._import_edits("dagengine.voting", names)

    def _escalation(
        self, metric: BaseMetric, below: float, to: str | None = None
    ) -> Iterable[_Edit]:
        """The threshold of the one call of `escalated`, or a line that calls it."""
        if to is not None:
            arguments = f"to={_double_quoted(to)}, below={below!r}"
            return self._wrap(metric, "escalated", arguments, "escalated")
        calls = [call for call in self._calls if ast.unparse(call.func).endswith("escalated")]
        if len(calls) != 1:
            raise _NotLiteralError
        return [self._set(calls[0], "below", repr(below))]

    def _examples(self, call: ast.Call, shown: Sequence[Mapping[str, Any]]) -> Iterator[_Edit]:
        yield self._keyword_edit(call, f"examples={_examples(shown)}")
        yield from self._import_edits("dagengine.metrics.dag", "Example")

    def _split_edits(self, call: ast.Call, node: AskingNode, words: str) -> Iterator[_Edit]:
        """A statement for the second question before that of the first, which leads to it."""
        (statement, name), parts = self._assignment(call), halves(words)
        assert parts is not None
        first, between, second = parts
        start, end = self._span(statement)
        copied = [
            *self._criterion(call, node.text, second),
            self._set(call, "name", _double_quoted(f"{node.title}, 2")),
            _Edit(start, start + len(name.encode()), f"{name}_2"),
        ]
        yield _Edit(start, start, self._apply_edits(copied, start, end) + "\n")
        yield from self._criterion(call, node.text, first)
        yield self._lead(call, between == "AND", f"{name}_2")

    def _merge_edits(self, metric: BaseMetric, title: str) -> Iterator[_Edit]:
        """The parent asks both questions; the statement of the child goes if nothing uses it."""
        pair = pair_at(metric, title)
        assert pair is not None
        parent, child = (self._call(node.text, node.name) for node in (pair.parent, pair.child))
        yield from self._criterion(parent, pair.parent.text, pair.criterion)
        yield self._set(
            parent, "name", _double_quoted(f"{pair.parent.title} and {pair.child.title}")
        )
        paths = list(dict.fromkeys((*pair.parent.evaluation_params, *pair.child.evaluation_params)))
        if paths != list(pair.parent.evaluation_params):
            yield self._set(
                parent, "evaluation_params", f"[{', '.join(map(_double_quoted, paths))}]"
            )
        leads = {
            True: self._target(child, pair.child_verdict),
            False: self._target(parent, not pair.parent_verdict),
        }
        for verdict, target in leads.items():
            yield self._lead(parent, verdict, self._apply_edits((), *self._span(target)))
        with suppress(_NotLiteralError):
            statement, name = self._assignment(child)
            if sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(self._tree)) == 2:
                last_line = statement.end_lineno or statement.lineno
                yield _Edit(self._starts[statement.lineno - 1], self._starts[last_line], "")

    def _import_edits(self, module: str, names: str) -> Iterator[_Edit]:
        """An import after the last one at the head of the file, unless it is there."""
        imports = [n for n in self._tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        have = {alias.name for n in imports for alias in n.names}
        if set(names.split(", ")) <= have:
            return
        offset = self._starts[(imports[-1].end_lineno or 0) if imports else 0]
        yield _Edit(offset, offset, f"from {module} import {names}\n")

    def _keyword_edit(self, call: ast.Call, argument: str) -> _Edit:
        """One more keyword argument at the end of a call."""
        last_argument = max(_arguments(call), key=lambda each: self._span(each)[1])
        end = self._span(last_argument)[1]
        if b"\n" not in self._bytes[end : self._span(call)[1] - 1]:
            return _Edit(end, end, f", {argument}")
        line = self._bytes[self._starts[last_argument.lineno - 1] :]
        indent = " " * (len(line) - len(line.lstrip(b" ")))
        return _Edit(end, end, f",\n{indent}{textwrap.indent(argument, indent).strip()}")

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _argument(call: ast.Call, value: Any) -> ast.expr | None:
    """The argument of a call that is this value."""
    return next((argument for argument in _arguments(call) if _is(argument, value)), None)


def _is(node: ast.expr, value: Any) -> bool:
    return (
        isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value
    )


def _double_quoted(text: str) -> str:
    """A text as a literal between double quotes."""
    whole = repr(text)
    if whole[0] == '"':
        return whole
    return '"' + whole[1:-1].replace('"', '\\"').replace("\\'", "'") + '"'


def _literal(text: str, indent: int) -> str:
    """A text as one literal, or as several lines of them."""
    if len(text) + indent <= _WIDE:
        return _double_quoted(text)
    lines = textwrap.wrap(
        text, max(40, _WIDE - indent), drop_whitespace=False, break_long_words=False
    )
    if "".join(lines) != text:
        return _double_quoted(text)
    return ("\n" + " " * indent).join(map(_double_quoted, lines))


def _examples(shown: Sequence[Mapping[str, Any]]) -> str:
    """Examples as the source of a list of them."""
    rows = []
    for example in shown:
        reads = ", ".join(f"{_double_quoted(k)}: {_source(v)}" for k, v in example["reads"].items())
        reason = f", {_source(example['reason'])}" if example.get("reason") else ""
        rows.append(f"    Example({{{reads}}}, {_source(example['answer'])}{reason}),\n")
    return "[\n" + "".join(rows) + "]"


def _source(value: Any) -> str:
    return _double_quoted(value) if isinstance(value, str) else repr(value)


# The change as Python of its own.


def program(target: str | Path, metric: BaseMetric, accepted: Sequence[Candidate]) -> str:
    """A file that takes the metric from `target`, which stays as it is, and changes a copy."""
    name, tree = metric.spec().name, text_if(isinstance(target, Target), "Target, ")
    source = repr(target if tree else str(target))
    lines = [
        f'"""The metric {name!r} with what people\'s labels showed to be better."""',
        "",
        "from dagengine.improvement.candidates import changed",
        f"from dagengine.loading import {tree}load_metrics",
        "",
        f"metrics = {{metric.spec().name: metric for metric in load_metrics({source})}}",
        f"improved = metrics[{name!r}]",
    ]
    for candidate in accepted:
        words = [f"{k}={pformat(v, 88)}" for k, v in candidate.detail.items() if k != "before"]
        arguments = ["improved", repr(candidate.rung), repr(candidate.where), *words]
        lines += ["improved = changed(", *(f"    {argument}," for argument in arguments), ")"]
    return "\n".join([*lines, "", "del metrics", ""])
