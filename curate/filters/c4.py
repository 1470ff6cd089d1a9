"""C4's page rules (Raffel et al. 2020, section 2.2), as TensorFlow Datasets' code has them.

Source of every constant: tensorflow_datasets/text/c4_utils.py. One thing is ours: sentences are
counted by an approximation of Punkt (curate/text/sentences.py). mC4's rule on paragraphs, and the
bad word filter, softened by the md5 of the page's URL, are here too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.documents.limits import Limit, decide
from curate.errors import UsageError
from curate.steps.contracts import Step

# Languages whose words are matched without boundaries, as `get_badwords_filter_fn` of c4_utils.py.
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
    """The compiled pattern for lower-cased text; its group 0 is the word that matched.

    It matches as `(?:\\W|^)(word1|word2|...)(?:\\W|$)` of c4_utils.py does; the words come from a
    prefix tree, which makes the search tens of times faster.
    """
    kept = sorted({w.strip().lower() for w in words} - {""})
    if not kept:
        raise UsageError(f"bad words: no word for language {lang!r} in the list")
    body = _pattern(_tree(kept))
    return re.compile(body if lang in UNBOUNDED else rf"(?<!\w){body}(?!\w)")


def read_words(location: str, sha256: str | None) -> dict[str, list[str]]:
    """Words by language from a path or URL: JSON lines with `lang` and `term` (or `word`), or plain
    lines (language "en"); .gz is unpacked. A URL needs its sha256, which is checked."""
    from curate.fetch.file_lists import read_list

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
    paper: ClassVar[str] = "Raffel et al. 2020, section 2.2; tensorflow_datasets/text/c4_utils.py"

    variant: Literal["tfds"] = Field(
        "tfds",
        description="The reading of the rules: tfds is the code of TensorFlow Datasets.",
    )
    max_page_chars: int = Field(
        190_000,
        ge=0,
        description="Pages with more characters are dropped (c4_utils.py).",
    )
    max_word_chars: int = Field(
        1000,
        ge=1,
        description="Lines with a word of more characters are cut (c4_utils.py).",
    )
    min_words_per_line: int = Field(
        5,
        ge=0,
        description="Lines with fewer words are cut.",
    )
    min_sentences: int = Field(
        3,
        ge=0,
        description="Pages with fewer sentences in the lines that stay are dropped (c4_utils.py).",
    )
    require_end_mark: bool = Field(
        True,
        description='Lines that do not end in . ? ! or ", or that end in ..., are cut (Raffel et'
        " al. 2020, section 2.2).",
    )
    badwords: str | None = Field(
        None,
        description="Path or URL of a word list: pages that hold one of its words are dropped;"
        " none: the rule is skipped.",
    )
    badwords_sha256: str | None = Field(
        None, description="The sha256 of the word list, needed where it is given by URL."
    )
    badwords_lang: str = Field(
        "en", description="The language whose words count for pages without a lang."
    )
    badwords_fraction: float = Field(
        1.0,
        ge=0,
        le=1,
        description="The share of pages with a bad word that is dropped, chosen by the md5 of their"
        " URL (c4_utils.py).",
    )

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
        from curate.documents.cutting import cut
        from curate.filters.c4_kernel import SPAN_RULES, judge_lines, spans_of_lines
        from curate.text.tables import segments

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
        matches: list[str | None] = [None] * len(docs)
        self.open()
        patterns = self._words or {}
        texts, urls, langs = docs.text, docs.table["url"], docs.table["lang"]
        for row in np.flatnonzero(clean):
            label = langs[int(row)].as_py() or self.badwords_lang
            pattern = patterns.get(label.split("-")[0].split("_")[0])
            match = pattern.search(texts[int(row)].as_py().lower()) if pattern else None
            url = urls[int(row)].as_py() or ""
            if match and not spared(url, self.badwords_fraction):
                matches[int(row)] = match.group(0)
        mask = np.array([m is not None for m in matches], np.bool_)
        return docs.drop(mask, "bad_word", detail=matches)


class C4Paragraphs(Step):
    """Drops pages with too few long lines (mC4, Xue et al. 2021, section 3.1).

    Source of the constants: tensorflow_datasets/text/c4_utils.py, paragraph_filter. Its
    "paragraphs" are the lines of `text.split("\\n")`, white space at their ends included.
    """

    name: ClassVar[str] = "c4_paragraphs"
    paper: ClassVar[str] = "Xue et al. 2021, section 3.1; tensorflow_datasets/text/c4_utils.py"

    min_paragraphs: int = Field(
        3,
        ge=0,
        description="Pages with fewer long lines are dropped (Xue et al. 2021, section 3.1).",
    )
    min_chars: int = Field(
        200,
        ge=0,
        description="A line of at least so many characters is a long one (Xue et al. 2021,"
        " section 3.1).",
    )

    def apply(self, docs: Documents) -> Documents:
        from curate.filters.repeats import piece_chars
        from curate.text.lines import newline_lines

        data, _ = docs.buffers()
        lines = newline_lines(docs)
        size = lines.end - lines.start
        # A character has at most four bytes: only lines in between have to be counted.
        long = size >= 4 * self.min_chars
        between = np.flatnonzero(~long & (size >= self.min_chars))
        each = np.arange(len(between) + 1)
        chars = piece_chars(data, each, lines.start[between], lines.end[between])
        long[between] = chars >= self.min_chars
        before = np.concatenate(([0], np.cumsum(long)))
        count = np.diff(before[lines.rows])
        docs = docs.annotate("paragraphs", count.astype(np.int32))
        few = count < self.min_paragraphs
        return docs.drop(few, "few_paragraphs", count, self.min_paragraphs)
