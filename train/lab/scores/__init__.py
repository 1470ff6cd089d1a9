"""Scores of trained models other than the likelihood of texts."""
