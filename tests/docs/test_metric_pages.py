"""What the pages on metrics promise: one each, with true arguments, pictures and examples."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from folders.places import ROOT
from graphs.contract import metric_classes

from dagengine import compile_metrics
from dagengine.compiler import check
from dagengine.graph import MetricSpec
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.common.base import BaseMetric
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.question import Question

DOCS = ROOT / "docs"
FOLDER = DOCS / "metrics"
INDEX = FOLDER / "README.md"
KINDS: list[type[BaseMetric]] = [*metric_classes(), DAGMetric]
SVG = "{http://www.w3.org/2000/svg}"
REDRAW = "out of date: python docs/make_metric_pictures.py"
every_metric = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__qualname__)


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "make_metric_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pictures = _script()


def page_of(kind: type[BaseMetric]) -> Path:
    """The page of a metric: ArenaGEval has arena_g_eval.md, BiasMetric bias.md."""
    words = r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    stem = re.sub(words, "_", kind.__qualname__.removesuffix("Metric")).lower()
    return FOLDER / f"{stem}.md"


def text_of(kind: type[BaseMetric]) -> str:
    return page_of(kind).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """What stands under a heading, up to the next one."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def facts(text: str) -> dict[str, str]:
    """Return the table at the head of a page: its left cells with the right ones."""
    return dict(re.findall(r"^([A-Z][^|\n]*) \| (.*)$", text.partition("\n## ")[0], re.MULTILINE))


def table(text: str) -> list[tuple[str, str, str]]:
    """Name, type and default of each row of an argument table; every row has a meaning."""
    rows = re.findall(r"^`[^|\n]* \| .*$", text, re.MULTILINE)
    found = []
    for row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
        assert len(cells) == 4, row
        assert cells[3], row
        name, kind, default = (cell.strip("`").replace(r"\|", "|") for cell in cells[:3])
        found.append((name, kind, default))
    return found


def arguments(kind: type[BaseMetric]) -> list[tuple[str, str, str]]:
    """Name, type (as it is written) and default of each argument; after `*` all are by name."""
    types: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        constructor = vars(owner).get("__init__")
        if inspect.isfunction(constructor):
            parameters = inspect.signature(constructor).parameters.values()
            types |= {parameter.name: str(parameter.annotation) for parameter in parameters}
    rows: list[tuple[str, str, str]] = []
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and ("*", "", "") not in rows:
            rows.append(("*", "", ""))
        default = "" if parameter.default is parameter.empty else repr(parameter.default)
        rows.append((parameter.name, types[parameter.name], default))
    return rows


def node_texts(svg: str) -> list[list[ElementTree.Element]]:
    """The lines of text of every node in a picture."""
    groups = ElementTree.fromstring(svg).iter(f"{SVG}g")
    return [
        list(g.iter(f"{SVG}text")) for g in groups if (g.get("class") or "").startswith("node ")
    ]


def bold(lines: list[ElementTree.Element]) -> str:
    texts = (line for line in lines if line.get("font-weight") == "700")
    return " ".join(line.text or "" for line in texts)


def words(svg: str) -> list[str]:
    """What each node says, whatever its place, in the order of the alphabet."""
    nodes = node_texts(svg)
    return sorted(" ".join("".join(line.itertext()) for line in lines) for lines in nodes)


def node_names(spec: MetricSpec) -> list[str]:
    """What a picture has to name: every node."""
    wiring = check(spec)[1]
    assert wiring is not None
    return sorted(slot.name for slot in wiring.slots if slot.kind == "node")


@every_metric
def test_every_metric_has_a_page_with_all_its_parts(kind: type[BaseMetric]) -> None:
    text = text_of(kind)
    assert text.startswith(f"# {kind.__qualname__}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "Score", "Arguments", "Example", "Weaknesses",
    ]  # fmt: skip
    for wanted in ("**Use it** ", "**Not** "):
        assert wanted in text
    assert list(facts(text)) == ["Needs", "Judge calls", "Nothing to judge"]
    assert section(text, "Weaknesses").count("\n- ") >= 1, "beside those that many share"
    assert (
        INDEX.read_text(encoding="utf-8").partition("\n### Shared weaknesses\n")[2].count("\n- ")
        > 2
    )


def test_there_is_no_page_without_a_metric() -> None:
    assert sorted(map(page_of, KINDS)) == pictures.metric_pages()


def arguments_section(text: str) -> str:
    """Return the section on arguments, with those of the pages that it links to."""
    own = section(text, "Arguments")
    linked = re.findall(r"\]\((\w+\.md)#arguments\)", own)
    return own + "".join(arguments_section((FOLDER / page).read_text("utf-8")) for page in linked)


@every_metric
def test_arguments_are_the_signature_and_common_settings_stand_in_one_table(
    kind: type[BaseMetric],
) -> None:
    taken = [row for row in arguments(kind) if row[0] != "*"]
    text, common = arguments_section(text_of(kind)), arguments(PrebuiltMetric)
    assert "](README.md#common-settings)" in text or "](README.md#without-a-judge)" in text
    own = table(section(text_of(kind), "Arguments"))
    assert own == [row for row in taken if row in own], "they are in the order of the signature"
    assert set(taken) <= {*table(text), *common}
    repeated = set(section(INDEX.read_text("utf-8"), "Common settings").splitlines())
    assert not [line for line in text.splitlines() if line in repeated and line.startswith("`")]
    absent = {name for name, _, _ in common} - {name for name, _, _ in taken} - {"*"}
    assert {name for name in absent if f"`{name}`" not in text} == set()


def test_the_table_of_common_settings_is_the_signature() -> None:
    common = section(INDEX.read_text(encoding="utf-8"), "Common settings")
    assert table(common) == arguments(PrebuiltMetric)


@every_metric
def test_the_example_runs_and_asks_as_often_as_the_page_says(
    kind: type[BaseMetric], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answer = ScriptedJudge.answer

    async def counted(judge: ScriptedJudge, question: Question[Any]) -> Any:
        asked.append(question.name)
        return await answer(judge, question)

    monkeypatch.setattr(ScriptedJudge, "answer", counted)
    names = pictures.example_names(page_of(kind))
    text = text_of(kind)
    assert type(names["metric"]) is kind
    assert re.search(r"^assert .*metric\.measure\(.* == ", text, re.MULTILINE)
    calls = facts(text)["Judge calls"]
    number = re.search(r"\(example: (\d+)\)$", calls) or re.match(r"(\d+|none)\b", calls)
    assert number is not None
    assert number[1].replace("none", "0") == str(len(asked))


@every_metric
def test_the_page_names_every_field_that_its_example_reads(kind: type[BaseMetric]) -> None:
    metric = pictures.example_names(page_of(kind))["metric"]
    needs = facts(text_of(kind))["Needs"]
    for path, _ in compile_metrics([metric]).metrics[0].required:
        assert f"`{path}`" in needs, path


@every_metric
def test_the_picture_shows_the_graph(kind: type[BaseMetric]) -> None:
    page = page_of(kind)
    assert f"]({page.stem}.svg)" in page.read_text(encoding="utf-8")
    svg = page.with_suffix(".svg").read_text(encoding="utf-8")
    spec, picture = pictures.drawn(page)
    assert sorted(filter(None, map(bold, node_texts(svg)))) == node_names(spec)
    assert words(svg) == words(picture.layout("svg").decode()), REDRAW


def test_there_is_no_picture_without_a_page() -> None:
    stems = {page.stem for page in pictures.metric_pages()}
    assert {picture.stem for picture in FOLDER.glob("*.svg")} == stems


@every_metric
def test_the_index_links_to_every_page_once(kind: type[BaseMetric]) -> None:
    text = INDEX.read_text(encoding="utf-8")
    assert text.count(f"[{kind.__qualname__}]({page_of(kind).name})") == 1


@pytest.mark.parametrize("page", [*pictures.metric_pages(), INDEX], ids=lambda page: page.stem)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (FOLDER / target).exists(), target
