"""Train decoder language models on token shards; imports nothing of curate."""

import os

# Read when torch loads its OpenMP library. Spinning threads stall each other where another process
# wants a core too: on 2 busy cores a step took six times as long with the default.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
