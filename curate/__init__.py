"""Corpus curation: web archives in, clean and distinct documents out.

    from curate import Corpus, run_recipe

    corpus = Corpus.read("crawl/*.warc.gz").extract().language(keep=["en"]).filter("gopher_quality")
    result = corpus.dedup("minhash").run("out")
    same = run_recipe("fineweb", "crawl/*.warc.gz", "out2", language={"keep": ["en"]})

Names are imported when they are first used, so that `import curate` is cheap (docs/python.md).
"""

from __future__ import annotations

import sys
from importlib import import_module

from curate.version import __version__

TYPE_CHECKING = False  # typing is not imported before kernel_cache looks
if TYPE_CHECKING:
    from typing import Any

    from curate.api.corpus import Corpus
    from curate.api.result import Result
    from curate.api.run import run_recipe
    from curate.steps.recipe import load

# Ours, whatever else has that name on the path of modules; it watches all other imports.
sys.path.insert(0, str(__path__[0])[: -len("/curate")])
import_module("kernel_cache")
del sys.path[0]

__all__ = ["Corpus", "Result", "__version__", "load", "run_recipe"]
_PLACES = {
    "Corpus": "curate.api.corpus",
    "Result": "curate.api.result",
    "load": "curate.steps.recipe",
    "run_recipe": "curate.api.run",
}


def __getattr__(name: str) -> Any:
    """The names that are imported when they are first used."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'curate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
