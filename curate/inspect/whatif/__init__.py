"""Estimates of what other thresholds on the scores of a run would keep."""
