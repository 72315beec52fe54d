"""Judges that are asked in batches: the batch APIs of providers, and files for offline engines."""
