"""Dedup by embeddings."""
