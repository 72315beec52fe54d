"""What help shows: commands and options in groups, and how each command is mostly used."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

_COMMANDS = {
    "Judge cases": ("run", "watch", "plan", "merge", "test"),
    "Look at results": ("show", "view", "diff", "sql", "send"),
    "Write metrics and data": (
        "help", "guide", "schema", "check", "render", "synthesize", "migrate",
    ),
    "Know and set the judge": ("judge", "benchmark", "attack", "labels", "improve", "fit", "store"),
}  # fmt: skip
_OPTIONS = {
    "Cases": ("data", "mapped", "delimiter", "unit", "app", "app_in_flight", "verdicts", "scale"),
    "Judge": (
        "judge", "base_url", "rewriter", "quotes", "unsupported", "max_tokens", "batch",
        "batch_files", "store", "replay", "probabilities", "allow_code", "allow_model",
    ),
    "Repetitions": (
        "times", "proposals", "orders", "temperatures", "seeds", "paraphrases", "swap",
        "second_answers",
    ),
    "Attack": ("families", "attacks", "fields", "position", "repeats", "defend", "line"),
    "Sampling": ("sample", "seed"),
    "Limits": (
        "max_calls", "budget", "price", "max_in_flight", "requests_per_minute",
        "tokens_per_minute", "call_timeout", "case_timeout",
    ),
    "Labels and groups": ("labels", "labels_random", "groups", "sealed", "node", "segments"),
    "Output": (
        "out", "results", "case", "texts", "page", "redact", "junit", "trace", "target", "to",
        "form",
    ),
    "Exit code": ("fail_if", "assert_pass", "check", "compare"),
    "Several machines": ("processes", "cluster", "workers", "shard"),
}  # fmt: skip
ALL = "--help-all"
# A command with fewer options shows them all, in one list.
_MANY = 16
_FIRST_DAY = frozenset(
    (
        *("data", "mapped", "app", "judge", "base_url", "store", "out", "budget", "price", "help"),
        *("fail_if", "assert_pass", "max_calls", "times", "labels", "verdicts", "check", "compare"),
        *("families", "defend", "plan", "plan_only", "count", "listen", "sample", "to"),
        *("small", "large"),
    )
)
_Row = tuple[str, str]  # what is typed, and what it is for
_COLUMN = 26  # where the texts of options begin, at most

_EXAMPLES = {
    "dagengine run": (
        "dagengine run metrics.py --data cases.jsonl --judge gpt-4o --store answers.db",
        "dagengine run metrics.py --data cases.csv --map question=input --judge llama3.1 "
        "--base-url http://localhost:11434/v1",
        "dagengine run metrics.py --data cases.jsonl --fail-if 'pass-rate<0.9' --junit out.xml",
    ),
    "dagengine watch": (
        "dagengine watch metrics.py traces/ --judge gpt-4o --sample errors=1 --sample 0.1 "
        "--out live",
        "dagengine watch metrics.py --listen 4318 --budget-per-day 5 --to phoenix",
    ),
    "dagengine merge": ("dagengine merge out/1 out/2 --out out/all",),
    "dagengine plan": ("dagengine plan metrics.py --data cases.jsonl --judge gpt-4o-mini",),
    "dagengine migrate": (
        "dagengine migrate tests/test_answers.py",
        "dagengine migrate --write tests/*.py",
    ),
    "dagengine benchmark": (
        "dagengine benchmark metrics.py --data cases.jsonl --times 20 --store answers.db",
        "dagengine benchmark metrics.py --data cases.jsonl --labels additional_metadata.label",
    ),
    "dagengine improve": (
        "dagengine improve metrics.py --data cases.jsonl --labels labels.csv --plan",
        "dagengine improve metrics.py --data cases.jsonl --labels out/labels.jsonl --judge gpt-4o "
        "--budget 2",
    ),
    "dagengine attack": (
        "dagengine attack metrics.py --data cases.jsonl --judge gpt-4o-mini --plan",
        "dagengine attack metrics.py --data cases.jsonl --store answers.db --defend quotes,gate "
        "--fail-if 'falls>0'",
    ),
    "dagengine diff": (
        "dagengine diff out/old out/new",
        "dagengine diff out/old out/new --fail-if 'worse>0'",
    ),
    "dagengine send": ("dagengine send out --to phoenix=http://localhost:6006",),
    "dagengine help": (
        "dagengine help metrics",
        "dagengine help provider_error verdict-missing",
    ),
    "dagengine show": (
        "dagengine show out --failed",
        "dagengine show out --case 7",
        "dagengine show out --failed --as-cases failed.jsonl",
    ),
    "dagengine sql": ('dagengine sql "select path, avg(score) from runs group by 1" out/*',),
    "dagengine synthesize": ("dagengine synthesize docs/ --judge gpt-4o --out goldens.jsonl",),
    "dagengine view": ("dagengine view out", "dagengine view out/old out/new"),
    "dagengine render": (
        "dagengine render metrics.py --out tree.svg",
        "dagengine render metrics.py --results out/results.jsonl --case 7 --out case-7.svg",
    ),
    "dagengine check": (
        "dagengine check metrics.py",
        "dagengine check metrics.py --data cases.jsonl --strict",
    ),
    "dagengine guide": ("dagengine guide",),
    "dagengine schema": ("dagengine schema rows",),
    "store show": ("dagengine store show answers.db",),
    "store prune": ("dagengine store prune answers.db --older-than 30 --compact",),
    "store export": ("dagengine store export answers.db --out answers.jsonl",),
    "store merge": ("dagengine store merge answers.db other.db",),
    "labels plan": (
        "dagengine labels plan out",
        "dagengine labels plan out --need agreement=85 --count 40",
    ),
    "fit escalation": (
        "dagengine fit escalation --small mini.csv --large large.csv --labels labels.csv",
        "dagengine fit escalation metrics.py --small out/mini --large out/large "
        "--data cases.jsonl --labels labels.csv",
    ),
    "judge set": (
        "dagengine judge set gpt-4o",
        "dagengine judge set llama3.1 --base-url http://localhost:11434/v1",
    ),
    "judge check": (
        "dagengine judge check --judge llama3.1 --base-url http://localhost:11434/v1",
        "dagengine judge check --judge llama3.1 --base-url http://localhost:11434/v1 "
        "--data cases.jsonl --save",
    ),
    "judge show": ("dagengine judge show",),
    "judge unset": ("dagengine judge unset --user",),
    "test run": ("dagengine test run tests/test_answers.py -n 4",),
}


def examples_of(group: str, command: str) -> str | None:
    """The examples of a command of a group as Markdown; None for one that has none."""
    lines = _EXAMPLES.get(f"{group} {command}", ())
    return "\n\n".join(["Examples:", *map("`{}`".format, lines)]) if lines else None


def write_help(command: Any, context: Any, formatter: Any) -> None:
    """Write the help of a command, or of a group of commands: 80 columns at most.

    Of a command with many options it lists what people set on the first day, unless the context
    asks for `ALL`.
    """
    command.format_usage(context, formatter)
    with formatter.indentation():
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
            formatter.write_paragraph()
            formatter.write_text(" ".join(paragraph.split()))
    commands = {
        name: (name, " ".join((part.help or "").split("\n\n")[0].split()))
        for name, part in getattr(command, "commands", {}).items()
        if not part.hidden
    }
    _write_groups(formatter, _COMMANDS, commands, "commands", len(commands))
    _write_parameters(command, context, formatter)
    _write_examples(formatter, command.epilog)


def _write_parameters(command: Any, context: Any, formatter: Any) -> None:
    """Write the arguments and the options, or those of the first day."""
    arguments, options = list[_Row](), dict[str, _Row]()
    for part in command.get_params(context):
        label, text = part.get_help_record(context) or ("", "")
        if label and part.param_type_name == "argument":
            arguments.append((label.partition(" <")[0], text))
        elif label:  # else it is hidden
            options[str(part.name)] = (label.replace(" range>", ">"), text)
    _write_rows(formatter, "Arguments", arguments)
    total, shown = len(options), options
    if total > _MANY and ALL not in context.meta:
        shown = {name: options[name] for name in options if name in _FIRST_DAY}
    _write_groups(formatter, _OPTIONS, shown, "options", total)
    if more := total - len(shown):
        formatter.write(f"\n{more} more options: {context.command_path} {ALL}\n")


def plain_usage(pieces: Iterable[str]) -> list[str]:
    """The pieces of a usage line without the braces around what is required."""
    return [piece.strip("{}").replace("...}...", "...") for piece in pieces]


def _write_examples(formatter: Any, epilog: str | None) -> None:
    """Write calls that can be pasted: folded lines go on after a backslash."""
    title, *lines = (epilog or "").split("\n\n")
    if lines:
        formatter.write(f"\n{title}\n")
    for line in lines:
        words = re.sub(r"(--[\w-]+) (?!-)", "\\1\0", line.strip("`"))  # an option with its value
        parts = textwrap.wrap(
            words, formatter.width - 8, break_long_words=False, break_on_hyphens=False
        )
        formatter.write("  " + " \\\n      ".join(parts).replace("\0", " ") + "\n")


def _write_groups(
    formatter: Any, groups: Mapping[str, Iterable[str]], rows: Mapping[str, _Row], kind: str,
    total: int,
) -> None:  # fmt: skip
    """Write rows by their groups, and those of no group under a title of their own.

    Few in `total` are in one list.
    """
    groups, rest = groups if total > _MANY else {}, dict(rows)
    for title, names in groups.items():
        _write_rows(formatter, title, [rest.pop(name) for name in names if name in rest])
    title = f"Other {kind}" if len(rest) < len(rows) else kind.capitalize()
    _write_rows(formatter, title, list(rest.values()))


def _write_rows(formatter: Any, title: str, rows: list[_Row]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows, col_max=_COLUMN)
