"""Dedup methods compared on one corpus."""
