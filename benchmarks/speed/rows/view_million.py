"""A run of a million rows in `dagengine view`: the first page, filters, a search, and the memory.

    python benchmarks/speed/rows/view_million.py [--rows 1000000] [--folder RUN]

A small run is recorded and its rows are repeated under new numbers and names; then the server is
started on that folder, once to make the index and once to serve from it. A time is that until the
page in Chromium has changed for the last time. Memory is the heap of the page, and the greatest
resident size of the second server (Linux). The second time is that of the processor, for the page
and the server together: where other programs run it says more.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, TaskNode
from dagengine.question import Question
from dagengine.record.parquet_columns import ColumnsWriter
from dagengine.record.reader import load_run
from dagengine.record.writer import CASES, MANIFEST, ROWS, TIMES, files_of
from dagengine.test_case import LLMTestCase

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
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
def server(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server on the folder: the address of the page, and the process."""
    command = [sys.executable, "-m", "dagengine", "view", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = next(filter(None, (re.search(r"http://\S+", line) for line in process.stdout)))
        yield f"{address[0]}run/0/", process
    finally:
        process.kill()
        process.communicate()


# The time of the last change of the page, once nothing has changed for three seconds. Ticks are
# counted: while the page computes there are none.
SETTLED = """async fragment => {
    let [start, last, quiet] = [fragment === null ? 0 : performance.now(), 0, 0];
    const seen = new MutationObserver(() => { last = performance.now(); quiet = 0; });
    seen.observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
    if (fragment !== null) location.hash = fragment;
    while (quiet++ < 60) await new Promise(done => setTimeout(done, 50));
    seen.disconnect();
    return last - start;
}"""
TICKS = os.sysconf("SC_CLK_TCK")
PLACES = {
    "first page, cold": None,
    "first page (target 1 s)": None,
    "filter by an edge": "e=Tone:rude",
    "sort by score, all rows": "state=all&sort=-score",
    "sort by tokens": "state=all&sort=-tokens&columns=tokens",
    "sort by name": "state=all&sort=-case",
    "search (target 0.5 s)": "q=bag dog",
    "search inside an edge": "q=case 99999&e=Tone:rude",
    "one case": "case=case 777&v=case",
}


def look(address: str, server: int) -> None:
    """Open the page, filter, sort and search; `server` is the number of its process."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(300_000)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")

        def used() -> float:
            """Seconds of processor that the page and the server have taken."""
            measured = session.send("Performance.getMetrics")["metrics"]
            taken = {metric["name"]: metric["value"] for metric in measured}
            fields = Path(f"/proc/{server}/stat").read_text("ascii").split()
            return float(taken["ProcessTime"]) + (int(fields[13]) + int(fields[14])) / TICKS

        for name, fragment in PLACES.items():
            if fragment is None:
                page.goto("about:blank")
            start = used()
            if fragment is None:
                page.goto(address, wait_until="commit")
            taken = page.evaluate(SETTLED, fragment) / 1e3
            title = page.inner_text("h1")
            print(f"{name:34} {taken:7.2f} s {used() - start:7.2f} s  {title:.60}", flush=True)
        page.request_gc()
        held = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        print(f"{'heap of the page':34} {held:7.0f} MB")
        browser.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--folder", type=Path, help="a run that is there already")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as base:
        folder: Path = given.folder or Path(base) / "run"
        os.environ["XDG_CACHE_HOME"] = base  # the index goes with the run
        if given.folder is None:
            make(folder, given.rows)
        start = time.perf_counter()
        with server(folder):
            print(f"{'making the index, once':34} {time.perf_counter() - start:7.2f} s", flush=True)
        (index,) = Path(base, "dagengine").glob("view-*.sqlite")
        size = index.stat().st_size / 1e6
        texts = sum(path.stat().st_size for path in folder.glob("*.jsonl")) / 1e6
        print(f"{'index, beside ' + format(texts, ',.0f') + ' MB of rows':34} {size:7.0f} MB")
        start = time.perf_counter()
        with server(folder) as (address, process):
            print(f"{'starting with an index':34} {time.perf_counter() - start:7.2f} s", flush=True)
            look(address, process.pid)
            status = Path(f"/proc/{process.pid}/status").read_text("ascii")
            peak = re.search(r"VmHWM:\s+(\d+)", status)
            assert peak is not None
            print(f"{'most memory of the server':34} {int(peak[1]) / 1e3:7.0f} MB")


if __name__ == "__main__":
    main()
