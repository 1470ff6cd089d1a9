"""Training objectives: targets and visibility."""
