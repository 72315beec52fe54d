"""Graphs and metrics with their cases and answers, and plain interpreters to compare with."""
