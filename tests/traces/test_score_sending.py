"""Scores written to where traces are: by every protocol, twice, and to servers that fail."""

from __future__ import annotations

import gzip
import json
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from folders.full_disk import on_small_disk
from servers.score_server import DROP, DROP_UNREAD, ScoreServer

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.graph import MapNode
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode
from dagengine.question import Question
from dagengine.test_case import LLMTestCase, Span
from dagengine.traces import Sent, send

KINDS = ["phoenix", "langfuse", "mlflow", "opik", "otlp"]
KEYS = {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk-hush", "PHOENIX_API_KEY": "hush"}
TRACE, ROOT, GOOD, BAD = "1" * 32, "a" * 16, "b" * 16, "c" * 16


def share_right(verdicts: list[Any]) -> float:
    right: int = sum(map(attrgetter("verdict"), verdicts))
    return right / len(verdicts)


def metric() -> DAGMetric:
    right = MapNode("Right?", "tools", "right", answer=bool, item_label="call")
    return DAGMetric("Calls", DAG(root_node=CodeNode(share_right, inputs=[right], name="share")))


def case(trace: str = TRACE) -> LLMTestCase:
    tools = [
        Span(span_id=GOOD, kind="tool", name="weather", output="sun"),
        Span(span_id=BAD, kind="tool", name="rates", error="timeout"),
    ]
    ids = {"trace_id": trace, "span_id": ROOT, "session_id": "s"}
    return LLMTestCase(input="Rates?", spans=tools, additional_metadata=ids)


def by_error(question: Question[Any]) -> Any:
    return {"verdict": "timeout" not in question.messages[-1]["content"], "reason": "by its error"}


def run_in(folder: Path, cases: list[LLMTestCase] | None = None, judge: Any = by_error) -> Path:
    """The folder of a run that gave four scores: the metric, two calls and the share."""
    cases = [case()] if cases is None else cases
    evaluate(cases, [metric()], model=ScriptedJudge(judge), show=False, out=folder)
    return folder


def sent_to(folder: Path, kind: str, server: ScoreServer) -> Sent:
    return send(folder, f"{kind}={server.url}", environment=KEYS, sleep=lambda _: None)


def test_each_verdict_is_on_the_span_that_it_is_about(tmp_path: Path) -> None:
    with ScoreServer() as server:
        sent = sent_to(run_in(tmp_path), "phoenix", server)
    found = {(item["span_id"], item["name"]): item["result"] for item in server.kept.values()}
    assert found == {
        (ROOT, "Calls"): {"label": "pass", "score": 0.5, "explanation": "decided by code"},
        (GOOD, "Calls: right"): {"label": "yes", "score": 1.0, "explanation": "by its error"},
        (BAD, "Calls: right"): {"label": "no", "score": 0.0, "explanation": "by its error"},
        (ROOT, "Calls: share"): {"score": 0.5},
    }
    assert {item["annotator_kind"] for item in server.kept.values()} == {"LLM", "CODE"}
    assert (sent.written, sent.complete) == (4, True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_call_writes_nothing_again(tmp_path: Path, kind: str) -> None:
    folder = run_in(tmp_path)
    with ScoreServer() as server:
        first, again = sent_to(folder, kind, server), sent_to(folder, kind, server)
    assert (first.written, again.written, again.earlier) == (4, 0, 4)
    assert len(server.kept or server.records) == 4


@pytest.mark.parametrize("kind", ["phoenix", "langfuse", "mlflow", "opik"])
def test_without_the_journal_the_same_scores_replace_themselves(tmp_path: Path, kind: str) -> None:
    folder = run_in(tmp_path)
    with ScoreServer() as server:
        sent_to(folder, kind, server)
        (folder / "sent.jsonl").unlink()
        assert sent_to(folder, kind, server).written == 4
    assert len(server.kept) == 4


def test_another_answer_to_the_same_question_replaces_its_score(tmp_path: Path) -> None:
    with ScoreServer() as server:
        sent_to(run_in(tmp_path / "one"), "langfuse", server)
        sent_to(run_in(tmp_path / "two", judge={"right": True}), "langfuse", server)
    values = {
        (score.get("observationId"), score["name"]): score["value"]
        for score in server.kept.values()
    }
    assert len(server.kept) == 4
    assert values[BAD, "Calls: right"] == 1.0
    assert values[ROOT, "Calls"] == 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failures", [[429], [502, 503], [500, 503], [DROP_UNREAD]], ids=str)
def test_after_a_passing_failure_every_score_is_there_once(
    tmp_path: Path, kind: str, failures: list[int]
) -> None:
    folder = run_in(tmp_path)
    with ScoreServer(failures=failures) as server:
        sent_to(folder, kind, server)
        last = sent_to(folder, kind, server)
    if kind == "otlp" and failures[0] in (500, DROP_UNREAD):
        # Nobody knows whether it was written: at most once, and that is said.
        assert not last.complete
        assert (last.uncertain, server.records) == (4, [])
        assert "4 uncertain" in str(last)
    else:
        assert last.complete
        assert len(server.kept or server.records) == 4


def test_a_record_that_was_taken_without_an_answer_is_not_sent_twice(tmp_path: Path) -> None:
    folder = run_in(tmp_path)
    with ScoreServer(failures=[DROP]) as server:
        first, again = sent_to(folder, "otlp", server), sent_to(folder, "otlp", server)
    assert len(server.records) == 4
    assert (first.written, first.uncertain, again.uncertain) == (0, 4, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_dead_server_did_not_take_is_sent_the_next_time(tmp_path: Path, kind: str) -> None:
    folder = run_in(tmp_path)
    with ScoreServer(failures=[503] * 4) as server:
        down = sent_to(folder, kind, server)
        assert (down.written, down.failed, down.complete) == (0, 4, False)
        assert sent_to(folder, kind, server).written == 4
    assert len(server.kept or server.records) == 4


def test_no_server_at_all_is_said_and_loses_nothing(tmp_path: Path) -> None:
    folder, waits = run_in(tmp_path), list[float]()
    with ScoreServer() as server:
        pass
    sent = send(folder, f"otlp={server.url}", environment={}, sleep=waits.append)
    assert (sent.failed, sent.uncertain) == (4, 0)
    assert "no connection" in next(iter(sent.problems))
    assert waits == [0.5, 2.0, 8.0]


def test_the_wait_that_a_server_asks_for_is_kept(tmp_path: Path) -> None:
    waits = list[float]()
    with ScoreServer(failures=[429]) as server:
        send(run_in(tmp_path), f"opik={server.url}", environment={}, sleep=waits.append)
    assert waits == [7.0]


@pytest.mark.parametrize(("kind", "absent"), [("phoenix", 1), ("langfuse", 1)])
def test_a_span_that_is_not_there_costs_its_own_scores_only(
    tmp_path: Path, kind: str, absent: int
) -> None:
    folder = run_in(tmp_path)
    with ScoreServer(spans={ROOT, GOOD}) as server:
        sent = sent_to(folder, kind, server)
        assert (sent.written, sent.absent, sent.complete) == (3, absent, False)
        assert server.spans is not None
        server.spans.add(BAD)  # it came later
        assert sent_to(folder, kind, server).written == absent
    assert len(server.kept) == 4


def test_a_kill_between_two_requests_loses_nothing(tmp_path: Path) -> None:
    folder = run_in(tmp_path)
    with ScoreServer() as server:
        sent_to(folder, "langfuse", server)
        journal = folder / "sent.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join(lines[:2]) + lines[2][:20])
        again = sent_to(folder, "langfuse", server)
        assert (again.earlier, again.written) == (2, 2)
        assert sent_to(folder, "langfuse", server).earlier == 4
    assert len(server.kept) == 4


@pytest.mark.parametrize(("room", "counts"), [(60, (4, 0)), (400, (0, 4))])
def test_a_full_disk_under_the_journal_sends_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, counts: tuple[int, int]
) -> None:
    folder = run_in(tmp_path)
    with ScoreServer() as server:
        with monkeypatch.context() as small:
            on_small_disk(small, "sent.jsonl", room)
            with pytest.raises(OSError, match=r"No space left on device: .*sent\.jsonl"):
                sent_to(folder, "otlp", server)
        assert len(server.records) == counts[1]  # the request was made, or not even begun
        sent = sent_to(folder, "otlp", server)
        assert (sent.written, sent.uncertain) == counts
        assert len(server.records) == 4
    assert all(map(json.loads, (folder / "sent.jsonl").read_text().splitlines()))


def test_a_session_gets_its_scores_where_there_are_sessions(tmp_path: Path) -> None:
    talk = case().model_copy(update={"additional_metadata": {"session_id": "s"}})
    folder = run_in(tmp_path, [talk.model_copy(update={"spans": talk.spans})])
    with ScoreServer() as server:
        sent_to(folder, "langfuse", server)
        assert {score.get("sessionId") for score in server.kept.values()} == {"s"}
        server.kept.clear()
        refused = sent_to(folder, "mlflow", server)
    assert refused.unwritable > 0
    assert refused.complete


def test_a_case_that_failed_has_an_error_and_no_score(tmp_path: Path) -> None:
    folder = run_in(tmp_path, [LLMTestCase(input="i", additional_metadata={"trace_id": TRACE})])
    with ScoreServer() as server:
        sent_to(folder, "otlp", server)
    said = [
        {pair["key"]: next(iter(pair["value"].values())) for pair in record["attributes"]}
        for record in server.records
    ]
    assert [values["error.type"] for values in said] == ["missing_field"]
    assert "gen_ai.evaluation.score.value" not in said[0]
    assert server.records[0]["eventName"] == "gen_ai.evaluation.result"
    assert server.records[0]["traceId"] == TRACE


def test_keys_are_sent_and_never_written(tmp_path: Path) -> None:
    folder = run_in(tmp_path)
    with ScoreServer() as server:
        sent_to(folder, "phoenix", server)
        sent_to(folder, "langfuse", server)
    assert server.headers[0]["authorization"] == "Bearer hush"
    assert server.headers[-1]["authorization"].startswith("Basic ")
    texts = [path.read_bytes() for path in folder.iterdir() if path.is_file()]
    assert not any(b"hush" in text for text in texts)


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("pheonix", "did you mean 'phoenix'"),
        ("langfuse", "set LANGFUSE_BASE_URL or LANGFUSE_HOST"),
        ("mlflow=sqlite:///x", "is not an address"),
    ],
)
def test_a_place_that_cannot_be_meant_is_refused_before_a_request(
    tmp_path: Path, to: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        send(run_in(tmp_path), to, environment={})


def test_a_refused_key_names_the_variables(tmp_path: Path) -> None:
    with (
        ScoreServer(failures=[401]) as server,
        pytest.raises(InputError, match="set PHOENIX_API_KEY"),
    ):
        sent_to(run_in(tmp_path), "phoenix", server)


def test_a_run_that_was_not_over_traces_says_how_to_read_them(tmp_path: Path) -> None:
    folder = run_in(tmp_path, [LLMTestCase(input="i")])
    with ScoreServer() as server, pytest.raises(InputError, match="read them with --map otel"):
        sent_to(folder, "phoenix", server)


def test_rows_keep_the_ids_without_the_texts(tmp_path: Path) -> None:
    folder = run_in(tmp_path)
    row = json.loads((folder / "results.jsonl").read_text())
    assert row["trace"] == {"trace_id": TRACE, "span_id": ROOT, "session_id": "s"}
    (folder / "cases.jsonl").unlink()
    with ScoreServer() as server:
        assert sent_to(folder, "opik", server).written == 4


HTML, LOGIN = "<html>Log in</html>", '{"message": "log in"}'
PARTIAL = '{"partialSuccess": {"rejectedLogRecords": "%d", "errorMessage": "full"}}'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "text"),
    [(200, HTML), (200, LOGIN), (200, "[]"), (202, HTML), (302, ""), (307, ""), (304, "")],
    ids=str,
)
def test_what_another_place_answers_is_not_written(
    tmp_path: Path, kind: str, status: int, text: str
) -> None:
    folder = run_in(tmp_path)
    with ScoreServer() as elsewhere, ScoreServer() as server:
        server.says = [(status, text, {"location": f"{elsewhere.url}/v1/logs"})]
        sent = sent_to(folder, kind, server)
        assert (sent.written, sent.failed, sent.complete) == (0, 4, False)
        assert not elsewhere.headers
        assert sent_to(folder, kind, server).written == 4
    assert len(server.kept or server.records) == 4


@pytest.mark.parametrize(("rejected", "left"), [(4, 0), (1, 1), (3, 3)])
def test_log_records_that_are_rejected_are_not_written(
    tmp_path: Path, rejected: int, left: int
) -> None:
    folder = run_in(tmp_path)
    with ScoreServer() as server:
        server.says = [(200, PARTIAL % rejected, {})]
        sent = sent_to(folder, "otlp", server)
        assert (sent.written, sent.complete) == (4 - rejected, False)
        assert any("full" in problem for problem in sent.problems)
        assert any(f"{rejected} of 4 records" in problem for problem in sent.problems)
        # Which ones were taken is not known: so none is written twice.
        again = sent_to(folder, "otlp", server)
    assert (again.rejected, again.complete) == (left, not left)
    assert (again.written, again.earlier) == ((4, 0) if rejected == 4 else (0, 4 - rejected))


@pytest.mark.parametrize(
    "count", ['"many"', "NaN", "[1]", "2.5", "true", "-1", "5", '"9e9"', "1e400"]
)
def test_what_a_damaged_answer_may_have_taken_is_not_sent_twice(tmp_path: Path, count: str) -> None:
    folder = run_in(tmp_path)
    with ScoreServer() as server:
        server.says = [(200, f'{{"partialSuccess": {{"rejectedLogRecords": {count}}}}}', {})]
        first, again = sent_to(folder, "otlp", server), sent_to(folder, "otlp", server)
    assert (first.uncertain, again.uncertain, server.records) == (4, 4, [])


def test_a_warning_of_a_place_that_took_all_is_shown(tmp_path: Path) -> None:
    folder = run_in(tmp_path)
    with ScoreServer() as server:
        warning = '{"partialSuccess": {"rejectedLogRecords": null, "errorMessage": "slow down"}}'
        server.says = [(200, warning, {})]
        sent = sent_to(folder, "otlp", server)
    assert (sent.written, sent.complete) == (4, True)
    assert sent.problems == {"warning: 200 slow down": 4}


def test_annotations_without_an_id_are_not_written(tmp_path: Path) -> None:
    with ScoreServer() as server:
        server.says = [(200, '{"data": [{"id": "a"}]}', {})]
        assert sent_to(run_in(tmp_path), "phoenix", server).failed == 3


@pytest.mark.parametrize("encoding", ["", "gzip", "br"])
def test_an_answer_without_an_end_is_read_up_to_a_limit(tmp_path: Path, encoding: str) -> None:
    body = gzip.compress(bytes(100 << 20)) if encoding == "gzip" else bytes(2 << 20)
    with ScoreServer() as server:
        server.says = [(200, body, {"content-encoding": encoding} if encoding else {})]
        sent = sent_to(run_in(tmp_path), "phoenix", server)
    assert (sent.written, sent.failed) == (0, 4)
    assert "longer than 1,048,576 bytes" in next(iter(sent.problems))


def test_an_answer_that_drips_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagengine.traces.score_sending._TIMEOUT", 0.2)
    with ScoreServer() as server:
        server.says = [(200, None, {})]
        sent = sent_to(run_in(tmp_path), "otlp", server)
    assert (sent.written, sent.uncertain) == (0, 4)


def test_headers_of_the_environment_are_decoded_and_no_message_shows_them(tmp_path: Path) -> None:
    environment = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20hush-hush,x=1"}
    with ScoreServer() as server:
        server.says = [(400, "no Bearer hush-hush", {})]
        sent = send(run_in(tmp_path), f"otlp={server.url}", environment=environment)
    assert server.headers[0]["authorization"] == "Bearer hush-hush"
    assert not any("hush" in problem for problem in sent.problems)
