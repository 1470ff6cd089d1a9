"""Tokenizers changed: converted between file formats, extended, pruned."""
