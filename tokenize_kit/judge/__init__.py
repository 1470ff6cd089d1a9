"""Comparison of tokenizers on texts: their costs, and the texts that they lose."""
