"""Extraction of main text from HTML."""
