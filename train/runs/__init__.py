"""A run on disk: its plan, checkpoints, averaged weights and log."""
