"""Corpus curation: from web archives to clean and distinct documents. Import the modules you
need."""

import sys
from importlib import import_module

# Load the `llmcurate` beside this package, even if another one comes first in sys.path. It watches
# all later imports.
sys.path.insert(0, str(__path__[0])[: -len("/curate")])
import_module("llmcurate")
del sys.path[0]
