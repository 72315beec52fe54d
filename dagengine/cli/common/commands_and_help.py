"""How a function becomes a command, and what commands say of themselves and of wrong options."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, CommandFunctionType

from dagengine.cli.common.files import Reads, Writes, guard, say_replaced
from dagengine.cli.common.judge_access import go_on
from dagengine.cli.common.options import ALLOWED, StoreOptions
from dagengine.cli.common.output import EXIT_INTERRUPTED, FORMATS, reporting, say
from dagengine.errors import did_you_mean, nearest
from dagengine.system.safe_files import noting_writes
from dagengine.system.terminal_text import plain

EXIT_USAGE = 2
# Base class of Typer's errors of options and values, which it does not export. Their fields differ.
_UsageError: Any = typer.BadParameter.__mro__[1]

# Groups of the help: title -> names, in the order of the help. Others come last, as "Other …".
_COMMANDS = {
    "Judge cases": "run watch plan merge test",
    "Look at results": "show view diff sql send",
    "Write metrics and data": "help guide schema check render synthesize migrate",
    "Know and set the judge": "judge benchmark attack labels improve fit store",
}
_OPTIONS = {
    "Cases": "data mapped delimiter unit app app_in_flight verdicts scale",
    "Judge": "judge base_url rewriter quotes unsupported max_tokens batch batch_files store replay "
    "probabilities allow_code allow_model",
    "Repetitions": "times proposals orders temperatures seeds paraphrases swap second_answers",
    "Attack": "families attacks fields position repeats defend line",
    "Sampling": "sample seed",
    "Limits": "max_calls budget price max_in_flight requests_per_minute tokens_per_minute "
    "call_timeout case_timeout",
    "Labels and groups": "labels labels_random groups sealed node segments",
    "Output": "out results case texts page redact junit trace target to form",
    "Exit code": "fail_if assert_pass check compare",
    "Several machines": "processes cluster workers shard",
}
_HELP_ALL = "--help-all"
_MANY = 16  # Up to so many options or commands are shown in one list, without groups.
# Of more options the help without `--help-all` shows only these.
_FIRST_DAY = (
    "data mapped app judge base_url store out budget price help fail_if assert_pass max_calls "
    "times labels verdicts check compare families defend plan plan_only count listen sample to "
    "small large"
)
_Row = tuple[str, str]  # what is typed, and what it is for
_COLUMN = 26  # where the texts of options begin, at most

_EXAMPLES = {
    "run": (
        "dagengine run metrics.py --data cases.jsonl --judge gpt-4o --store answers.db",
        "dagengine run metrics.py --data cases.csv --map question=input --judge llama3.1 "
        "--base-url http://localhost:11434/v1",
        "dagengine run metrics.py --data cases.jsonl --fail-if 'pass-rate<0.9' --junit out.xml",
    ),
    "watch": (
        "dagengine watch metrics.py traces/ --judge gpt-4o --sample errors=1 --sample 0.1 "
        "--out live",
        "dagengine watch metrics.py --listen 4318 --budget-per-day 5 --to phoenix",
    ),
    "merge": ("dagengine merge out/1 out/2 --out out/all",),
    "plan": ("dagengine plan metrics.py --data cases.jsonl --judge gpt-4o-mini",),
    "migrate": ("dagengine migrate tests/test_answers.py", "dagengine migrate --write tests/*.py"),
    "benchmark": (
        "dagengine benchmark metrics.py --data cases.jsonl --times 20 --store answers.db",
        "dagengine benchmark metrics.py --data cases.jsonl --labels additional_metadata.label",
    ),
    "improve": (
        "dagengine improve metrics.py --data cases.jsonl --labels labels.csv --plan",
        "dagengine improve metrics.py --data cases.jsonl --labels out/labels.jsonl --judge gpt-4o "
        "--budget 2",
    ),
    "attack": (
        "dagengine attack metrics.py --data cases.jsonl --judge gpt-4o-mini --plan",
        "dagengine attack metrics.py --data cases.jsonl --store answers.db --defend quotes,gate "
        "--fail-if 'falls>0'",
    ),
    "diff": (
        "dagengine diff out/old out/new",
        "dagengine diff out/old out/new --fail-if 'worse>0'",
    ),
    "send": ("dagengine send out --to phoenix=http://localhost:6006",),
    "help": ("dagengine help metrics", "dagengine help provider_error verdict-missing"),
    "show": (
        "dagengine show out --failed",
        "dagengine show out --case 7",
        "dagengine show out --failed --as-cases failed.jsonl",
    ),
    "sql": ('dagengine sql "select path, avg(score) from runs group by 1" out/*',),
    "synthesize": ("dagengine synthesize docs/ --judge gpt-4o --out goldens.jsonl",),
    "view": ("dagengine view out", "dagengine view out/old out/new"),
    "render": (
        "dagengine render metrics.py --out tree.svg",
        "dagengine render metrics.py --results out/results.jsonl --case 7 --out case-7.svg",
    ),
    "check": (
        "dagengine check metrics.py",
        "dagengine check metrics.py --data cases.jsonl --strict",
    ),
    "guide": ("dagengine guide",),
    "schema": ("dagengine schema rows",),
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

_EMBEDDINGS = "no judge uses embeddings; `synthesize --embedder` takes what makes them"
# Command here -> names that other tools, and people, have for it.
_COMMAND_NAMES = {
    "run": "evaluate eval evaluation score judge-all start execute resume continue",
    "run METRICS.py --data FILE --map otel": "import ingest traces trace spans",
    "check": "validate lint verify",
    "render": "draw graph plot picture diagram visualize visualise tree",
    "diff": "compare regression",
    "view": "serve ui web open report inspect dashboard label annotate",
    "plan": "estimate cost price dry-run",
    "synthesize": "generate goldens",
    "help metrics": "recommend init new",
    "help CODE": "explain why code codes troubleshoot",
    "test": "pytest tests",
    "judge": "login model models",
    "store": "cache",
    "benchmark": "bench calibrate determinism repeat repeats flips stability reliability",
    "fit escalation": "cascade route router escalate",
    "improve": "optimize optimise align tune",
    "attack": "redteam red-team injection inject",
    "show": "list ls results stats summary summarize",
    "show RUN --format csv": "export csv dump",
    "show RUN --failed": "failures failed",
    "benchmark --verdicts RUN --labels LABELS": "agreement kappa agree",
    "watch": "monitor tail stream",
    "sql SELECT RUN": "query index",  # it makes the columns of a run that has none
    "migrate": "convert port",
    "merge": "join combine concat",
}
# Option here -> names that others have for it; used for commands that have the option.
_OPTION_NAMES = {
    "--out": "output output-dir output-path output-folder o",
    "--data": "dataset cases test-cases input inputs file traces spans",
    "--judge": "model llm evaluator m",
    "--base-url": "api-base url endpoint",
    "--map": "format columns column-map",
    "--store": "cache cache-dir resume continue checkpoint",
    "--budget": "max-cost cost-limit max-budget",
    "--max-in-flight": "concurrency max-concurrency max-concurrent max-connections parallel jobs j",
    "--call-timeout": "timeout",
    "--times": "repeat repeats repetitions runs epochs n",
    "--fail-if": "threshold fail-under min-score fail-if-worse fail-on "
    "fail-on-regression fail-on-worse fail-on-failure exit-code max-drop tolerance",
    "--price": "input-price output-price price-in price-out prices",
    "--results": "run rows record data",
    "--worst": "limit top head n",
    "--shard": "subset part sample",
    "--count": "num number size n",
    "--quotas": "kind kinds evolution evolution-type",
    "--plan": "dry-run",
    "--format": "json output-format",
}
# Call that does what an option would do -> the command that lacks this option, and its names.
_CALLS_INSTEAD = {
    "dagengine benchmark METRICS.py --data FILE --times 5": (
        "run", "repeat repeats repetitions runs trials epochs",
    ),
    "dagengine render METRICS.py": ("render", "questions"),  # which are there by default
    "head -n 20 CASES.jsonl | dagengine run METRICS.py --data /dev/stdin": (
        "run", "limit first head max-cases num-cases n",
    ),
}  # fmt: skip


class Commands(typer.Typer):
    """A group of commands; the files of each are checked before it starts."""

    def __init__(self, name: str | None = None, help: str = "", **settings: Any) -> None:
        settings |= {"cls": _Group, "rich_markup_mode": "markdown", "no_args_is_help": True}
        super().__init__(name=name, help=help, **settings)
        if name is not None:  # without a callback Typer makes a group of one command this command
            self.callback()(lambda: None)

    def command(self, *names: Any, **settings: Any) -> Callable[[Any], Any]:
        """As Typer's; a function of one dataclass gets an option for each of its fields."""

        def decorate(function: CommandFunctionType) -> CommandFunctionType:
            name = next(iter(names), function.__name__.replace("_", "-"))
            full = f"{self.info.name} {name}".removeprefix("dagengine ")
            examples = "\n".join(_EXAMPLES.get(full, ()))
            added = {"epilog": examples, "cls": _Command, **settings}
            super(Commands, self).command(*names, **added)(_call_with_checks(function, full))
            return function

        return decorate


def _call_with_checks(function: Callable[..., None], name: str) -> Callable[..., None]:
    """The function that Typer calls: it checks files, calls that of the command, and reports.

    If `function` takes one dataclass, its parameters are the fields of this class.
    """
    options = _options_class(function)
    hints = get_type_hints(options or function, include_extras=True)
    keeps_answers = options is not None and issubclass(options, StoreOptions)
    labels, marks = _labels_and_marks(hints)
    targets = [parameter for parameter, mark in marks.items() if mark == Reads(metrics=True)]
    formats = {} if {"format", "form"} & hints.keys() else FORMATS  # some have their own

    @functools.wraps(function)
    def call(**values: Any) -> None:
        typed_formats = [values.pop(option) for option in formats]
        with noting_writes() as written, reporting(name, written, typed_formats):
            try:
                if targets:
                    _read_targets(targets, values)
                guard(marks, labels, values)
                if options is None:
                    function(**values)
                else:
                    function(options(**values))
            except (KeyboardInterrupt, typer.Abort) as error:
                # A question to the user ends with an Abort at Ctrl-C, but also without an input.
                if KeyboardInterrupt not in (type(error), type(error.__context__)):
                    raise
                # While it asks judges, a command itself says how to go on, and ends with an Exit.
                store = values["store"] if keeps_answers else None
                next_step = f"; {go_on(store)}" if store and store.exists() else ""
                say(f"interrupted{next_step}", err=True)
                raise typer.Exit(EXIT_INTERRUPTED) from None
            finally:
                say_replaced(written, marks, values)

    signature = inspect.signature(options or function).parameters.values()
    parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in signature]
    for extra, (hint, default) in ((ALLOWED if targets else {}) | formats).items():
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(extra, keyword, default=default, annotation=hint))
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _options_class(function: Callable[..., object]) -> type[Any] | None:
    """The dataclass of the options of a command; None for a function with a parameter for each."""
    kind = next(iter(get_type_hints(function).values()))
    return kind if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None


@functools.cache
def _field_texts(module: str) -> dict[str, dict[str, str]]:
    """The docstrings of the fields of a module's classes (texts below them), by class and field."""
    texts: dict[str, dict[str, str]] = {}
    for kind in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(kind, ast.ClassDef):
            own = texts[kind.name] = dict[str, str]()
            for field, text in itertools.pairwise(kind.body):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                        own[name] = " ".join(words.split())
    return texts


def _read_targets(parameters: Sequence[str], values: dict[str, Any]) -> None:
    """Make the values of these parameters targets, which know what their tree files may do."""
    from dagengine.loading import Target

    allowed = {option: values.pop(option) for option in ALLOWED}
    for parameter in parameters:
        values[parameter] = values[parameter] and Target(values[parameter], **allowed)


def _labels_and_marks(hints: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Reads | Writes]]:
    """The name of each parameter in messages, and whether its file is read or written."""
    labels, marks = dict[str, str](), dict[str, Reads | Writes]()
    for parameter, hint in hints.items():
        labels[parameter] = f"--{parameter.replace('_', '-')}"
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, Reads | Writes):
                marks[parameter] = mark
            elif isinstance(mark, ArgumentInfo):  # users see a placeholder instead of its name
                labels[parameter] = mark.metavar or labels[parameter]
    return labels, marks


def _hint(command: str, word: str, options: Mapping[str, Any]) -> str:
    """Advice in the place of an option that a command does not have; empty if unknown."""
    for call, (lacking_command, words) in _CALLS_INSTEAD.items():
        if command == lacking_command and word in words.split():
            return f": write `{call}`"
    for name, words in _OPTION_NAMES.items():
        if name in options and word in words.split():
            form = " ".join(filter(None, [name, options[name].metavar]))
            return f": write {form}. {options[name].help}"
    # Without the dashes, which make any two options alike.
    long = [name.removeprefix("--") for name in options if name.startswith("--")]
    near = nearest(word, long)
    return f"; did you mean '--{near}'?" if near else ""


class _Command(TyperCommand):
    """A command whose options are listed in groups, each with the docstring of its field."""

    def read_texts(self) -> None:
        """Set the help of options to the docstrings of their fields.

        This reads source files, so it is done only when a text is shown.
        """
        callback: Any = self.callback
        options = _options_class(inspect.unwrap(callback))
        params: list[Any] = self.params
        with suppress(OSError):  # an installation without sources has no texts
            for kind in inspect.getmro(options)[:-1] if options else ():
                texts = _field_texts(kind.__module__).get(kind.__name__, {})
                for param in params:
                    param.help = param.help or texts.get(param.name)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self.read_texts()
        return super().shell_complete(ctx, incomplete)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        # Without the braces around what is required
        pieces = super().collect_usage_pieces(ctx)
        return [piece.strip("{}").replace("...}...", "...") for piece in pieces]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.read_texts()
        write_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer's; the error of a wrong option, or of data without one, says what to write."""
        if _HELP_ALL in args:
            ctx.meta[_HELP_ALL] = True
            args = ["--help"]
        words = list(args)  # the parser empties its list
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            self.read_texts()  # a hint shows the text of its option
            options = {name: param for param in self.get_params(ctx) for name in param.opts}
            if hasattr(error, "possibilities"):  # there is no such option
                hint = _hint(ctx.info_name, error.option_name.lstrip("-").lower(), options)
                error.message = f"there is no option {error.option_name!r:.80}{hint}"
                error.possibilities = None
            # The error of a missing value has its `param_type`; of a word too many it is the base
            # class. That word, which no argument takes, is most often the file for --data.
            elif hasattr(error, "param_type") or type(error) is _UsageError:
                values, rest, _ = self.make_parser(ctx).parse_args(args=words)
                if rest and "--data" in options and values.get("data") is None:
                    begin = f"{error.message}: write" if error.message else "Write"
                    error.message = f"{begin} --data {rest[0]}"
            raise


class _Group(TyperGroup):
    """A group of commands: its help, what is said of a wrong command, and plain errors."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer's, which shows the help of its own kind if nothing is typed."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(self.get_help(ctx))
            ctx.exit(EXIT_USAGE)
        # The help of a group shows every command, so both helps are the same.
        return super().parse_args(ctx, ["--help"] if args[:1] == [_HELP_ALL] else args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As Typer's; the error of a wrong command says which one is meant."""
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            word, names = args[0], list(filter(None, self.list_commands(ctx)))
            listed = [name for name in names if not self.commands[name].hidden]
            # A word in the place of the only command of a group is most often its argument.
            instead = f"{listed[0]} {word}" if len(listed) == 1 else ""
            for call, words in _COMMAND_NAMES.items():
                if word.lower() in words.split() and call.partition(" ")[0] in names:
                    instead = call
                    break
            if instead:
                hint = f": write `{ctx.command_path} {instead}`"
            elif "embedding" in word.lower():
                hint = f"; {_EMBEDDINGS}"
            else:
                hint = f"; {did_you_mean(word, names) or 'there are ' + ', '.join(listed)}"
            error.message = f"there is no command {word!r:.80}{hint}"
            raise

    def make_context(self, *args: Any, **settings: Any) -> Any:
        with _plain_errors():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _plain_errors():
            return super().invoke(ctx)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Make the message of a usage error plain: it repeats what the caller typed."""
    try:
        yield
    except _UsageError as error:
        message = plain(error.format_message())
        error.format_message = lambda: message
        raise


def write_help(command: Any, context: Any, formatter: Any) -> None:
    """Write the help of a command, or of a group of commands: 80 columns at most."""
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
    _write_examples(formatter, command.epilog or "")


def _write_parameters(command: Any, context: Any, formatter: Any) -> None:
    """Write the arguments and the options: of many, only `_FIRST_DAY` without `--help-all`."""
    arguments, options = list[_Row](), dict[str, _Row]()
    for part in command.get_params(context):
        label, text = part.get_help_record(context) or ("", "")
        if label and part.param_type_name == "argument":
            arguments.append((label.partition(" <")[0], text))  # without its type
        elif label:  # else it is hidden
            options[str(part.name)] = (label.replace(" range>", ">"), text)
    _write_rows(formatter, "Arguments", arguments)
    total, shown = len(options), options
    if total > _MANY and _HELP_ALL not in context.meta:
        shown = {name: options[name] for name in options if name in _FIRST_DAY.split()}
    _write_groups(formatter, _OPTIONS, shown, "options", total)
    if more := total - len(shown):
        formatter.write(f"\n{more} more options: {context.command_path} {_HELP_ALL}\n")


def _write_examples(formatter: Any, examples: str) -> None:
    """Write calls that can be pasted: folded lines go on after a backslash."""
    if examples:
        formatter.write("\nExamples:\n")
    for line in examples.splitlines():
        words = re.sub(r"(--[\w-]+) (?!-)", "\\1\0", line)  # an option stays with its value
        parts = textwrap.wrap(
            words, formatter.width - 8, break_long_words=False, break_on_hyphens=False
        )
        formatter.write("  " + " \\\n      ".join(parts).replace("\0", " ") + "\n")


def _write_groups(
    formatter: Any, groups: Mapping[str, str], rows: Mapping[str, _Row], kind: str, total: int
) -> None:
    """Write rows under the titles of their groups, then all others.

    They are one list if `total`, which also counts rows that are not shown, is at most `_MANY`.
    """
    rest = dict(rows)
    for title, names in groups.items() if total > _MANY else ():
        _write_rows(formatter, title, [rest.pop(name) for name in names.split() if name in rest])
    title = f"Other {kind}" if len(rest) < len(rows) else kind.capitalize()
    _write_rows(formatter, title, list(rest.values()))


def _write_rows(formatter: Any, title: str, rows: list[_Row]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows, col_max=_COLUMN)
