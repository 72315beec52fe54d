"""`dagengine view`: runs to look at in a browser, to compare, and to label."""

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
        typer.Argument(metavar="DIR...", help="Folders of runs; several are a history."),
        Reads(),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 is any free one.")
    ] = 0,
    who: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Your name beside labels; by default the login."),
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(
            metavar="CARD.json",
            help="A judge card, for what asking again would change between runs.",
        ),
        Reads(),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Look at runs in a browser, compare them, and label cases by walking the tree.

    Serves on 127.0.0.1 only, at an address that holds a token: nobody else can open it. Labels
    go to labels.jsonl in the folder of the run, nothing else is changed. Ctrl-C ends it.
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
        say(f"open {address} (Ctrl-C ends it)")
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
