"""Evaluations of dedup methods, models and tokenizers."""
