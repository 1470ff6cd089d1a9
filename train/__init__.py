"""Train decoder language models on token shards; imports nothing of curate."""

import os
import sys
from importlib import import_module

# Ours, whatever else has that name on the path of modules; it watches imports.
sys.path.insert(0, str(__path__[0])[: -len("/train")])
import_module("llmcurate")
del sys.path[0]

# Read when torch loads its OpenMP library. Spinning threads stall each other where another process
# wants a core too.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
