"""The training of n-gram models."""
