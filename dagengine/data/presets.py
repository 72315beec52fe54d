"""Names of columns in the files of other tools, and the fields that they are."""

from __future__ import annotations

from collections.abc import Mapping

PRESETS: Mapping[str, Mapping[str, str]] = {
    "ragas": {
        "user_input": "input",
        "question": "input",
        "response": "actual_output",
        "answer": "actual_output",
        "reference": "expected_output",
        "ground_truth": "expected_output",
        "retrieved_contexts": "retrieval_context",
        "contexts": "retrieval_context",
        "reference_contexts": "context",
    },
    "promptfoo": {
        "question": "input",
        "query": "input",
        "prompt": "input",
        "output": "actual_output",
        "__expected": "expected_output",
        "__description": "name",
    },
    "openai": {
        "question": "input",
        "completion": "actual_output",
        "output_text": "actual_output",
        "ideal": "expected_output",
        "ground_truth": "expected_output",
    },
}
"""By tool; of these columns a file may have any."""
