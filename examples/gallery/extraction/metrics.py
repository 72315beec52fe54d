"""Extraction to JSON

Code checks the form: is the answer JSON with all keys? Then the judge looks for each value in the
text. The text has to say all of them.
"""

import json

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode, MapNode

KEYS = {"name", "mail", "count"}


def has_form(text: str) -> bool:
    try:
        return set(json.loads(text)) == KEYS
    except ValueError:
        return False


def values(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return [f"{key}: {value}" for key, value in found.items() if value is not None]


def all_borne_out(judgements) -> float:
    return float(all(one.verdict for one in judgements))


listed = CodeNode(values, evaluation_params=["actual_output"], output_label="values")
looked_up = MapNode(
    "Does `input` say this?",
    over=listed,
    output_label="looked up",
    answer=bool,
    item_label="value",
    evaluation_params=["input"],
)
share = CodeNode(all_borne_out, inputs=[looked_up], name="All borne out")
form = CodeNode(
    has_form, evaluation_params=["actual_output"], then={True: share, False: 0}, name="Form"
)
metric = DAGMetric("Extraction", DAG(root_node=form))
