"""Corpus curation: web archives in, clean and distinct documents out; import what you need."""

import sys
from importlib import import_module

# Ours, whatever else has that name on the path of modules; it watches all other imports.
sys.path.insert(0, str(__path__[0])[: -len("/curate")])
import_module("llmcurate")
del sys.path[0]
