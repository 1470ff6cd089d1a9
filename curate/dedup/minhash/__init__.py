"""Near duplicates by MinHash and banding."""
