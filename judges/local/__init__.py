"""Judges that are files on this machine: llama.cpp serves them while a run needs them."""
