"""`dagengine view`: inspect, compare and label runs in a browser."""

from __future__ import annotations

import getpass
import secrets
import webbrowser
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dagengine.cli.common.files import Reads
from dagengine.cli.common.judge_access import collector_at_work
from dagengine.cli.common.output import TableOrJson, print_document, say
from dagengine.errors import load_extra
from dagengine.system.safe_files import private_folders, write_whole


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """The options of `dagengine view`."""

    folders: Annotated[list[Path], Argument(metavar="DIR..."), Reads()]
    """Folders of runs; several folders are shown as a history."""
    port: Annotated[int, Option(min=0, max=65535)] = 0
    """The port to listen on; 0 takes any free port."""
    who: Annotated[str | None, Option("--as", metavar="NAME")] = None
    """Your name beside your labels. Default: your login."""
    card: Annotated[Path | None, Option(metavar="CARD.json"), Reads()] = None
    """A judge card; it tells which changes between runs are only noise of the judge."""
    browser: Annotated[bool, Option("--open")] = False
    """Open the page in a browser."""
    form: TableOrJson = "table"


def view(options: ViewOptions) -> None:
    """Inspect, compare and label runs in a browser.

    Serves on 127.0.0.1 only. The address contains a secret token, so other users cannot open it.
    Labels are saved in labels.jsonl in the folder of the run; no other file is changed. Stop with
    Ctrl-C.
    """
    load_extra("dagengine.view.server", "view needs", "view")
    from dagengine.reliability.card.card_formats import read_card
    from dagengine.view.server import open_runs, serve

    noise = None if options.card is None else read_card(options.card)
    try:
        labeller = options.who or getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in containers
        labeller = "somebody"
    served = open_runs(options.folders, labeller, noise, announce=partial(say, err=True))
    collector_at_work()
    with ExitStack() as ended:
        ended.callback(served.close)

        def ready(address: str) -> None:
            as_json = options.form == "json"
            if as_json:
                print_document({"command": "view", "address": address})
            say(f"open {address} (stop with Ctrl-C)", err=as_json)
            if options.browser:
                page = _leading_to(address)
                ended.callback(page.unlink, missing_ok=True)
                webbrowser.open(page.as_uri())

        with suppress(KeyboardInterrupt):  # as the help says, this is how it ends
            serve(served, options.port, ready)


def _leading_to(address: str) -> Path:
    """A page that leads to an address, and that only this user can read.

    The arguments of a browser are for all users to see, and the address contains the token.
    """
    page = next(private_folders()) / f"open-{secrets.token_hex(8)}.html"
    to = escape(address)
    write_whole(
        page,
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={to}">'
        f'<title>dagengine</title><a href="{to}">Open the run</a>\n',
    )
    return page
