"""Train tokenizers, encode documents into token shards; import the module you need."""

import kernel_cache  # noqa: F401 (it watches imports)
