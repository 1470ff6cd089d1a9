"""Removal of passages that occur more than once."""
