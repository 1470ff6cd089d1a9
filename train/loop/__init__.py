"""Training: steps, losses, checkpoints, resume."""
