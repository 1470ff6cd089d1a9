"""Deduplication by embeddings."""
