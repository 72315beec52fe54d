"""dagengine beside deepeval, ragas, the plain openai client and aiohttp alone, in one run.

    python benchmarks/speed/throughput.py [--only "dagengine; deepeval"] [--cases 960]
    python benchmarks/speed/throughput.py --against CHECKOUT [--against CHECKOUT]

The second form takes turns with other versions of dagengine, each from a checkout of its own.

A server of its own (`server.py`, a new process for every measurement) answers every call after
the same latency. Every client runs in a process of its own, peers in environments of their own
with pinned versions (`peers/*.txt`), which are made on demand. Clients take turns, so that a
disturbance meets all of them.

- *calls a case*: chat completions that the server counted; embeddings are not among them
- *CPU a call*: user and system time of the whole client process between the clocks, over its
  calls; imports and a run of some other cases to warm up come before
- *wall / ideal*: the ideal is the greatest of calls x latency / calls in flight, rounds of one
  case x latency, and 60 s x (calls - 1) // calls a minute; calls are those of the client itself
- *peak*: the most memory the process held, imports included
- *at once*: calls in flight, at most, as the server saw it; *server*: how busy it was (1 is
  one processor: then it is the server that is measured)

Settings: dagengine `Limits(max_in_flight=N)`; openai the same requests in the same rounds,
with its default transport and with *aiohttp*; deepeval `AsyncConfig(max_concurrent=N)`, no cache,
no files, no telemetry, `OpenAIModel` with structured output, as it comes and with one HTTP client
handed over for all calls (*shared*); ragas its present metrics, N of them at a time, one client.
Slow clients get fewer cases, which the table states.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from environments import DEFAULT_FOLDER, UnavailableError, python_of
from figures import BARE, DEEPEVAL, OURS, PLAIN, Pace, Row, Run, targets
from job import FAITHFULNESS, G_EVAL, RAG, TREE, Job, Measured
from rich.console import Console
from rich.table import Table
from server import Settings, read_settings, running

HERE = Path(__file__).resolve().parent
WORKLOADS = (TREE, G_EVAL, FAITHFULNESS, RAG)
WIDTH_OF_A_FILE = 130
PATIENCE = 600.0
QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "DEEPEVAL_DISABLE_DOTENV": "1",
    "DEEPEVAL_FILE_SYSTEM": "READ_ONLY",
    "DEEPEVAL_NO_INSPECT_PROMPT": "1",
    "DEEPEVAL_DISABLE_TIMEOUTS": "1",
    "ERROR_REPORTING": "NO",
    "RAGAS_DO_NOT_TRACK": "true",
    "PYTHONWARNINGS": "ignore",
}


class RunError(Exception):
    """Raised when a client does not come to an end; the message says how it ended."""


@dataclass(frozen=True)
class Client:
    """A script, the environment it needs, and what it can do."""

    name: str
    script: str
    setting: str = ""
    packages: str = ""
    workloads: Sequence[str] = WORKLOADS
    slow: bool = False
    checkout: Path = HERE.parents[1]


CLIENTS = (
    Client(OURS, "with_dagengine.py"),
    Client(PLAIN, "with_openai.py"),
    Client("create, aiohttp", "with_openai.py", "aiohttp"),
    Client(DEEPEVAL, "with_deepeval.py", "", "deepeval.txt", slow=True),
    Client("deepeval, shared", "with_deepeval.py", "shared", "deepeval.txt", slow=True),
    Client("ragas", "with_ragas.py", "", "ragas.txt", (FAITHFULNESS, RAG), slow=True),
    Client(BARE, "with_openai.py", "bare", workloads=(G_EVAL,)),
    Client("raw aiohttp", "with_aiohttp.py"),
)
# Clients that are given the requests to send.
_LOOPS = ("with_openai.py", "with_aiohttp.py")


@dataclass(frozen=True)
class Plan:
    """What to measure, and how often."""

    clients: Sequence[Client]
    workloads: Sequence[str]
    cases: int
    slow_cases: int
    repeats: int
    in_flight: int
    settings: Settings
    venvs: Path
    profiled: bool = False

    def job(self, client: Client, workload: str) -> Job:
        """The job of a client; its address is not known yet."""
        return Job(
            base_url="",
            workload=workload,
            setting=client.setting,
            cases=self.slow_cases if client.slow else self.cases,
            warm_up=min(16, self.slow_cases),
            in_flight=self.in_flight,
            requests=written(workload) if client.script in _LOOPS else (),
            profiled=self.profiled,
        )

    def pace(self) -> Pace:
        """What the server allows."""
        return Pace(self.settings.latency, self.in_flight, self.settings.per_minute)


@cache
def written(workload: str) -> list[list[dict[str, Any]]]:
    """The requests that dagengine sends for one case, in rounds."""
    command = [sys.executable, str(HERE / "peers" / "written.py"), workload]
    env = _environment(Path.cwd(), HERE.parents[1])
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _environment(home: Path, checkout: Path) -> dict[str, str]:
    """Variables of a client: nothing of the user's, and peers report nothing to anybody."""
    path = os.pathsep.join([str(HERE), str(checkout)])
    own = {"PATH": os.environ.get("PATH", ""), "HOME": str(home), "PYTHONPATH": path}
    return {**own, **QUIET}


def measured(python: Path, client: Client, job: Job, plan: Plan) -> Run:
    """One run against a server of its own; raises RunError."""
    # Answers of a version's own server: each version asks for them in its own form.
    server = client.checkout / "benchmarks" / "speed" / "server.py"
    with tempfile.TemporaryDirectory() as home, running(plan.settings, server) as url:
        command = [str(python), str(HERE / "peers" / client.script)]
        with _started(command, Path(home), client.checkout) as (process, errors):
            job = replace(job, base_url=url)
            try:
                _tell(process, json.dumps(asdict(job)))
                _line(process, "WARM")
                before = _stats(url)
                _tell(process, "GO")
                found = Measured(**json.loads(_line(process, "DONE")))
            except (RunError, BrokenPipeError):
                raise RunError(_last_line(errors)) from None
            return run_of(found, job, before, _stats(url), plan.pace())


def run_of(
    found: Measured, job: Job, before: dict[str, Any], after: dict[str, Any], pace: Pace
) -> Run:
    """A run from what the client and the server say; raises RunError when scores are missing."""
    if found.scored < found.wanted:
        raise RunError(f"{found.wanted - found.scored} of {found.wanted} scores are missing")
    calls = after["calls"] - before["calls"]
    ideal = pace.ideal(calls, len(written(job.workload)))
    server_cpu = after["cpu"] - before["cpu"]
    return Run(found, job.cases, calls, after["in_flight_max"], server_cpu, ideal)


@contextmanager
def _started(
    command: list[str], home: Path, checkout: Path
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    pipe = subprocess.PIPE
    with (
        (home / "errors").open("w+") as errors,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=errors, text=True, cwd=home,
            env=_environment(home, checkout),
        ) as process,
    ):  # fmt: skip
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        try:
            yield process, errors
        finally:
            timer.cancel()
            process.kill()


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str], word: str) -> str:
    """What follows `word` on the next line that starts with it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line.removeprefix(word)
    raise RunError(word)


def _last_line(errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip()]
    return f"it ended early: {lines[-1]}" if lines else f"it did not end within {PATIENCE:.0f} s"


def _stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/stats") as page:
        return json.load(page)  # type: ignore[no-any-return]


def rows_of(plan: Plan, console: Console) -> list[Row]:
    """Every client on every workload, in turns."""
    rows = {
        (workload, client.name): Row(workload, client.name, ())
        for workload in plan.workloads
        for client in plan.clients
        if workload in client.workloads
    }
    by_name = {client.name: client for client in plan.clients}
    for turn in range(plan.repeats):
        for key, row in rows.items():
            if not row.problem:
                console.print(f"turn {turn + 1}: {', '.join(key)}", style="dim")
                rows[key] = _once_more(row, by_name[row.client], plan)
    return list(rows.values())


def _once_more(row: Row, client: Client, plan: Plan) -> Row:
    try:
        packages = HERE / "peers" / client.packages
        python = python_of(packages, plan.venvs) if client.packages else Path(sys.executable)
        run = measured(python, client, plan.job(client, row.workload), plan)
    except (RunError, UnavailableError) as error:
        return replace(row, problem=str(error))
    return replace(row, runs=(*row.runs, run))


def table_of(rows: Sequence[Row]) -> Table:
    """One row per client and workload: medians, the least in brackets, ratios to ours."""
    table = Table(title="median of the turns (least), x: times dagengine's")
    heads = ("cases", "calls\na case", "CPU a call\nms", "x", "wall /\nideal", "cases/s", "x",
             "peak\nMB", "at\nonce", "server")  # fmt: skip
    table.add_column("workload", min_width=12)
    table.add_column("client", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    ours = {row.workload: row for row in rows if row.client == OURS and row.runs}
    last = ""
    for row in rows:
        if row.workload != last:
            table.add_section()
        first = row.workload if row.workload != last else ""
        table.add_row(first, row.client, *_cells(row, ours.get(row.workload)))
        last = row.workload
    return table


def _cells(row: Row, ours: Row | None) -> list[str]:
    if not row.runs:
        return ["-"] * 10
    speed = row.median(lambda run: run.cases_per_second)
    times = ["-", "-"]
    if ours is not None:
        other = ours.median(lambda run: run.cases_per_second)
        times = [f"{row.cpu / ours.cpu:.2f}", f"{speed / other:.2f}"]
    return [
        str(row.runs[0].cases),
        f"{row.calls:.2f}",
        f"{row.cpu:.2f} ({row.least(lambda run: run.cpu_per_call):.2f})",
        times[0],
        f"{row.over_ideal:.2f} ({row.least(lambda run: run.over_ideal):.2f})",
        f"{speed:.0f}",
        times[1],
        f"{row.median(lambda run: run.measured.peak):.0f}",
        f"{max(run.in_flight_max for run in row.runs)}",
        f"{row.median(lambda run: run.server_share):.2f}",
    ]


def notes_of(rows: Sequence[Row]) -> Iterator[str]:
    """What the table cannot say: rows without figures, and figures not to be trusted."""
    for row in rows:
        if row.problem:
            yield f"{row.workload}, {row.client}: {row.problem}"
        if row.runs and row.disturbed:
            walls = ", ".join(f"{run.measured.wall:.2f}" for run in row.runs)
            yield f"{row.workload}, {row.client}: disturbed, its runs took {walls} s"


def targets_table(rows: Sequence[Row], in_flight: int) -> Table:
    """Every target, and whether it is met."""
    table = Table("target", "wanted", "found", "met")
    for target in targets(rows, in_flight):
        met = "yes" if target.met else "[bold red]no[/]"
        table.add_row(target.name, target.wanted, f"{target.found:.4g}", met)
    return table


def versions(checkouts: Sequence[Path]) -> list[Client]:
    """This version and those in other checkouts; raises BadParameter for a folder without one."""
    clients = [CLIENTS[0]]
    for checkout in map(Path.resolve, checkouts):
        if not (checkout / "dagengine" / "__init__.py").exists():
            raise typer.BadParameter(f"{checkout} is no checkout of dagengine")
        clients.append(replace(CLIENTS[0], name=f"{OURS} in {checkout.name}", checkout=checkout))
    return clients


def _chosen(only: str) -> list[Client]:
    names = [name.strip() for name in only.split(";") if name.strip()]
    unknown = set(names) - {client.name for client in CLIENTS}
    if unknown:
        known = "; ".join(client.name for client in CLIENTS)
        raise typer.BadParameter(f"no client {', '.join(sorted(unknown))}; there are: {known}")
    return [client for client in CLIENTS if not names or client.name in names]


def main(
    only: Annotated[str, typer.Option(help="Clients by name, separated by ';'.")] = "",
    workload: Annotated[list[str] | None, typer.Option(help="Workloads; all if none.")] = None,
    cases: Annotated[int, typer.Option(help="Cases of a run.", min=1)] = 5000,
    slow_cases: Annotated[int, typer.Option(help="Cases of the slow clients.", min=1)] = 128,
    repeats: Annotated[int, typer.Option(help="Turns of every client.", min=1)] = 3,
    latency_ms: Annotated[float, typer.Option(help="What the server takes.", min=0.1)] = 50.0,
    in_flight: Annotated[int, typer.Option(help="Calls at the same time.", min=1)] = 64,
    server: Annotated[str, typer.Option(help="More options of server.py, one text.")] = "",
    venvs: Annotated[Path, typer.Option(help="Where peers are installed.")] = DEFAULT_FOLDER,
    against: Annotated[list[Path] | None, typer.Option(help="Checkouts of other versions.")] = None,
) -> None:
    """Measure in turns and print the table and the targets."""
    wanted = workload or list(WORKLOADS)
    if set(wanted) - set(WORKLOADS):
        raise typer.BadParameter(f"workloads are {', '.join(WORKLOADS)}")
    settings = replace(read_settings(server.split()), latency=latency_ms / 1e3)
    clients = versions(against) if against else _chosen(only)
    plan = Plan(clients, wanted, cases, slow_cases, repeats, in_flight, settings, venvs)
    rows = rows_of(plan, Console(stderr=True))
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    console.print(table_of(rows))
    for note in notes_of(rows):
        console.print(note, highlight=False, markup=False)
    console.print(targets_table(rows, in_flight))


if __name__ == "__main__":
    typer.run(main)
