"""`dagengine migrate`: rewrite programs for deepeval, LangChain's evaluators or ragas."""

from __future__ import annotations

import ast
import bisect
import difflib
import importlib
import importlib.metadata
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from typer import Argument, Option

from dagengine.cli.common.files import Reads, require_writable
from dagengine.cli.common.output import EXIT_NO_SCORE, report, say
from dagengine.compat.names import (
    ARGUMENTS,
    EVALUATORS,
    HOMES,
    RENAMED,
    home_of,
    our_name,
    why_no_module,
    why_no_name,
)
from dagengine.errors import InputError
from dagengine.system.safe_files import write_whole
from dagengine.system.terminal_text import text_if

Version = tuple[int, ...]
_REVERSED = frozenset({"BiasMetric", "HallucinationMetric", "ToxicityMetric"})
# The first versions of deepeval whose scores are as here.
_ONE_IS_BEST: Version = (4, 2, 0)
_OWN_RANGE: Version = (3, 3, 9)
_ASK = "(migrate --deepeval VERSION says so)"

_NOTED = frozenset({"evals_iterator", "log_hyperparameters", "sentence_bleu_score"})
# Fields of cases that programs fill in later.
_FILLED = frozenset({"actual_output", "retrieval_context", "tools_called", "turns"})
# Arguments that are refused here, by the functions and classes that take them there.
_OF_METRICS = frozenset({"available_tools", "eval_mode", "system_one_model"})
_OF_CALLS: Mapping[str, frozenset[str]] = {
    "ToolUseMetric": _OF_METRICS - {"available_tools"},
    **dict.fromkeys(
        ("assert_test", "compare", "evaluate"),
        frozenset(
            {"classifiers", "goldens", "mcp_servers", "metric_collection"}
            | {"observed_callback", "official"}
        ),
    ),
    **dict.fromkeys(
        ("ConversationalGolden", "ConversationalTestCase", "Golden", "LLMTestCase", "Turn"),
        frozenset(
            {"audio", "expectations", "expected_labels", "flaky", "mcp_prompts_called"}
            | {"mcp_resources_called", "mcp_servers", "mcp_tools_called", "persona", "trace_dict"}
        ),
    ),
    "AspectCritic": frozenset({"definition"}),
}
_PICTURE = re.compile(r"\[DEEPEVAL:(?:IMAGE|PDF):")
_LINE_END = re.compile(r"\r\n|\r|\n")


class Edit(NamedTuple):
    """The characters of a program from one place to another, and what they become."""

    start: int
    end: int
    text: str


class Migrated(NamedTuple):
    """A program with our names, and what a person has to decide, by line.

    `undated` says that some of it depends on the version of deepeval, which was not given.
    """

    source: str
    notes: list[tuple[int, str]]
    undated: bool = False


def migrate_source(source: str, deepeval: Version | None = None) -> Migrated:
    """Rewrite imports and the package's name; raises SyntaxError for text that is not Python.

    An import that would find nothing here is left as it is. `deepeval` is the version that the
    program was written for; None: unknown.
    """
    text = _Text(source)
    edits: list[Edit] = []
    notes: set[tuple[int, str]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            edits += _import_edits(node, text)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if home := home_of(alias.name):
                    edits.append(text.rename(alias, alias.name, home))
        elif isinstance(node, ast.Name) and node.id == "deepeval":
            edits.append(text.rename(node, "deepeval", "dagengine"))
        notes.update((getattr(node, "lineno", 0), note) for note in _notes(node, deepeval))
    # From the end on, so that the places of earlier edits stay as they are.
    for edit in sorted(edits, reverse=True):
        source = source[: edit.start] + edit.text + source[edit.end :]
    return Migrated(source, sorted(notes), any(_ASK in note for _, note in notes))


class _Text:
    """A program, by the lines and the columns of the parser, which counts bytes."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._starts = [0, *(end.end() for end in _LINE_END.finditer(source))]

    def place(self, line: int, column: int) -> int:
        """The index of the character in a line (from 1 on) at a column in bytes."""
        start = self._starts[line - 1]
        piece = self.source[start : start + column].encode()[:column]
        return start + len(piece.decode(errors="ignore"))

    def span(self, node: ast.stmt | ast.expr | ast.alias) -> tuple[int, int]:
        """Begin and end of a part of the program."""
        start = self.place(node.lineno, node.col_offset)
        return start, self.place(node.end_lineno or 0, node.end_col_offset or 0)

    def rename(self, node: ast.stmt | ast.expr | ast.alias, name: str, ours: str) -> Edit:
        """The first mention of a name in a part of the program."""
        start, end = self.span(node)
        match = re.compile(rf"\b{re.escape(name)}\b").search(self.source, start, end)
        if match is None:  # blanks around its dots
            raise InputError(
                f"line {node.lineno} is written in a way that cannot be rewritten: {name}"
            )
        return Edit(match.start(), match.end(), ours)

    def separator(self, start: int, end: int) -> str:
        """Separator between two statements in the place of one."""
        line = self._starts[bisect.bisect(self._starts, start) - 1]
        before = self.source[line:start]
        after = _LINE_END.split(self.source[end:], maxsplit=1)[0].strip()
        alone = not before.strip() and (not after or after.startswith("#"))
        return f"\n{before}" if alone else "; "


def _import_edits(node: ast.ImportFrom, text: _Text) -> Iterator[Edit]:
    """The names that are here from where they are; the statement stays for all others."""
    module = node.module or ""
    if home_of(module) is None or node.level:
        return
    homes = {alias.name: _home_of_name(module, alias.name) for alias in node.names}
    sole, *more = set(homes.values())
    if not more:
        if sole is None:
            return
        yield text.rename(node, module, sole)
        for alias in node.names:
            if our_name(module, alias.name) != alias.name:
                yield Edit(*text.span(alias), _import_of(our_name(module, alias.name), alias))
        return
    names: dict[str, list[str]] = {}
    for alias in node.names:
        home = homes[alias.name]
        ours = our_name(module, alias.name) if home else alias.name
        names.setdefault(home or module, []).append(_import_of(ours, alias))
    # What stays where it is comes last.
    order = sorted(names, key=lambda home: (home == module, home))
    statements = [f"from {home} import {', '.join(names[home])}" for home in order]
    start, end = text.span(node)
    yield Edit(start, end, text.separator(start, end).join(statements))


def _import_of(name: str, alias: ast.alias) -> str:
    """A name in an import, under the name that the program calls it by."""
    called = alias.asname or alias.name
    return name if name == called else f"{name} as {called}"


def _home_of_name(module: str, name: str) -> str | None:
    """Home of a name here: in our home of its module, in the module of the same path or above
    it, or in another one; None if it is nowhere.
    """
    home = None if why_no_name(name, module) else home_of(module)  # else it is something else
    if home is None or name == "*":
        return home
    library, dot, path = module.partition(".")
    homes = [home]
    while dot:
        homes.append(f"dagengine.{path}")
        path, dot, _ = path.rpartition(".")
    homes += [ours for theirs, ours in HOMES.items() if theirs.split(".")[0] == library]
    ours = our_name(module, name)
    return next((candidate for candidate in homes if _exists(candidate, ours)), None)


def _notes(node: ast.AST, deepeval: Version | None) -> Iterator[str]:
    """Notes on a node of a program, for a person to decide."""
    match node:
        case ast.Import():
            for alias in node.names:
                if why := why_no_module(alias.name):
                    yield f"{alias.name}: {why}"
        case ast.ImportFrom():
            yield from _import_notes(node)
        case ast.Attribute():
            yield from _attribute_notes(node)
        case ast.Constant(value=str(text)) if _PICTURE.search(text):
            yield f"a picture in a text: {why_no_name('MLLMImage')}"
        case ast.Assign():
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr in _FILLED:
                    change = f"case.model_copy(update={{{target.attr!r}: …}})"
                    yield f"{target.attr}: a case is a value; give it this, or {change}"
        case ast.Call():
            yield from _call_notes(node, deepeval)


def _import_notes(node: ast.ImportFrom) -> Iterator[str]:
    module = node.module or ""
    why = why_no_module(module)
    if node.level or (home_of(module) is None and not why):
        return
    if why:
        yield f"{module}: {why}"
        return
    for alias in node.names:
        if _home_of_name(module, alias.name) is None:
            yield f"{alias.name}: {_why_absent(module, alias.name)}"


def _attribute_notes(node: ast.Attribute) -> Iterator[str]:
    if node.attr in _NOTED:
        yield f"{node.attr}: {why_no_name(node.attr)}"
    dotted = ast.unparse(node)
    module, _, name = dotted.rpartition(".")
    if module.partition(".")[0] != "deepeval" or why_no_module(module):
        return
    if why := why_no_module(dotted):
        yield f"{dotted}: {why}"
    elif module in HOMES and not _exists(HOMES[module], name):
        yield f"{name}: {_why_absent(module, name)}"


def _call_notes(node: ast.Call, deepeval: Version | None) -> Iterator[str]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    first, named = next(iter(node.args), None), dict[str, ast.expr]()
    for word in node.keywords:
        named[word.arg or ""] = word.value
    for argument in sorted(named.keys() & _OF_CALLS.get(name, _OF_METRICS)):
        yield f"{argument}: {ARGUMENTS[argument]}"
    of_ragas = name in RENAMED["ragas"] or name in ("FactualCorrectness", "evaluate")
    if "llm" in named and of_ragas:
        yield f"{name}: llm= is model= here, a name or an object with `generate`"
    if name in ("pull", "push"):  # a data set by its name in a service
        if "alias" in named or (isinstance(first, ast.Constant) and isinstance(first.value, str)):
            yield f"{name}: {why_no_name(name)}"
    elif name in ("load_evaluator", "load_evaluators"):
        yield from _evaluator_notes(first)
    else:
        yield from _metric_notes(name, first or named.get("threshold"), named, deepeval)


def _metric_notes(
    name: str, threshold: ast.expr | None, named: Mapping[str, ast.expr], deepeval: Version | None
) -> Iterator[str]:
    """Notes on a metric whose scores are others than deepeval's were, by its version."""
    match name:
        case "ArenaGEval":
            yield "ArenaGEval: a win needs more than half of the orders, else a tie"
        case "GEval" if "rubric" in named and _is_before(_OWN_RANGE, deepeval):
            when = f"in deepeval {_version_words(deepeval)}" if deepeval else "up to deepeval 3.3.6"
            yield (
                f"GEval: {when} the score was divided by 10; here it is the share of the rubric's "
                f"own range, as from 3.3.9 on{text_if(not deepeval, f' {_ASK}')}"
            )
        case _ if name in _REVERSED and threshold and _is_before(_ONE_IS_BEST, deepeval):
            yield f"{name}: {_threshold_note(threshold, deepeval)}"


def _is_before(first: Version, deepeval: Version | None) -> bool:
    """Return whether a program may be of an earlier version than `first`."""
    return deepeval is None or deepeval < first


def _threshold_note(threshold: ast.expr, deepeval: Version | None) -> str:
    """Advice on a threshold of a metric that counted faults up to deepeval 4.1.10."""
    value = threshold.value if isinstance(threshold, ast.Constant) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        turned = f"threshold={1 - value:g}"
    else:
        turned = f"threshold=1 - {ast.unparse(threshold)}"
    if deepeval is not None:
        return f"1 is best here, and 0 was in deepeval {_version_words(deepeval)}: write {turned}"
    return (
        f"which deepeval was this written for? Up to 4.1.10, where 0 was best: write {turned}. "
        f"From 4.2.0 on, where 1 is best as here: nothing to change {_ASK}"
    )


def _evaluator_notes(types: ast.expr | None) -> Iterator[str]:
    """Notes on what is done here in the place of the types that `load_evaluator` is given."""
    for kind in getattr(types, "elts", [types]):
        name = kind.value if isinstance(kind, ast.Constant) else None
        if isinstance(kind, ast.Attribute):
            name = {"AGENT_TRAJECTORY": "trajectory"}.get(kind.attr, kind.attr.lower())
        if isinstance(name, str) and name in EVALUATORS:
            yield f"{name}: {EVALUATORS[name]}"


def _why_absent(module: str, name: str) -> str:
    """Advice where nothing here has a name."""
    if why := why_no_name(name, module):
        return why
    if name.endswith("Metric"):
        return "there is no such metric: ask it with GEval or a tree"
    if module not in HOMES:
        return f"it is internal to {module}: nothing here needs it"
    return "nothing here has this name; docs/coming-from says what is here"


def _exists(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


def _version(text: str) -> Version:
    """The numbers of a version; raises BadParameter for a text that is none."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    if numbers is None:
        raise typer.BadParameter(f"{text!r} is no version, such as 4.1.10")
    return (*map(int, numbers[0].split(".")), 0, 0)[:3]


def _version_words(version: Version) -> str:
    return ".".join(map(str, version))


def migrate(
    files: Annotated[
        list[Path],
        Argument(metavar="FILE...", help="Python files, and trees of deepeval (.json)."),
        Reads(),
    ],
    write: Annotated[
        bool, Option("--write", help="Change the files; without it, only show the changes.")
    ] = False,
    deepeval: Annotated[
        str | None,
        Option(
            metavar="VERSION",
            help="The deepeval that the files were written for. By default the installed one.",
        ),
    ] = None,
) -> None:
    """Change imports of code written for deepeval, LangChain's evaluators or ragas.

    Rewrites imports and the package name. Lists the lines that you must change yourself, such as
    missing names, which stay as they are, and thresholds with the opposite direction. A tree that
    deepeval wrote becomes a tree file of dagengine. Changes no file without --write. Exits with 3
    if something is left for you to decide.
    """
    version: Version | None = None
    with suppress(importlib.metadata.PackageNotFoundError):
        version = _version(deepeval or importlib.metadata.version("deepeval"))
    sources = {path: _source(path) for path in files}
    programs = _migrate_files(sources, version)
    if any(program.undated for program in programs.values()) and sys.stdin.isatty():
        answer = typer.prompt("Which deepeval were they written for? (empty: unknown)", default="")
        version = _version(answer) if answer else None
        programs = _migrate_files(sources, version)
    report(files={str(path): program._asdict() for path, program in programs.items()})
    for path, program in programs.items():
        if write:
            require_writable(path)
            write_whole(path, program.source)
            changed = program.source != sources[path]
            say(f"{path}: {'written' if changed else 'nothing to change'}")
        else:
            old, new = sources[path].splitlines(), program.source.splitlines()
            for line in difflib.unified_diff(old, new, str(path), str(path), lineterm=""):
                say(line)
        for number, note in program.notes:
            say(f"{path}:{number}: {note}")
    if any(program.notes for program in programs.values()):
        raise typer.Exit(EXIT_NO_SCORE)


def _source(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:  # line ends stay as they are
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _migrate_files(sources: Mapping[Path, str], deepeval: Version | None) -> dict[Path, Migrated]:
    programs: dict[Path, Migrated] = {}
    for path, source in sources.items():
        if path.suffix == ".json":
            from dagengine.trees import document_of, metrics_of, text_of

            tree = document_of(*metrics_of(source, path.parent, str(path)))
            programs[path] = Migrated(text_of(tree), [])
            continue
        try:
            programs[path] = migrate_source(source, deepeval)
        except SyntaxError as error:
            raise InputError(
                f"{path}, line {error.lineno}: not valid Python: {error.msg}"
            ) from None
    return programs
