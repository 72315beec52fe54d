"""Tables with the columns of public formats: the mapping that is printed works when it is pasted.

The columns are those of the formats; what is in them is ours.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dagengine import read_cases
from dagengine.cli.commands import app
from dagengine.errors import InputError
from dagengine.test_case import ConversationalTestCase, LLMTestCase

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode
answers = DAGMetric("Read", DAG(CodeNode(lambda text: 1.0, evaluation_params=["input"], name="a")))
talks = DAGMetric("Read", DAG(CodeNode(lambda turns: 1.0, evaluation_params=["turns"], name="a")))
"""
CHAT = [
    {"role": "user", "content": "Where is the ferry?"},
    {"role": "assistant", "content": "Here"},
]
SHARED = [{"from": "human", "value": "Where is the ferry?"}, {"from": "gpt", "value": "Here"}]
Q, A, R, P = "Who built the mill?", "Ada did.", "Ada", "Ada built the mill in 1820."


def table(*rows: dict[str, Any]) -> str:
    """Rows as CSV: what is no text is JSON, as exports have it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {k: v if isinstance(v, str | int | float | None) else json.dumps(v)
             for k, v in row.items()}
        )  # fmt: skip
    return text.getvalue()


# Format, suffix, a row, and what of it the fields of the case are.
FORMATS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "HealthBench": (".jsonl", {
        "example_tags": ["theme:a"], "ideal_completions_data": {"ideal_completion": R},
        "prompt": [{"role": "user", "content": Q}], "prompt_id": "f1", "canary": "c",
        "rubrics": [{"criterion": "c", "points": 5}],
    }, {"input": Q, "expected_output": R, "name": "f1"}),
    "MT-Bench judgements": (".jsonl", {
        "question_id": 81, "model_a": "a", "model_b": "b", "winner": "model_a", "judge": "author",
        "conversation_a": CHAT, "conversation_b": SHARED, "turn": 1,
    }, {"turns": ["Where is the ferry?", "Here"], "name": "81"}),
    "AlpacaEval": (".json", {
        "dataset": "d", "instruction": Q, "output": A, "generator": "g",
    }, {"input": Q, "actual_output": A}),
    "HaluEval": (".jsonl", {
        "knowledge": P, "question": Q, "right_answer": R, "hallucinated_answer": A,
    }, {"input": Q, "actual_output": A, "expected_output": R, "context": [P]}),
    "RAGTruth sources": (".jsonl", {
        "source_id": "14292", "task_type": "QA", "source": "MARCO",
        "source_info": {"question": Q, "passages": P}, "prompt": "Answer: " + Q,
    }, {"input": "Answer: " + Q, "retrieval_context": [P], "name": "14292"}),
    "TruthfulQA table": (".csv", {
        "Type": "Adversarial", "Category": "Mills", "Question": Q, "Best Answer": R,
        "Best Incorrect Answer": "Bob", "Correct Answers": "Ada; Ada did",
        "Incorrect Answers": "Bob; Eve", "Source": "https://example.org",
    }, {"input": Q, "expected_output": R}),
    "TruthfulQA generation": (".parquet", {
        "type": "Adversarial", "category": "Mills", "question": Q, "best_answer": R,
        "correct_answers": [R], "incorrect_answers": ["Bob"], "source": "https://example.org",
    }, {"input": Q, "expected_output": R}),
    "SQuAD": (".jsonl", {
        "id": "5733be", "title": "Mill", "context": P, "question": Q,
        "answers": {"text": [R], "answer_start": [0]},
    }, {"input": Q, "context": [P], "name": "5733be"}),
    "SQuAD as a table": (".csv", {
        "id": "5733be", "title": "Mill", "context": P, "question": Q,
        "answers": {"text": [R], "answer_start": [0]},
    }, {"input": Q, "context": [P], "name": "5733be"}),
    "HotpotQA": (".json", {
        "_id": "5a7a", "answer": R, "question": Q, "supporting_facts": [["Mill", 0]],
        "context": [["Mill", [P]]], "type": "bridge", "level": "hard",
    }, {"input": Q, "actual_output": R, "name": "5a7a"}),
    "MMLU": (".csv", {
        "question": Q, "subject": "history", "choices": ["Ada", "Bob"], "answer": 0,
    }, {"input": Q}),
    "GSM8K": (".jsonl", {"question": Q, "answer": "2 + 3 = 5\n#### 5"}, {
        "input": Q, "actual_output": "2 + 3 = 5\n#### 5",
    }),
    "HelpSteer": (".jsonl", {
        "prompt": Q, "response": A, "helpfulness": 3, "correctness": 4, "coherence": 4,
        "complexity": 2, "verbosity": 2,
    }, {"input": Q, "actual_output": A}),
    "RewardBench": (".parquet", {
        "prompt": Q, "chosen": A, "chosen_model": "m", "rejected": "Bob", "rejected_model": "n",
        "subset": "s", "id": 30,
    }, {"input": Q, "actual_output": A, "name": "30"}),
    "UltraFeedback": (".jsonl", {
        "source": "s", "instruction": Q, "models": ["m"], "correct_answers": ["None"],
        "completions": [{"model": "m", "response": A}], "incorrect_answers": ["None"],
    }, {"input": Q}),
    "UltraChat": (".jsonl", {
        "prompt": CHAT[0]["content"], "prompt_id": "ab12", "messages": CHAT,
    }, {"turns": ["Where is the ferry?", "Here"], "name": "ab12"}),
    "Chatbot Arena": (".jsonl", {
        "question_id": "58210e", "model_a": "a", "model_b": "b", "winner": "model_b", "judge": "j",
        "conversation_a": CHAT, "conversation_b": CHAT, "turn": 1, "anony": True,
        "language": "English", "tstamp": 1682.5, "openai_moderation": {}, "toxic_chat_tag": {},
    }, {"turns": ["Where is the ferry?", "Here"], "name": "58210e"}),
    "LLMBar": (".json", {"input": Q, "output_1": A, "output_2": "Bob", "label": 1}, {
        "input": Q, "actual_output": A,
    }),
    "FActScore": (".jsonl", {
        "input": Q, "output": A, "topic": "Mill", "cat": ["rare", "Europe"],
        "annotations": [{"text": A, "is-relevant": True}],
    }, {"input": Q, "actual_output": A}),
    "ASQA": (".json", {
        "ambiguous_question": Q, "qa_pairs": [{"context": P, "question": Q}], "wikipages": [],
        "annotations": [{"long_answer": A}], "sample_id": "-5742327904",
    }, {"input": Q, "name": "-5742327904"}),
    "NaturalQuestions": (".parquet", {"question": Q, "answer": [R, A]}, {"input": Q}),
    "MS MARCO": (".json", {
        "answers": [R], "passages": {"is_selected": [1], "passage_text": [P], "url": ["u"]},
        "query": Q, "query_id": 9652, "query_type": "PERSON", "wellFormedAnswers": [],
    }, {"input": Q, "retrieval_context": [P], "name": "9652"}),
    "CNN/DailyMail": (".csv", {"id": "92c5", "article": P, "highlights": R}, {
        "input": P, "expected_output": R, "name": "92c5",
    }),
    "WildChat": (".jsonl", {
        "conversation_hash": "cf1267", "model": "m", "timestamp": "2023-04-09T00:02:53",
        "conversation": [message | {"toxic": False, "language": "English"} for message in CHAT],
        "turn": 1, "language": "English", "toxic": False, "redacted": False,
        "openai_moderation": [], "detoxify_moderation": [],
    }, {"turns": ["Where is the ferry?", "Here"]}),
    "ShareGPT": (".json", {"id": "QWJhYvA_0", "conversations": SHARED}, {
        "turns": ["Where is the ferry?", "Here"], "name": "QWJhYvA_0",
    }),
    "OpenAI evals": (".jsonl", {"input": [{"role": "user", "content": Q}], "ideal": [R, A]}, {
        "input": Q, "expected_output": f"{R}\nor: {A}",
    }),
    "ragas data set": (".jsonl", {
        "user_input": Q, "retrieved_contexts": [P], "response": A, "reference": R,
    }, {"input": Q, "actual_output": A, "expected_output": R, "retrieval_context": [P]}),
    "ragas results": (".csv", {
        "user_input": Q, "retrieved_contexts": [P], "response": A, "reference": R,
        "faithfulness": 1.0, "factual_correctness(mode=f1)": 0.5, "politeness": 1,
    }, {"input": Q, "actual_output": A, "expected_output": R, "retrieval_context": [P]}),
    "ragas 0.1": (".csv", {"question": Q, "contexts": str([P]), "answer": A, "ground_truth": R}, {
        "input": Q, "actual_output": A, "expected_output": R, "retrieval_context": [P],
    }),
    "promptfoo tests": (".csv", {
        "question": Q, "__expected": f"similar(0.8): {R}", "__description": "first",
    }, {"input": Q, "expected_output": R, "name": "first"}),
    "LangSmith data set": (".jsonl", {
        "id": "0a9d", "inputs": {"question": Q}, "outputs": {"answer": A},
        "metadata": {"split": "base"}, "dataset_id": "d", "created_at": "2024-01-01",
    }, {"input": Q, "actual_output": A, "name": "0a9d"}),
    "LangSmith table": (".csv", {
        "id": "0a9d", "inputs": {"question": Q}, "outputs": {"output": A},
        "reference_outputs": {"answer": R}, "status": "success", "latency": 1.2,
    }, {"input": Q, "actual_output": A, "expected_output": R, "name": "0a9d"}),
    "Phoenix spans": (".csv", {
        "name": "chain", "span_kind": "CHAIN", "parent_id": "", "start_time": "2024-01-01",
        "status_code": "OK", "context.span_id": "9f1", "context.trace_id": "a2",
        "attributes.input.value": Q, "attributes.output.value": A,
        "attributes.llm.model_name": "m", "attributes.openinference.span.kind": "CHAIN",
    }, {"input": Q, "actual_output": A, "name": "chain"}),
    "Phoenix data set": (".jsonl", {
        "id": "RGF0", "input": {"question": Q}, "output": {"answer": A}, "metadata": {"k": 1},
    }, {"input": Q, "actual_output": A, "name": "RGF0"}),
    "Langfuse traces": (".jsonl", {
        "id": "t1", "timestamp": "2024-01-01", "name": "chat", "userId": None, "tags": ["a"],
        "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": Q}],
        "output": {"role": "assistant", "content": A}, "metadata": {"k": 1}, "latency": 1.5,
        "scores": [], "bookmarked": False, "environment": "default",
    }, {"input": f"Be brief.\n\n{Q}", "actual_output": A, "name": "chat"}),
    "Langfuse data set": (".csv", {
        "id": "i1", "input": {"question": Q}, "expectedOutput": R, "metadata": {"k": 1},
        "sourceTraceId": "", "status": "ACTIVE",
    }, {"input": Q, "expected_output": R, "name": "i1"}),
    "deepeval goldens": (".json", {
        "input": Q, "actual_output": A, "expected_output": R, "retrieval_context": None,
        "context": [P], "name": None, "comments": None, "source_file": "mill.txt",
    }, {"input": Q, "actual_output": A, "expected_output": R, "context": [P]}),
    "Braintrust": (".csv", {
        "id": "b1", "span_id": "s1", "root_span_id": "r1", "input": Q, "output": A, "expected": R,
        "metadata": {"k": 1}, "tags": ["t"], "scores": {"Levenshtein": 0.5}, "metrics": {"n": 1},
        "created": "2024-01-01", "error": "",
    }, {"input": Q, "actual_output": A, "expected_output": R, "name": "b1"}),
    "pandas with its index": (".csv", {"": 0, "Question": Q, "Model Response": A}, {
        "input": Q, "actual_output": A,
    }),
}  # fmt: skip


def write(path: Path, row: dict[str, Any]) -> None:
    """Three rows, which one column with an id tells apart."""
    key = next((key for key in row if key.lower().endswith("id") and row[key]), "")
    more = [{key: type(row[key])(f"{row[key]}{number}")} if key else {} for number in (1, 2)]
    rows = [row, *(row | other for other in more)]
    if path.suffix == ".parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(rows), path)
        return
    texts = {
        ".csv": lambda: table(*rows),
        ".json": lambda: json.dumps(rows),
        ".jsonl": lambda: "\n".join(map(json.dumps, rows)),
    }
    path.write_text(texts[path.suffix](), encoding="utf-8")


@pytest.mark.parametrize("name", FORMATS)
def test_the_mapping_that_is_printed_works_when_it_is_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    suffix, row, fields = FORMATS[name]
    monkeypatch.chdir(tmp_path)
    Path("metrics.py").write_text(METRICS, encoding="utf-8")
    write(Path(f"data{suffix}"), row)
    metric = "talks" if "turns" in fields else "answers"
    words = ["run", f"metrics.py:{metric}", "--data", f"data{suffix}", "--out", "out"]
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, InputError)  # the entry point prints it, and exits with 2
    pasted = shlex.split(str(refused).partition("ignores a column): ")[2].splitlines()[0])
    done = CliRunner().invoke(app, [*words, *pasted])
    assert done.exit_code == 0, (pasted, done.output, done.exception)
    cases = [json.loads(line) for line in Path("out/cases.jsonl").read_text().splitlines()]
    assert len(cases) == 3
    texts = ("input", "actual_output", "expected_output", "context", "retrieval_context", "name")
    first = cases[0].get("case", cases[0])
    seen = {field: first[field] for field in texts if first.get(field) is not None}
    if "turns" in first:
        seen["turns"] = [turn["content"] for turn in first["turns"]]
    assert seen == fields | {k: v for k, v in seen.items() if k == "name" and k not in fields}


@pytest.mark.parametrize(
    "row",
    [
        {"machine_summaries": [A], "human_summaries": [R], "relevance": [1.0], "text": P},
        {"id": "0", "source_id": "1", "model": "m", "labels": [{"start": 0}], "response": A},
        {"question_id": 81, "category": "writing", "turns": [Q, "Why?"], "reference": [R]},
        {"q": Q, "a": A},
    ],
    ids=["SummEval", "RAGTruth responses", "MT-Bench questions", "single letters"],
)
def test_a_table_without_an_input_is_told_so_and_no_mapping_is_guessed(row: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no column looks like the `input`") as error:
        read_cases([row]).check()
    assert "a guess" not in str(error.value)


@pytest.mark.parametrize("more", [{}, {"id": 7}, {"tools": [{"type": "function"}]}])
@pytest.mark.parametrize("column", ["messages", "conversation", "dialog", "turns"])
@pytest.mark.parametrize("text", ["", None])
def test_a_chat_that_calls_tools_is_refused_for_its_calls_and_not_for_its_columns(
    column: str, more: dict[str, Any], text: str | None
) -> None:
    calls = [CHAT[0], {"role": "assistant", "content": text, "tool_calls": [{"id": "1"}]}]
    for cell in (calls, json.dumps(calls)):
        with pytest.raises(InputError, match="unknown field") as error:
            read_cases([{column: cell, **more}]).check()
        assert "no column looks like" not in str(error.value)


def test_a_mapping_that_fails_on_one_row_is_not_shown() -> None:
    rows = [{"question": f"q {n}", "notes": "n"} for n in range(900)]
    with pytest.raises(InputError, match=r"--map question=input --map notes=$"):
        read_cases(rows).check()
    with pytest.raises(InputError) as error:
        read_cases([*rows, {"question": None, "notes": "n"}]).check()
    assert "a guess" not in str(error.value)


def test_what_the_caller_maps_is_in_the_line_that_is_pasted() -> None:
    rows = [{"q": "a", "retrieved_contexts": "x;y", "notes": "n"}]
    with pytest.raises(InputError) as error:
        read_cases(rows, map={"q": "input"}, delimiters={"retrieved_contexts": ";"},
                   preset="ragas").check()  # fmt: skip
    line = str(error.value).partition("ignores a column): ")[2]
    assert line == "--map ragas --map q=input --map notes= --delimiter 'retrieved_contexts=;'"


def test_turns_that_the_caller_maps_need_no_input_for_a_guess() -> None:
    with pytest.raises(InputError, match=r"--map talk=turns --map notes=$"):
        read_cases([{"talk": CHAT, "notes": "n"}], map={"talk": "turns"}).check()


def test_a_mapping_reaches_inside_of_columns_and_keeps_the_rest() -> None:
    row = {"inputs": {"question": Q, "lang": "en"}, "outputs": {"texts": [{"content": A}]}}
    mapping = {"inputs.question": "input", "outputs.texts.0.content": "actual_output"}
    (case,) = read_cases([row], map=mapping)
    assert case == LLMTestCase(input=Q, actual_output=A, additional_metadata={"lang": "en"})
    as_text = {name: json.dumps(cell) for name, cell in row.items()}
    assert list(read_cases([as_text], map=mapping)) == [case]
    (bare,) = read_cases([row], map={**mapping, "inputs": None})
    assert bare == LLMTestCase(input=Q, actual_output=A)
    with pytest.raises(InputError, match=r"no row has a column 'inputs.questoin' .did you mean"):
        read_cases([row], map={"inputs.questoin": "input"}).check()


@pytest.mark.parametrize("column", ["messages", "conversations", "conversation"])
@pytest.mark.parametrize("chat", [CHAT, SHARED], ids=["role and content", "from and value"])
def test_messages_are_turns(column: str, chat: list[dict[str, str]]) -> None:
    talk = ConversationalTestCase.model_validate({"turns": CHAT})
    for cell in (chat, json.dumps(chat), str(chat)):
        assert list(read_cases([{column: cell}])) == [talk]
        assert list(read_cases([{"dialog": cell}], map={"dialog": "turns"})) == [talk]


def test_a_system_message_is_the_role_of_the_chatbot_and_more_is_metadata_of_a_turn() -> None:
    parts = [{"type": "text", "text": "Where is"}, {"type": "text", "text": "the ferry?"}]
    chat = [
        {"role": "system", "content": "You sell tickets."},
        {"role": "user", "content": parts, "toxic": False, "name": None},
    ]
    (talk,) = read_cases([{"messages": chat}])
    assert isinstance(talk, ConversationalTestCase)
    assert talk.chatbot_role == "You sell tickets."
    assert [turn.content for turn in talk.turns] == ["Where is\nthe ferry?"]
    assert talk.turns[0].additional_metadata == {"toxic": False}
    # Of a row's own turns a key that is no field is a slip.
    (slip,) = read_cases([{"turns": [CHAT[0] | {"toxic": True}]}])
    assert "unknown field 'turns.0.toxic'" in str(slip)
    calls = [CHAT[0], {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}]
    (agent,) = read_cases([{"messages": calls}])
    assert "unknown field 'turns.1.tool_calls'" in str(agent)


def test_few_shot_messages_keep_their_roles_and_several_answers_are_accepted() -> None:
    shots = [
        {"role": "system", "content": "Answer."},
        {"role": "system", "name": "example_user", "content": "1 + 1?"},
        {"role": "system", "name": "example_assistant", "content": "2"},
        {"role": "user", "content": "2 + 2?"},
    ]
    (case,) = read_cases([{"input": shots, "ideal": ["4", "four"]}], preset="openai")
    assert case == LLMTestCase(
        input="system: Answer.\n\nexample_user: 1 + 1?\n\nexample_assistant: 2\n\nuser: 2 + 2?",
        expected_output="4\nor: four",
    )
    (single,) = read_cases([{"item": {"input": "q", "ideal": ["4"]}}], preset="openai")
    assert single == LLMTestCase(input="q", expected_output="4")
    (wrong,) = read_cases([{"input": "q", "ideal": [4]}], preset="openai")
    assert "'expected_output' must be" in str(wrong)


def test_one_passage_in_each_cell_is_a_list_of_one(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'input,context,tags\nq,"{P}; yes",A\n')
    right = LLMTestCase(input="q", context=[f"{P}; yes"], tags=["A"])
    with pytest.raises(InputError, match="--delimiter context= if a cell is one item"):
        read_cases(path, map={"tags": None}).check()
    assert list(read_cases(path, delimiters={"context": "", "tags": ""})) == [right]
    assert list(read_cases([{"input": "q", "context": f"{P}; yes", "tags": "A"}])) == [right]


def test_the_results_of_ragas_are_read_without_its_scores() -> None:
    row = {"user_input": Q, "response": A, "faithfulness": 0.5, "semantic_similarity": 1.0}
    assert list(read_cases([row], preset="ragas")) == [LLMTestCase(input=Q, actual_output=A)]
