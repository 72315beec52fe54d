"""Summaries

A summary is shorter than its text, adds nothing, keeps the facts and has no opinion of its own.
Code compares the lengths first, so a text that is too long costs no call.
"""

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, MapNode, TaskNode


def shorter(text: str, summary: str) -> bool:
    return len(summary) < len(text)


def kept(judgements) -> bool:
    return all(one.verdict for one in judgements)


neutral = BinaryJudgementNode(
    "Does `actual_output` keep opinions of its own out?",
    evaluation_params=["actual_output"],
    then={True: 10, False: 4},
    name="Neutral",
)
facts = TaskNode(
    "List the facts that a reader of `input` has to know.",
    output_label="facts",
    output_type=list[str],
    evaluation_params=["input"],
)
covered = MapNode(
    "Does `actual_output` say this fact?",
    over=facts,
    output_label="covered",
    answer=bool,
    item_label="fact",
    evaluation_params=["actual_output"],
)
complete = CodeNode(kept, inputs=[covered], then={True: neutral, False: 4}, name="Complete")
true = BinaryJudgementNode(
    "Does `input` bear out everything that `actual_output` says?",
    evaluation_params=["input", "actual_output"],
    then={True: complete, False: 0},
    name="True to the text",
)
length = CodeNode(
    shorter,
    evaluation_params=["input", "actual_output"],
    then={True: true, False: 2},
    name="Shorter",
)
metric = DAGMetric("Summary", DAG(root_node=length))
