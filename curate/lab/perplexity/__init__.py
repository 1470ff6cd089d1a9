"""Training of n-gram models."""
