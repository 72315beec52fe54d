"""`dagengine view`: inspect, compare and label runs in a browser."""

from __future__ import annotations

import getpass
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from dagengine.cli.common.collector import collector_at_work
from dagengine.cli.common.files import Reads
from dagengine.cli.common.streams import say
from dagengine.errors import MissingExtraError


def view(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Folders of runs; several folders are shown as a history."
        ),
        Reads(),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes any free port.")
    ] = 0,
    who: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Your name beside your labels. Default: your login."
        ),
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(
            metavar="CARD.json",
            help="A judge card; it tells which changes between runs are only noise of the judge.",
        ),
        Reads(),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Inspect, compare and label runs in a browser.

    Serves on 127.0.0.1 only. The address contains a secret token, so other users cannot open it.
    Labels are saved in labels.jsonl in the folder of the run; no other file is changed. Stop with
    Ctrl-C.
    """
    try:
        from dagengine.view.server import open_runs, serve
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        raise MissingExtraError(f"view needs {missing}: pip install 'dagengine[view]'") from None
    from dagengine.reliability.card.files import read_card

    known = None if card is None else read_card(card)
    served = open_runs(folders, who or _login(), known, said=lambda text: say(text, err=True))

    def ready(address: str) -> None:
        say(f"open {address} (stop with Ctrl-C)")
        if browser:
            webbrowser.open(address)

    collector_at_work()
    try:
        serve(served, port, ready)
    finally:
        served.close()


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in containers
        return "somebody"
