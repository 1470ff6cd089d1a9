"""ROOTS' rules for the web part of BLOOM's corpus, with their parameters by language.

Source: Laurençon et al. 2022, section 3.1 and appendix; bigscience-workshop/data-preparation,
preprocessing/training/01b_oscar_cleaning_and_filtering (parameters_filtering.py, filtering.py). Its
lists of stop words and flagged words are not included. ROOTS also replaces special spaces by blanks
and merges repeated separators; the steps of this module do not. ROOTS' last rules, on language and
perplexity, are the steps `language` and `perplexity`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import PrivateAttr

from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.filters.special_characters import SPECIAL
from curate.filters.word_lists import WordList, WordLists
from curate.steps.contracts import Step, step
from curate.text.buffers import text_buffers
from curate.text.languages import entry_for
from llmcurate.base.errors import UsageError

LANG = "{lang}"  # placeholder in the path of a list


class Parameters(NamedTuple):
    """The limits of one language in ROOTS' parameters_filtering.py. Shares are from 0 to 1.
    `pairs` is a separator or None. Single words are looked up in the lists of stop words and
    flagged words. With a separator, two adjacent words joined by it are looked up too."""

    long_word: int  # most characters of a word
    words: int  # fewest words of a document
    ngram_chars: int  # n of character n-grams
    chars: float  # largest share of repeated character n-grams
    repeated: float  # largest share of repeated word n-grams
    special: float  # largest share of special characters
    stop: float  # smallest share of stop words
    flagged: float  # largest share of flagged words
    ngram_words: int = 5  # n of word n-grams
    pairs: str | None = None


PARAMETERS = {
    "": Parameters(0, 10, 10, 0.2, 0.3, 0.4, 0.1, 0.1),
    "ar": Parameters(25, 20, 10, 0.2, 0.34, 0.3, 0.07, 0.03),
    "bn": Parameters(20, 33, 10, 0.13, 0.21, 0.45, 0.002, 0.001),
    "ca": Parameters(20, 15, 10, 0.2, 0.4, 0.25, 0.25, 0.1),
    "en": Parameters(25, 20, 10, 0.106, 0.19, 0.4, 0.3, 0.01),
    "es": Parameters(25, 16, 10, 0.14, 0.25, 0.34, 0.4, 0.01),
    "eu": Parameters(28, 8, 10, 0.2, 0.4, 0.31, 0.05, 0.1),
    "fr": Parameters(45, 13, 10, 0.14, 0.13, 0.34, 0.27, 0.008),
    "hi": Parameters(25, 38, 10, 0.18, 0.47, 0.45, 0.01, 0.005),
    "id": Parameters(30, 15, 10, 0.15, 0.2, 0.34, 0.15, 0.01),
    "pt": Parameters(19, 19, 10, 0.25, 0.98, 0.35, 0.2, 0.007),
    "ur": Parameters(20, 25, 10, 0.19, 0.5, 0.25, 0.01, 0.025, 7),
    "vi": Parameters(25, 30, 10, 0.15, 0.2, 0.34, 0.08, 0.005, 5, " "),
    "zh": Parameters(0, 1, 3, 0.2, 0.96, 0.3, 0.1691, 0.001, 5, ""),
}
MOST_WORDS = 100_000  # number_words_max_cutoff; 1,000,000 in Chinese
RULES = ("address", "long_word")

# A word ends at a blank, tab or newline, or at a space that filtering.py replaces by a blank
# (uniform_whitespace).
_WORD = re.compile("[^ \n\t\x84\xa0\u2002\u2003\u2005\u2008-\u200a\u202f\u3000\ufffc]+")


def stripped(word: str) -> str:
    a, z = 0, len(word)
    while a < z and word[a] in SPECIAL:
        a += 1
    while z > a and word[z - 1] in SPECIAL:
        z -= 1
    return word[a:z]


def words_of(text: str, lang: str) -> list[str]:
    """Return the non-empty words of a text in lower case, without special characters at their ends.
    For Chinese, each character is a word, whereas ROOTS uses pieces of a SentencePiece model."""
    parts = list(text) if lang == "zh" else _WORD.findall(text)
    return [word for word in map(stripped, map(str.lower, parts)) if word]


def repeated_words(words: list[str], n: int) -> float:
    """Return the share of word n-grams that occur more than once."""
    times = Counter(zip(*(words[k:] for k in range(n)), strict=False))
    total = sum(times.values())
    return sum(t for t in times.values() if t > 1) / total if total else 0.0


def share_of(words: list[str], listed: frozenset[str], pairs: str | None) -> float:
    """Return the share of words that are on a list, at most 1. If `pairs` is a separator, two
    adjacent words joined by it are looked up and counted too."""
    if not words:
        return 0.0
    hits = sum(word in listed for word in words)
    if pairs is not None:
        hits += sum(pairs.join(pair) in listed for pair in pairwise(words))
    return min(hits / len(words), 1.0)


def _language(docs: Documents, sole: str | None) -> list[str]:
    langs = [sole] * len(docs) if sole else docs.table["lang"].to_pylist()
    return [entry_for(lang or "", PARAMETERS) or "" for lang in langs]


@step("roots_words")
class RootsWords(Step, WordLists):
    """Cuts addresses and overlong words out of texts, as ROOTS does before its filters."""

    paper: ClassVar[str] = "Laurençon et al. 2022 (ROOTS); data-preparation, filtering.py"
    word_lists: ClassVar[tuple[str, ...]] = ("address_parts",)

    lang: str | None = None
    """Language of all texts, as two letters. Default: the column `lang`."""
    address_parts: WordList = ("http", "www", ".com", "href", "//")
    """Words that contain one of these are cut (filtering.py, incorrect_word_substrings). A list, or
    a file with one entry per line."""

    def apply(self, docs: Documents) -> Documents:
        from curate.documents.cutting import cut

        langs, clean = _language(docs, self.lang), ~docs.marked()
        edits: list[tuple[int, int, int, int]] = []
        for row, text in enumerate(docs.text.to_pylist()):
            if text and clean[row] and langs[row] not in ("", "zh"):
                spans = _bad_words(text, PARAMETERS[langs[row]], self.entries("address_parts"))
                edits += ((row, *span) for span in spans)
        rows, start, end, rule = (np.array([e[k] for e in edits], np.int64) for k in range(4))
        return cut(docs, Spans(rows, start, end, rule, RULES, np.zeros(len(edits), np.int64)))


def _bad_words(
    text: str, parameters: Parameters, address_parts: tuple[str, ...]
) -> Iterator[tuple[int, int, int]]:
    at = byte = 0
    for match in _WORD.finditer(text):
        word, core = match.group(), stripped(match.group())
        address = any(part in core for part in address_parts)
        if not address and min(len(word), len(core) or len(word)) <= parameters.long_word:
            continue
        a, z = match.span()
        if text[z : z + 1] == " ":
            z += 1
        elif a > at and text[a - 1] == " ":
            a -= 1
        byte += len(text[at:a].encode())
        start = byte
        byte += len(text[a:z].encode())
        at = z
        yield start, byte, 0 if address else 1


@step("roots")
class Roots(Step, WordLists):
    """Drops documents by ROOTS' rules, with the parameters of their language.

    Columns: `words` (a number) and the shares `repeated_chars`, `repeated_words`, `special_chars`;
    if the lists are given, also the shares `stop_words` and `flagged_words`.
    """

    paper: ClassVar[str] = "Laurençon et al. 2022 (ROOTS); data-preparation, filtering.py"
    only_measures: ClassVar[bool] = True
    word_lists: ClassVar[tuple[str, ...]] = ("stop_words", "flagged_words")

    lang: str | None = None
    """Language of all texts, as two letters. Default: the column `lang`."""
    stop_words: WordList | None = None
    """Stop words: a list, or a file with one word per line. With {lang} in the path there is one
    file per language. Default: no list, no rule."""
    flagged_words: WordList | None = None
    """Flagged words: a list, or a file with one word per line. With {lang} in the path there is one
    file per language. Default: no list, no rule."""
    _lists: dict[tuple[str, str], frozenset[str]] = PrivateAttr(default_factory=dict)

    def _paths(self, key: str) -> dict[str, Path]:
        path = getattr(self, key)
        if not isinstance(path, Path):
            return {}
        files = {lang: Path(str(path).replace(LANG, lang)) for lang in PARAMETERS}
        if LANG in str(path):
            files = {lang: file for lang, file in files.items() if lang and file.is_file()}
            if not files:
                raise UsageError(f"{self.label}: no list matches {path} for any known language")
        return files

    def resources(self) -> list[str]:
        paths = {path for key in self.word_lists for path in self._paths(key).values()}
        for path in paths:
            self.entries_in(path)
        return sorted(map(str, paths))

    def notes(self) -> list[str]:
        absent = [key for key in self.word_lists if not getattr(self, key)]
        return [f"{self.label}: no list {key} was given, so that rule is skipped" for key in absent]

    def open(self) -> None:
        for key in self.word_lists:
            lists = {lang: self.entries_in(path) for lang, path in self._paths(key).items()}
            if isinstance(given := getattr(self, key), tuple) and given:
                lists = dict.fromkeys(PARAMETERS, given)
            for lang, words in lists.items():
                self._lists[key, lang] = frozenset(map(str.lower, words))

    def apply(self, docs: Documents) -> Documents:
        from curate.filters.ratios_kernel import code_points, repeated_shares

        if not self._lists:
            self.open()
        langs = _language(docs, self.lang)
        texts = [(text or "").strip() for text in docs.text.to_pylist()]
        rows, codes = code_points(*text_buffers(pa.array(texts, pa.large_string())))
        sizes = {PARAMETERS[lang].ngram_chars for lang in langs}
        repeated = {n: repeated_shares(rows, codes, n, True) for n in sizes}
        names = ("words", "repeated_chars", "repeated_words", "special_chars")
        values = {
            name: np.full(len(docs), np.nan) for name in (*names, "stop_words", "flagged_words")
        }
        for row, (text, lang) in enumerate(zip(texts, langs, strict=True)):
            p, words = PARAMETERS[lang], words_of(text, lang)
            values["words"][row] = len(words)
            values["repeated_chars"][row] = repeated[p.ngram_chars][row]
            values["repeated_words"][row] = repeated_words(words, p.ngram_words)
            special = sum(c in SPECIAL for c in text)
            values["special_chars"][row] = special / len(text) if text else 0.0
            for key in self.word_lists:
                listed = self._lists.get((key, lang))
                if listed is not None:
                    values[key][row] = share_of(words, listed, p.pairs)
        for name, column in values.items():
            docs = docs.annotate(name, pa.array(column, pa.float64(), from_pandas=True))
        return self._drop_by_limits(docs, values, langs)

    def _drop_by_limits(
        self, docs: Documents, values: dict[str, np.ndarray], langs: list[str]
    ) -> Documents:
        chosen = [PARAMETERS[lang] for lang in langs]
        limits = {
            "few_words": ("words", [p.words for p in chosen], False),
            "many_words": ("words", [MOST_WORDS * (10 if x == "zh" else 1) for x in langs], True),
            "repeated_chars": ("repeated_chars", [p.chars for p in chosen], True),
            "repeated_words": ("repeated_words", [p.repeated for p in chosen], True),
            "special_chars": ("special_chars", [p.special for p in chosen], True),
            "few_stop_words": ("stop_words", [p.stop for p in chosen], False),
            "flagged_words": ("flagged_words", [p.flagged for p in chosen], True),
        }
        for rule, (name, limit, above) in limits.items():
            most = np.array(limit, np.float64)
            over = values[name] > most if above else values[name] < most
            detail = [f"limit {number:g}" for number in most]
            docs = docs.drop(over, rule, values[name], detail=detail)
        return docs
