"""Train decoder language models on token shards; imports nothing of curate."""

import os

import kernel_cache  # noqa: F401 (it watches imports)

# Read when torch loads its OpenMP library. Spinning threads stall each other where another process
# wants a core too.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
