"""Dictionaries: words of scripts without spaces, where a package of PyPI brings a list of them.

The extra `segment` installs them. Which are used is part of a step's settings as they are written
down, with a hash of each list: what a run counts does not depend on what else is installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from curate.text.codes import comparable
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from tokenize_kit.segment.dictionary import Dictionary

AUTO, ESTIMATE = "auto", "estimate"


@dataclass(frozen=True)
class Source:
    """A list of words: the package that brings it, its file there (a word begins each line), and
    the scripts that it cuts."""

    package: str
    file: str
    scripts: tuple[str, ...]


# Khmer, Burmese and Japanese have no plain list on PyPI that is kept.
SOURCES = {
    "tha": Source("pythainlp", "corpus/words_th.txt", ("Thai",)),
    "lao": Source("laonlp", "corpus/lo_spellcheck_dict.txt", ("Lao",)),
    "zho": Source("jieba", "dict.txt", ("Han",)),
}


def file_of(code: str) -> Path | None:
    """The list of a language, where its package is installed; the package is not loaded."""
    source = SOURCES.get(code)
    try:
        spec = find_spec(source.package) if source else None
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / source.file if source else Path(folder)
        if path.is_file():
            return path
    return None


@lru_cache(maxsize=8)
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def effective(words: str, codes: Iterable[str]) -> str:
    """A setting `words` as it is here and now: auto becomes `estimate`, or `tha=HASH,zho=HASH` of
    the lists there are for these languages. UsageError where a named list is another or absent."""
    if words == AUTO:
        paths = {code: file_of(code) for code in sorted(set(codes))}
        dictionaries = [f"{code}={_digest(path)}" for code, path in paths.items() if path]
        return ",".join(dictionaries) or ESTIMATE
    for code in named(words):
        dictionary_for(words, code)
    return words


def named(words: str) -> dict[str, str]:
    """The languages that a setting names, and the hash that each list must have, if any."""
    if words in (AUTO, ESTIMATE):
        return {}
    pairs = (entry.strip().partition("=") for entry in words.split(","))
    return {comparable(code): digest for code, _, digest in pairs}


def dictionary_for(words: str, code: str) -> Dictionary | None:
    """The dictionary for a language by a setting that is effective; None: its words are estimated.
    UsageError where the list is absent or another."""
    digests = named(words)
    if code not in digests:
        return None
    path = file_of(code)
    if path is None:
        raise UsageError(
            f"words: no dictionary for {code}: pip install 'llmcurate[segment]', or words: estimate"
        )
    if digests[code] and digests[code] != _digest(path):
        raise UsageError(
            f"words: {path} is another list than the run had ({digests[code]}): install the version"
            f" of {SOURCES[code].package} that it had, or take words: auto for a new run"
        )
    return _read(path, code)


@lru_cache(maxsize=4)
def _read(path: Path, code: str) -> Dictionary:
    from tokenize_kit.segment.dictionary import dictionary_of

    lines = path.read_text("utf-8-sig").splitlines()
    words = {line.split()[0] for line in lines if line.strip()}
    return dictionary_of(words, _digest(path), path, SOURCES[code].scripts)
