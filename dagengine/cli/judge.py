"""`dagengine judge`: who judges where a run names nobody."""

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
    help="Set who judges where a run names nobody (`DAGENGINE_JUDGE` in the environment goes "
    "before it).",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
# The same under the names that published examples use.
doors = Commands()

ForUser = Annotated[
    bool, typer.Option("--user", help="For all projects of the user, not for this folder alone.")
]
BaseUrl = Annotated[
    str | None,
    typer.Option(help="An OpenAI-compatible server, for instance http://localhost:11434/v1."),
]


def _refuse_key(value: str | None) -> None:
    if value is not None:
        raise typer.BadParameter(
            "a key does not go on the command line, where the shell and the list of processes "
            "show it: put it into an environment variable (export DAGENGINE_API_KEY=…) and leave "
            "this option out; a local server needs none"
        )


def _no_key(*names: str) -> Any:
    return typer.Option(*names, hidden=True, callback=_refuse_key)


@app.command("set")
def set_judge(
    model: Annotated[
        str,
        typer.Argument(
            help="A model's name, `provider/model`, or a model of --base-url.",
            autocompletion=judge_names,
        ),
    ],
    base_url: BaseUrl = None,
    key_from: Annotated[
        str | None,
        typer.Option(
            metavar="VARIABLE",
            help="The environment variable that holds the server's key; by default "
            "DAGENGINE_API_KEY with --base-url, else the provider's own.",
        ),
    ] = None,
    user: ForUser = False,
    api_key: Annotated[str | None, _no_key("--api-key")] = None,
) -> None:
    """Write the default judge to `.dagengine.env` here, or to the user's settings."""
    from dagengine.judges.default import DefaultJudge, write_settings

    path = _file(user)
    write_settings(path, DefaultJudge(model, base_url, key_from))
    say(f"{path}: {_described(model, base_url)}")


@app.command()
def show() -> None:
    """Who judges by default, where, with whose key, and what says so."""
    from dagengine.judges.default import default_judge

    found = default_judge()
    say(f"{_described(found.model, found.base_url)} ({found.source})")
    if found.key_from is not None:
        state = "is set" if os.environ.get(found.key_from) else "is NOT set"
        say(f"its key is in {found.key_from}, which {state}")


@app.command()
def unset(user: ForUser = False) -> None:
    """Remove the default judge of this folder, or the user's; gpt-4o is asked again."""
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
        say("this address of Azure takes no version of the API, and the deployment has its model")


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
    """Refuse: there is nothing to log in to."""
    raise typer.BadParameter(
        "there is no account: what a run writes stays on your machine (`dagengine run --out`)"
    )
