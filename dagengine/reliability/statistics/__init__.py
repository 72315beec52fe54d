"""Measures of judges: pure functions of tables of votes and scores.

The extra `benchmark` computes them (`numpy` and `scipy`); it is loaded when it is used.
"""

__all__: list[str] = []
