"""Where the site differs from the pages that code hosts show: tables, runs, figures, versions."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

DOCS = Path(__file__).resolve().parents[1]
_CODE = re.compile(r"`[^`]*`")
_MEASURED = re.compile(r"\]\(((?:\.\./)*)\.\./(benchmarks|docs)/")
"""A link between the documents and the figures that the benchmarks left."""
_UNSEARCHED = "---\nsearch: {exclude: true}\n---\n"
_LEFT = re.compile(r"^`out/(\S+\.html)` is \[(.+?)\].*$", re.MULTILINE)
"""Where a page of the gallery says what a command leaves."""


def on_config(config: Any) -> Any:
    """Let readers choose a version where there are several: `mike` builds them one by one."""
    if os.environ.get("MIKE_DOCS_VERSION"):
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what is made now: runs and cards of the gallery, all commands, and the figures."""
    files.append(File.generated(config, "api/commands.md", content="\n".join(_commands())))
    sys.path.append(str(DOCS))
    from make_gallery import FOLDERS, left

    for out in map(left, FOLDERS):
        for page in out.glob("*/*.html"):
            name = f"gallery/{page.relative_to(out).as_posix()}"
            files.append(File.generated(config, name, content=page.read_bytes()))
    measured = DOCS.parent / "benchmarks"
    for page in (measured / "RESULTS.md", *measured.glob("results/*.md")):
        name, text = page.relative_to(measured).as_posix(), page.read_text(encoding="utf-8")
        file = File.generated(config, name, content=f"{_UNSEARCHED}{text}")
        file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    return files


def _commands() -> Iterator[str]:
    """A page of every command and option, from the help that the commands show."""
    import typer

    from dagengine.cli import app

    yield "# Commands\n\nA list of all command line options, as `--help` shows them."
    root = typer.main.get_command(app)
    yield from _of_command("dagengine", root, typer.Context(root, info_name="dagengine"))


def _of_command(name: str, command: Any, context: Any) -> Iterator[str]:
    inner = {key: one for key, one in getattr(command, "commands", {}).items() if not one.hidden}
    formatter = context.make_formatter()
    formatter.width = 80
    command.format_help(context, formatter)
    yield f"\n## {name}\n\n```text\n{formatter.getvalue().strip()}\n```"
    for key in sorted(inner):
        below = type(context)(inner[key], info_name=key, parent=context)
        yield from _of_command(f"{name} {key}", inner[key], below)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Code in tables: hosts want its bars escaped, the site wants them as they are.

    And a page of the gallery shows what its commands leave.
    """
    if page.file.src_uri.startswith("metrics/") and page.file.name != "index":
        # They are many and short: a word in a name must not hide the page on a subject.
        page.meta.setdefault("search", {})["boost"] = 0.7
    if page.file.src_uri.startswith("gallery/"):
        markdown = _LEFT.sub(_shown, markdown)
    return "\n".join(
        _CODE.sub(lambda found: found[0].replace(r"\|", "|"), line) if line[:1] == "|" else line
        for line in _MEASURED.sub(r"](\1", markdown).split("\n")
    )


def _shown(found: re.Match[str]) -> str:
    file, name = found.groups()
    frame = f'<iframe class="left" src="{file}" title="{name}" loading="lazy"></iframe>'
    return f"{found[0]}\n\n{frame}\n\n[Open {name} by itself]({file})"
