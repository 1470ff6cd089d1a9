"""Filters of single corpora and of code."""
