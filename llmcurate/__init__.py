"""Turn web archives into training data for language models, and train tokenizers and models.

    from llmcurate import Corpus, run_recipe

    corpus = Corpus.read("crawl/*.warc.gz").extract().language(keep=["en"]).filter("gopher_quality")
    result = corpus.dedup("minhash").run("out")
    same = run_recipe("fineweb", "crawl/*.warc.gz", "out2", language={"keep": ["en"]})

Names are imported at their first use, so that `import llmcurate` is cheap (docs/python.md).
`llmcurate.base` has the code that curate, tokenize_kit and train share; it imports none of them.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from llmcurate.base import start
from llmcurate.version import __version__

TYPE_CHECKING = False  # `typing` must not be imported before `start.watch`
if TYPE_CHECKING:
    from typing import Any

    from curate.api import steps
    from curate.api.corpus import Corpus, run_recipe
    from curate.api.result import Result
    from curate.steps.recipe import load as load_recipe

with suppress(FileNotFoundError):  # the working folder was deleted
    start.watch()

__all__ = ["Corpus", "Result", "__version__", "load_recipe", "run_recipe", "steps"]
_PLACES = {
    "Corpus": ("curate.api.corpus", "Corpus"),
    "Result": ("curate.api.result", "Result"),
    "load_recipe": ("curate.steps.recipe", "load"),
    "run_recipe": ("curate.api.corpus", "run_recipe"),
    "steps": ("curate.api.steps", ""),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'llmcurate' has no attribute {name!r}")
    place, inner = _PLACES[name]
    return getattr(import_module(place), inner) if inner else import_module(place)


def __dir__() -> list[str]:
    return __all__
