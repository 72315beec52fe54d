"""The folder of a run: written as the run goes, and read back."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from folders.full_disk import on_full_device
from folders.recorded_runs import (
    CASES,
    Counting,
    answers,
    dicts,
    hesitant,
    judge,
    polite,
    validator,
)

from dagengine import evaluate
from dagengine.data import read_cases
from dagengine.errors import InputError, ProviderError
from dagengine.gateway import Limits
from dagengine.judges import ScriptedJudge
from dagengine.question import Answer, Question, Usage
from dagengine.record import load_run
from dagengine.record.reader import rows_at
from dagengine.results import calls_words
from dagengine.system.safe_files import write_whole
from dagengine.test_case import LLMTestCase


def test_a_folder_says_what_was_asked_of_whom_and_what_came_out(tmp_path: Path) -> None:
    result = evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert run.finished
    assert run.manifest.exit == "failed"
    assert dicts(run.rows()) == dicts(result)
    (metric,) = run.manifest.metrics
    nodes = {node.name: node for node in metric.nodes}
    assert (metric.name, metric.threshold) == ("Manners", 0.5)
    assert list(nodes) == ["Kind", "words", "Tone"]
    assert (nodes["Kind"].question, nodes["Kind"].reads) == ("Is it kind?", ("actual_output",))
    assert (nodes["Tone"].inputs, nodes["Tone"].judges) == (("words",), (0,))
    edges = {(e.source, e.verdict, e.target, e.score, e.starts) for e in metric.edges}
    assert edges == {
        ("Kind", True, "Tone", None, True),
        ("Kind", False, None, 0.0, True),
        ("words", None, "Tone", None, False),
        ("Tone", "warm", None, 1.0, True),
        ("Tone", "cold", None, 0.3, True),
    }
    assert [j.identity for j in run.manifest.judges] == [judge().durable_identity]
    assert run.manifest.counts is not None
    assert run.manifest.counts.model_dump() == {
        "cases": 3, "passed": 1, "failed": 1, "no_score": 1,
    }  # fmt: skip


def test_what_was_spent_adds_up_by_node(tmp_path: Path) -> None:
    evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path)
    manifest = load_run(tmp_path).manifest
    assert manifest.totals is not None
    assert {(s.metric, s.node, s.asked, s.calls, s.failed) for s in manifest.usage} == {
        ("Manners", "Kind", 3, 3, 1),
        ("Manners", "words", 1, 1, 0),
        ("Manners", "Tone", 1, 1, 0),
    }
    for name in ("asked", "calls", "failed", "input_tokens", "output_tokens"):
        assert sum(getattr(s, name) for s in manifest.usage) == getattr(manifest.totals, name)
    assert manifest.totals.input_tokens == 400


def test_every_case_stands_with_its_texts_and_hash(tmp_path: Path) -> None:
    evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path)
    cases = list(load_run(tmp_path).cases())
    assert [case["hash"] for case in cases] == [case.content_hash() for case in CASES]
    assert cases[1] == {
        "index": 1,
        "hash": CASES[1].content_hash(),
        "type": "LLMTestCase",
        "input": "hello",
        "actual_output": "rude",
        "tags": ["de"],
    }
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["hash"] for line in lines] == [c["hash"] for c in cases]


def test_times_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    result = evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path)
    (tmp_path / "results.jsonl").rename(tmp_path / "once")
    evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path)
    assert (tmp_path / "once").read_bytes() == (tmp_path / "results.jsonl").read_bytes()
    rows = list(load_run(tmp_path).timed_rows())
    assert rows == list(load_run(tmp_path).rows())
    for row in (*rows, *result):
        steps = row.metrics[0].steps
        assert row.seconds is not None
        assert all(step.seconds is not None for step in steps)
        assert row.metrics[0].seconds == sum(step.seconds or 0 for step in steps)
    assert [row.seconds for row in load_run(tmp_path).rows()] == [None] * len(CASES)


FAST = Limits(backoff=0.0, max_backoff=0.0)


def test_what_happened_on_the_way_stands_beside_the_times_and_in_no_row(tmp_path: Path) -> None:
    store, made = tmp_path / "store.db", hesitant()
    for name in ("asked", "stored"):
        evaluate(
            CASES[:1], [polite()], model=made, show=False, out=tmp_path / name,
            store=store, limits=FAST,
        )  # fmt: skip
    rows = [(tmp_path / name / "results.jsonl").read_bytes() for name in ("asked", "stored")]
    assert rows[0] == rows[1]
    (asked,), (stored,) = (load_run(tmp_path / n).timed_rows() for n in ("asked", "stored"))
    steps = {step.node: step for step in asked.metrics[0].steps}
    assert steps["words"].calls == steps["Tone"].calls == ()
    (calls,) = steps["Kind"].calls
    assert [(str(call.outcome), call.message) for call in calls] == [
        ("provider_error", "overloaded by dear you"),
        ("unparseable", "kind of is not true or false"),
        ("ok", None),
    ]
    assert calls[1].usage == Usage(100, 10)
    assert calls_words(steps["Kind"].calls) == "3 calls: 1 retry, 1 re-ask"
    assert all(not step.calls for step in stored.metrics[0].steps)
    assert all(not step.calls for row in load_run(tmp_path / "asked").rows()
               for step in row.metrics[0].steps)  # fmt: skip
    line = json.loads((tmp_path / "asked" / "times.jsonl").read_text())
    validator("Times").validate(line)
    assert list(line["calls"]["Manners"]) == ["Kind"]


def test_a_question_that_never_got_an_answer_keeps_all_its_calls(tmp_path: Path) -> None:
    def answer(question: Question[Any]) -> Any:
        raise ProviderError("overloaded", transient=True, status=503)

    limits = Limits(attempts=3, backoff=0.0, max_backoff=0.0)
    evaluate(
        CASES[:1], [polite()], model=ScriptedJudge(answer), show=False, out=tmp_path, limits=limits
    )
    (row,) = load_run(tmp_path).timed_rows()
    (step,) = row.metrics[0].steps
    assert calls_words(step.calls) == "gave up after 3 calls: 2 retries"


def test_what_is_hidden_is_hidden_in_what_went_wrong_on_the_way(tmp_path: Path) -> None:
    evaluate(
        CASES[:1], [polite()], model=hesitant(), show=False, out=tmp_path, limits=FAST,
        redact=["actual_output"],
    )  # fmt: skip
    (row,) = load_run(tmp_path).timed_rows()
    ((first, *_),) = row.metrics[0].steps[0].calls
    assert first.message == "overloaded by [hidden by --redact actual_output]"
    assert "dear you" not in (tmp_path / "times.jsonl").read_text()


def test_damaged_calls_are_passed_over(tmp_path: Path) -> None:
    evaluate(CASES[:1], [polite()], model=hesitant(), show=False, out=tmp_path, limits=FAST)
    path = tmp_path / "times.jsonl"
    path.write_text(path.read_text().replace('"outcome": "ok"', '"outcome": "fine"'))
    (row,) = load_run(tmp_path).timed_rows()
    assert row.metrics[0].steps[0].calls == ()
    assert row.seconds is not None


def test_tokens_from_caches_stand_beside_the_times(tmp_path: Path) -> None:
    class Caching(Counting):
        async def answer(self, question: Question[Any]) -> Answer[Any]:
            return replace(await super().answer(question), usage=Usage(100, 10, 64))

    model = Caching(answers, name="caching")
    evaluate(CASES[:1], [polite()], model=model, show=False, out=tmp_path)
    (plain,), (timed,) = load_run(tmp_path).rows(), load_run(tmp_path).timed_rows()
    assert plain.metrics[0].usage == Usage(300, 30)
    assert timed.metrics[0].usage == Usage(300, 30, 192)
    validator("Times").validate(json.loads((tmp_path / "times.jsonl").read_text()))


def test_rows_without_times_are_read_as_they_are(tmp_path: Path) -> None:
    evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path)
    times = (tmp_path / "times.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "times.jsonl").write_bytes(times[0] + b"no line\n" + times[2])
    assert [row.seconds is None for row in load_run(tmp_path).timed_rows()] == [False, True, False]
    (tmp_path / "times.jsonl").unlink()  # of an older version
    assert all(row.seconds is None for row in load_run(tmp_path).timed_rows())


def test_without_texts_no_text_of_a_case_is_in_the_folder(tmp_path: Path) -> None:
    case = LLMTestCase(input="a long and private sentence", actual_output="dear you")
    evaluate([case], [polite()], model=judge(), show=False, out=tmp_path, texts=False)
    run = load_run(tmp_path)
    assert not run.manifest.texts
    assert list(run.cases()) == []
    assert all(b"private" not in path.read_bytes() for path in tmp_path.iterdir())


def test_a_saved_result_is_the_folder_that_the_run_would_have_written(tmp_path: Path) -> None:
    result = evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path / "a")
    result.save(tmp_path / "b")
    for name in ("results.jsonl", "cases.jsonl", "times.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    a, b = (load_run(tmp_path / name).manifest.model_dump() for name in "ab")
    assert {key for key in a if a[key] != b[key]} <= {"ended"}


@pytest.mark.parametrize("page", [True, False])
def test_a_folder_has_a_page_unless_it_is_told_to_have_none(tmp_path: Path, page: bool) -> None:
    result = evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path / "a", page=page)
    result.save(tmp_path / "b", page=page)
    assert [(tmp_path / name / "report.html").exists() for name in "ab"] == [page, page]


def test_a_result_that_no_run_made_cannot_be_saved(tmp_path: Path) -> None:
    result = evaluate(CASES, [polite()], model=judge(), show=False)
    with pytest.raises(InputError, match="only what evaluate"):
        type(result)(result.rows).save(tmp_path)


def test_a_run_that_breaks_off_is_readable_and_not_finished(tmp_path: Path) -> None:
    async def interrupted(question: Question[Any]) -> Any:
        if "broken" in question.messages[-1]["content"]:
            signal.raise_signal(signal.SIGINT)
            await anyio.sleep_forever()
        return answers(question)

    script = ScriptedJudge(interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(CASES, [polite()], model=script, show=False, out=tmp_path)
    run = load_run(tmp_path)
    assert (run.finished, run.manifest.exit) == (False, "interrupted")
    assert [row.case for row in run.rows()] == ["kind one", "case 1"]


def test_a_killed_run_leaves_out_the_half_line_at_its_end(tmp_path: Path) -> None:
    result = evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path)
    manifest = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(manifest | {"ended": None, "exit": None}))
    for name in ("results.jsonl", "cases.jsonl"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-30])
    run = load_run(tmp_path)
    assert not run.finished
    assert dicts(run.rows()) == dicts(result)[:2]
    assert [case["index"] for case in run.cases()] == [0, 1]


def test_an_earlier_run_stays_until_there_is_a_row(tmp_path: Path) -> None:
    evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def nothing() -> Any:
        raise RuntimeError("the source is down")
        yield

    with pytest.raises(InputError, match="the source is down"):
        evaluate(nothing(), [polite()], model=judge(), show=False, out=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def _no_folder(place: Path) -> None:
    pass


def _no_manifest(place: Path) -> None:
    place.mkdir()


def _newer(place: Path) -> None:
    place.mkdir()
    (place / "run.json").write_text('{"format": 2}')


def _damaged(place: Path) -> None:
    place.mkdir()
    (place / "run.json").write_text('{"format"')


def _other(place: Path) -> None:
    place.mkdir()
    (place / "run.json").write_text('{"format": 1, "started": "yesterday"}')


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_no_folder, "does not exist"),
        (_no_manifest, "has no run.json"),
        (_newer, "install a newer one"),
        (_damaged, "not JSON"),
        (_other, "is not the record of a run"),
    ],
)
def test_what_is_no_run_is_refused_in_words(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "run")
    with pytest.raises(InputError, match=words):
        load_run(tmp_path / "run")


def test_the_file_of_its_rows_names_a_run_and_no_other_file_beside_it(tmp_path: Path) -> None:
    evaluate(
        [LLMTestCase(input="a", actual_output="b")],
        [polite()],
        model=judge(),
        show=False,
        out=tmp_path,
    )
    rows = tmp_path / "results.jsonl"
    assert load_run(rows).folder == tmp_path
    assert [*rows_at(rows)] == [*rows_at(tmp_path)] == [*load_run(tmp_path).rows()]
    with pytest.raises(InputError, match=re.escape(f"it is not a folder; write {tmp_path}")):
        load_run(tmp_path / "cases.jsonl")


def test_cases_are_not_overwritten_while_they_are_read(tmp_path: Path) -> None:
    data = tmp_path / "cases.jsonl"
    data.write_text('{"input": "a", "actual_output": "b"}\n')
    with pytest.raises(InputError, match="overwritten by the"):
        evaluate(read_cases(data), [polite()], model=judge(), show=False, out=tmp_path)
    assert data.read_text() == '{"input": "a", "actual_output": "b"}\n'


def test_metadata_without_a_json_form_does_not_end_a_run(tmp_path: Path) -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    odd: list[dict[str, Any]] = [
        {"set": {1}, "object": object},
        {"deep": {(1, 2): "a"}},
        {"circle": circle},
    ]
    cases = [LLMTestCase(input="a", actual_output="b", additional_metadata=one) for one in odd]
    evaluate(cases, [polite()], model=judge(), show=False, out=tmp_path)
    assert [case["input"] for case in load_run(tmp_path).cases()] == ["a"] * 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is played by /dev/full")
def test_a_full_disk_is_told_with_the_rows_that_are_kept_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither the results nor what is written at the end finds room: the first error counts.
    on_full_device(monkeypatch, "results.jsonl")

    def full(path: Path, text: str) -> None:
        if path.name == "summary.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_whole(path, text)

    monkeypatch.setattr("dagengine.record.writer.write_whole", full)
    with pytest.raises(InputError) as caught:
        evaluate(CASES[:1], [polite()], model=judge(), show=False, out=tmp_path)
    rows = tmp_path / "results.jsonl"
    assert str(caught.value) == (
        f"cannot write {rows}: No space left on device; rows of this run in {rows}: 0; make room "
        "and start the run again: it begins at the first case, but what a store (store=, --store) "
        "has is not asked again"
    )
    assert (tmp_path / "run.json").exists()
