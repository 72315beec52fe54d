"""Traces as cases: samples of real instrumentations, and files with what files may hold."""

from __future__ import annotations

import base64
import gc
import gzip
import json
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from folders.places import TRACES

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import FaithfulnessMetric
from dagengine.results import OutcomeKind
from dagengine.test_case import ConversationalTestCase, InvalidCase, LLMTestCase
from dagengine.traces import read_traces
from dagengine.traces.trace_files import temporary_database

SAMPLES: dict[str, Any] = {}
if (TRACES / "cases.json").is_file():
    SAMPLES = json.loads((TRACES / "cases.json").read_text(encoding="utf-8"))
WITHOUT = f"the samples of traces are not there: set DAGENGINE_TRACES (now {TRACES})"
recorded = pytest.mark.skipif(not SAMPLES, reason=WITHOUT)
every_sample = pytest.mark.parametrize("name", SAMPLES or [pytest.param("none", marks=recorded)])


def case_in(item: Any) -> LLMTestCase:
    """The case, or what is known of one that is skipped."""
    case = item.test_case if isinstance(item, InvalidCase) else item
    assert isinstance(case, LLMTestCase)
    return case


@every_sample
def test_a_sample_gives_its_cases(name: str) -> None:
    sample = SAMPLES[name]
    items = list(read_traces(*(TRACES / file for file in sample["files"])))
    found = {}
    for item in items:
        case = case_in(item)
        assert case.additional_metadata is not None
        found[case.additional_metadata["trace_id"]] = (item, case)
    assert len(found) == len(items) == len(sample["cases"])
    for expected in sample["cases"]:
        item, case = found[expected["trace_id"]]
        tools = [
            {
                "span_id": span.span_id,
                "name": span.name,
                "id": span.call_id,
                "arguments": span.input,
                "result": span.output,
                "error": span.error,
            }
            for span in case.tools or ()
        ]
        assert (case.additional_metadata or {}).get("session_id") == expected["session"]
        assert (case.input or None) == expected["input"]
        assert case.actual_output == expected["actual_output"]
        assert case.retrieval_context == expected["retrieval_context"]
        assert (tools or None) == expected["tools_called"]
        assert isinstance(item, InvalidCase) == ("outcome" in expected)
        if isinstance(item, InvalidCase):
            assert item.message.startswith(expected["outcome"])


@pytest.mark.parametrize("name", [n for n in SAMPLES if "sessions" in SAMPLES[n]] or [None])
@recorded
def test_a_session_is_a_conversation(name: str) -> None:
    sample = SAMPLES[name]
    files = [TRACES / file for file in sample["files"]]
    (case,) = read_traces(*files, unit="session")
    assert isinstance(case, ConversationalTestCase)
    turns = [
        {
            "role": turn.role,
            "content": turn.content,
            "trace_id": (turn.additional_metadata or {})["trace_id"],
        }
        for turn in case.turns
    ]
    assert turns == sample["sessions"][0]["turns"]
    metadata = case.additional_metadata or {}
    assert metadata.keys() == {"session_id", "trace.started"}
    assert metadata["session_id"] == "session-1"


@recorded
def test_a_retrieval_without_texts_is_said_and_not_judged() -> None:
    files = [TRACES / file for file in SAMPLES["genai_events"]["files"]]
    rag = next(case_in(item) for item in read_traces(*files) if "rag" in case_in(item).name)  # type: ignore[operator]
    assert "not captured" in (rag.comments or "")
    result = evaluate([rag], [FaithfulnessMetric()], model=ScriptedJudge({}), show=False)
    assert result.rows[0].metrics[0].outcome is OutcomeKind.MISSING_FIELD


# Traces of our own making.

SPAN = "resourceSpans", "scopeSpans", "spans"
LOG = "resourceLogs", "scopeLogs", "logRecords"


def ids(number: int, trace: int = 1) -> dict[str, str]:
    return {"traceId": f"{trace:032x}", "spanId": f"{trace:08x}{number:08x}"}


def span(number: int, kind: str = "CHAIN", trace: int = 1, **fields: Any) -> dict[str, Any]:
    """A span; number 1 is the root of its trace, and every further one is in it."""
    attributes = {"openinference.span.kind": kind, **fields.pop("attributes", {})}
    if number > 1:
        fields.setdefault("parentSpanId", ids(1, trace)["spanId"])
    return {
        **ids(number, trace),
        "name": f"{kind} {number}",
        "startTimeUnixNano": str(1_000_000_000 * number),
        "endTimeUnixNano": str(1_000_000_000 * number + 500_000_000),
        "attributes": pairs(attributes),
        **fields,
    }


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]


def lines(path: Path, *items: dict[str, Any], form: tuple[str, str, str] = SPAN) -> Path:
    """A file with one item a line."""
    outer, inner, last = form
    rows = [{outer: [{inner: [{last: [item]}]}]} for item in items]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def talk(trace: int = 1, **fields: Any) -> dict[str, Any]:
    texts = {"input.value": f"question {trace}", "output.value": f"answer {trace}"}
    return span(1, trace=trace, attributes={**texts, **fields})


def test_spans_of_one_trace_may_be_anywhere_in_several_files(tmp_path: Path) -> None:
    result = {"output.value": '{"found": 3}'}
    tools = [span(3, "TOOL", 2), span(2, "TOOL", 1, attributes=result), span(2, "TOOL", 2)]
    first = lines(tmp_path / "a.jsonl", tools[0], talk(1), tools[1])
    second = lines(tmp_path / "b.jsonl", talk(2), tools[2])
    cases = read_traces(first, second)
    texts = {case_in(case).input: case_in(case) for case in cases}
    assert [tool.name for tool in texts["question 2"].tools or ()] == ["TOOL 2", "TOOL 3"]
    assert [tool.output for tool in texts["question 1"].tools or ()] == [{"found": 3}]
    assert cases.count() == 2
    assert [case_in(case).input for case in cases] == ["question 2", "question 1"]  # as first seen


def test_ids_in_base64_are_the_same_as_in_hex(tmp_path: Path) -> None:
    def encoded(item: dict[str, Any]) -> dict[str, Any]:
        names = ("traceId", "spanId", "parentSpanId")
        codes = {
            name: base64.b64encode(bytes.fromhex(item[name])).decode()
            for name in names
            if name in item
        }
        return {**item, **codes, "status": {"code": "STATUS_CODE_ERROR", "message": "no"}}

    plain = lines(tmp_path / "hex.jsonl", talk(), span(2, "TOOL"))
    other = lines(tmp_path / "base64.jsonl", encoded(talk()), encoded(span(2, "TOOL")))
    (one,), (two,) = read_traces(plain), read_traces(other)
    assert case_in(one).additional_metadata == case_in(two).additional_metadata
    assert [tool.error for tool in case_in(two).tools or ()] == ["no"]


def step(number: int, *texts: str, parent: int = 1, kind: str = "AGENT", **fields: Any) -> Any:
    """A span with these texts: what went in, and what came out."""
    names = ("input.value", "output.value")
    attributes = dict(zip(names, texts, strict=False))
    return span(number, kind, attributes=attributes, parentSpanId=ids(parent)["spanId"], **fields)


def model(number: int, asked: str, answer: str, parent: int = 1, **fields: Any) -> Any:
    messages = {
        f"llm.input_messages.0.message.{k}": v for k, v in (("role", "user"), ("content", asked))
    }
    said = {"llm.output_messages.0.message.role": "assistant"}
    said["llm.output_messages.0.message.content"] = answer
    return span(
        number, "LLM", attributes={**messages, **said}, parentSpanId=ids(parent)["spanId"], **fields
    )


FAILED: Any = {"status": {"code": 2, "message": "it broke"}}
MODELS = [
    model(7, "Classify the topic.", "news", 2),
    model(8, "Q?", "A.", 2),
    model(9, "Is it safe?", "SAFE", 2),
]
TREES: dict[str, list[Any]] = {
    "an agent behind a web server": [step(2, "Q?", "A."), *MODELS],
    "without models": [step(2, "Q?", "A.")],
    "two servers": [step(2, kind="CHAIN"), step(3, "Q?", "A.", parent=2), *MODELS],
    "an agent in an agent": [step(2, "Q?", "A."), step(3, "part?", "part", parent=2)],
    "an agent as a tool": [
        model(2, "Q?", ""), step(3, kind="TOOL"), step(4, "p?", "p", parent=3),
        model(5, "Q?", "A."),
    ],
    "handed over": [step(2, "Q?", "over"), step(3, "over", "A.")],
    "tried again": [step(2, "Q?", "half", **FAILED), step(3, "Q?", "A.")],
    "tried at the same time": [step(2, "Q?", "A."), step(3, "Q?", "half", **FAILED)],
    "guards": [
        step(2, "Q?", "SAFE", kind="GUARDRAIL"), step(3, "Q?", "A."),
        step(4, "A.", "SAFE", kind="GUARDRAIL"),
    ],
    "guards by name": [
        step(2, kind="CHAIN", name="input_guardrail"), model(3, "safe?", "SAFE", 2),
        model(4, "Q?", "A."), step(5, kind="CHAIN", name="Moderation"),
        model(6, "safe?", "SAFE", 5),
    ],
    "models beside an agent": [
        model(2, "topic?", "news"), step(3, "Q?", "A."), model(4, "title?", "T"),
    ],
    "an input only": [step(2, "Q?"), model(7, "Classify.", "news", 2), model(8, "Q?", "A.", 2)],
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_the_topmost_span_with_texts_of_its_own_speaks_for_the_trace(
    tmp_path: Path, name: str
) -> None:
    root = span(1, "CHAIN", name="POST /chat")
    for spans in ([root, *TREES[name]], [*reversed(TREES[name]), root]):
        (case,) = map(case_in, read_traces(lines(tmp_path / "a.jsonl", *spans)))
        assert (case.input, case.actual_output) == ("Q?", "A.")
        assert (case.additional_metadata or {})["span_id"] == root["spanId"]


def json_of(**value: Any) -> str:
    return json.dumps(value)


ASKED, ANSWERED = {"role": "user", "content": "Q?"}, {"role": "assistant", "content": "A."}
HUMAN = {"lc": 1, "type": "constructor", "kwargs": {"type": "human", "content": "Q?"}}
CONVENTIONS: dict[str, dict[str, str]] = {
    "OpenLLMetry": {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Q?",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "A.",
    },
    "Traceloop": {
        "traceloop.span.kind": "workflow",
        "traceloop.entity.input": json_of(args=["Q?"], kwargs={}),
        "traceloop.entity.output": '"A."',
    },
    "Vercel": {
        "ai.operationId": "ai.generateText",
        "ai.prompt": json_of(system="s", messages=[ASKED]),
        "ai.response.text": "A.",
    },
    "Vercel's model": {
        "ai.operationId": "ai.streamText.doStream",
        "ai.prompt.messages": json.dumps([ASKED]),
        "ai.response.text": "A.",
    },
    "MLflow": {
        "mlflow.spanType": '"AGENT"',
        "mlflow.spanInputs": json_of(question="Q?", k=3, user_id="u-1"),
        "mlflow.spanOutputs": '"A."',
    },
    "MLflow's model": {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.spanInputs": json_of(messages=[ASKED], model="m"),
        "mlflow.spanOutputs": json_of(id="x", choices=[{"index": 0, "message": ANSWERED}]),
    },
    "LangSmith": {
        "langsmith.span.kind": "llm",
        "gen_ai.prompt": json_of(messages=[[HUMAN]]),
        "gen_ai.completion": json_of(generations=[[{"text": "A."}]]),
    },
    "Logfire": {
        "request_data": json_of(model="m", messages=[ASKED]),
        "response_data": json_of(message=ANSWERED, usage={"total": 3}),
    },
    "Haystack": {
        "haystack.pipeline.input_data": json_of(find={"query": "Q?"}, ask={"question": "Q?"}),
        "haystack.pipeline.output_data": json_of(llm={"replies": ["A."]}),
    },
    "Langfuse": {"langfuse.observation.input": "Q?", "langfuse.observation.output": "A."},
    "a graph of LangChain": {
        "input.value": json_of(messages=[{"type": "human", "content": "Q?"}]),
        "input.mime_type": "application/json",
        "output.value": json_of(messages=[{"type": "ai", "content": "A."}], state="s"),
        "output.mime_type": "application/json",
    },
    "the first conventions": {
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt": "Q?",
        "gen_ai.completion": "A.",
    },
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_conventions_of_others_give_the_same_case(tmp_path: Path, name: str) -> None:
    whole = span(2, attributes={"openinference.span.kind": "", **CONVENTIONS[name]})
    (case,) = map(case_in, read_traces(lines(tmp_path / "a.jsonl", span(1, "CHAIN"), whole)))
    assert (case.input, case.actual_output) == ("Q?", "A.")


def test_attributes_that_are_not_read_are_named(tmp_path: Path) -> None:
    unread = {"acme.question": "Who?", "acme.reply": "I.", "http.route": "/x", "acme.user.id": "7"}
    cut_off = {"gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "te'}
    path = lines(tmp_path / "a.jsonl", span(1, attributes=unread), span(2, attributes=cut_off))
    (case,) = read_traces(path)
    assert isinstance(case, InvalidCase)
    named = case.message.partition("not known as texts: ")[2].split(", ")
    assert named == ["gen_ai.input.messages", "acme.question", "acme.reply"]


def test_of_a_span_that_was_written_twice_the_later_end_wins(tmp_path: Path) -> None:
    early = {**talk(), "endTimeUnixNano": "0", "attributes": []}
    for order in ([early, talk()], [talk(), early]):
        (case,) = map(case_in, read_traces(lines(tmp_path / "a.jsonl", *order)))
        assert (case.input, case.actual_output) == ("question 1", "answer 1")


def test_a_damaged_span_costs_itself_only(tmp_path: Path) -> None:
    broken: Any = {**span(3, "TOOL"), "startTimeUnixNano": float("nan")}
    scope = {"spans": [talk(), broken, "no span", span(2, "TOOL"), {**span(4), "traceId": 4}]}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [scope]}, 7]}) + "\n")
    case, flaw = read_traces(path)
    assert [tool.name for tool in case_in(case).tools or ()] == ["TOOL 2"]
    assert str(flaw).startswith(f"{path} line 1: 4 of its parts are left out (cannot convert")


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_an_array_of_requests_is_read(tmp_path: Path, name: str, indent: int | None) -> None:
    requests = [{SPAN[0]: [{SPAN[1]: [{SPAN[2]: [talk(number)]}]}]} for number in (1, 2)]
    path, text = tmp_path / name, json.dumps(requests, indent=indent).encode()
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert [case_in(case).input for case in read_traces(path)] == ["question 1", "question 2"]


def test_a_span_that_is_in_two_files_counts_once(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", talk(), span(2, "TOOL"), span(2, "TOOL"))
    (case,) = read_traces(path, path)
    assert len(case_in(case).spans or ()) == 2


def test_messages_in_events_of_a_span_are_read(tmp_path: Path) -> None:
    events = [
        {"name": "gen_ai.user.message", "attributes": pairs({"content": "Who?"})},
        {
            "name": "gen_ai.choice",
            "attributes": pairs({"message": '{"role": "assistant", "content": "I."}'}),
        },
    ]
    (case,) = read_traces(lines(tmp_path / "a.jsonl", span(1, "LLM", events=events)))
    assert (case_in(case).input, case_in(case).actual_output) == ("Who?", "I.")


def test_a_case_says_when_its_trace_began(tmp_path: Path) -> None:
    times: dict[str, Any] = {"startTimeUnixNano": str(1_793_919_599 * 10**9)}
    unknown: dict[str, Any] = {"startTimeUnixNano": "0"}
    began = []
    for time in (times, unknown):
        path = lines(tmp_path / "a.jsonl", talk(), span(2, "AGENT", **time))
        (case,) = read_traces(path, unit="span:agent")
        began.append((case_in(case).additional_metadata or {}).get("trace.started"))
    assert began == ["2026-11-05T22:59:59+00:00", None]


def test_a_unit_of_spans_makes_a_case_of_each_with_what_is_in_it(tmp_path: Path) -> None:
    tool = {"tool.parameters": '{"q": 1}', "output.value": "two"}
    inner = span(4, "TOOL", parentSpanId=ids(2)["spanId"], attributes=tool)
    path = lines(tmp_path / "a.jsonl", talk(), span(2, "AGENT"), span(3, "TOOL"), inner)
    agents = [case_in(case) for case in read_traces(path, unit="span:agent")]
    assert [[span.name for span in case.spans or ()] for case in agents] == [["AGENT 2", "TOOL 4"]]
    tools = [case_in(case) for case in read_traces(path, unit="span:tool")]
    assert [(case.input, case.actual_output) for case in tools] == [("", None), ('{"q": 1}', "two")]
    assert [(case.additional_metadata or {})["span_id"] for case in tools] == [
        ids(number)["spanId"] for number in (3, 4)
    ]


def test_a_trace_without_texts_is_skipped_with_a_message_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    path = lines(tmp_path / "a.jsonl", span(1, trace=1), span(2, "TOOL", 1), talk(2))
    judge = ScriptedJudge({})
    result = evaluate(read_traces(path), [FaithfulnessMetric()], model=judge, show=False)
    silent, speaking = (row.metrics[0] for row in result.rows)
    assert silent.outcome is OutcomeKind.SKIPPED
    assert "no texts captured" in silent.why
    assert speaking.outcome is OutcomeKind.MISSING_FIELD
    assert result.rows[0].trace == {
        "trace_id": ids(1)["traceId"],
        "span_id": ids(1)["spanId"],
        "trace.started": "1970-01-01T00:00:01+00:00",
    }
    assert [tool.name for tool in case_in(result.rows[0].test_case).tools or ()] == ["TOOL 2"]


def test_a_damaged_line_is_an_invalid_case_with_its_place(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", talk())
    with path.open("a") as file:
        file.write('{"resourceSpans": [{"scope\n{"spans": []}\n')
        file.write('{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "x"}]}]}]}\n')
    flaws = [str(item) for item in read_traces(path) if isinstance(item, InvalidCase)]
    assert [flaw.partition(":")[0] for flaw in flaws] == [
        f"{path} line {number}" for number in (2, 3, 4)
    ]
    assert "not JSON" in flaws[0]
    assert "its keys are spans" in flaws[1]
    assert "'x' is not an id of 32 hex digits" in flaws[2]


DAMAGED: dict[str, Any] = {
    "gen_ai.input.messages": '[null, 3, {"role": "user", "parts": [null, {"type": "tool_call"}]}]',
    "gen_ai.output.messages": '[{"parts": 7, "tool_calls": [null, 3, {"function": 3}]}]',
    "llm.input_messages.0": "no message",
    "llm.input_messages.0.message": [1],
    "llm.input_messages.1.message.contents": [3, {"message_content": [1]}],
    "llm.output_messages.0.message.tool_calls": [3, {"tool_call": 3}],
    "retrieval.documents.first.document.content": "a document without a number",
    "gen_ai.operation.name": ["chat"],
    "llm.token_count.prompt": float("inf"),
    "llm.token_count.completion": float("nan"),
    "session.id": "half a character: \ud800",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_attribute_costs_itself_only(tmp_path: Path, name: str) -> None:
    value = DAMAGED[name]
    held = {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
    inner = span(2, "LLM")
    inner["attributes"].append({"key": name, "value": held})
    path = lines(tmp_path / "a.jsonl", talk(), inner)
    (case,) = read_traces(path)
    assert (case_in(case).input, case_in(case).actual_output) == ("question 1", "answer 1")
    (inner_case,) = read_traces(path, unit="span:llm")
    assert isinstance(inner_case, InvalidCase | LLMTestCase)


def test_a_number_that_is_none_is_a_flaw_of_its_line(tmp_path: Path) -> None:
    broken: dict[str, Any] = {"startTimeUnixNano": float("inf")}
    path = lines(tmp_path / "a.jsonl", talk(1), span(1, trace=2, **broken))
    case, flaw = read_traces(path)
    assert case_in(case).input == "question 1"
    assert str(flaw).startswith(f"{path} line 2: no traces (cannot convert float infinity")


def test_the_temporary_database_is_closed_with_its_cases_also_in_the_middle(tmp_path: Path) -> None:
    cases = read_traces(lines(tmp_path / "a.jsonl", talk(1), talk(2)))
    database, rest = cases._traces.join_records()._file, iter(cases)
    next(rest)
    del cases
    gc.collect()
    assert database.execute("SELECT count(*) FROM traces").fetchone() == (2,)
    del rest
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


def test_packed_files_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    plain = lines(tmp_path / "a.jsonl", *(talk(number) for number in range(1, 200)))
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [case.name for case in read_traces(packed)] == [case.name for case in read_traces(plain)]
    packed.write_bytes(packed.read_bytes()[:-500])
    *cases, flaw = read_traces(packed)
    assert 0 < len(cases) < 199
    assert f"{packed} line {len(cases) + 1}: no traces (the file is damaged" in str(flaw)


def test_a_span_that_seems_to_begin_before_its_trace_is_not_the_root(tmp_path: Path) -> None:
    early: dict[str, Any] = {"startTimeUnixNano": "1"}
    texts = {"input.value": "of a service", "output.value": "of a service"}
    lost = span(3, parentSpanId=ids(9)["spanId"], attributes=texts, **early)
    path = lines(tmp_path / "a.jsonl", lost, span(2, "TOOL", **early), talk())
    (case,) = read_traces(path)
    assert case_in(case).input == "question 1"
    assert (case_in(case).additional_metadata or {})["span_id"] == ids(1)["spanId"]


@pytest.mark.parametrize(
    ("attributes", "arguments"),
    [
        ({"input.value": '{"city": "Lisbon"}'}, {"city": "Lisbon"}),
        ({}, None),
        ({"tool_call.function.arguments": '{"city": "Porto"}', "input.value": "Porto"}, "Porto"),
    ],
)
def test_the_schema_of_a_tool_is_not_taken_for_its_arguments(
    tmp_path: Path, attributes: dict[str, str], arguments: Any
) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    told = {"tool.parameters": json.dumps(schema), **attributes}
    (case,) = read_traces(lines(tmp_path / "a.jsonl", talk(), span(2, "TOOL", attributes=told)))
    (tool,) = case_in(case).tools or []
    assert tool.input == ({"city": "Porto"} if arguments == "Porto" else arguments)


def test_names_tell_cases_apart_where_ids_begin_alike(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", talk(1), span(2, "TOOL"), span(3, "TOOL"), talk(2))
    assert [case.name for case in read_traces(path)] == ["CHAIN 1 00000001", "CHAIN 1 00000002"]
    names = [case.name for case in read_traces(path, unit="span:tool")]
    assert names == ["TOOL 2 00000002", "TOOL 3 00000003"]


def test_the_mapping_shows_spans_as_a_tree_whatever_their_order(tmp_path: Path) -> None:
    within = [span(n, "TOOL", parentSpanId=ids(p)["spanId"]) for n, p in ((4, 2), (5, 3))]
    circle = [span(n, "CHAIN", parentSpanId=ids(p)["spanId"]) for n, p in ((6, 7), (7, 6))]
    texts: dict[str, Any] = {"session.id": "s"}
    steps = [span(2, "AGENT"), span(3, "AGENT"), *within, *circle, talk(**texts)]
    path = lines(tmp_path / "a.jsonl", *steps, talk(2, **texts))
    tree = [line.split(" [")[0] for line in read_traces(path).mapping()[5:]]
    assert tree == [
        "  chain: CHAIN 1",
        "    agent: AGENT 2",
        "      tool: TOOL 4",
        "    agent: AGENT 3",
        "      tool: TOOL 5",
        "  chain: CHAIN 6",
        "    chain: CHAIN 7",
    ]
    session = read_traces(path, unit="session").mapping()
    assert session[0] == "session s (2 traces):"
    assert [line for line in session if "  actual_output" in line] == [
        f"  actual_output     'answer {n}'  ← chain 'CHAIN 1' [{ids(1, n)['spanId']}]"
        for n in (1, 2)
    ]
    tool = read_traces(path, unit="span:tool").mapping()[0]
    assert tool == f"span {ids(4)['spanId']} of trace {ids(1)['traceId']} (1 span):"


@pytest.mark.parametrize(
    ("content", "unit", "message"),
    [
        ("", "trace", "has no spans"),
        ('{"resourceSpans": []}\n', "trace", "has no spans"),
        (None, "session", "has a session.id"),
        (None, "span:tools", "is of the kind 'tools'; there are chain"),
        (None, "turn", "the unit is trace, session or span:KIND"),
    ],
)
def test_what_cannot_be_read_is_said_before_anything_is_asked(
    tmp_path: Path, content: str | None, unit: str, message: str
) -> None:
    path = lines(tmp_path / "a.jsonl", talk())
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message):
        list(read_traces(path, unit=unit))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_traces(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="is a folder"):
        read_traces(tmp_path)


JAEGER = {
    "data": [
        {
            "traceID": "abc",
            "spans": [
                {
                    "traceID": "abc",
                    "spanID": "1",
                    "operationName": "ask",
                    "startTime": 5,
                    "duration": 2,
                    "tags": [
                        {"key": "input.value", "value": "Who?"},
                        {"key": "output.value", "value": "I."},
                    ],
                },
                {
                    "traceID": "abc",
                    "spanID": "2",
                    "operationName": "look",
                    "references": [{"refType": "CHILD_OF", "spanID": "1"}],
                    "startTime": 6,
                    "duration": 1,
                    "tags": [
                        {"key": "openinference.span.kind", "value": "TOOL"},
                        {"key": "error", "value": True},
                        {"key": "otel.status_description", "value": "no"},
                    ],
                },
            ],
        }
    ]
}
PHOENIX = {
    "data": [
        {
            "context": ids(1),
            "name": "ask",
            "start_time": "2026-11-23T10:00:00+00:00",
            "status_code": "OK",
            "attributes": {"input.value": "Who?", "output.value": "I."},
        },
        {
            "context": ids(2),
            "parent_id": ids(1)["spanId"],
            "name": "look",
            "span_kind": "TOOL",
            "start_time": "2026-11-23T10:00:01+00:00",
            "status_code": "ERROR",
            "status_message": "no",
            "attributes": {"tool.name": "look"},
        },
    ]
}
for item in PHOENIX["data"]:
    context: Any = item["context"]
    item["context"] = {"trace_id": context["traceId"], "span_id": context["spanId"]}
LANGFUSE = {
    "id": "t-1",
    "name": "ask",
    "timestamp": "2026-11-23T10:00:00.000Z",
    "input": "Who?",
    "output": "I.",
    "sessionId": "s",
    "observations": [
        {
            "id": "o-1",
            "traceId": "t-1",
            "type": "TOOL",
            "name": "look",
            "level": "ERROR",
            "statusMessage": "no",
            "startTime": "2026-11-23T10:00:01.000Z",
        },
    ],
}


@pytest.mark.parametrize(
    "export", [JAEGER, PHOENIX, LANGFUSE], ids=["jaeger", "phoenix", "langfuse"]
)
def test_exports_of_other_tools_give_the_same_case(tmp_path: Path, export: Any) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(export, indent=1))
    (case,) = map(case_in, read_traces(path))
    assert (case.input, case.actual_output) == ("Who?", "I.")
    assert [(call.name, call.error) for call in case.tools_called or ()] == [("look", "no")]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("spans", [PHOENIX["data"], [talk(), span(2, "TOOL")]])
def test_spans_one_behind_the_other_are_read(
    tmp_path: Path, spans: Any, indent: int | None, end: str
) -> None:
    path = tmp_path / "a.jsonl"
    texts = [json.dumps(item, indent=indent).replace("\n", end) for item in spans]
    path.write_bytes(end.join([*texts, ""]).encode())
    assert [len(case_in(case).spans or ()) for case in read_traces(path)] == [2]
    path.write_bytes(end.join([*texts, "{oops"]).encode())
    _, flaw = read_traces(path)
    number = end.join([*texts, ""]).count("\n") + 1
    assert str(flaw).startswith(f"{path} line {number}: no traces (not JSON")


def test_spans_of_another_tool_are_not_taken_for_those_of_langfuse(tmp_path: Path) -> None:
    path = tmp_path / "zipkin.json"
    path.write_text(json.dumps([{"traceId": "1", "id": "2", "tags": {"input.value": "Who?"}}]))
    with pytest.raises(InputError, match="its keys are traceId, id, tags"):
        read_traces(path).check()


def test_dates_and_decimals_of_parquet_are_their_texts(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    row = {"context.trace_id": "a", "context.span_id": "b", "attributes.input.value": "Who?"}
    row |= {"attributes.when": pandas.Timestamp("2026-11-23"), "attributes.output.value": "I."}
    pandas.DataFrame([row | {"attributes.cost": Decimal("1.5")}]).to_parquet(tmp_path / "a.parquet")
    (case,) = map(case_in, read_traces(tmp_path / "a.parquet"))
    assert (case.input, case.actual_output) == ("Who?", "I.")


def test_a_full_temporary_folder_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(owner: object, tables: str, cache: int) -> sqlite3.Connection:
        return temporary_database(owner, f"{tables} PRAGMA max_page_count = 8;", cache)

    monkeypatch.setattr("dagengine.traces.trace_files.temporary_database", small)
    cases = read_traces(lines(tmp_path / "a.jsonl", *(talk(number) for number in range(1, 200))))
    with pytest.raises(InputError, match=r"disk is full.*SQLITE_TMPDIR"):
        cases.check()


def test_traces_are_joined_once_however_often_they_are_read(tmp_path: Path) -> None:
    cases = read_traces(lines(tmp_path / "a.jsonl", talk(1), talk(2)))
    first: Iterator[Any] = iter(cases)
    inputs = [case_in(next(first)).input]
    (tmp_path / "a.jsonl").unlink()
    assert [case_in(case).input for case in cases] == ["question 1", "question 2"]
    inputs += [case_in(case).input for case in first]
    assert inputs == ["question 1", "question 2"]
