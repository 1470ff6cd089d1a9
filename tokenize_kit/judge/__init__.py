"""Holding tokenizers against texts: what they cost, what they waste, what they lose."""
