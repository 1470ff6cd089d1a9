"""Products of a corpus: tokenizers, shards, models, exports."""
