"""Servers, models and processes that judges are tested against."""
