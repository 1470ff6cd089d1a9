"""C4's bad word filter: a list given by path or URL, softened by the md5 of the page's URL.

The matching is that of TensorFlow Datasets' `get_badwords_filter_fn`:
`(?:\\W|^)(word1|word2|...)(?:\\W|$)` on the lower-cased page, without the boundaries for Japanese,
Thai and Chinese. The words are put into a prefix tree first, which leaves the matches as they are
and makes the search tens of times faster.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

from curate.errors import UsageError
from curate.filters.lists import read_list

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
