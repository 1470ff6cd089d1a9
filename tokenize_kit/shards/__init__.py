"""Token shards: documents are encoded, optionally shuffled, and written to files."""
