"""Dedup methods side by side on one corpus."""
