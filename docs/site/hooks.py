"""Where the site differs from the pages that code hosts show: tables, runs, figures, versions."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from mkdocs.structure.files import File, Files, InclusionLevel

DOCS = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "guide.md": DOCS.parent / "dagengine" / "cli" / "SKILL.md",
    "stability.md": DOCS.parent / "STABILITY.md",
}
"""Pages that are outside of the folder of pages."""
_NAMED = re.compile(r"^::: (\S+)$", re.MULTILINE)
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
    """Add what is made now: runs and cards of the gallery, commands, figures and schemas."""
    from dagengine.cli.explain import Name, read_schema

    files.append(File.generated(config, "api/commands.md", content="\n".join(_commands())))
    for name, path in OUTSIDE.items():
        text = path.read_text(encoding="utf-8").removeprefix("---\n")
        head, _, rest = text.partition("\n---\n")  # what a skill says of itself
        files.append(File.generated(config, name, content=rest or head))
    for schema in get_args(Name):
        content = json.dumps(read_schema(schema), indent=1) + "\n"
        files.append(File.generated(config, f"schemas/{schema}.json", content=content))
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


def on_post_build(config: Any) -> None:
    """Leave each page as Markdown, too, with the signatures of what the reference is made of."""
    sources = {page.relative_to(DOCS).as_posix(): page for page in DOCS.glob("**/*.md")} | OUTSIDE
    for name, page in sources.items():
        text = _NAMED.sub(_in_words, page.read_text(encoding="utf-8"))
        Path(config.site_dir, name).write_text(text, encoding="utf-8")
    commands = Path(config.site_dir, "api", "commands.md")
    commands.write_text("\n".join(_commands()), encoding="utf-8")


def _in_words(match: re.Match[str]) -> str:
    """The signature and the docstring of a public name, and those of its own methods."""
    module, _, name = match[1].rpartition(".")
    thing = getattr(importlib.import_module(module), name)
    members = vars(thing).items() if isinstance(thing, type) else ()
    own = [(key, one) for key, one in members if key[0] != "_" and inspect.isfunction(one)]
    return "\n\n".join(_described(*part) for part in ((name, thing), *own))


def _described(name: str, thing: Any) -> str:
    try:
        signature = str(inspect.signature(thing))
    except (TypeError, ValueError):  # it is no function and no class
        signature = ""
    return f"```python\n{name}{signature}\n```\n\n{inspect.getdoc(thing) or ''}"


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
        _CODE.sub(lambda found: found[0].replace(r"\|", "|"), line) if " | " in line else line
        for line in _MEASURED.sub(r"](\1", markdown).split("\n")
    )


def _shown(found: re.Match[str]) -> str:
    file, name = found.groups()
    frame = f'<iframe class="left" src="{file}" title="{name}" loading="lazy"></iframe>'
    return f"{found[0]}\n\n{frame}\n\n[Open {name} by itself]({file})"
