"""Commands that read what runs left: `show`, `view`, `diff`, `merge`, `sql`."""

__all__: list[str] = []
