"""Search in a corpus by its suffix arrays."""
