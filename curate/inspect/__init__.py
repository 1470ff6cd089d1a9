"""Inspection of runs: reports, statistics, explanations, thresholds, comparisons, forecasts."""
