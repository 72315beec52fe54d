"""What another package offers by name: a metric, a judge, a reader; and what goes wrong with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagengine import evaluate, read_cases
from dagengine.cli import app
from dagengine.errors import InputError, MissingExtraError, load_extra
from dagengine.judges import OpenAIJudge, as_judge
from dagengine.loading import Target, is_code, load_judge, load_metrics

CODE = """
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

strict = ScriptedJudge(lambda question: "please" in str(question.messages), name="strict")
kind = BinaryJudgementNode(
    "Is it kind?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="kind"
)
graph = DAG(kind)
polite = DAGMetric("Polite", graph)
several = [polite]
columns = {"q": "input", "a": "actual_output"}
number = 1

def read(path):
    for line in path.read_text().splitlines():
        question, answer = line.split(" => ")
        yield {"input": question, "actual_output": answer}
"""
OFFERS = """
[console_scripts]
acme = acme_evals:main
[dagengine.metrics]
polite = acme_evals.things:polite
polite-graph = acme_evals.things:graph
polite-list = acme_evals.things:several
acme = acme_evals.things
gone = acme_evals.nowhere:metric
# a remark
[dagengine.judges]
acme-strict = acme_evals.things:strict
gpt-4o = acme_evals.things:strict
plain:judge = acme_evals:judge
[dagengine.readers]
acme-log = acme_evals.things:read
acme-table = acme_evals.things:columns
acme-number = acme_evals.things:number
ragas = acme_evals.things:columns
"""


def install(home: Path, package: str, offers: str) -> None:
    """Make a folder with what a package manager leaves of a package."""
    about = home / f"{package.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(offers)


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "site"
    install(home, "acme-evals", OFFERS)
    (home / "acme_evals").mkdir()
    (home / "acme_evals" / "__init__.py").write_text("judge = 0\n")
    (home / "acme_evals" / "things.py").write_text(CODE)
    (tmp_path / "cases.log").write_text("Hello => yes please\nBye => go away\n")
    (tmp_path / "cases.csv").write_text("q,a\nHello,yes please\nBye,go away\n")
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_evals"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return home


@pytest.mark.parametrize(
    ("metric", "data", "judge"),
    [
        ("polite", "cases.log acme-log", "acme-strict"),
        ("acme", "cases.csv acme-table", "acme_evals.things:strict"),
        ("polite-graph", "cases.csv acme-table", "acme-strict"),
        ("polite-list", "cases.log acme-log", "acme_evals.things:strict"),
        ("acme_evals.things:polite", "cases.log acme-log", "acme-strict"),
    ],
)
def test_a_package_brings_a_metric_a_judge_and_a_reader(
    acme: Path, metric: str, data: str, judge: str
) -> None:
    file, reader = data.split()
    checked = CliRunner().invoke(app, ["check", metric])
    assert checked.exit_code == 0, checked.output
    words = ["run", metric, "--data", file, "--map", reader, "--judge", judge]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "1 of 2 cases failed" in done.output
    cases = list(read_cases(file, preset=reader))
    loaded = load_metrics(metric)
    scores = evaluate(cases, loaded, model=load_judge(judge, None), show=False)
    assert scores.scores(loaded[0].spec().name) == [1.0, 0.0]


def test_workers_know_what_a_package_offers(acme: Path) -> None:
    words = ("run", "polite", "--data", "cases.log", "--map", "acme-log", "--judge", "acme-strict")
    command = [sys.executable, "-m", "dagengine", *words, "--cluster", "local", "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(acme)})
    assert "1 of 2 cases failed" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("check polit", ("did you mean 'polite'", "polite (of acme-evals)")),
        ("check gone", ("'gone'", "package acme-evals", "No module named 'acme_evals.nowhere'")),
        ("check acme_evals.things:polit", ("has no 'polit'", "it has graph, polite, several")),
        ("check acme_evals.thing:polite", ("no file acme_evals.thing:polite", "no such module")),
        ("run polite --data cases.csv --map acme-tabel", ("did you mean 'acme-table'", "ragas")),
        ("run polite --data cases.csv --map acme-number", ("'acme-number'", "no mapping")),
        (
            "run polite --data cases.csv --map acme-log --judge acme-strict",
            ("'acme-log' cannot read", "ValueError"),
        ),
        ("run polite --data none.log --map acme-log", ("there is no file none.log",)),
        ("run polite --data cases.csv --map ragas", ("of dagengine", "of the package acme-evals")),
        ("run polite --data cases.csv --judge acme-strikt", ("'acme-strict'", "openai/acme-")),
        ("run polite --data cases.csv --judge gpt-4o", ("openai/gpt-4o", "acme_evals.things:str")),
    ],
)
def test_what_a_package_lacks_is_said_before_a_question(
    acme: Path, words: str, says: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(app, words.split())
    text = " ".join(str(done.exception).split())
    assert isinstance(done.exception, InputError), done.output
    assert [part for part in says if part not in text] == [], text


def test_one_name_of_two_packages_is_refused_and_the_others_still_work(acme: Path) -> None:
    install(acme, "other-evals", "[dagengine.metrics]\npolite = other_evals:polite\n")
    install(acme, "torn-evals", "no group at all\n[dagengine.metrics]\ntorn\nwhole = acme_evals\n")
    sys.path[:] = [*sys.path]
    sys.path.append(str(acme / "changed"))  # another path is looked through again
    with pytest.raises(InputError, match=r"things:polite of .* acme-evals and other_evals:polite"):
        load_metrics("polite")
    assert load_metrics("polite-list")
    with pytest.raises(InputError, match=r"'torn' .* of the package torn-evals, cannot be loaded"):
        load_metrics("torn")
    with pytest.raises(InputError, match="whole defines no metric"):
        load_metrics("whole")
    sys.path.remove(str(acme / "changed"))


MODELS = """
llama3:8b llama3.1:70b-instruct llama3.2:latest llama3.3:70b mistral:latest mistral-nemo:12b
mixtral:8x7b qwen2:7b qwen2.5:7b qwen2.5-coder:32b qwen3:8b qwen3.5:4b gemma:2b gemma2:9b gemma3:27b
phi3:mini phi3.5:latest phi4:14b deepseek-r1:7b deepseek-v3:671b deepseek-coder:6.7b codellama:7b
command-r:35b nomic-embed-text:latest smollm2:135m tinyllama:latest granite3.1-dense:8b yi:34b
vicuna:13b wizardlm2:7b orca-mini:3b starcoder2:15b falcon3:7b llava:13b gpt-oss:20b
hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M ft:gpt-4o-mini:acme::abc123
anthropic.claude-3-5-sonnet-20241022-v2:0 meta.llama3-1-8b-instruct-v1:0 amazon.nova-pro-v1:0
mistralai/ministral-8b:free os.path:join json:loads dagengine:latest
"""


def test_published_models_with_a_colon_are_models(acme: Path) -> None:
    assert len(MODELS.split()) >= 40
    assert [name for name in MODELS.split() if is_code(name)] == []
    assert isinstance(as_judge("llama3.2:latest"), OpenAIJudge)
    assert isinstance(load_judge("acme-strict", "http://127.0.0.1:1/v1"), OpenAIJudge)
    assert isinstance(load_judge("acme_evals.things:strict", "http://127.0.0.1:1/v1"), OpenAIJudge)
    assert is_code("acme_evals.things:strict")
    assert is_code("acme_evals:judge")  # no dot, but a package offers it
    assert "acme_evals" not in sys.modules


def test_only_files_become_absolute_for_other_processes() -> None:
    texts = ("metrics.py", "metrics.py:one", "tree.json:A", "polite", "acme.things:polite")
    changed = [str(Target.absolute(text)) != text for text in texts]
    assert changed == [True, True, True, False, False]


def test_a_missing_extra_is_one_sentence_with_the_command() -> None:
    with pytest.raises(
        MissingExtraError, match=r'^it needs nowhere: pip install "dagengine\[x\]"$'
    ):
        load_extra("nowhere.inside", "it needs", "x")
