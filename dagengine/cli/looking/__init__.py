"""Commands that read what runs left: `show`, `view`, `diff`, `merge`, `sql`, `index`."""

__all__: list[str] = []
