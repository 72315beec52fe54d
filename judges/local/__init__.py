"""Judges that are files on this machine: llama.cpp serves them while a run needs them."""

from dagengine.judges.local.gguf import GGUFJudge

__all__ = ["GGUFJudge"]
