"""Other thresholds on the scores that a run stored."""
