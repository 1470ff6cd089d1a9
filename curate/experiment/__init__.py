"""Matched experiments: whether a change of the data makes a better model, beyond chance."""
