"""Extractors of other projects that a recipe may name: trafilatura, and jusText.

They are no part of the installation (`pip install 'llmcurate[extractors]'`) and are imported when
a recipe uses them. Both build a tree of the whole page and recurse into it, so pages nested deeper
than MAX_DEPTH are rejected before.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from curate.errors import RunFailed, UsageError
from curate.extract.resiliparse_text import MAX_DEPTH, TooDeep, depth_of

MODULES = {"trafilatura": "trafilatura", "justext": "justext"}


def need(extractor: str) -> None:
    """RunFailed with what to install, where the extractor's library is absent."""
    module = MODULES.get(extractor)
    if module is not None and find_spec(module) is None:
        raise RunFailed(
            f"extractor {extractor} needs a library: pip install 'llmcurate[extractors]'"
        )


def shallow(html: str) -> None:
    """TooDeep where a page is nested deeper than MAX_DEPTH."""
    depth = depth_of(html) if html.count("<") > MAX_DEPTH else 0
    if depth > MAX_DEPTH:
        raise TooDeep(depth)


def trafilatura(favor: str) -> Callable[[str], str]:
    """Main text without comments by trafilatura (Barbaresi 2021); favor: precision, recall or
    balanced. Its own removal of repeated passages is off: it depends on the pages before."""
    need("trafilatura")
    import logging

    from trafilatura import extract

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # pages that it cannot read

    def text(html: str) -> str:
        shallow(html)
        found = extract(
            html,
            include_comments=False,
            deduplicate=False,
            favor_precision=favor == "precision",
            favor_recall=favor == "recall",
        )
        return found or ""

    return text


def stop_words(language: str) -> frozenset[str]:
    """jusText's stop words of a language by its English name, or of all; UsageError for others."""
    need("justext")
    import justext

    known = sorted(justext.get_stoplists())
    if language == "all":
        return frozenset().union(*(justext.get_stoplist(name) for name in known))
    if language not in known:
        names = ", ".join(known)
        raise UsageError(f"extract: no stop words for {language!r}; known: all, {names}")
    return frozenset(justext.get_stoplist(language))


def justext(language: str) -> Callable[[str], str]:
    """The paragraphs that jusText (Pomikálek 2011) takes for text, with its default limits."""
    words = stop_words(language)
    import justext as library

    def text(html: str) -> str:
        if not html.strip():
            return ""
        shallow(html)
        # As bytes: lxml refuses a string with an encoding declaration.
        found = library.justext(html.encode("utf-8"), words, encoding="utf-8")
        return "\n\n".join(p.text for p in found if not p.is_boilerplate)

    return text
