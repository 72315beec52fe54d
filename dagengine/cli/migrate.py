"""`dagengine migrate`: rewrite programs for deepeval, LangChain's evaluators or ragas."""

from __future__ import annotations

import ast
import difflib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from dagengine.cli.common.files import Reads, require_writable
from dagengine.cli.common.streams import say
from dagengine.errors import InputError

# Where names of a module, or of one below it, are found here; the longest that fits counts.
_HOMES = {
    "deepeval": "dagengine",
    "deepeval.dataset": "dagengine.dataset",
    "deepeval.errors": "dagengine.errors",
    "deepeval.evaluate": "dagengine",
    "deepeval.evaluate.types": "dagengine.results",
    "deepeval.metrics": "dagengine.metrics",
    "deepeval.metrics.conversational_dag": "dagengine.metrics.conversational_dag",
    "deepeval.metrics.dag": "dagengine.metrics.dag",
    "deepeval.metrics.g_eval": "dagengine.metrics.g_eval",
    "deepeval.models": "dagengine.models",
    "deepeval.scorer": "dagengine.scorer",
    "deepeval.synthesizer": "dagengine.synthesizer",
    "deepeval.test_case": "dagengine.test_case",
    "deepeval.test_run": "dagengine.results",
    "langchain.chains.constitutional_ai": "dagengine.metrics.criteria",
    "langchain.evaluation": "dagengine.metrics.criteria",
    "langchain_classic.chains.constitutional_ai": "dagengine.metrics.criteria",
    "langchain_classic.evaluation": "dagengine.metrics.criteria",
    "ragas": "dagengine",
    "ragas.metrics": "dagengine.metrics",
}
# What has another name here; a program continues calling it as it did.
_DEEPEVAL = {
    "DeepEvalError": "DagengineError",
    "MetricData": "MetricResult",
    "TestResult": "CaseResult",
}
_RAGAS = {
    "AgentGoalAccuracyWithReference": "TaskCompletionMetric",
    "AgentGoalAccuracyWithoutReference": "TaskCompletionMetric",
    "AnswerRelevancy": "AnswerRelevancyMetric",
    "AspectCritic": "CriteriaMetric",
    "BleuScore": "BleuMetric",
    "ContextPrecision": "ContextualPrecisionMetric",
    "ContextRecall": "ContextualRecallMetric",
    "ExactMatch": "ExactMatchMetric",
    "Faithfulness": "FaithfulnessMetric",
    "LLMContextPrecisionWithReference": "ContextualPrecisionMetric",
    "LLMContextRecall": "ContextualRecallMetric",
    "NonLLMStringSimilarity": "EditSimilarityMetric",
    "ResponseRelevancy": "AnswerRelevancyMetric",
    "RougeScore": "RougeMetric",
    "SummarizationScore": "SummarizationMetric",
    "ToolCallAccuracy": "ToolCorrectnessMetric",
}
_RENAMED = {"deepeval": _DEEPEVAL, "ragas": _RAGAS}
# What has no counterpart at all: such imports are left as they are.
_ABSENT = {
    "deepeval.benchmarks": "there are no benchmarks of models",
    "deepeval.guardrails": "there are no guardrails",
    "deepeval.integrations": "there is no tracing of agents: give the outputs as cases",
    "deepeval.openai": "there is no tracing of agents: give the outputs as cases",
    "deepeval.prompt": "there are no prompts of a service: texts are hyperparameters",
    "deepeval.red_teaming": "there are no attacks",
    "deepeval.simulator": "no conversations are simulated: give their turns",
    "deepeval.tracing": "there is no tracing of agents: give the outputs as cases",
    "deepeval.voice": "texts are judged, no voices",
}
_REVERSED = frozenset({"BiasMetric", "HallucinationMetric", "ToxicityMetric"})
_DECIDE = {
    "dag_from_json": "a tree is Python: write its nodes",
    "FiltrationConfig": "drafts are filtered question by question; synthesize --help",
    "evals_iterator": "give the application: dataset.evaluate(metrics, app=…)",
    "log_hyperparameters": "give them to the run: evaluate(…, hyperparameters={…})",
    "metric_collection": "metrics are objects here: metrics=[…]",
    "MLLMImage": "texts are judged, no images",
    "confident_evaluate": "there is no service: use evaluate",
    "login": "there is no account: what a run writes stays on your machine",
    "sentence_bleu_score": "bleu_score is BLEU as sacrebleu has it, not bleu1",
    "pull": "a data set stays on your machine: use a loader",
    "push": "a data set stays on your machine: use save_as",
    "observe": "there is no tracing of agents: give the outputs as cases",
}


_NOTED = frozenset({"evals_iterator", "log_hyperparameters", "sentence_bleu_score"})
# Fields of cases that programs fill in later.
_FILLED = frozenset({"actual_output", "retrieval_context", "tools_called", "turns"})


class Edit(NamedTuple):
    """What is on a line from one column to another, and what it becomes."""

    line: int
    start: int
    end: int
    text: str


class Migrated(NamedTuple):
    """A program with our names, and what a person has to decide, by line."""

    source: str
    notes: list[tuple[int, str]]


def migrated(source: str) -> Migrated:
    """Rewrite imports and the package's name; raises SyntaxError for text that is not Python."""
    lines = source.splitlines(keepends=True)
    edits: list[Edit] = []
    notes: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        edits += _edits(node, lines)
        notes += _notes(node)
    for edit in sorted(edits, reverse=True):
        line = lines[edit.line - 1]
        lines[edit.line - 1] = line[: edit.start] + edit.text + line[edit.end :]
    return Migrated("".join(lines), sorted(notes))


def _home(module: str) -> str | None:
    """Where what a module has is found here; None for modules of others, and without any."""
    if _absent(module):
        return None
    fitting = [known for known in _HOMES if f"{module}.".startswith(f"{known}.")]
    return _HOMES[max(fitting, key=len)] if fitting else None


def _home_of(node: ast.ImportFrom) -> str | None:
    """Where the names of an import are: in our home of them, or in the module of the same path."""
    home = _home(node.module or "")
    if home is None or node.module is None:
        return None
    same = f"dagengine.{node.module.partition('.')[2]}"
    names = [_ours(node.module, one.name) for one in node.names]
    return next((m for m in (home, same) if all(_exists(m, name) for name in names)), home)


def _absent(module: str) -> str | None:
    """Why nothing of a module is here; None for the others."""
    return next((why for one, why in _ABSENT.items() if f"{module}.".startswith(f"{one}.")), None)


def _edits(node: ast.AST, lines: list[str]) -> Iterator[Edit]:
    if isinstance(node, ast.ImportFrom) and (home := _home_of(node)):
        assert node.module is not None
        yield _named(lines, node.lineno, node.col_offset, node.module, home)
        for one in node.names:
            ours = _ours(node.module or "", one.name)
            if ours != one.name:
                name = ours + ("" if one.asname else f" as {one.name}")
                yield _named(lines, one.lineno, one.col_offset, one.name, name)
    elif isinstance(node, ast.Import):
        for one in node.names:
            home = _home(one.name)
            if home is not None:
                yield _named(lines, one.lineno, one.col_offset, one.name, home)
    elif isinstance(node, ast.Name) and node.id == "deepeval":
        yield _named(lines, node.lineno, node.col_offset, "deepeval", "dagengine")


def _ours(module: str, name: str) -> str:
    return _RENAMED.get(module.partition(".")[0], {}).get(name, name)


def _named(lines: list[str], number: int, column: int, name: str, ours: str) -> Edit:
    """The name at or after a place; columns of the parser count bytes."""
    line = lines[number - 1]
    start = len(line.encode()[:column].decode())
    found = re.compile(rf"\b{re.escape(name)}\b").search(line, start)
    if found is None:  # the statement continues over several lines
        raise InputError(f"line {number} is written in a way that cannot be rewritten: {name}")
    return Edit(number, found.start(), found.end(), ours)


def _notes(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.ImportFrom) and (why := _absent(node.module or "")):
        yield node.lineno, f"{node.module}: {why}"
    elif isinstance(node, ast.Attribute) and node.attr in _NOTED:
        yield node.lineno, f"{node.attr}: {_DECIDE[node.attr]}"
    elif isinstance(node, ast.ImportFrom) and (home := _home_of(node)):
        for one in node.names:
            if one.name != "*" and not _exists(home, _ours(node.module or "", one.name)):
                yield node.lineno, f"{one.name}: {_why_absent(one.name)}"
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr in _FILLED:
                change = f"case.model_copy(update={{{target.attr!r}: …}})"
                yield node.lineno, f"{target.attr}: a case is a value; give it this, or {change}"
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        given = {keyword.arg for keyword in node.keywords}
        if name in _REVERSED and (node.args or "threshold" in given):
            yield node.lineno, f"{name}: 1 is best here; write 1 - threshold"
        elif "llm" in given and (name in _RAGAS or name in ("FactualCorrectness", "evaluate")):
            yield node.lineno, f"{name}: llm= is model= here, a name or an object with `generate`"
        elif "metric_collection" in given:
            yield node.lineno, f"metric_collection: {_DECIDE['metric_collection']}"
        elif name in ("pull", "push") and ("alias" in given or _is_text(node.args)):
            yield node.lineno, f"{name}: {_DECIDE[name]}"
        elif name == "GEval" and "rubric" in given:
            yield node.lineno, "GEval: its score is the share of the rubric's own range"
        elif name == "ArenaGEval":
            yield node.lineno, "ArenaGEval: a win needs more than half of the orders, else a tie"


def _why_absent(name: str) -> str:
    """What to do where nothing here has a name."""
    if name in _DECIDE:
        return _DECIDE[name]
    if name.endswith("Metric"):
        return "there is no such metric: ask it with GEval or a tree"
    return "nothing here has this name"


def _is_text(arguments: list[ast.expr]) -> bool:
    first = arguments[0] if arguments else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str)


def _exists(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(module)
    except ImportError:
        return False
    return hasattr(found, name)


def migrate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Python files."), Reads()],
    write: Annotated[
        bool, typer.Option("--write", help="Change the files; without it, only show the changes.")
    ] = False,
) -> None:
    """Rewrite the imports of programs for deepeval, LangChain's evaluators or ragas.

    Rewrites imports and the package name. Lists the lines that you must change yourself, such as
    missing names and thresholds with the opposite direction. Changes no file without --write.
    """
    for path in files:
        before = _text(path)
        try:
            found = migrated(before)
        except SyntaxError as error:
            raise InputError(
                f"{path}, line {error.lineno}: not valid Python: {error.msg}"
            ) from None
        if write:
            require_writable(path)
            path.write_text(found.source, encoding="utf-8")
            say(f"{path}: written" if found.source != before else f"{path}: nothing to change")
        else:
            changes = difflib.unified_diff(
                before.splitlines(), found.source.splitlines(), str(path), str(path), lineterm=""
            )
            for line in changes:
                say(line)
        for number, note in found.notes:
            say(f"{path}:{number}: {note}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
