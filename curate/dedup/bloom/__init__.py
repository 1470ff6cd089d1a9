"""Deduplication with a Bloom filter."""
