"""Train tokenizers, encode documents into token shards; import the module you need."""
