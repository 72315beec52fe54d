"""A rubric for each case

Each case brings its own criteria, with points, also for what an answer must not say. One criterion
is a gate: an answer that misses it has the score 0.
"""

from dagengine.metrics import RubricMetric

metric = RubricMetric("Advice", "additional_metadata.rubrics", threshold=0.6, unsure="unmet")
