"""The deduplication methods."""
