"""The recipes for Slurm and Kubernetes: linted, and run in part with stand-ins for the cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from folders.places import ROOT
from typer.testing import CliRunner

from dagengine.cli import app

yaml = pytest.importorskip("yaml")
pytest.importorskip("distributed")

HERE = ROOT / "docs" / "how-to"
PAGE = (HERE / "many-machines.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(
    re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', PAGE, re.DOTALL | re.MULTILINE)
) | {name: (HERE / name).read_text(encoding="utf-8") for name in ("shards.yaml", "cluster.yaml")}
CLUSTER = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
GIVEN: dict[str, str] = dict(
    re.findall(r'^```\w+ title="(\S+\.\w+)"\n(.*?)^```', CLUSTER, re.DOTALL | re.MULTILINE)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of a job, and what stands for Slurm: `srun` runs its command here."""
    for name in ("metrics.py", "cases.jsonl", "judge.py"):
        (tmp_path / name).write_text(GIVEN[name])
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, module in (("dagengine", "dagengine"), ("dask", "dask")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
    (commands / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    (commands / "hostname").write_text("#!/bin/sh\necho 127.0.0.1\n")
    for command in commands.iterdir():
        command.chmod(0o700)
    return tmp_path


def batch(folder: Path, name: str, **variables: str) -> None:
    """Run a batch script as Slurm does."""
    path = f"{folder / 'commands'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", name], cwd=folder, env={**os.environ, "PATH": path, **variables},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def rows(folder: Path, out: str) -> list[Any]:
    text = (folder / out / "results.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".sbatch")])
def test_batch_scripts_are_valid(folder: Path, name: str) -> None:
    subprocess.run(["bash", "-n", name], cwd=folder, check=True)
    head, _, body = FILES[name].partition("\nset -euo pipefail\n")
    lines = head.splitlines()
    assert lines[0] == "#!/bin/bash"
    # Slurm reads options up to the first line that is none.
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+=\S+", line) for line in lines[1:] if line)
    assert body
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", name], cwd=folder, check=True)


def test_the_array_of_shards_gives_the_rows_of_one_run(folder: Path) -> None:
    for number in "12":
        batch(folder, "shards.sbatch", SLURM_ARRAY_TASK_ID=number, SLURM_ARRAY_TASK_COUNT="2")
    files = [str(folder / name) for name in ("part-1", "part-2")]
    merged = CliRunner().invoke(app, ["merge", *files, "--out", str(folder / "whole")])
    assert merged.exit_code == 0, merged.output
    assert [row["index"] for row in rows(folder, "whole")] == [0, 1, 2]


def test_the_job_of_several_nodes_runs_on_one(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    batch(folder, "cluster.sbatch", SLURM_NNODES="1", DASK_PORT=str(port))
    assert [row["index"] for row in rows(folder, "whole")] == [0, 1, 2]


def test_the_program_for_slurm_runs_with_jobs_of_this_machine(folder: Path) -> None:
    pytest.importorskip("dask_jobqueue", reason="pip install dask-jobqueue runs the Slurm recipe")
    program = FILES["slurm.py"]
    changes = {
        "from dask_jobqueue import SLURMCluster": "from dask_jobqueue.local import LocalCluster",
        'SLURMCluster(cores=4, processes=1, memory="4GB", walltime="04:00:00")': (
            'LocalCluster(cores=4, processes=1, memory="4GB")'
        ),
        "(jobs=4)": "(jobs=2)",
        "_workers(4)": "_workers(2)",
        "_address, 4)": "_address, 2)",
    }
    for recipe, here in changes.items():
        assert program.count(recipe) == 1, recipe
        program = program.replace(recipe, here)
    (folder / "slurm.py").write_text(program)
    cases = [json.loads(line) for line in GIVEN["cases.jsonl"].splitlines()]
    (folder / "cases.json").write_text(json.dumps(cases))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run(
        [sys.executable, "slurm.py"], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 cases" in done.stdout + done.stderr


def objects(name: str) -> dict[str, Any]:
    """The objects of a file by their kinds and names."""
    return {
        f"{each['kind']} {each['metadata']['name']}": each
        for each in yaml.safe_load_all(FILES[name])
    }


def pods(name: str) -> dict[str, Any]:
    return {
        key: each["spec"]["template"]["spec"]
        for key, each in objects(name).items()
        if "template" in each["spec"]
    }


VERSIONS = {"Service": "v1", "Deployment": "apps/v1", "Job": "batch/v1"}


@pytest.mark.parametrize("name", ["shards.yaml", "cluster.yaml"])
def test_manifests_fit_together(name: str) -> None:
    for key, each in objects(name).items():
        assert each["apiVersion"] == VERSIONS[each["kind"]]
        if each["kind"] == "Deployment":
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert each["spec"]["selector"]["matchLabels"] == labels, key
    for key, pod in pods(name).items():
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        for container in pod["containers"]:
            mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
            assert mounts == volumes, key
            assert container["resources"]["limits"]["memory"], key
            for word in [*container["command"], *container.get("args", [])]:
                assert isinstance(word, str), f"{key}: {word!r} is no text"
        assert pod.get("restartPolicy", "Never") == "Never"


def test_the_run_on_kubernetes_finds_its_scheduler_and_waits_for_all_workers() -> None:
    every = objects("cluster.yaml")
    service = every["Service dask-scheduler"]["spec"]
    scheduler = every["Deployment dask-scheduler"]["spec"]["template"]
    assert scheduler["metadata"]["labels"] == service["selector"]
    port = service["ports"][0]["port"]
    address = f"tcp://dask-scheduler:{port}"
    worker, run = (
        pods("cluster.yaml")[key]["containers"][0]
        for key in ("Deployment dask-worker", "Job dagengine-run")
    )
    assert worker["command"][2] == address
    options = dict(zip(run["args"][::2], run["args"][1::2], strict=True))
    assert options["--cluster"] == address
    assert options["--workers"] == str(every["Deployment dask-worker"]["spec"]["replicas"])
    assert {worker["image"], run["image"]} == {scheduler["spec"]["containers"][0]["image"]}


def test_the_shards_on_kubernetes_are_as_many_as_pods() -> None:
    job = objects("shards.yaml")["Job dagengine-shards"]["spec"]
    script = job["template"]["spec"]["containers"][0]["args"][0]
    assert f'--shard "$number/{job["completions"]}"' in script
    subprocess.run(["bash", "-n", "-c", script], check=True)
