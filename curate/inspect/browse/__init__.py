"""A run's documents in the browser."""
