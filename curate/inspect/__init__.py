"""Looking at runs: reports, statistics, explanations, other thresholds, comparisons, forecasts."""
