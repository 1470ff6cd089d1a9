"""Train language models on token shards. This package imports nothing from curate."""

import os
import sys
from importlib import import_module

# Make sure llmcurate is this project's, whatever else has that name on sys.path. Importing it
# starts its import hooks.
sys.path.insert(0, str(__path__[0])[: -len("/train")])
import_module("llmcurate")
del sys.path[0]

# Torch's OpenMP library reads this when it loads. Spinning threads stall each other if another
# process wants a core too.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
