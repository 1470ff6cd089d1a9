"""Encodings of positions, a file each: its name is the kind that settings say."""
