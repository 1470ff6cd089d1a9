"""Lists of bad words: read from a file or fetched by name, and the patterns made of them.

The rule is that of TensorFlow Datasets (tensorflow_datasets/text/c4.py and c4_utils.py, 4.9.10),
whose lists are LDNOOBW's: "List of Dirty, Naughty, Obscene, and Otherwise Bad Words".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.fetch.published import Published
from curate.steps.contracts import FromFiles, Step, step
from curate.text.languages import TWO, comparable
from llmcurate.base.errors import UsageError

NAME = "ldnoobw"
_HOME = (
    "https://raw.githubusercontent.com/LDNOOBW/"
    "List-of-Dirty-Naughty-Obscene-and-Otherwise-Bad-Words"
)
_COMMIT = "5faf2ba42d7b1c0977169ec3611df25a3c08eb13"
# C4's own English list is an older one.
_COMMIT_OF = {"en": "25e679f03d96baa721cde20db9944649e8d0a844"}
# Bytes and sha256 by the list's name: tensorflow_datasets/url_checksums/c4.txt.
# fmt: off
LISTS = {
    "ar": (331, "23dbd9c55257bf2a4965f46664dc7eac04b61ff4eb3571e41f7e964c7c3ed96b"),
    "cs": (302, "90706df86709bade1ca39cf9f9d9836409c674fc3bffcb7525bdd20e59b596bc"),
    "da": (153, "ddb46ab67e955d1a5f49c89c18497d23c3d8d6d2522f3740a5d7583f90e434c6"),
    "de": (534, "ebe44d7772897390e27f7bec412fdcdf0efc294e4db157f8487c4cd8d4fabd55"),
    "en": (3566, "a506cbcf8a31935b122299f3bb1d32be6db3d0ad498765d28f365dfc4f4d7b8c"),
    "eo": (278, "0374d76be1dbc77c61362d6e51305e1e4c546b7f734eb96e0bdbad7fd2a6ace1"),
    "es": (617, "073334261cc2e7c08339faefd2f19f9623e8240a0ac18fe2a26c368b897496ce"),
    "fa": (452, "85828629b90fd18a3f6f6efb1934c1294103c33d1c28c0653970adfa179169e9"),
    "fi": (1219, "3e0b35b2533ba22fb526d882bea250ddfad907ee7548aacbe15db17e21034c62"),
    "fil": (105, "fb4b43691b1249fee2eca1e66795daedda8e7366d42abcde6553dce611d23d99"),
    "fr": (793, "79763a705e08256b393952852bb63aa903f4485e0ef02f70735f5e50efff213c"),
    "fr-CA-u-sd-caqc": (47, "4a0ef5d55921c91df26676b214d3ac648deef11cfbc4587159ee9aab4085b09a"),
    "hi": (1123, "83636e9b7a5260451e09e9e471f81dad9f082d107a82da77047e57d7856ed0cc"),
    "hu": (780, "a6943a971496f16e9a9d59ba6fde146d229699600e9636828d8d34ed9160aff5"),
    "it": (1451, "d413f41018d58aa79d2c4809d0161f29ffd5652c4dc34c5b7b9ade680ee5599a"),
    "ja": (2339, "f83c4d0843ea6474c17bf171edd72b616b3af403f8613f2cde1bd841faf6f316"),
    "kab": (196, "df7be2ce4a0c80ee717cd7134c90645a8a0f0c0c458a61f927934dbd50eac96d"),
    "ko": (588, "0dd4b74ffea6e3bb35d658e6d8262b53ee99281eaa48ecb515a2065bfcc7f69d"),
    "nl": (1909, "8298ba0cdc3ca9a1989c349b8ad0148e4504c2804f2f2fb6c2f52bfb39c5ae71"),
    "no": (319, "e55b46bcec1ea288256924523a997d8d99e124c9aa3e61cbbbfaeca294f745b4"),
    "pl": (483, "98cf824e3692255645c5a72d5913f26fd4f20930f725683b4c96bb312ca5d9b3"),
    "pt": (629, "05ef524b0bb7f83f87257f6ec4dabf70e16b8bb6930f769fb93deaf608ff196d"),
    "ru": (2223, "2598adabd2b761733d72a68d8ee4fcc1d2c38f2f85b6ff489985c6ce1d93bf75"),
    "sv": (327, "77f3f99a89bd3b2bde6a654741bacfcb3acca3f5c804af4d8d3fea11e09ea562"),
    "th": (493, "835036d87a3a67738e388cd6de92e3c995c186a1427b4e830fe7b85483c257e7"),
    "tlh": (25, "3c19004e338c0d91d19ba419185279145848b75b2327aa0e3a752c604ad9f59d"),
    "tr": (1509, "6c7ae03baee0f3fdc22eed169030567669005dad9a1923e0b571c4bd4f2f2ab5"),
    "zh": (2675, "a1d9aa037c8b039ef3b40148b3364ce2ca62ce4a955b7082a16ad99f6cbd1bc0"),
}
# fmt: on
# Words that the lists have and TensorFlow Datasets leaves out: c4.py, _BADWORDS_ALLOWLIST.
ALLOWED = {"ja": {"sm", "グロ", "女の子"}, "zh": {"性"}}
# Languages whose words are matched without boundaries, as `get_badwords_filter_fn` of c4_utils.py.
UNBOUNDED = ("ja", "th", "zh")


def language_of(label: str) -> str:
    """`fr` of `fr-CA-u-sd-caqc`, `fra_Latn`, `FR_ca` and `fr`."""
    language = comparable(label.partition("-")[0])
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
        part: Published(
            f"{_HOME}/{_COMMIT_OF.get(part, _COMMIT)}/{part}", *pin, f"lists/{NAME}/{part}"
        )
        for part, pin in LISTS.items()
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
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
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
            pattern = words.get(language_of(langs[int(row)].as_py() or self.badwords_lang))
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
