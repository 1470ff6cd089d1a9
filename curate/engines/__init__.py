"""Engines map a function over partitions in worker processes, and do nothing else."""
