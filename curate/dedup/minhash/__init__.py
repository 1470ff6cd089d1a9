"""Near duplicates, found by MinHash and banding."""
