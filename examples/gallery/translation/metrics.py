"""Translation

Four checks run in parallel, and the lowest score counts. Code compares the numbers, the judge looks
for missing sentences, untranslated words, and at the tone.
"""

import re

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, FieldNode


def same_numbers(source: str, target: str) -> bool:
    return re.findall(r"\d+", source) == re.findall(r"\d+", target)


german = FieldNode("input", output_label="German text")
english = FieldNode("actual_output", output_label="English text")
both = [german, english]
complete = BinaryJudgementNode(
    "Does the `English text` have a sentence for each of the `German text`?",
    inputs=both,
    then={True: 10, False: 3},
    name="Complete",
)
translated = BinaryJudgementNode(
    "Is every word of the `English text` English? Names may stay.",
    inputs=[english],
    then={True: 10, False: 2},
    name="Translated",
)
formal = BinaryJudgementNode(
    "Is the `English text` as formal as the `German text`?",
    inputs=both,
    then={True: 10, False: 4},
    name="As formal",
)
numbers = CodeNode(same_numbers, inputs=both, then={True: 10, False: 0}, name="Numbers")
metric = DAGMetric(
    "Translation", DAG(root_nodes=[numbers, complete, translated, formal]), combine="min"
)
