"""How what people type becomes values: options, files that are kept apart, streams."""

__all__: list[str] = []
