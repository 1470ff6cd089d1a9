"""Supervised fastText models applied: files read and checked, features, scores. No training."""
