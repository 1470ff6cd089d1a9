"""Train tokenizers, encode documents into token shards; import the module you need."""

import sys
from importlib import import_module

# Ours, whatever else has that name on the path of modules; it watches imports.
sys.path.insert(0, str(__path__[0])[: -len("/tokenize_kit")])
import_module("llmcurate")
del sys.path[0]
