"""Exact substrings by suffix arrays."""
