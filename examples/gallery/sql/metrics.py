"""SQL from questions

Code rejects statements that change data, runs the query and compares the result. If it is right,
the judge says whether the query would be right on other data, too.
"""

import sqlite3
from contextlib import closing

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode

ROWS = [("Ana", "Bern", 10), ("Ben", "Bern", 20), ("Carla", "Rome", 30)]


def reads_only(query: str) -> bool:
    return query.lstrip().lower().startswith("sel")


def result(query: str) -> str:
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute("CREATE TABLE customers (name TEXT, city TEXT, spent INTEGER)")
        base.executemany("INSERT INTO customers VALUES (?, ?, ?)", ROWS)
        try:
            return "\n".join(" ".join(map(str, row)) for row in base.execute(query))
        except sqlite3.Error as error:
            return f"error: {error}"


def equal(wanted: str, found: str) -> bool:
    return wanted == found


asked = BinaryJudgementNode(
    "Would `actual_output` answer `input` on every database with this table?",
    evaluation_params=["input", "actual_output"],
    then={True: 10, False: 4},
    name="Answers the question",
)
rows = CodeNode(result, evaluation_params=["actual_output"], output_label="result")
right = CodeNode(
    equal,
    evaluation_params=["expected_output"],
    inputs=[rows],
    then={True: asked, False: 0},
    name="Right result",
)
safe = CodeNode(
    reads_only, evaluation_params=["actual_output"], then={True: right, False: 0}, name="Only reads"
)
metric = DAGMetric("SQL", DAG(root_node=safe))
