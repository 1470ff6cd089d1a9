"""Deduplication methods, one file each."""
