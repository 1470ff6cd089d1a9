"""C4's page rules (Raffel et al. 2020, section 2.2), as TensorFlow Datasets' code has them.

Source of every constant: tensorflow_datasets/text/c4_utils.py. One thing is ours: sentences are
counted by an approximation of Punkt (curate/text/sentences.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from curate.documents.cutting import cut
from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.documents.limits import Limit, decide
from curate.errors import UsageError
from curate.filters.lists import read_list
from curate.steps.contracts import Step
from curate.text.tables import segments

# C4's bad word filter: a list given by path or URL, softened by the md5 of the page's URL.
#
# The matching is that of TensorFlow Datasets' `get_badwords_filter_fn`:
# `(?:\W|^)(word1|word2|...)(?:\W|$)` on the lower-cased page, without the boundaries for
# Japanese, Thai and Chinese. The words are put into a prefix tree first, which leaves the matches
# as they are and makes the search tens of times faster.

UNBOUNDED = ("ja", "th", "zh")


def _tree(words: Iterable[str]) -> dict:
    root: dict = {}
    for word in words:
        node = root
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return root


def _pattern(node: dict) -> str:
    branches = [re.escape(k) + _pattern(node[k]) for k in sorted(node) if k]
    if not branches:
        return ""
    body = branches[0] if len(branches) == 1 else "(?:" + "|".join(branches) + ")"
    return f"(?:{body})?" if "" in node else body


def badwords_regex(words: Iterable[str], lang: str) -> re.Pattern[str]:
    """The compiled pattern for lower-cased text; its group 0 is the word that was found."""
    kept = sorted({w.strip().lower() for w in words} - {""})
    if not kept:
        raise UsageError(f"bad words: no word for language {lang!r} in the list")
    body = _pattern(_tree(kept))
    return re.compile(body if lang in UNBOUNDED else rf"(?<!\w){body}(?!\w)")


def read_words(location: str, sha256: str | None) -> dict[str, list[str]]:
    """Words by language from a path or URL: JSON lines with `lang` and `term` (or `word`), or plain
    lines (language "en"); .gz is unpacked. A URL needs its sha256, which is checked."""
    data = read_list(location, sha256, "badwords", "badwords_sha256")
    words: dict[str, list[str]] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.lstrip().startswith("{"):
            try:
                entry = json.loads(line)
                words.setdefault(entry.get("lang", "en"), []).append(
                    entry["term"] if "term" in entry else entry["word"]
                )
            except (ValueError, KeyError):
                raise UsageError(f"badwords: {location}:{number} has no word") from None
        else:
            words.setdefault("en", []).append(line)
    return words


def patterns(location: str, sha256: str | None) -> dict[str, re.Pattern[str]]:
    """Compiled patterns by language."""
    return {
        lang: badwords_regex(words, lang) for lang, words in read_words(location, sha256).items()
    }


def spared(url: str, fraction: float) -> bool:
    """Whether a page with a bad word is kept all the same: md5(url) decides, so that it is the
    same in every run. `fraction` of the pages is dropped (1.0: all)."""
    numerator, denominator = float(fraction).as_integer_ratio()
    return int(hashlib.md5(url.encode()).hexdigest(), 16) % denominator >= numerator


class C4(Step):
    """Drops lines that are no sentences and pages that hold code, filler or too little text."""

    name: ClassVar[str] = "c4"

    variant: Literal["tfds"] = "tfds"
    max_page_chars: int = Field(190_000, ge=0, description="longer pages are dropped")
    max_word_chars: int = Field(1000, ge=1, description="lines with a longer word are cut")
    min_words_per_line: int = Field(5, ge=0)
    min_sentences: int = Field(3, ge=0)
    require_end_mark: bool = Field(True, description='lines end in . ? ! " and not in ...')
    badwords: str | None = Field(None, description="path or URL of a word list; none: no rule")
    badwords_sha256: str | None = None
    badwords_lang: str = Field("en", description="list for pages whose lang is not known")
    badwords_fraction: float = Field(1.0, ge=0, le=1, description="share of such pages dropped")

    _words: dict[str, re.Pattern[str]] | None = PrivateAttr(default=None)

    def notes(self) -> list[str]:
        skipped = f"{self.label}: no bad word list was given, so that rule was skipped"
        return [] if self.badwords else [skipped]

    def resources(self) -> list[str]:
        return [self.badwords] if self.badwords else []

    def open(self) -> None:
        if self.badwords and self._words is None:
            self._words = patterns(self.badwords, self.badwords_sha256)

    def apply(self, docs: Documents) -> Documents:
        from curate.filters.c4_kernel import SPAN_RULES, judge_lines
        from curate.filters.c4_rebuild import spans_of_lines

        data, offsets = docs.buffers()
        tables = segments(docs)
        lines, words, chars = tables.lines, tables.words, tables.chars
        verdict, cited, hits, sentences, citations = judge_lines(
            data,
            lines.rows,
            lines.start,
            lines.end,
            words.lines,
            words.start,
            words.end,
            words.chars,
            self.max_word_chars,
            self.min_words_per_line,
            self.require_end_mark,
        )
        docs = docs.annotate("lines", np.diff(lines.rows).astype(np.int32))
        docs = docs.annotate("lines_kept", hits[:, 2].astype(np.int32))
        docs = docs.annotate("sentences", sentences.astype(np.int32))
        docs = docs.drop(chars > self.max_page_chars, "page_length", chars, self.max_page_chars)
        docs = docs.drop(hits[:, 0] > 0, "lorem_ipsum", hits[:, 0], 0)
        docs = docs.drop(hits[:, 1] > 0, "curly_bracket", hits[:, 1], 0)
        docs = decide(docs, self.limits())
        clean = ~docs.marked()
        rows, starts, ends, rules, swaps = spans_of_lines(
            data,
            offsets,
            lines.rows,
            lines.raw,
            lines.start,
            lines.end,
            verdict,
            cited,
            clean,
            citations,
        )
        spans = Spans(rows, starts, ends, rules, SPAN_RULES, swaps, ("", "\n"))
        docs = cut(docs, spans)
        return self._drop_badwords(docs, clean) if self.badwords else docs

    def limits(self) -> list[Limit]:
        few = Limit("few_sentences", "sentences", "min_sentences", self.min_sentences, above=False)
        # A page without any kept line has no text left, whatever the sentence minimum.
        none = Limit("no_line_left", "lines_kept", "", 1, above=False, unless="few_sentences")
        return [few, none]

    def _drop_badwords(self, docs: Documents, clean: np.ndarray) -> Documents:
        found: list[str | None] = [None] * len(docs)
        self.open()
        known = self._words or {}
        texts, urls, langs = docs.text, docs.table["url"], docs.table["lang"]
        for row in np.flatnonzero(clean):
            label = langs[int(row)].as_py() or self.badwords_lang
            pattern = known.get(label.split("-")[0].split("_")[0])
            match = pattern.search(texts[int(row)].as_py().lower()) if pattern else None
            url = urls[int(row)].as_py() or ""
            if match and not spared(url, self.badwords_fraction):
                found[int(row)] = match.group(0)
        mask = np.array([f is not None for f in found], np.bool_)
        return docs.drop(mask, "bad_word", detail=found)
