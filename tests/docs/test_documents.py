"""What the documents promise: snippets run, commands exist, the example gives its figures."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from folders.places import ROOT
from make_pictures import (
    DRAWN,
    MADE_OF,
    README_MADE_OF,
    TUTORIAL,
    drawn_pages,
    home,
    made_of,
    main_job,
)
from pages import Reader, alike, at_address
from programs.commands import run_command, run_python, start_program
from servers.batch_server import BatchServer
from servers.decision_server import DecisionServer
from servers.openai_server import OpenAIServer

import dagengine
from dagengine.judges import OpenAIBatchJudge
from dagengine.report import draw
from dagengine.results import OutcomeKind

REDRAW = "out of date: python docs/make_pictures.py"
# The tutorial is one reading, and the others have tests of their own.
ELSEWHERE = {"tutorial", "gallery", "metrics", "api"}
FOLLOWED = sorted(
    page
    for page in (ROOT / "docs").glob("**/*.md")
    if page.parent.name not in ELSEWHERE and "```" in page.read_text(encoding="utf-8")
)
EXAMPLE = ROOT / "examples" / "meeting_summary"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_tree_of_the_readme_is_that_of_the_main_job_and_its_pictures_show_it() -> None:
    (tree,) = blocks(README, "python")
    assert (EXAMPLE / "metrics.py").read_text(encoding="utf-8").endswith(f'"""\n\n{tree}')
    assert json.loads(README_MADE_OF.read_text(encoding="utf-8")) == main_job()[1], REDRAW


def test_the_readme_has_no_dead_link_where_a_package_index_shows_it() -> None:
    beside = (ROOT / "LICENSE").exists()  # else an installed copy is tested, without documents
    places = ("https://example.org/pages/", "https://example.org/pictures/")
    shown = re.sub("```.*?```", "", at_address(README, *places), flags=re.DOTALL)
    targets = re.findall(r'(?:\]\(|src=")([^)"]+)', shown)
    assert len(targets) > 20
    for target in targets:
        folder = places[target.endswith(".png")]
        assert target.startswith(folder)
        file = ROOT / target.removeprefix(folder).partition("#")[0]
        assert not beside or file.is_file(), target
    assert at_address(shown, *places) == shown


def test_the_picture_of_the_home_page_is_what_its_run_leaves(tmp_path: Path) -> None:
    kept = (ROOT / "docs" / "home.svg").read_text(encoding="utf-8")
    assert words(kept) == words(home(tmp_path).read_text(encoding="utf-8")), REDRAW


def anchors(text: str) -> set[str]:
    """What the headings of a page can be reached by, as code hosts have it."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_links_and_anchors_of_all_documents_hold() -> None:
    folders = ("docs", "examples", "benchmarks")
    pages = [
        *ROOT.glob("*.md"),
        *(page for name in folders for page in ROOT.glob(f"{name}/**/*.md")),
    ]
    beside = (ROOT / "LICENSE").exists()  # else an installed copy is tested, without some pages
    broken = []
    for page in pages:
        plain = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\((?!http)([^)\s]+)\)", plain):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            there = target.exists()
            if (not there and beside) or (
                there and anchor and anchor not in anchors(target.read_text(encoding="utf-8"))
            ):
                broken.append(f"{page.name}: {link}")
    assert broken == []


@pytest.fixture
def only_our_modules() -> Iterator[None]:
    """One page shows how tests of one's own alias the package; that must not outlive its test."""
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "deepeval"]:
        del sys.modules[name]


def words(svg: str) -> list[str]:
    """What a picture says, whatever its place."""
    return sorted(re.sub(r"<[^>]*>", "", text) for text in re.findall(r"<text.*?</text>", svg))


def test_the_tutorial_does_as_printed_and_its_pictures_show_it(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        addresses = ("http://localhost:11434/v1", "https://my-resource.openai.azure.com/openai/v1/")
        reader = Reader(tmp_path, dict.fromkeys(addresses, server.base_url))
        reader.settings["OPENAI_BASE_URL"] = server.base_url
        for page in TUTORIAL:
            reader.read(page.read_text(encoding="utf-8"), page.name)
        judges = {body["model"] for body in server.requests}
    assert judges == {"llama3.1", "gpt-4o-mini", "my-deployment"}
    for name, source in DRAWN.items():
        kept, fresh = TUTORIAL[0].with_name(name), tmp_path / source
        assert words(kept.read_text("utf-8")) == words(fresh.read_text("utf-8")), REDRAW
    assert json.loads(MADE_OF.read_text(encoding="utf-8")) == made_of(tmp_path), REDRAW


def run_forked(
    command: list[str], folder: Path, environment: dict[str, str]
) -> CompletedProcess[str]:
    return run_python(folder, *command[1:], environment=environment)


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.stem)
@pytest.mark.usefixtures("only_our_modules")
def test_a_page_does_as_printed_and_its_picture_shows_it(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A batch is looked for at once, not after the half minute that a provider takes.
    defaults = OpenAIBatchJudge.__init__.__kwdefaults__ or {}
    assert {"poll", "quiet"} <= set(defaults)
    for name in ("poll", "quiet"):
        monkeypatch.setitem(defaults, name, 0.0)
    with DecisionServer() if page.stem == "decisions" else BatchServer(looks=0) as server:
        reader = Reader(tmp_path, start=run_forked)
        reader.settings |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-your-key"}
        reader.read(page.read_text(encoding="utf-8"), page.name)
    if page in drawn_pages():
        fresh = draw(reader.names["metric"].spec()).layout("svg").decode()
        assert words(page.with_suffix(".svg").read_text("utf-8")) == words(fresh), REDRAW
    if page.name == "deepeval.md":
        exec("from deepeval.metrics.dag import TaskNode", reader.names)
        assert reader.names["TaskNode"].__module__.startswith("dagengine")


def test_every_code_and_every_outcome_has_its_place_among_the_troubles() -> None:
    home = Path(dagengine.__file__).parent
    # In a checkout two rooms are links, which are not followed.
    folders = (home, home / "metrics", home / "judges")
    files = {file.resolve() for folder in folders for file in folder.rglob("*.py")}
    sources = "".join(file.read_text(encoding="utf-8") for file in files)
    codes = set(re.findall(r"""\b(?:report|Problem)\(\s*"([a-z-]+)\"""", sources))
    assert len(codes) > 30
    assert f"{len(codes)} kinds" in README
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    outcomes, found = text.split("\n## ")[1:3]
    assert re.findall(r"^### (.+)$", found, re.MULTILINE) == sorted(codes)
    assert set(re.findall(r"^### (.+)$", outcomes, re.MULTILINE)) == set(OutcomeKind)
    packed = (home / "cli" / "troubleshooting.md").read_text(encoding="utf-8")
    assert packed == text, "out of date: cp docs/troubleshooting.md dagengine/cli/"


def test_what_a_page_prints_may_be_shortened_but_not_changed() -> None:
    assert alike("a …\n…\nz", "a b  \nc\nd\nz\n")
    assert not alike("a …\nz", "b\nz")
    assert not alike("a", "a\nb")


def test_a_page_that_prints_something_else_is_found(tmp_path: Path) -> None:
    said = '```python\nprints = 1\nprint(prints)\n```\n```text title="prints"\n{}\n```\n'
    Reader(tmp_path).read(said.format(1))
    with pytest.raises(AssertionError, match="it printed"):
        Reader(tmp_path).read(said.format(2))


def test_the_readme_has_the_two_commands_and_links_that_exist() -> None:
    consoles = [block.strip() for block in blocks(README, "console")]
    assert consoles[:2] == ["python3 dev.py run", "python3 dev.py test"]
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        # An installed copy is tested without the other documents.
        assert (ROOT / target).exists() or not (ROOT / "LICENSE").exists(), target


def test_the_example_agrees_with_its_labels_as_its_readme_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLE.parents[1])
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    (program,) = blocks(text, "python")
    names: dict[str, Any] = {}
    exec(program, names)  # as it is typed
    assert len(names["cases"]) >= 30
    assert None not in names["scores"]
    assert capsys.readouterr().out.strip() in text


@pytest.mark.parametrize("script", ["quickstart.py", "own_metric.py", "benchmark.py"])
def test_the_example_scripts_run(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    path = str(ROOT / "examples" / script)
    code = f"import runpy; runpy.run_path({path!r}, run_name='__main__')"
    done = start_program(code, str(tmp_path)).ended()
    assert done.returncode == 0, done.stderr
    assert "score" in done.stdout.lower()
    assert script != "benchmark.py" or "✓ Use it" in done.stdout


def test_the_notebook_runs_and_every_cell_shows_something() -> None:
    notebook = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            *first, last = ast.parse("".join(cell["source"])).body
            assert isinstance(last, ast.Expr)
            exec(compile(ast.Module(first, []), "notebook", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "notebook", "eval"), names)
            shown.append(getattr(value, "_repr_html_", lambda: "")() or value._repr_mimebundle_())
    tree, result, row, path, card = map(str, shown)
    assert "judgement" in tree
    assert "4 cases, 2 passed" in result
    assert "should" not in row
    assert "rude" in row
    assert "→ rude" in path
    assert "○ Not known yet: labels and runs are too few" in card
    assert "Would I get this score again?" in card
    assert repr(names["seen"]).startswith("<Observations: 4 cases, 1 metric, 10 runs; ")
    assert len(repr(names["seen"])) < 100


def test_the_main_job_leaves_results_a_table_and_three_pictures(tmp_path: Path) -> None:
    command = f"run {EXAMPLE / 'metrics.py'} --data {EXAMPLE / 'cases.jsonl'}"
    options = f"--judge {EXAMPLE / 'judge.py'}:judge --out {tmp_path / 'out'}"
    narrow = {**os.environ, "COLUMNS": "80"}
    done = run_command(tmp_path, *command.split(), *options.split(), environment=narrow)
    assert done.returncode == 0, done.stderr
    (shown,) = blocks(README, "text")
    printed = done.stdout.replace(f"{tmp_path}/", "")
    assert alike(shown, printed), printed
    lines = (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["index"] for line in lines] == list(range(36))
    assert len(list((tmp_path / "out").glob("*.svg"))) == 3
