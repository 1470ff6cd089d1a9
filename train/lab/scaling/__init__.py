"""Scaling laws: sweeps over sizes and tokens, fits to their losses, and plans for a budget."""
