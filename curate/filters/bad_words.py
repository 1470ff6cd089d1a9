"""Lists of bad words: read from a file or fetched by name, and the patterns made of them.

The rule is that of TensorFlow Datasets (tensorflow_datasets/text/c4.py and c4_utils.py, 4.9.10),
whose lists are LDNOOBW's: "List of Dirty, Naughty, Obscene, and Otherwise Bad Words".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.fetch.published import Published, all_at_hand, lists_of
from curate.steps.contracts import FromFiles, Step, step
from curate.text.decoding import decode
from curate.text.languages import TWO, comparable, entry_for
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

NAME = "ldnoobw"
LISTS = lists_of(NAME)
# Words that the lists have and TensorFlow Datasets leaves out: c4.py, _BADWORDS_ALLOWLIST.
ALLOWED = {"ja": {"sm", "グロ", "女の子"}, "zh": {"性"}}
# Languages whose words are matched without boundaries, as `get_badwords_filter_fn` of c4_utils.py.
UNBOUNDED = ("ja", "th", "zh")


def language_of(label: str) -> str:
    """`fr` of `fr-CA-u-sd-caqc`, `fra_Latn`, `FR_ca` and `fr`."""
    language = comparable(label)
    return TWO.get(language, language)


def published_lists(location: str) -> dict[str, Published]:
    """By name, the published lists that `ldnoobw` (all of them) or `ldnoobw:en,de` (of these
    languages) means; none where the location is a path or URL. UsageError for a language without a
    list."""
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
    """The compiled pattern for lower-cased text; its group 0 is the word that matched.

    It matches as `(?:\\W|^)(word1|word2|...)(?:\\W|$)` of c4_utils.py does; the words come from a
    prefix tree, which makes the search tens of times faster.
    """
    kept = sorted({w.strip().lower() for w in words} - {""})
    if not kept:
        raise UsageError(f"bad words: no word for language {lang!r} in the list")
    body = _pattern(_tree(kept))
    return re.compile(body if lang in UNBOUNDED else rf"(?<!\w){body}(?!\w)")


def list_files(location: str, label: str) -> list[str]:
    """The files whose content decides: of a published name those in the cache, fetched where they
    are not there. label: of the step, for messages."""
    files = published_lists(location).values()
    return [str(file.fetched(_otherwise(label))) for file in files] or [location]


def _otherwise(label: str) -> str:
    option = f"--set {label}.badwords"
    return f"no bad word list: give {option}=PATH, do without the rule by {option}=null"


def read_words(
    location: str, sha256: str | None, lang: str = "en", label: str = "c4"
) -> dict[str, list[str]]:
    """Words by language from a published name, a path or a URL: JSON lines with `lang` and `term`
    (or `word`), or plain lines, which are of `lang`; .gz is unpacked. A URL needs its sha256, which
    is checked."""
    from curate.fetch.file_lists import read_list

    words: dict[str, list[str]] = {}
    if lists := published_lists(location):
        for part, file in lists.items():
            text = file.fetched(_otherwise(label)).read_text(encoding="utf-8")
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
    """Compiled patterns by language; arguments as of `read_words`."""
    words = read_words(location, sha256, lang, label)
    return {language: badwords_regex(listed, language) for language, listed in words.items()}


def spared(url: str, fraction: float) -> bool:
    """Whether a page with a bad word is kept all the same: md5(url) decides, so that it is the
    same in every run. `fraction` of the pages is dropped (1.0: all)."""
    numerator, denominator = float(fraction).as_integer_ratio()
    return int(hashlib.md5(url.encode()).hexdigest(), 16) % denominator >= numerator


class BadWordRule(Step, FromFiles):
    """The settings of the rule, and the rule itself, of a step that has it."""

    badwords: str | None = Field(
        None,
        description="A list of words, by path or URL; ldnoobw:en is C4's own, ldnoobw:th,ja those"
        " of other languages, ldnoobw all of its 28, which are fetched and checked: pages that hold"
        " one of its words are dropped; none: the rule is skipped.",
    )
    badwords_sha256: str | None = Field(
        None, description="The sha256 of the word list, needed where it is given by URL."
    )
    badwords_lang: str = Field(
        "en",
        description="The language whose words count for pages without a lang, and of a list of"
        " plain lines.",
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
        files = list_files(self.badwords, self.label) if self.badwords else []
        return [*super().resources(), *files]

    def to_fetch(self) -> list[str]:
        lists = published_lists(self.badwords or "").values()
        return [url for file in lists for url in file.to_fetch()]

    def at_hand(self) -> Self:
        without = f"{self.label}: runs without badwords={self.badwords}"
        if all_at_hand(published_lists(self.badwords or "").values(), without):
            return super().at_hand()
        return self.model_copy(update={"badwords": None})

    def open(self) -> None:
        if self.badwords and self._words is None:
            self._words = patterns(
                self.badwords, self.badwords_sha256, self.badwords_lang, self.label
            )

    def drop_bad_words(self, docs: Documents, clean: np.ndarray) -> Documents:
        """Marks those of the clean documents, bool[rows], that hold a bad word."""
        matches: list[str | None] = [None] * len(docs)
        self.open()
        words = self._words or {}
        texts, urls, langs = docs.text, docs.table["url"], docs.table["lang"]
        for row in np.flatnonzero(clean):
            entry = entry_for(langs[int(row)].as_py() or self.badwords_lang, words)
            pattern = words[entry] if entry else None
            match = pattern.search(texts[int(row)].as_py().lower()) if pattern else None
            url = urls[int(row)].as_py() or ""
            if match and not spared(url, self.badwords_fraction):
                matches[int(row)] = match.group(0)
        mask = np.array([m is not None for m in matches], np.bool_)
        return docs.drop(mask, "bad_word", detail=matches)


@step("bad_words")
class BadWords(BadWordRule):
    """Drops pages that hold a word of a list, as C4 and mC4 do.

    C4 cleans a page before; its step has this rule, too.
    """

    paper: ClassVar[str] = "Raffel et al. 2020, section 2.2; Xue et al. 2021, section 3.1"

    def apply(self, docs: Documents) -> Documents:
        return self.drop_bad_words(docs, ~docs.marked()) if self.badwords else docs
