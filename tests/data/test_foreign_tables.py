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

from dagengine.cli.commands import app
from dagengine.errors import InputError

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
    """Three rows: their numbers tell names apart."""
    keys = [key for key in row if key.lower().endswith("id") and row[key]][:1]
    rows = [row, *(row | {key: f"{row[key]}{n}" for key in keys} for n in (1, 2))]
    if path.suffix == ".parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        rows = [row | {key: row[key] + n for key in keys} for n in range(3)]
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
