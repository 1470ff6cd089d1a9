"""Extractors, classifiers, dedup methods and tokenizers, measured against what is known."""
