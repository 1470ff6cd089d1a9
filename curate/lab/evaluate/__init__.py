"""Evaluations of extractors, classifiers, dedup methods, tokenizers and models."""
