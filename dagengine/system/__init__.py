"""What the interpreter and the machine lack: whole files, locks, threads, terminals, plug-ins."""

__all__: list[str] = []
