"""Bloom-filter dedup."""
