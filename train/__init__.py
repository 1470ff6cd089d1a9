"""Pre-train language models on a folder of token shards; import the module you need."""
