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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, CommandFunctionType

from dagengine.cli.common.files import Reads, Writes, guard, say_replaced
from dagengine.cli.common.judging import go_on
from dagengine.cli.common.options import ALLOWED, StoreOptions
from dagengine.cli.common.output import EXIT_INTERRUPTED, FORMATS, reporting, say
from dagengine.errors import did_you_mean, nearest
from dagengine.system.regular_files import noting_writes
from dagengine.system.terminal import plain

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
    "migrate": (
        "dagengine migrate tests/test_answers.py",
        "dagengine migrate --write tests/*.py",
    ),
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
    "help": (
        "dagengine help metrics",
        "dagengine help provider_error verdict-missing",
    ),
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

# What other tools, and people, call commands.
_EMBEDDINGS = "no judge uses embeddings; `synthesize --embedder` takes what makes them"
_MEANT = {
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
# What other tools call options, where a command has the one that is meant.
_MEANT_OPTIONS = {
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
EXIT_USAGE = 2
# What is done by another command, where an option is typed that a command does not have.
_MEANT_CALLS = {
    "dagengine benchmark METRICS.py --data FILE --times 5": (
        "run", "repeat repeats repetitions runs trials epochs",
    ),
    "dagengine render METRICS.py": ("render", "questions"),  # which are there by default
    "head -n 20 CASES.jsonl | dagengine run METRICS.py --data /dev/stdin": (
        "run", "limit first head max-cases num-cases n",
    ),
}  # fmt: skip
# What Typer says of wrong options and values; it exports only one kind of it.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def _hint(command: str, word: str, options: Mapping[str, Any]) -> str:
    """Advice in the place of an option that a command does not have; empty if unknown."""
    for call, (own, words) in _MEANT_CALLS.items():
        if command == own and word in words.split():
            return f": write `{call}`"
    for name, words in _MEANT_OPTIONS.items():
        if name in options and word in words.split():
            form = " ".join(filter(None, [name, options[name].metavar]))
            return f": write {form}. {options[name].help}"
    # Without the dashes, which make any two options alike.
    long = [name.removeprefix("--") for name in options if name.startswith("--")]
    near = nearest(word, long)
    return f"; did you mean '--{near}'?" if near else ""


class _PlainCommand(TyperCommand):
    """A command whose options are listed in groups, each with the docstring of its field."""

    def read_texts(self) -> None:
        """Give options their texts: only who is shown them waits until the source is read."""
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
        """As Typer's; an option of another name, and data without one, are told what to write."""
        if ALL in args:
            ctx.meta[ALL] = True
            args = ["--help"]
        words = list(args)  # the parser empties its list
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            usage: Any = error
            self.read_texts()
            options: dict[str, Any] = {
                name: param for param in self.get_params(ctx) for name in param.opts
            }
            if hasattr(usage, "possibilities"):  # there is no such option
                hint = _hint(ctx.info_name, usage.option_name.lstrip("-").lower(), options)
                usage.message = f"there is no option {usage.option_name!r:.80}{hint}"
                usage.possibilities = None
            elif hasattr(usage, "param_type") or type(error) is _UsageError:  # missing, or extra
                # A word that no argument takes is most often the file that belongs to --data.
                values, rest, _ = self.make_parser(ctx).parse_args(args=words)
                if rest and "--data" in options and values.get("data") is None:
                    begin = f"{usage.message}: write" if usage.message else "Write"
                    usage.message = f"{begin} --data {rest[0]}"
            raise


class _PlainGroup(TyperGroup):
    """Commands whose wrong options and values are shown without hidden characters."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer's, which shows the help of its own kind if nothing is typed."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(self.get_help(ctx))
            ctx.exit(EXIT_USAGE)
        # Every command of a group is shown in any case.
        return super().parse_args(ctx, ["--help"] if args[:1] == [ALL] else args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As Typer's; a command of another name is told what it is called here."""
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            usage: Any = error
            word, names = args[0], list(filter(None, self.list_commands(ctx)))
            listed = [name for name in names if not self.commands[name].hidden]
            # Of a group with one command, what is typed is its argument.
            meant = f"{listed[0]} {word}" if len(listed) == 1 else ""
            for call, words in _MEANT.items():
                if word.lower() in words.split() and call.partition(" ")[0] in names:
                    meant = call
                    break
            near = _EMBEDDINGS if "embedding" in word.lower() else did_you_mean(word, names)
            near = near or f"there are {', '.join(listed)}"
            hint = f": write `{ctx.command_path} {meant}`" if meant else f"; {near}"
            usage.message = f"there is no command {word!r:.80}{hint}"
            raise

    def make_context(self, *given: Any, **settings: Any) -> Any:
        with _plain_errors():
            return super().make_context(*given, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _plain_errors():
            return super().invoke(ctx)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Make the message of a usage error plain: it repeats what the caller typed."""
    try:
        yield
    except _UsageError as error:
        usage: Any = error
        message = plain(usage.format_message())
        usage.format_message = lambda: message
        raise


class Commands(typer.Typer):
    """A group of commands; the files of each are checked before it starts."""

    def __init__(self, name: str | None = None, help: str = "", **settings: Any) -> None:
        markup: Any = "markdown"
        super().__init__(
            name=name, help=help, cls=_PlainGroup, rich_markup_mode=markup,
            no_args_is_help=True, **settings,
        )  # fmt: skip
        if name is not None:  # else a group of one command would be that command
            self.callback()(lambda: None)

    def command(self, *names: Any, **settings: Any) -> Callable[[Any], Any]:
        """As Typer's; a function of one dataclass gets an option for each of its fields."""

        def decorate(function: CommandFunctionType) -> CommandFunctionType:
            name = next(iter(names), function.__name__.replace("_", "-"))
            full = f"{self.info.name} {name}".removeprefix("dagengine ")
            examples = "\n".join(_EXAMPLES.get(full, ()))
            added = {"epilog": examples, "cls": _PlainCommand, **settings}
            super(Commands, self).command(*names, **added)(_command(function, full))
            return function

        return decorate


def _command(function: Callable[..., None], name: str) -> Callable[..., None]:
    """The function that Typer calls: it checks files, then calls the command's."""
    # A function that takes one dataclass gets its options in it, and an option for each field.
    options = _options_class(function)
    hints = get_type_hints(options or function, include_extras=True)
    keeps_answers = options is not None and issubclass(options, StoreOptions)
    labels, marks = _labels_and_marks(hints)
    trees = [parameter for parameter, mark in marks.items() if mark == Reads(metrics=True)]
    shared = {} if {"format", "form"} & hints.keys() else FORMATS

    @functools.wraps(function)
    def call(**given: Any) -> None:
        wanted = list(map(given.pop, shared))
        with noting_writes() as written, reporting(name, written, wanted):
            try:
                given.update(_targets(trees, given))
                guard(marks, labels, given)
                if options is None:
                    function(**given)
                else:
                    function(options(**given))
            except (KeyboardInterrupt, typer.Abort) as error:
                # A question to the user ends with an Abort at Ctrl-C, and without an input.
                if not {type(error), type(error.__context__)} & {KeyboardInterrupt}:
                    raise
                # Before the first question, or after the last; else the command says more
                store = given["store"] if keeps_answers else None
                left = f"; {go_on(store)}" if store and store.exists() else ""
                say(f"interrupted{left}", err=True)
                raise typer.Exit(EXIT_INTERRUPTED) from None
            finally:
                say_replaced(written, marks, given)

    parameters = inspect.signature(options or function).parameters.values()
    typed = [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
    for extra, (hint, default) in ((ALLOWED if trees else {}) | shared).items():
        keyword = inspect.Parameter.KEYWORD_ONLY
        typed.append(inspect.Parameter(extra, keyword, default=default, annotation=hint))
    call.__signature__ = inspect.Signature(typed)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in typed}
    return call


def _options_class(function: Callable[..., object]) -> type[Any] | None:
    """The dataclass of the options of a command; None for a function with a parameter for each."""
    kind = next(iter(get_type_hints(function).values()))
    return kind if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None


@functools.cache
def _field_texts(module: str) -> dict[str, dict[str, str]]:
    """The docstrings of the fields of a module's classes, by class and by field."""
    texts: dict[str, dict[str, str]] = {}
    for kind in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(kind, ast.ClassDef):
            own = texts[kind.name] = dict[str, str]()
            for field, text in itertools.pairwise(kind.body):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                        own[name] = " ".join(words.split())
    return texts


def _targets(names: Sequence[str], given: dict[str, Any]) -> dict[str, Any]:
    """The metrics that the caller named, with what a tree file there may do."""
    if not names:
        return {}
    from dagengine.loading import Target

    allowed = {name: given.pop(name) for name in ALLOWED}
    return {name: given[name] and Target(given[name], **allowed) for name in names}


def _labels_and_marks(hints: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Reads | Writes]]:
    """Names of parameters in messages, and what is done to their files."""
    labels, marks = dict[str, str](), dict[str, Reads | Writes]()
    for parameter, hint in hints.items():
        labels[parameter] = f"--{parameter.replace('_', '-')}"
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, Reads | Writes):
                marks[parameter] = mark
            elif isinstance(mark, ArgumentInfo):  # which has no name, but a placeholder
                labels[parameter] = mark.metavar or labels[parameter]
    return labels, marks


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
    """Write the arguments and the options; of many those of the first day, without `ALL`."""
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


def _write_examples(formatter: Any, examples: str) -> None:
    """Write calls that can be pasted: folded lines go on after a backslash."""
    if examples:
        formatter.write("\nExamples:\n")
    for line in examples.splitlines():
        words = re.sub(r"(--[\w-]+) (?!-)", "\\1\0", line)  # an option with its value
        parts = textwrap.wrap(
            words, formatter.width - 8, break_long_words=False, break_on_hyphens=False
        )
        formatter.write("  " + " \\\n      ".join(parts).replace("\0", " ") + "\n")


def _write_groups(
    formatter: Any, groups: Mapping[str, Iterable[str]], rows: Mapping[str, _Row], kind: str,
    total: int,
) -> None:  # fmt: skip
    """Write rows by their groups, and the others under a title; few in `total` in one list."""
    groups, rest = groups if total > _MANY else {}, dict(rows)
    for title, names in groups.items():
        _write_rows(formatter, title, [rest.pop(name) for name in names if name in rest])
    title = f"Other {kind}" if len(rest) < len(rows) else kind.capitalize()
    _write_rows(formatter, title, list(rest.values()))


def _write_rows(formatter: Any, title: str, rows: list[_Row]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows, col_max=_COLUMN)
