"""Engines map a function over partitions, and nothing else."""
