"""Token shards: documents encoded, shuffled, written."""
