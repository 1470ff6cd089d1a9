"""Lists of bad words, read from a file or downloaded by name, and the filter that uses them. The
rule is that of TensorFlow Datasets (tensorflow_datasets/text/c4.py and c4_utils.py, 4.9.10). The
downloaded lists are LDNOOBW's: "List of Dirty, Naughty, Obscene, and Otherwise Bad Words"."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.fetch.published import Published, all_available, lists_of
from curate.filters.word_lists import Location, WordLists
from curate.steps.contracts import Step, step
from curate.text.decoding import decode
from curate.text.languages import TWO, comparable, entry_for
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

NAME = "ldnoobw"
LISTS = lists_of(NAME)
# Words that TensorFlow Datasets leaves out of the lists: c4.py, _BADWORDS_ALLOWLIST.
ALLOWED = {"ja": {"sm", "グロ", "女の子"}, "zh": {"性"}}
# Languages whose bad words match inside longer words: c4_utils.py, get_badwords_filter_fn.
UNBOUNDED = ("ja", "th", "zh")


def language_of(label: str) -> str:
    """Return the language code of a label: `fr` for `fr-CA-u-sd-caqc`, `fra_Latn` or `FR_ca`."""
    language = comparable(label)
    return TWO.get(language, language)


def published_lists(location: str) -> dict[str, Published]:
    """Return {name: word list} for a location such as `ldnoobw` or `ldnoobw:en,de`, {} for a path
    or URL. Raises UsageError for a language without a list."""
    name, _, chosen = location.partition(":")
    if name != NAME:
        return {}
    languages = {language_of(part.strip()) for part in chosen.split(",")} - {""}
    offered = {language_of(part) for part in LISTS}
    if languages - offered:
        lacking, available = ", ".join(sorted(languages - offered)), ", ".join(sorted(offered))
        raise UsageError(f"badwords: {NAME} has no list for {lacking}; it has {available}")
    return {
        part: file
        for part, file in LISTS.items()
        if not languages or language_of(part) in languages
    }


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
    r"""Compile a pattern that finds these words in lower-cased text. Group 0 of a match is the
    word. The pattern matches like `(?:\W|^)(word1|word2|...)(?:\W|$)` of c4_utils.py. The words are
    arranged as a prefix tree, which makes the search tens of times faster."""
    kept = sorted({w.strip().lower() for w in words} - {""})
    if not kept:
        raise UsageError(f"bad words: no word for language {lang!r} in the list")
    body = _pattern(_tree(kept))
    return re.compile(body if lang in UNBOUNDED else rf"(?<!\w){body}(?!\w)")


def _missing_list(label: str) -> str:
    option = f"--set {label}.badwords"
    return f"no bad word list: give {option}=PATH, or switch the rule off with {option}=null"


def read_words(
    location: str, sha256: str | None, lang: str = "en", label: str = "c4"
) -> dict[str, list[str]]:
    """Return {language: words} of a word list. `location` names published lists, or is a path or
    URL (.gz is unpacked). A file holds JSONL with `lang` and `term` (or `word`), or plain lines in
    the language `lang`. A URL needs its `sha256`, which is checked."""
    from curate.fetch.file_lists import read_list

    words: dict[str, list[str]] = {}
    if lists := published_lists(location):
        for part, file in lists.items():
            text = file.fetched(_missing_list(label)).read_text(encoding="utf-8")
            language = language_of(part)
            terms = [line.strip() for line in text.splitlines()]
            words.setdefault(language, []).extend(
                term for term in terms if term not in ALLOWED.get(language, ())
            )
        return words
    data = read_list(location, sha256, "badwords", "badwords_sha256")
    for number, line in enumerate(decode(data, html=False).text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.lstrip().startswith("{"):
            try:
                entry = json.loads(line)
                words.setdefault(language_of(entry.get("lang", lang)), []).append(
                    entry["term"] if "term" in entry else entry["word"]
                )
            except (ValueError, KeyError):
                raise UsageError(f"badwords: {location}:{number} has no word") from None
        else:
            words.setdefault(language_of(lang), []).append(line)
    return words


def patterns(
    location: str, sha256: str | None, lang: str = "en", label: str = "c4"
) -> dict[str, re.Pattern[str]]:
    """Return {language: pattern of its bad words}. The arguments are those of read_words()."""
    words = read_words(location, sha256, lang, label)
    return {language: badwords_regex(listed, language) for language, listed in words.items()}


def is_kept(url: str, fraction: float) -> bool:
    """Return True if a page is kept although it has a bad word. `fraction` is the share of such
    pages to drop (1.0: all). The md5 of the URL decides, so every run drops the same pages."""
    numerator, denominator = float(fraction).as_integer_ratio()
    return int(hashlib.md5(url.encode()).hexdigest(), 16) % denominator >= numerator


class BadWordRule(Step, WordLists):
    """The bad-word rule and its settings: the base class of the steps that apply the rule."""

    word_lists: ClassVar[tuple[str, ...]] = ("badwords",)

    badwords: Location | tuple[str, ...] | None = None
    """Words, or a word list by path or URL; pages that contain one are dropped. ldnoobw:en is C4's
    own list, ldnoobw:th,ja are the lists of other languages, and ldnoobw is all of its 28 lists;
    these are downloaded and verified. Without a value the rule is skipped."""
    badwords_sha256: str | None = None
    """The sha256 of the word list. Required for a list given by URL."""
    badwords_lang: str = "en"
    """The language of pages without a value in lang, and of lists that name none."""
    badwords_fraction: float = Field(1.0, ge=0, le=1)
    """The share of pages with a bad word that is dropped. The md5 of the page's URL decides which
    (c4_utils.py)."""

    _words: dict[str, re.Pattern[str]] | None = PrivateAttr(default=None)

    @property
    def location(self) -> str:
        """The path, URL or name of the word list, or "" if the setting is empty or lists words."""
        return self.badwords if isinstance(self.badwords, str) else ""

    def notes(self) -> list[str]:
        skipped = f"{self.label}: no bad word list was given, so that rule was skipped"
        return [] if self.badwords else [skipped]

    def resources(self) -> list[str]:
        files = [self.location] if self.location else []
        if lists := published_lists(self.location).values():
            files = [str(file.fetched(_missing_list(self.label))) for file in lists]
        return [*super().resources(), *files]

    def to_fetch(self) -> list[str]:
        lists = published_lists(self.location).values()
        return [url for file in lists for url in file.to_fetch()]

    def without_missing_files(self, quiet: bool = False) -> Self:
        without = f"{self.label}: runs without badwords={self.badwords}"
        if all_available(published_lists(self.location).values(), without, quiet):
            return super().without_missing_files()
        return self.model_copy(update={"badwords": None})

    def open(self) -> None:
        if self._words is None and isinstance(self.badwords, tuple):
            lang = language_of(self.badwords_lang)
            self._words = {lang: badwords_regex(self.badwords, lang)}
        elif self._words is None and self.badwords:
            self._words = patterns(
                self.location, self.badwords_sha256, self.badwords_lang, self.label
            )

    def drop_bad_words(self, docs: Documents, clean: np.ndarray) -> Documents:
        """Drop documents with a bad word. Only those where `clean` (bool[rows]) is True are
        searched: the documents that no other rule has dropped."""
        matches: list[str | None] = [None] * len(docs)
        self.open()
        words = self._words or {}
        texts, urls, langs = docs.text, docs.table["url"], docs.table["lang"]
        for row in np.flatnonzero(clean):
            entry = entry_for(langs[int(row)].as_py() or self.badwords_lang, words)
            pattern = words[entry] if entry else None
            match = pattern.search(texts[int(row)].as_py().lower()) if pattern else None
            url = urls[int(row)].as_py() or ""
            if match and not is_kept(url, self.badwords_fraction):
                matches[int(row)] = match.group(0)
        mask = np.array([m is not None for m in matches], np.bool_)
        return docs.drop(mask, "bad_word", detail=matches)


@step("bad_words")
class BadWords(BadWordRule):
    """Drops pages that contain a word of a list, as C4 and mC4 do. The step c4 does so after
    cleaning."""

    paper: ClassVar[str] = "Raffel et al. 2020, section 2.2; Xue et al. 2021, section 3.1"

    def apply(self, docs: Documents) -> Documents:
        return self.drop_bad_words(docs, ~docs.marked()) if self.badwords else docs
