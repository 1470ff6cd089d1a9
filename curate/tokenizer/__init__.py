"""Tokenizers judged on documents: reading them, and the figures for a terminal and as a page."""
