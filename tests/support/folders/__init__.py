"""What lies on a disk: runs that were recorded, documents, traces, and where they are."""
