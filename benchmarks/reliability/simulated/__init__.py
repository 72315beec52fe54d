"""Simulated judges whose truth is known, and what a card or an estimator finds of it."""
