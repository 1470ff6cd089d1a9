"""Filters by the scores of models that other tools trained."""
