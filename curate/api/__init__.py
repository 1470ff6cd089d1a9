"""Runs from Python: corpora, recipes and their results; the command line stands on it."""
