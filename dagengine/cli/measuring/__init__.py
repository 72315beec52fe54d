"""Commands that measure judges, and set the one to use."""

__all__: list[str] = []
