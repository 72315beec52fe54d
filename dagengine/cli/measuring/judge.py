"""`dagengine judge`: check a judge; set, show and remove the default judge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer
from typer import Argument, Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.commands_and_help import Commands
from dagengine.cli.common.files import Reads
from dagengine.cli.common.output import EXIT_FAILED, EXIT_INPUT, report, say
from dagengine.system.terminal_text import counted, plain

if TYPE_CHECKING:
    from dagengine.checkup import Checkup
    from dagengine.question import Judge
    from dagengine.test_case import TestCase

app = Commands(
    "judge",
    "Check a judge, and set the default judge (the environment variable `DAGENGINE_JUDGE` "
    "overrides it).",
)
# The same under the names that published examples use.
doors = Commands()

_STYLES = {"ok": "green", "warning": "yellow", "fails": "red", "-": "dim"}
ForUser = Annotated[
    bool, Option("--user", help="For all projects of this user, not only for this folder.")
]


def _no_key(*names: str) -> Any:
    """A hidden option that takes no value: a key does not belong on the command line."""

    def refuse(value: str | None) -> None:
        if value is not None:
            raise typer.BadParameter(
                "do not pass a key on the command line: the shell history and the process list "
                "show it. Set an environment variable (export DAGENGINE_API_KEY=…) and leave this "
                "option out; a local server needs no key"
            )

    return Option(*names, hidden=True, callback=refuse)


@app.command("set")
def set_judge(
    model: Annotated[
        str,
        Argument(
            help="An OpenAI model, `provider/model`, or a model of the server at --base-url.",
            autocompletion=shared.judge_names,
        ),
    ],
    base_url: shared.BaseUrl = None,
    key_from: Annotated[
        str | None,
        Option(
            metavar="VARIABLE",
            help="The environment variable with the API key. Default: DAGENGINE_API_KEY with "
            "--base-url, else the variable of the provider.",
        ),
    ] = None,
    user: ForUser = False,
    api_key: Annotated[str | None, _no_key("--api-key")] = None,
) -> None:
    """Save the default judge in `.dagengine.env` in this folder, or in the settings of the user."""
    from dagengine.judges.default import DefaultJudge, write_settings

    path = _file(user)
    write_settings(path, DefaultJudge(model, base_url, key_from))
    report(model=model, file=path)
    say(f"{path}: {_describe(model, base_url)}")


@app.command()
def show() -> None:
    """Show the default judge, its server, its key variable, and where they are set."""
    from dagengine.judges.default import default_judge

    default = default_judge()
    report(judge=_describe(default.model, default.base_url), source=default.source,
           key_from=default.key_from, **asdict(default.tuning))  # fmt: skip
    say(f"{_describe(default.model, default.base_url)} ({default.source})")
    for name, value in asdict(default.tuning).items():
        if value is not None:
            say(f"{name.replace('_', ' ')}: {value}")
    if default.key_from is not None:
        state = "is set" if os.environ.get(default.key_from) else "is NOT set"
        say(f"its key is read from {default.key_from}, which {state}")


@dataclass(frozen=True, kw_only=True)
class CheckOptions(shared.ColumnOptions, shared.NamedJudge):
    """The options of `dagengine judge check`."""

    metrics: Annotated[str | None, shared.METRICS, Reads(metrics=True)] = None
    """Check the judge of these metrics, if --judge names none."""
    data: Annotated[Path | None, Reads()] = None
    """Test cases; the longest one is the text that the judge has to read."""
    seconds: Annotated[float | None, Option(min=1)] = None
    """Time for the questions; what does not fit into it is not measured. Default: 60, and up to 360
    where the server is slow.
    """
    save: Annotated[bool, Option("--save")] = False
    """Make it the default judge of this folder, with the settings that are recommended and the
    speed for `plan`. No key is saved.
    """
    user: ForUser = False

    def require_savable(self) -> None:
        """Raise BadParameter for a judge that a file of settings cannot name."""
        from dagengine.loading import is_code
        from dagengine.redaction import public_text

        if self.user and not self.save:
            raise typer.BadParameter("--user says where to save: it needs --save")
        if not self.save:
            return
        judge, base_url = self.judge, self.base_url
        if self.metrics is not None and judge is None and base_url is None:
            raise typer.BadParameter("--save needs a judge by name: use --judge")
        if judge is not None and (is_code(judge) or judge == "lexical"):
            raise typer.BadParameter(f"--save needs the name of a model; {judge} cannot be saved")
        if base_url is not None and public_text(base_url) != base_url:
            raise typer.BadParameter(
                "--save would write down the password or key in --base-url; put it into an "
                "environment variable and name it with `dagengine judge set --key-from`"
            )

    def subject(self) -> Judge:
        """The judge to check: the one that is named, else that of the metrics, else the default."""
        from dagengine.compiler.execution_plan import compile_metrics
        from dagengine.judges import as_judge
        from dagengine.loading import load_judge, load_metrics
        from dagengine.question import judge_name

        if self.metrics is None or self.judge or self.base_url:
            return load_judge(self.judge, self.base_url)
        plan = compile_metrics(load_metrics(self.metrics))
        asked = map(plan.models.__getitem__, plan.asked)
        judges = {judge.identity: judge for judge in map(as_judge, asked)}
        if len(judges) != 1:
            several = f"{len(judges)} judges ({', '.join(map(judge_name, judges))})"
            asked_words = several if judges else "no judge"
            raise typer.BadParameter(f"{self.metrics} asks {asked_words}: use --judge")
        return judges.popitem()[1]

    def longest_text(self) -> str:
        """The texts of the longest test case; empty without test cases."""
        from dagengine.checkup.probes import longest_text
        from dagengine.data.cases import valid_cases

        if self.data is None:
            return ""
        cases = self.cases_in(self.data)
        cases.check()
        return longest_text(cast("Iterable[TestCase]", valid_cases(cases)))


@app.command()
def check(options: CheckOptions) -> None:
    """Check whether a judge can be used, and how: about 40 short questions in one minute.

    Says whether the judge answers, which model and window it has, how quickly it reads and writes,
    whether it keeps to JSON schemas, what its probabilities are worth, whether it thinks, whether
    it reads a long text to its end, and how many of 20 easy questions it gets right. Then come the
    settings that follow. What it knows is kept: runs of this judge say it for 90 days. The calls of
    a hosted judge cost money: some 10,000 tokens in and 1,500 out; the longest test case is sent
    three times.

    Exit codes: 0 the judge can be used; 1 it answers, but cannot be used; 2 it does not answer, or
    invalid input.
    """
    from dagengine.checkup import check_judge
    from dagengine.execution.interrupts import sync
    from dagengine.record.judge_standing import keep_standing

    options.require_savable()
    subject, text = options.subject(), options.longest_text()
    with _parts_shown() as began:
        checkup = sync(
            lambda: check_judge(subject, text=text, seconds=options.seconds, began=began)
        )
    report(**checkup.as_dict())
    _print_checkup(checkup)
    if checkup.standing is not None:
        try:
            keep_standing(checkup.standing)
        except OSError as error:
            say(f"what the judge knows is not kept for its runs: {error}", err=True)
    if options.save and checkup.connection.problem is None:
        _save(checkup, options)
    if not checkup.usable:
        raise typer.Exit(EXIT_INPUT if checkup.connection.problem else EXIT_FAILED)


@contextmanager
def _parts_shown() -> Iterator[Callable[[str], None]]:
    """Show which part of a checkup is being measured, where errors are a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda part: None
        return
    with console.status("connecting") as status:
        yield lambda part: status.update(f"{part} …")


def _print_checkup(checkup: Checkup) -> None:
    """Print a line or two for each part, what is recommended, and whether the judge can be used."""
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from dagengine.checkup.checkup import recommendations

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, status, text in checkup.lines():
        table.add_row(name, Text(status, style=_STYLES[status]), Text(plain(text)))
    out = Console()

    def write(text: str, style: str = "") -> None:
        out.print(Padding(Text(plain(text), style=style), (0, 0, 0, 1), expand=False))

    write(checkup.judge, "bold")
    out.print(table)
    for text in recommendations(checkup):
        write(text)
    usage, calls = checkup.usage, counted(checkup.calls, "call")
    tokens = f"{usage.input_tokens:,} tokens in and {usage.output_tokens:,} out"
    slow = ", more than a minute as the server is slow" * checkup.slow
    write(f"{calls} in {checkup.seconds:.0f} s{slow}; {tokens}", "dim")
    if checkup.usable:
        write("It can be used.", "bold green")
    for problem in checkup.problems:
        write(f"It cannot be used: {problem}", "bold red")


def _save(checkup: Checkup, options: CheckOptions) -> None:
    """Write the judge with what was measured into a file of settings."""
    from dagengine.checkup.checkup import tuning_of
    from dagengine.judges.default import DefaultJudge, default_judge, write_settings

    path, chosen = _file(options.user), default_judge()
    named = DefaultJudge(options.judge or chosen.model, options.base_url)
    is_named = options.judge is not None or options.base_url is not None
    if is_named and (named.model, named.base_url) != (chosen.model, chosen.base_url):
        chosen = named  # whose key is not that of the judge before
    write_settings(path, replace(chosen, tuning=tuning_of(checkup)))
    say(f"{path}: {_describe(chosen.model, chosen.base_url)}, with its settings", err=True)
    if os.environ.get("DAGENGINE_JUDGE") or os.environ.get("DAGENGINE_BASE_URL"):
        say("DAGENGINE_JUDGE or DAGENGINE_BASE_URL is set and goes before this file", err=True)


@app.command()
def unset(user: ForUser = False) -> None:
    """Remove the default judge of this folder, or of the user. The default is gpt-4o again."""
    path = _file(user)
    if not path.exists():
        say(f"no judge was set: there is no {path}")
        return
    path.unlink()
    report(removed=path)
    say(f"{path} is removed")


def _file(user: bool) -> Path:
    from dagengine.judges.default import project_file, user_file

    return user_file() if user else project_file()


def _describe(model: str, base_url: str | None) -> str:
    from dagengine.redaction import public_text

    return f"{model} at {public_text(base_url)}" if base_url else model


@doors.command("set-azure-openai", hidden=True)
def set_azure_openai(
    openai_endpoint: Annotated[str, Option()],
    deployment_name: Annotated[str, Option()],
    openai_api_version: Annotated[str | None, Option()] = None,
    model_version: Annotated[str | None, Option()] = None,
    openai_api_key: Annotated[str | None, _no_key("--openai-api-key")] = None,
) -> None:
    """`judge set` for a deployment of Azure OpenAI; its key is in AZURE_OPENAI_API_KEY."""
    address = f"{openai_endpoint.rstrip('/')}/openai/v1/"
    set_judge(deployment_name, address, "AZURE_OPENAI_API_KEY")
    if openai_api_version or model_version:
        say(
            "--openai-api-version and --model-version are ignored: this Azure endpoint needs "
            "neither"
        )


@doors.command("set-ollama", hidden=True)
def set_ollama(model: str, base_url: str = "http://localhost:11434") -> None:
    """`judge set` for a model of Ollama."""
    set_judge(model, f"{base_url.rstrip('/').removesuffix('/v1')}/v1")


@doors.command("set-local-model", hidden=True)
def set_local_model(
    model_name: Annotated[str, Option()],
    base_url: Annotated[str, Option()],
    api_key: Annotated[str | None, _no_key("--api-key")] = None,
) -> None:
    """`judge set` for a model of a local server."""
    set_judge(model_name, base_url)


for _name in ("unset-azure-openai", "unset-ollama", "unset-local-model"):
    doors.command(_name, hidden=True)(unset)


@doors.command("login", hidden=True)
def login() -> NoReturn:
    """Fail: there is no account to log in to."""
    raise typer.BadParameter(
        "there is no account: what a run writes stays on your machine (`dagengine run --out`)"
    )
