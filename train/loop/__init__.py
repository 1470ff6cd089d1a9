"""The training loop: steps, losses, checkpoints, resuming."""
