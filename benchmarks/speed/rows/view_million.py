"""A run of a million rows in `dagengine view`: the first page, filters, a search, and the memory.

    python benchmarks/speed/rows/view_million.py [--rows 1000000]

A small run is recorded and its rows are repeated under new numbers and names; then the server is
started on that folder, once to make the index and once to serve from it. Times are those of
the requests that a page makes, one after the other; memory is the greatest resident size of the
second server (Linux). What a browser adds is not in them.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, TaskNode
from dagengine.question import Question
from dagengine.record.columns import ColumnsWriter
from dagengine.record.run import load_run
from dagengine.record.writer import CASES, MANIFEST, ROWS, TIMES, files_of
from dagengine.test_case import LLMTestCase

READS = ["actual_output"]
SMALL = 1000  # cases that are judged
WORDS = [
    f"{start}{middle}{end}"
    for start in "bdfglmnprst"
    for middle in "aeiou"
    for end in "bdfglmnprst"
]


def metric() -> DAGMetric:
    """A tree of five nodes."""
    tone = NonBinaryJudgementNode(
        "How does `actual_output` speak?", evaluation_params=READS, name="Tone",
        then={"warm": 10, "neutral": 7, "rude": 0},
    )  # fmt: skip
    step = BinaryJudgementNode("Is there a step?", name="Next step", then={True: tone, False: 3})
    steps = TaskNode("List the steps.", "Steps", evaluation_params=READS, children=[step])
    policy = BinaryJudgementNode(
        "Does it keep the policy?", evaluation_params=READS, name="Policy",
        then={True: tone, False: 1},
    )  # fmt: skip
    kind = NonBinaryJudgementNode(
        "What does `input` ask for?", evaluation_params=["input"], name="Kind",
        then={"refund": policy, "help": step, "other": tone},
    )  # fmt: skip
    return DAGMetric("Support quality", DAG(root_nodes=[kind, steps]))


def answer(question: Question[Any], turn: str = "") -> Any:
    """Any answer, the same for the same question in the same turn."""
    chance = random.Random(f"{question.key}{turn}")
    choices = {"Kind": ["refund", "help", "other"], "Tone": ["warm", "neutral", "neutral", "rude"]}
    if question.name == "Steps":
        return " ".join(chance.choices(WORDS, k=8))
    return chance.choice(choices.get(question.name, [True, True, True, False]))


def make(folder: Path, rows: int, changed: float = 0.0) -> None:
    """The folder of a run with that many rows; a share of the questions is answered otherwise."""
    chance = random.Random(1)
    cases = [
        LLMTestCase(
            name="NAME-", input=" ".join(chance.choices(WORDS, k=12)),
            actual_output=" ".join(chance.choices(WORDS, k=60)),
        )
        for _ in range(SMALL)
    ]  # fmt: skip

    def judge(question: Question[Any]) -> Any:
        other = random.Random(f"{question.key} other").random() < changed
        return answer(question, " again" if other else "")

    evaluate(cases, [metric()], model=ScriptedJudge(judge, name="toy"), out=folder, show=False)
    small = load_run(folder)
    columns = small.columns()
    lines = None if columns is None else list(columns.lines())
    hashes = [row.hash or "" for row in small.rows()]
    starts: list[int] = []
    for name in (ROWS, CASES, TIMES):
        texts = (folder / name).read_text("utf-8").splitlines()
        with (folder / name).open("wb") as file:
            end = 0
            for number in range(rows):
                head, _, rest = texts[number % SMALL].partition(",")
                assert head.startswith('{"index": ')
                row = rest.replace("NAME-", f"case {number}", 1)
                row = row.replace(hashes[number % SMALL], _hash(number), 1)
                if name == ROWS:
                    starts.append(end)
                end += file.write(f'{{"index": {number},{row}\n'.encode())
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    manifest["counts"] = {name: n * rows // SMALL for name, n in manifest["counts"].items()}
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    if lines is not None:
        record = load_run(folder).manifest
        writer = ColumnsWriter(folder, record)
        for number, start in enumerate(starts):
            _, name, _, trace, _, words, *results = lines[number % SMALL]
            name, words = (text.replace("NAME-", f"case {number}") for text in (name, words))
            writer.add_line((number, name, _hash(number), trace, start, words, *results))
        writer.close(files_of(folder, record))


def _hash(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


@contextmanager
def server(folder: Path) -> Iterator[tuple[Callable[..., Any], subprocess.Popen[str]]]:
    """A server on the folder: a function that asks it, and its process."""
    command = [sys.executable, "-m", "dagengine", "view", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield asker(found[0]), process
    finally:
        process.kill()
        process.communicate()


def asker(address: str) -> Callable[..., Any]:
    """Asks the run's page, or one of its questions."""
    parts = urlsplit(address)

    def ask(question: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection(parts.netloc, timeout=600)
        if question is None:
            connection.request("GET", f"{parts.path}run/0/")
            return connection.getresponse().read()
        headers = {"Origin": f"http://{parts.netloc}"}
        path = f"{parts.path}run/0/api/source"
        connection.request("POST", path, json.dumps(question), headers)
        reply = connection.getresponse()
        body = reply.read()
        assert reply.status == 200, body
        return json.loads(body)

    return ask


def timed(name: str, *calls: Callable[[], Any]) -> None:
    start = time.perf_counter()
    for call in calls:
        call()
    print(f"{name:34} {time.perf_counter() - start:7.2f} s", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rows", type=int, default=1_000_000)
    rows = arguments.parse_args().rows
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "run"
        os.environ["XDG_CACHE_HOME"] = base  # the index goes with the run
        make(folder, rows)
        start = time.perf_counter()
        with server(folder):
            print(f"{'making the index, once':34} {time.perf_counter() - start:7.2f} s", flush=True)
        (index,) = Path(base, "dagengine").glob("view-*.sqlite")
        size = index.stat().st_size / 1e6
        texts = sum(path.stat().st_size for path in folder.glob("*.jsonl")) / 1e6
        print(f"{'index, beside ' + format(texts, ',.0f') + ' MB of rows':34} {size:7.0f} MB")
        start = time.perf_counter()
        with server(folder) as (ask, process):
            print(f"{'starting with an index':34} {time.perf_counter() - start:7.2f} s", flush=True)
            look(ask)
            status = Path(f"/proc/{process.pid}/status").read_text("ascii")
            peak = re.search(r"VmHWM:\s+(\d+)", status)
            assert peak is not None
            print(f"{'most memory of the server':34} {int(peak[1]) / 1e3:7.0f} MB")


def look(ask: Callable[..., Any]) -> None:
    """What a page asks when it is opened, filtered, sorted and searched."""

    def view(chosen: str, order: str, *parts: dict[str, Any], text: str = "") -> list[Any]:
        given = {"filter": {"metric": 0, "parts": list(parts), "text": text}}
        rows = {"chosen": chosen, "order": {"by": order, "down": False}, "start": 0, "stop": 30}
        return [
            lambda: ask({"ask": "counts", **given}),
            lambda: ask({"ask": "ends", **given}),
            lambda: ask({"ask": "rows", **given, **rows}),
        ]

    edge = {"kind": "e", "key": "Tone:rude", "not": False}
    timed("first page (target 1 s)", ask, *view("fail", "default"))
    timed("filter by an edge", *view("all", "default", edge))
    timed("sort by score, all rows", *view("all", "score"))
    timed("search (target 0.5 s)", *view("all", "default", text="bag dog"))
    timed("search inside an edge", *view("all", "default", edge, text="case 99999"))
    timed("one case", lambda: ask({"ask": "one", "index": 777}))


if __name__ == "__main__":
    main()
