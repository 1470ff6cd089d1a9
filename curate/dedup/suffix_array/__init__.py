"""Duplicate substrings, found with suffix arrays, and the search index."""
