"""Supervised fastText models: reading, prediction and explanation."""
