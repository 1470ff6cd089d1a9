"""Train tokenizers and encode documents into token shards. Import the module you need."""

import sys
from importlib import import_module

# Import this checkout's llmcurate, even if another one is first on sys.path; it watches imports.
sys.path.insert(0, str(__path__[0])[: -len("/tokenize_kit")])
import_module("llmcurate")
del sys.path[0]
