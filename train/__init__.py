"""Train language models on token shards. This package imports nothing from curate."""

import os
import sys
from importlib import import_module

# Import this project's llmcurate, whatever else has that name on sys.path. The import starts its
# import hooks.
sys.path.insert(0, str(__path__[0])[: -len("/train")])
import_module("llmcurate")
del sys.path[0]

# Torch's OpenMP library reads this variable when it loads. By default its threads spin while they
# wait, and stall each other if another process needs a core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
