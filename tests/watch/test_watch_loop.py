"""Watches of small streams: what is judged, kept, asked again, and gone on with after a kill."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from folders.spans import trace_id, write

from dagengine.errors import InputError, JudgeSetupError, JudgeTimeoutError, ProviderError
from dagengine.evaluation import RecordTo
from dagengine.judges import ScriptedJudge
from dagengine.limits import Limits
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Question
from dagengine.record.reader import load_run
from dagengine.record.run_json_types import DataRecord
from dagengine.results import CaseResult, OutcomeKind
from dagengine.voting import escalated
from dagengine.watch import Folder, Sampling, Watch, WatchSettings
from dagengine.watch.growing import DailyAccount, GrowingRun

pytestmark = pytest.mark.anyio
READS = ["input", "actual_output"]


def metric() -> DAGMetric:
    node = BinaryJudgementNode("ok?", evaluation_params=READS, then={True: 10, False: 0}, name="ok")
    return DAGMetric("Good", DAG(root_node=node))


class Judge:
    """Calls an answer good if it says so, and counts what it was asked."""

    def __init__(self, strict: float = 0.0) -> None:
        self.asked = Counter[str]()
        self.strict = strict

    def __call__(self, question: Question[Any]) -> bool:
        text = question.messages[-1]["content"]
        self.asked[text] += 1
        dice = random.Random(f"{text} {self.asked[text]}")
        return "good" in text and dice.random() >= self.strict


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def settings(**more: Any) -> WatchSettings:
    return WatchSettings(quiet=2.0, until_idle=True, **{"baseline": 100, "again": 0.0, **more})


async def watched(
    folder: Path,
    judge: Callable[[Question[Any]], bool],
    how: WatchSettings,
    limits: Limits | None = None,
    today: Callable[[], str] | None = None,
    metrics: Sequence[Any] = (),
    **more: Any,
) -> Watch:
    out, time = folder / "out", Time()
    account = None if today is None else DailyAccount(out, today)
    watch = Watch(
        metrics or [metric()], {"model": ScriptedJudge(judge, name="scripted"), "limits": limits},
        Folder(folder / "spans"), how, account,
        clock=time, sleep=time.sleep, **{"say": lambda text: None, **more},
    )  # fmt: skip
    engine = watch.engine
    manifest = RecordTo(out, {"watch": "spans"}).manifest(engine, DataRecord())
    await watch.run(GrowingRun(out, manifest, lambda: (engine.totals, engine.spent)))
    return watch


def rows(folder: Path) -> list[CaseResult]:
    return list(load_run(folder / "out").rows())


def content(folder: Path) -> list[str]:
    """The rows by their traces, whatever their order."""
    text = (folder / "out" / "results.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row.pop("index") for row in rows] == list(range(len(rows)))
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


async def test_every_trace_has_one_row_in_a_folder_that_run_could_have_written(
    tmp_path: Path,
) -> None:
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 30)
    write(tmp_path / "spans" / "b.jsonl", ["bad"] * 10, first=31)
    watch = await watched(tmp_path, Judge(), settings())
    run = load_run(tmp_path / "out")
    traces = [(row.trace or {})["trace_id"] for row in run.rows()]
    assert sorted(traces) == [trace_id(number) for number in range(1, 41)]
    assert run.manifest.counts is not None
    assert (run.manifest.counts.cases, run.manifest.counts.failed) == (40, 10)
    assert len(list(run.cases())) == 40
    assert watch.lines() == [
        "traces: 40 judged",
        f"Good: mean 0.750 of the traffic ({_held(watch)}",
    ]


def _held(watch: Watch) -> str:
    held = watch.lines()[1].partition("(")[2]
    low, high = (float(word) for word in held.split() if word[0].isdigit())
    assert low < 0.75 < high
    return held


async def test_a_second_watch_judges_only_what_is_new(tmp_path: Path) -> None:
    judge = Judge()
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 20)
    await watched(tmp_path, judge, settings())
    write(tmp_path / "spans" / "a.jsonl", ["bad"] * 5, first=21)
    watch = await watched(tmp_path, judge, settings())
    assert len(rows(tmp_path)) == 25
    assert set(judge.asked.values()) == {1}
    assert watch.counts["judged"] == 25
    totals = load_run(tmp_path / "out").manifest.totals
    assert totals is not None
    assert totals.calls == 25


class KilledError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("moments", [(0, 1, 7), (3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3)])
async def test_kills_by_the_dozen_leave_the_rows_of_a_watch_that_nothing_disturbed(
    tmp_path: Path, moments: tuple[int, ...]
) -> None:
    answers = ["good", "bad", "good"] * 20
    for name in ("whole", "killed"):
        write(tmp_path / name / "spans" / "a.jsonl", answers)
    sampling = Sampling.parse(["0.8"])
    await watched(tmp_path / "whole", Judge(), settings(sampling=sampling))
    for moment in moments:
        left = moment

        def kill(row: CaseResult) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledError

        with pytest.raises(KilledError):
            await watched(tmp_path / "killed", Judge(), settings(sampling=sampling), check=kill)
        # What a kill in the middle of a line leaves.
        for name in ("results.jsonl", "cases.jsonl", "times.jsonl", "again.jsonl"):
            with (tmp_path / "killed" / "out" / name).open("a") as file:
                file.write('{"index": 99, "ca')
    await watched(tmp_path / "killed", Judge(), settings(sampling=sampling))
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    assert len(rows(tmp_path / "killed")) < len(answers)


async def test_sampling_decides_by_the_trace_and_keeps_probabilities(tmp_path: Path) -> None:
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 300)
    write(tmp_path / "spans" / "b.jsonl", ["bad"] * 40, first=301, failed=True)
    watch = await watched(tmp_path, Judge(), settings(sampling=Sampling.parse(["errors=1", "0.3"])))
    ids = [row.trace or {} for row in rows(tmp_path)]
    strata = Counter((trace["watch.stratum"], trace["watch.probability"]) for trace in ids)
    assert strata["errors", "1.0"] == 40
    assert 60 < strata["others", "0.3"] < 120
    assert watch.counts["not sampled"] == 340 - len(ids)
    # 300 of 340 are good; of what was judged far fewer.
    mean = float(watch.lines()[1].split()[2])
    assert mean == pytest.approx(300 / 340, abs=0.03)
    assert len(ids) - 40 < 0.8 * len(ids)


async def test_no_trace_is_judged_before_all_that_was_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagengine.watch.file_tail._AT_ONCE", 1000)
    for child in (False, True):  # of every trace a span in each file, far from each other
        path = tmp_path / "spans" / f"{child}.jsonl"
        write(path, ["good"] * (20 + 40 * child), first=1 - 40 * child + 40, child=child)
    how = dataclasses.replace(settings(), quiet=0.0)
    watch = await watched(tmp_path, Judge(), how)
    assert watch.counts == {"judged": 20}
    cases = list(load_run(tmp_path / "out").cases())
    assert {len(case["spans"]) for case in cases} == {2}
    assert watch.lines()[0] == "traces: 20 judged, 40 without the end of a root"


async def test_a_trace_without_texts_has_a_row_and_no_score(tmp_path: Path) -> None:
    write(tmp_path / "spans" / "a.jsonl", ["good"], attributes=[])
    watch = await watched(tmp_path, Judge(), settings())
    assert [row.metrics[0].outcome for row in rows(tmp_path)] == [OutcomeKind.SKIPPED]
    assert watch.lines() == ["traces: 1 no score"]
    await watched(tmp_path, Judge(), settings())
    assert len(rows(tmp_path)) == 1


async def test_a_day_has_its_calls_and_what_is_unasked_is_counted(tmp_path: Path) -> None:
    judge, limits = Judge(), Limits(max_calls=8)
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 12)
    days = [date(2026, 1, 1).isoformat(), date(2026, 1, 2).isoformat()]
    watch = await watched(tmp_path, judge, settings(), limits, lambda: days[0])
    assert (watch.counts["judged"], watch.counts["unasked"]) == (8, 4)
    outcomes = Counter(row.metrics[0].outcome for row in rows(tmp_path))
    assert outcomes == {OutcomeKind.OK: 8, OutcomeKind.OVER_BUDGET: 4}
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 3, first=13)
    watch = await watched(tmp_path, judge, settings(), limits, lambda: days[0])
    assert (watch.counts["judged"], watch.counts["unasked"]) == (8, 7)
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 3, first=16)
    watch = await watched(tmp_path, judge, settings(), limits, lambda: days[1])
    assert (watch.counts["judged"], watch.counts["unasked"]) == (11, 7)
    assert judge.asked.total() == 11


async def test_an_alarm_names_the_app_once_also_after_a_restart(tmp_path: Path) -> None:
    how, judge = settings(again=0.05), Judge()
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 300)
    await watched(tmp_path, judge, how)
    assert not (tmp_path / "out" / "alerts.jsonl").read_text()
    write(tmp_path / "spans" / "a.jsonl", ["bad"] * 40, first=301)
    watch = await watched(tmp_path, judge, how)
    (alert,) = watch.alerts
    assert (alert.cause, alert.group, alert.before) == ("app", "all", 1.0)
    assert alert.now < 0.9
    (line,) = (tmp_path / "out" / "alerts.jsonl").read_text().splitlines()
    assert json.loads(line)["cause"] == "app"
    # The alarm, or what led to it, was lost with the process: it is raised again, or not.
    assert (await watched(tmp_path, judge, how)).alerts == []
    (tmp_path / "out" / "alerts.jsonl").write_text("")
    assert len((await watched(tmp_path, judge, how)).alerts) == 1


async def test_an_alarm_names_the_judge_that_answers_old_questions_otherwise(
    tmp_path: Path,
) -> None:
    how = settings(again=0.1)
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 400)
    await watched(tmp_path, Judge(), how)
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 200, first=401)
    watch = await watched(tmp_path, Judge(strict=0.4), how)
    assert watch.alerts
    assert {alert.cause for alert in watch.alerts} == {"judge"}
    again = (tmp_path / "out" / "again.jsonl").read_text().splitlines()
    asked = [json.loads(line)["row"] for line in again]
    assert asked == sorted(set(asked))  # each old case at most once


async def test_other_metrics_or_a_plain_run_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "spans" / "a.jsonl", ["good"])
    await watched(tmp_path, Judge(), settings())
    path = tmp_path / "out" / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "settings": {}}))
    with pytest.raises(InputError, match="another kind of run"):
        await watched(tmp_path, Judge(), settings())
    record["metrics"][0]["hash"] = "0" * 64
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="other metrics: choose another folder"):
        await watched(tmp_path, Judge(), settings())


async def test_an_unknown_metric_in_the_baseline_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spans").mkdir()
    with pytest.raises(InputError, match="names the metric 'Goood'; there are Good"):
        await watched(tmp_path, Judge(), settings(rates={"Goood": 0.9}))


async def test_what_a_check_raises_ends_the_watch(tmp_path: Path) -> None:
    def refuse(row: CaseResult) -> None:
        raise JudgeSetupError("the judge accepts no call")

    write(tmp_path / "spans" / "a.jsonl", ["good"])
    with pytest.raises(JudgeSetupError):
        await watched(tmp_path, Judge(), settings(), check=refuse)


async def test_scores_are_sent_while_the_watch_goes_on(tmp_path: Path) -> None:
    sent: list[int] = []
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 5)
    how = WatchSettings(quiet=2.0, seconds=200.0, again=0.0)
    await watched(tmp_path, Judge(), how, send=lambda: sent.append(1))
    assert sent


class Away(Judge):
    """Answers nothing for some calls, from one on."""

    def __init__(self, first: int, calls: int, why: str = "HTTP 503: away") -> None:
        super().__init__()
        self.first, self.last, self.why, self.calls = first, first + calls, why, 0

    def __call__(self, question: Question[Any]) -> bool:
        self.calls += 1
        if self.first <= self.calls < self.last:
            if "within" in self.why:
                raise JudgeTimeoutError(self.why)
            status = int(self.why[5:8])
            # A quota of the day is known by its judge, and by no status.
            lasting = None if "quota" not in self.why else True
            raise ProviderError(self.why, transient=status == 503, status=status, lasting=lasting)
        return super().__call__(question)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "why",
    [
        *("HTTP 503: away", "HTTP 401: revoked", "HTTP 402: pay", "HTTP 403: your address"),
        *("HTTP 404: no such model", "HTTP 429: the quota of the day", "no answer within 120 s"),
    ],
)
@pytest.mark.parametrize(("first", "calls"), [(1, 30), (30, 20), (60, 7)])
@pytest.mark.parametrize("again", [0.0, 0.2])
async def test_a_judge_that_is_away_consumes_nothing(
    tmp_path: Path, why: str, first: int, calls: int, again: float
) -> None:
    said: list[str] = []
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 60)
    limits = Limits(patience=0, backoff=0, max_backoff=0, attempts=6, max_in_flight=2)
    watch = await watched(
        tmp_path, Away(first, calls, why), settings(again=again), limits, say=said.append
    )
    assert watch.counts == {"judged": 60}
    assert sorted((row.trace or {})["trace_id"] for row in rows(tmp_path)) == [
        trace_id(number) for number in range(1, 61)
    ]
    asked = (tmp_path / "out" / "again.jsonl").read_text().splitlines()
    assert all(json.loads(line)["pairs"] for line in asked)
    assert any(text.startswith("the judge does not answer since 20") for text in said)
    assert said[-1] == "the judge answers again"


async def test_a_watch_that_ends_while_the_judge_is_away_leaves_its_cases_to_the_next(
    tmp_path: Path,
) -> None:
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 9)
    limits = Limits(patience=0, backoff=0, max_backoff=0, attempts=6)
    how = dataclasses.replace(settings(), seconds=300.0, until_idle=False)
    watch = await watched(tmp_path, Away(1, 10**6), how, limits)
    assert rows(tmp_path) == []
    assert watch.lines()[0] == "traces: 9 waiting for the judge"
    assert watch.lines()[1].startswith("the judge does not answer since 20")
    watch = await watched(tmp_path, Judge(), settings())
    assert watch.counts == {"judged": 9}


@pytest.mark.parametrize("status", [403, 500])
async def test_a_case_that_no_judge_can_answer_stops_no_other(tmp_path: Path, status: int) -> None:
    class Poisoned(Judge):
        def __call__(self, question: Question[Any]) -> bool:
            if "question 7" in question.messages[-1]["content"]:
                raise ProviderError(f"HTTP {status}: no", transient=status == 500, status=status)
            return super().__call__(question)

    write(tmp_path / "spans" / "a.jsonl", ["good"] * 9)
    limits = Limits(patience=0, backoff=0, max_backoff=0, attempts=6, max_in_flight=1)
    watch = await watched(tmp_path, Poisoned(), settings(), limits)
    assert watch.counts["judged"] == 8
    write(tmp_path / "spans" / "b.jsonl", ["good"] * 9, first=10)
    watch = await watched(tmp_path, Poisoned(), settings(), limits)
    assert watch.counts["judged"] == 17


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "again.jsonl",
            '{"row": 1}',
            r"again.jsonl line 1: not as it was written .restore it.*: Field required",
        ),
        ("again.jsonl", "[1", "again.jsonl line 1: not as it was written"),
        ("alerts.jsonl", "[]", "alerts.jsonl line 1: not as it was written"),
        ("alerts.jsonl", '{"row": "x"}', "alerts.jsonl line 1: not as it was written"),
        ("results.jsonl", "3", "results.jsonl line 3 is damaged; restore it, or choose another"),
        ("times.jsonl", "{}", "times.jsonl line 3 is damaged"),
        ("spent.json", '{"day": "2026-01-01", "calls": NaN, "dollars": 1}', "does not say what"),
        ("spent.json", '{"day": "2026-01-01", "calls": 1, "dollars": 1e999}', "does not say what"),
    ],
)
async def test_a_damaged_file_of_a_watch_is_named_and_nothing_of_it_is_lost(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 3)
    today = date(2026, 1, 1).isoformat
    await watched(tmp_path, Judge(), settings(), Limits(max_calls=9), today)
    path = tmp_path / "out" / name
    before = "".join([*path.read_text().splitlines(keepends=True)[:-1], text + "\n"])
    path.write_text(before)
    with pytest.raises(InputError, match=why):
        await watched(tmp_path, Judge(), settings(), Limits(max_calls=9), today)
    assert path.read_text() == before


async def test_blank_lines_in_the_files_of_a_watch_are_no_damage(tmp_path: Path) -> None:
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 20)
    await watched(tmp_path, Judge(), settings(again=0.5))
    for path in (tmp_path / "out").glob("*.jsonl"):
        path.write_bytes(b"\n" + path.read_bytes().replace(b"\n", b"\n\r\n"))
    write(tmp_path / "spans" / "b.jsonl", ["good"] * 20, first=21)
    watch = await watched(tmp_path, Judge(), settings(again=0.5))
    assert watch.counts == {"judged": 40}
    assert [row.index for row in rows(tmp_path)] == list(range(40))


async def test_the_end_says_which_share_of_the_judgements_escalated(tmp_path: Path) -> None:
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 9 + ["bad"] * 3)
    better = ScriptedJudge(lambda question: True, name="better")
    sure = escalated(metric(), to=better, unsure=[False])
    watch = await watched(tmp_path, Judge(), settings(), metrics=[sure])
    assert "Good: 25 % of the judgements escalated (9 to 53)" in watch.lines()


async def test_a_stream_that_is_not_exchangeable_has_no_alarms_and_says_so(tmp_path: Path) -> None:
    answers = (["good"] * 20 + ["bad"] * 10) * 5
    write(tmp_path / "spans" / "a.jsonl", answers)
    told: list[str] = []
    watch = await watched(tmp_path, Judge(), settings(), say=told.append)
    (line,) = told
    assert line.startswith("Good: this stream is not exchangeable, so alarms are off: the promise")
    assert "--groups FIELD counts the cases of a sender" in line
    assert line in watch.lines()
    assert watch.alerts == []


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("field", "sizes"),
    [
        ("hour", {10}),
        ("day", {240}),
        ("input", {1}),
        ("actual_output", {160, 80}),
        ("context", {0}),
    ],
)
async def test_groups_are_kept_with_the_rows_and_read_back(
    tmp_path: Path, field: str, sizes: set[int]
) -> None:
    path = tmp_path / "spans" / "a.jsonl"
    for hour in range(24):
        start = str((hour * 3600 + 60) * 10**9)
        answers = ["good" if hour % 3 else "bad"] * 10
        write(path, answers, first=1 + 10 * hour, startTimeUnixNano=start)
    first = await watched(tmp_path, Judge(), settings(groups=field))
    groups = Counter((row.trace or {}).get("watch.group") for row in rows(tmp_path))
    alone = groups.pop(None, 0)
    assert set(groups.values()) == sizes - {0}
    assert [line for line in first.lines() if "without" in line] == (
        ["240 cases without context: each is alone"] if alone else []
    )
    again = await watched(tmp_path, Judge(), settings(groups=field))
    assert again._alarms.off == first._alarms.off


async def test_groups_by_a_field_that_no_case_has_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "spans" / "a.jsonl", ["good"])
    with pytest.raises(InputError, match="--groups 'sender': name a field of the cases"):
        await watched(tmp_path, Judge(), settings(groups="sender"))
