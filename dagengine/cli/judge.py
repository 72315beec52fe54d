"""`dagengine judge`: set, show and remove the default judge."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from dagengine.cli.common.command import Commands
from dagengine.cli.common.completion import judge_names
from dagengine.cli.common.streams import say

if TYPE_CHECKING:
    from pathlib import Path

app = Commands(
    name="judge",
    help="Set the default judge (the environment variable `DAGENGINE_JUDGE` overrides it).",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
# The same under the names that published examples use.
doors = Commands()

ForUser = Annotated[
    bool, typer.Option("--user", help="For all projects of this user, not only for this folder.")
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        help="URL of an OpenAI-compatible server, for instance http://localhost:11434/v1."
    ),
]


def _refuse_key(value: str | None) -> None:
    if value is not None:
        raise typer.BadParameter(
            "do not pass a key on the command line: the shell history and the process list show "
            "it. Set an environment variable (export DAGENGINE_API_KEY=…) and leave this option "
            "out; a local server needs no key"
        )


def _no_key(*names: str) -> Any:
    return typer.Option(*names, hidden=True, callback=_refuse_key)


@app.command("set")
def set_judge(
    model: Annotated[
        str,
        typer.Argument(
            help="An OpenAI model, `provider/model`, or a model of the server at --base-url.",
            autocompletion=judge_names,
        ),
    ],
    base_url: BaseUrl = None,
    key_from: Annotated[
        str | None,
        typer.Option(
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
    say(f"{path}: {_described(model, base_url)}")


@app.command()
def show() -> None:
    """Show the default judge, its server, its key variable, and where they are set."""
    from dagengine.judges.default import default_judge

    found = default_judge()
    say(f"{_described(found.model, found.base_url)} ({found.source})")
    if found.key_from is not None:
        state = "is set" if os.environ.get(found.key_from) else "is NOT set"
        say(f"its key is read from {found.key_from}, which {state}")


@app.command()
def unset(user: ForUser = False) -> None:
    """Remove the default judge of this folder, or of the user. The default is gpt-4o again."""
    path = _file(user)
    if not path.exists():
        say(f"no judge was set: there is no {path}")
        return
    path.unlink()
    say(f"{path} is removed")


def _file(user: bool) -> Path:
    from dagengine.judges.default import project_file, user_file

    return user_file() if user else project_file()


def _described(model: str, base_url: str | None) -> str:
    from dagengine.redaction import public_text

    return f"{model} at {public_text(base_url)}" if base_url else model


@doors.command("set-azure-openai", hidden=True)
def set_azure_openai(
    openai_endpoint: Annotated[str, typer.Option()],
    deployment_name: Annotated[str, typer.Option()],
    openai_api_version: Annotated[str | None, typer.Option()] = None,
    model_version: Annotated[str | None, typer.Option()] = None,
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
    model_name: Annotated[str, typer.Option()],
    base_url: Annotated[str, typer.Option()],
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
