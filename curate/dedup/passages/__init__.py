"""Passages that stand more than once."""
