"""The texts that a training run reads, as tokens: shards, packing, rows and their order."""
