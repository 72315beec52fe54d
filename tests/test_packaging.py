"""The package: its folders, its public names, and that importing it does nothing."""

from __future__ import annotations

import glob
import importlib
import json
import os
import pkgutil
import re
import runpy
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from folders.places import ROOT

import dagengine
import dagengine.judges
import dagengine.metrics

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_packages_that_are_published_are_the_folders_with_python_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not (ROOT / "setup.py").is_file():
        pytest.skip("the sources are not beside the tests: an installed copy is tested")
    listed: list[str] = []
    monkeypatch.setattr("setuptools.setup", lambda packages: listed.extend(packages))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    others = {"dagengine", "dagengine.judges", "dagengine.metrics.common"}
    assert listed == sorted({*ROOMS, *others})


def test_the_version_is_that_of_the_installed_package() -> None:
    assert dagengine.__version__ == SETTINGS["project"]["version"]


def test_every_hard_dependency_says_what_it_is_for() -> None:
    assert len(SETTINGS["project"]["dependencies"]) <= 14
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = text[text.index("\ndependencies = [") : text.index("[project.optional")].splitlines()
    assert [line for line in lines if line.startswith('  "') and " # " not in line] == []


@pytest.mark.parametrize("package", [dagengine, dagengine.judges, dagengine.metrics])
def test_every_public_name_can_be_loaded(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]
    assert names == sorted(names)
    for name in names:
        assert getattr(package, name) is not None
    assert set(names) <= set(dir(package))


HOMES = {
    Path(package.__path__[0]).resolve(): package.__name__
    for package in (dagengine, dagengine.judges, dagengine.metrics)
}
ROOMS = sorted(
    {
        ".".join([name, *Path(folder).relative_to(home).parts])
        for home, name in HOMES.items()
        for folder, _, files in os.walk(home)
        if any(file.endswith(".py") for file in files)
    }
    - {"dagengine", "dagengine.judges", "dagengine.metrics.common"}
)


@pytest.mark.parametrize("room", ROOMS)
def test_the_face_of_a_room_has_a_sentence_and_sorted_names(room: str) -> None:
    face = importlib.import_module(room)
    assert (face.__doc__ or "").strip().endswith((".", "?"))
    names: list[str] = getattr(face, "__all__", [])  # of many rooms nobody needs one
    assert names == sorted(names)
    modules = {module.name for module in pkgutil.iter_modules(face.__path__)}
    assert not modules & set(names), "a module is called like a name that the face exports"
    assert all(hasattr(face, name) for name in names)


NO_MODULES = {"__init__", "conftest"}


@pytest.mark.parametrize("top", ["benchmarks", "tests"])
def test_a_folder_of_benchmarks_and_of_tests_holds_at_most_fifteen_modules(top: str) -> None:
    files = [file for file in (ROOT / top).rglob("*.py") if file.stem not in NO_MODULES]
    homes = Counter(file.parent for file in files)
    assert homes
    assert [str(home) for home, modules in homes.items() if modules > 15] == []


def test_a_room_holds_at_most_fifteen_modules() -> None:
    for room in ROOMS:
        if room != "dagengine.metrics":  # the catalogue has one file per metric
            found = [module.name for module in pkgutil.iter_modules(_path_of(room))]
            assert len([name for name in found if f"{room}.{name}" not in ROOMS]) <= 15, room
    root = {path.stem for path in Path(dagengine.__path__[0]).glob("*.py")}
    assert len(root - {"__init__", "__main__"}) <= 15


def _path_of(room: str) -> Iterable[str]:
    return importlib.import_module(room).__path__


def test_the_wishes_of_the_architecture_lead_to_files_that_exist() -> None:
    text = architecture()
    table = text[text.index("## I want to") : text.index("## Adding things")]
    paths = re.findall(r"^\| .+? \| `([^`]+)`.*\|$", table, re.MULTILINE)
    assert len(paths) >= 20
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def architecture() -> str:
    if not (ROOT / "ARCHITECTURE.md").exists():
        pytest.skip("the documents are not beside the tests: an installed copy is tested")
    return (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_the_architecture_names_every_room_with_the_sentence_of_its_face() -> None:
    text = architecture()
    for room in set(ROOMS) - {"dagengine.metrics"}:
        folder = room.removeprefix("dagengine.").replace(".", "/")
        sentence = (importlib.import_module(room).__doc__ or "").strip().splitlines()[0]
        assert f"| `{folder}/` | {sentence} |" in text


def test_the_rooms_of_the_architecture_are_those_of_the_contract_from_the_top_down() -> None:
    rooms = re.findall(r"^\| `([a-z_/]+)/` \| ", architecture(), re.MULTILINE)
    common = {"metrics/common", "judges"}  # told in the row of the catalogue, and a room on top
    listed = {room.removeprefix("dagengine.").replace(".", "/") for room in ROOMS}
    assert set(rooms) - common == listed - common
    (contract,) = (c for c in SETTINGS["tool"]["importlinter"]["contracts"] if "exhaustive" in c)
    layers = [set(re.split(r" [|:] ", layer)) for layer in contract["layers"]]
    floors = [
        next(floor for floor, layer in enumerate(layers) if room.split("/")[0] in layer)
        for room in rooms
    ]
    assert floors == sorted(floors)


def test_the_architecture_names_the_modules_outside_of_the_rooms() -> None:
    text = architecture()
    outside = text[text.index("Some modules are outside") : text.index("`metrics/` and `judges/`")]
    modules = [m.name for m in pkgutil.iter_modules(dagengine.__path__) if not m.ispkg]
    assert [name for name in modules if f"`{name}`" not in outside] == []


def test_the_walks_of_the_architecture_name_modules_that_exist() -> None:
    text = architecture()
    walks = text[text.index("## Five walks") : text.index("## Rules")]
    tops = [ROOT, ROOT / "dagengine"]
    names = re.findall(r"`([a-z_]+/[a-z_/]+)(?:\.[A-Z]\w+)?`", walks)
    assert len(names) >= 10
    assert [n for n in names if not any((top / f"{n}.py").exists() for top in tops)] == []


def test_modules_that_docstrings_and_comments_name_are_there() -> None:
    home = dagengine.__path__[0]
    paths = glob.glob(f"{home}/**/*.py", recursive=True)  # follows the links to other rooms
    texts = {path: Path(path).read_text(encoding="utf-8") for path in paths}
    sources: dict[str, list[str]] = {}  # by every end of the name of a module
    for path, text in texts.items():
        parts = Path(path.removesuffix(".py").removesuffix("/__init__")).relative_to(home).parts
        for start in range(len(parts)):
            sources.setdefault(".".join(parts[start:]), []).append(text)
    rooms = {Path(path).parent.name for path in paths if path.endswith("__init__.py")}
    files = r"html|json|jsonl|md|py"
    absent: list[str] = []
    for path, text in texts.items():
        for module, name in re.findall(rf"`([a-z_.]+)\.(?!(?:{files})`)(\w+)`", text):
            if module.split(".")[0] not in rooms - {"dagengine"} or f"{module}.{name}" in sources:
                continue
            if not any(re.search(rf"\b{name}\b", source) for source in sources.get(module, [])):
                absent.append(f"{path}: {module}.{name}")
    assert absent == []


def test_the_check_finds_locals_that_are_no_nouns_and_leaves_fields_alone() -> None:
    if not (ROOT / "dev.py").exists():
        pytest.skip("the tools are not beside the tests")
    fillers = runpy.run_path(str(ROOT / "dev.py"))["fillers"]
    source = """
class Reading:
    found: int = 0  # the name of a field
    def _said(self, given):
        known = [one for one in given]
        return {name: known for name in given}
"""
    assert fillers(source) == [(4, "_said"), (5, "known"), (5, "one")]


def test_the_tests_of_an_installed_copy_are_there() -> None:
    if not (ROOT / "dev.py").exists():
        pytest.skip("the tools are not beside the tests")
    tools = runpy.run_path(str(ROOT / "dev.py"))
    chosen = (*tools["INSTALLED"], *tools["VARYING"], *tools["QUICK"])
    assert [name for name in chosen if not (ROOT / "tests" / name).exists()] == []


def test_a_release_says_what_a_person_must_fill_in_and_makes_nothing() -> None:
    if not (ROOT / "dev.py").exists():
        pytest.skip("the tools are not beside the tests")
    command = [sys.executable, str(ROOT / "dev.py"), "release"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "urls" in SETTINGS["project"]:
        pytest.skip("a public address is set")
    assert done.returncode == 1
    assert "[project.urls]" in done.stderr
    assert "Source = " in done.stderr


@pytest.mark.parametrize("top", ["## 0.1.0 (unreleased)", "## 0.0.9 (2026-01-02)"])
def test_entries_of_changes_go_to_the_top_of_a_version(tmp_path: Path, top: str) -> None:
    if not (ROOT / "dev.py").exists():
        pytest.skip("the tools are not beside the tests")
    collect_changes = runpy.run_path(str(ROOT / "dev.py"))["collect_changes"]
    (tmp_path / "changes").mkdir()
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{top}\n\n- Old.\n", "utf-8")
    for name, text in (("README", "no entry"), ("b", "- B.\n"), ("a", "- A.")):
        (tmp_path / "changes" / f"{name}.md").write_text(text, "utf-8")
    assert collect_changes(tmp_path, "0.1.0") == 2
    assert collect_changes(tmp_path, "0.1.0") == 0
    text = (tmp_path / "CHANGELOG.md").read_text("utf-8")
    assert text.startswith("# Changelog\n\n## 0.1.0 (unreleased)\n\n- A.\n- B.\n")
    assert text.endswith("- Old.\n")
    assert top in text
    assert [file.name for file in (tmp_path / "changes").iterdir()] == ["README.md"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    for package in (dagengine, dagengine.judges):
        with pytest.raises(AttributeError, match="nonsense"):
            package.nonsense  # noqa: B018


def test_nothing_is_imported_before_the_command_line_can_answer_an_interrupt() -> None:
    code = (
        "import __future__, importlib, sys; sys.modules.pop('typing', None); "
        "before = set(sys.modules); "
        "import dagengine.cli; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["dagengine", "dagengine.cli"]


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = (
        "import sys, dagengine; "
        "heavy = {'networkx', 'openai', 'instructor', 'pydantic', 'anyio'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_help_of_the_command_line_loads_no_heavy_library() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from dagengine.cli.commands import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "heavy = {'networkx', 'openai', 'instructor', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


_POLITE = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, VerdictNode
from dagengine.test_case import LLMTestCaseParams

scores = [VerdictNode(True, score=10), VerdictNode(False, score=0)]
seen = [LLMTestCaseParams.ACTUAL_OUTPUT]
dag = DAG([BinaryJudgementNode("Is it polite?", evaluation_params=seen, children=scores)])
metrics = [DAGMetric("Polite", dag=dag)]
"""
_OF_TREES = ("benchmark", "metrics.py", "--data", "cases.jsonl", "--verdicts", "verdicts.csv")
_OF_ANY_JUDGE = ("benchmark", "--verdicts", "scores.csv", "--labels", "labels.csv")


@pytest.mark.parametrize("arguments", [_OF_TREES, _OF_ANY_JUDGE], ids=["tree", "any judge"])
def test_a_card_of_verdicts_that_exist_loads_nothing_that_asks_judges(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    pytest.importorskip("scipy")
    cases = [{"name": f"c{number}", "input": "q", "actual_output": "a"} for number in range(6)]
    numbers = range(6)
    files = {
        "metrics.py": _POLITE,
        "cases.jsonl": "\n".join(json.dumps(case) for case in cases),
        "verdicts.csv": "\n".join(
            ["case,verdict", *(f"c{n},{('yes', 'no')[n % 2]}" for n in numbers)]
        ),
        "scores.csv": "\n".join(["case,score", *(f"c{n},{n % 3 / 2}" for n in numbers)]),
        "labels.csv": "\n".join(["case,label", *(f"c{n},{n % 2}" for n in numbers)]),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from dagengine.cli.commands import app\n"
        "done = CliRunner().invoke(app, sys.argv[1:])\n"
        "assert done.exit_code == 0, repr(done.exception) + done.output\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('dagengine.')}\n"
        "asking = {'gateway', 'execution', 'store'} & rooms\n"
        "assert 'reliability' in rooms and not asking, asking\n"
    )
    command = [sys.executable, "-c", code, *arguments, "--out", "out"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert (tmp_path / "out" / "card.json").is_file()
