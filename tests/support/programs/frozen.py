"""The last import of the server of forks: no process goes through what was loaded before it.

A collection of the garbage of all modules takes a fifth of a second of processor.
"""

import gc

import programs.commands  # noqa: F401 - which each of them imports

gc.collect()
gc.freeze()
