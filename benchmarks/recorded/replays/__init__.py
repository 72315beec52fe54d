"""Recorded judges of other projects, replayed by metrics, and the figures that follow."""
