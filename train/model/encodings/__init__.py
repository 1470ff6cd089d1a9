"""Position encodings, one per file, named by their kind in the settings."""
