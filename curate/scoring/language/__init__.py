"""Language identification with fastText models."""
