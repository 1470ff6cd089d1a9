"""The tokens that a step trains on."""
