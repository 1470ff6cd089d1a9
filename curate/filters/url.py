"""Filter documents by URL: lists of domains, hosts, pages and words to drop, or to keep.

The rules follow RefinedWeb (Penedo et al. 2023, appendix G.1) and DataTrove's `url_filter.py`. No
lists are included; DataTrove's lists, which include UT1's, are downloaded by name. The step reads
only the URL, so it can run before or after `extract`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.fetch.published import Published, all_available, lists_of
from curate.filters.word_lists import Names
from curate.steps.contracts import FromFiles, Identity, Step, step
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

    from curate.filters import url_lists
    from curate.filters.url_kernel import Folded

FILES = (
    "domains", "hosts", "urls", "banned_words", "soft_words", "banned_subwords", "keep_domains",
    "keep_hosts", "keep_urls",
)  # fmt: skip
_DATATROVE = lists_of("datatrove")
_UT1 = {"ut1": _DATATROVE["url_filterblacklistsv0_3_0.tar.gz"]}
PUBLISHED = {  # by setting and name
    "domains": _UT1,
    "urls": _UT1,
    "banned_words": {"datatrove": _DATATROVE["banned_words.txt"]},
    "soft_words": {"datatrove": _DATATROVE["soft_banned_words.txt"]},
    "banned_subwords": {"datatrove": _DATATROVE["banned_subwords.txt"]},
}


@dataclass(frozen=True)
class _Lists:
    domains: np.ndarray
    hosts: np.ndarray
    urls: np.ndarray
    allow: np.ndarray
    exclude: np.ndarray
    kept: tuple[np.ndarray, np.ndarray, np.ndarray]  # domains, hosts, addresses
    words: url_lists.Words
    subwords: url_lists.Words


@step("url_filter")
class UrlFilter(Step, FromFiles):
    """Drops pages whose URL is on a list or has listed words, or is missing from the keep lists."""

    paper: ClassVar[str] = "Penedo et al. 2023, appendix G.1; DataTrove's url_filter.py"
    only_measures: ClassVar[bool] = True

    domains: Names = ()
    """Files of domains: pages of a domain and of its subdomains are dropped. ut1 is the list of UT1
    (Université Toulouse Capitole) as DataTrove has it, which is downloaded."""
    hosts: Names = ()
    """Files of hosts: pages of exactly these hosts are dropped."""
    urls: Names = ()
    """Files of page addresses: these pages are dropped. ut1 is the list of UT1 as DataTrove has it,
    which is downloaded."""
    banned_words: Names = ()
    """Files of words: a page with one of them as a whole word of its URL is dropped. datatrove is
    DataTrove's list, which is downloaded."""
    soft_words: Names = ()
    """Files of words: a page with several of them as whole words of its URL is dropped (Penedo et
    al. 2023, appendix G.1). datatrove is DataTrove's list, which is downloaded."""
    max_soft_words: int = Field(2, ge=1)
    """A page with at least this many different soft words is dropped (Penedo et al. 2023, appendix
    G.1)."""
    banned_subwords: Names = ()
    """Files of words: a page with one of them anywhere in a part of its URL is dropped. datatrove
    is DataTrove's list, which is downloaded."""
    exclude: Names = ()
    """Domains, or @FILE for a file of them. Their pages are dropped for the reason "excluded"."""
    allow: Names = ()
    """Domains, or @FILE for a file of them. This step never drops their pages."""
    keep_domains: Names = ()
    """Files of domains to keep, with their subdomains. If a keep list is given, pages that are on
    none of the keep lists are dropped."""
    keep_hosts: Names = ()
    """Files of hosts to keep, without their subdomains. If a keep list is given, pages that are on
    none of the keep lists are dropped."""
    keep_urls: Names = ()
    """Files of page addresses to keep. If a keep list is given, pages that are on none of the keep
    lists are dropped."""
    sha256: dict[str, str] = {}
    """The sha256 of each list that is given by URL, with that URL as the key."""

    _lists: _Lists | None = PrivateAttr(default=None)

    def _published(self) -> list[tuple[str, str, Published]]:
        named = ((key, n, of) for key, of in PUBLISHED.items() for n in getattr(self, key))
        return [(key, name, of[name]) for key, name, of in named if name in of]

    def _located(self, key: str) -> tuple[str, ...]:
        named = PUBLISHED.get(key, {})
        instead = f"{self.label}: give --set {self.label}.{key}=FILE"
        return tuple(
            str(named[name].fetched(instead)) if name in named else name
            for name in getattr(self, key)
        )

    def to_fetch(self) -> list[str]:
        return [*dict.fromkeys(url for *_, file in self._published() for url in file.to_fetch())]

    def without_missing_files(self, quiet: bool = False) -> Self:
        published = self._published()
        names = ", ".join(f"{key}={name}" for key, name, _ in published)
        without = f"{self.label}: runs without {names}"
        if all_available((file for *_, file in published), without, quiet):
            return super().without_missing_files()
        own = {k: tuple(x for x in getattr(self, k) if x not in PUBLISHED[k]) for k in PUBLISHED}
        return self.model_copy(update=own)

    def _files(self, names: Sequence[str]) -> list[str]:
        return [n[1:] for n in names if n.startswith("@")]

    def resources(self) -> list[str]:
        files = [file for key in FILES for file in self._located(key)]
        return [*dict.fromkeys(files), *self._files((*self.exclude, *self.allow))]

    def identity(self) -> Identity:
        """Return the step's identity. Raises UsageError if the file of a keep list is missing."""
        for key in ("keep_domains", "keep_hosts", "keep_urls"):
            for path in getattr(self, key):
                if "://" not in path and not Path(path).is_file():
                    raise UsageError(
                        f"{self.label}: no list {path}: give --set {self.label}.{key}=FILE (the"
                        " recipe says where to get one)"
                    )
        return super().identity()

    def notes(self) -> list[str]:
        if not self.resources() and not self.exclude:
            return [f"{self.label}: no list was given, so nothing is dropped"]
        from curate.filters import url_lists  # loads numba

        said: list[str] = []
        hosts = (*self.domains, *self.hosts, *self.keep_domains, *self.keep_hosts)
        named = self._files((*self.exclude, *self.allow))
        for is_hosts, names in (
            (True, (*hosts, *named)),
            (False, (*self.urls, *self.keep_urls)),
        ):
            locations = [name for name in names if name != "ut1"]
            url_lists.list_keys(locations, self.sha256, self.label, is_hosts, said)
        return said

    def open(self) -> None:
        self._load()

    def _load(self) -> _Lists:
        from curate.filters import url_lists

        if self._lists is None:
            pins, label = self.sha256, self.label

            def keys(key: str) -> np.ndarray:
                return url_lists.list_keys(
                    self._located(key), pins, label, not key.endswith("urls")
                )

            self._lists = _Lists(
                domains=keys("domains"),
                hosts=keys("hosts"),
                urls=keys("urls"),
                allow=self._domain_keys(self.allow, "allow"),
                exclude=self._domain_keys(self.exclude, "exclude"),
                kept=(keys("keep_domains"), keys("keep_hosts"), keys("keep_urls")),
                words=url_lists.words(
                    self._located("banned_words"), self._located("soft_words"), pins, label
                ),
                subwords=url_lists.words(
                    self._located("banned_subwords"), (), pins, label, between=""
                ),
            )
        return self._lists

    def _domain_keys(self, names: Sequence[str], key: str) -> np.ndarray:
        from curate.filters import url_lists

        listed = url_lists.list_keys(self._files(names), self.sha256, self.label, hosts=True)
        domains = "\n".join(n for n in names if not n.startswith("@")).encode("utf-8", "replace")
        parts = url_lists.keys_of(domains, key, self.label, hosts=True)
        return np.unique(np.concatenate([listed, *parts]))

    def apply(self, docs: Documents) -> Documents:
        from curate.filters import url_lists
        from curate.filters.url_kernel import fold_all

        lists = self._load()
        data, offsets = text_buffers(as_large_string(docs.table["url"]))
        has_url = np.diff(offsets) > 0
        folded = fold_all(data, offsets)
        hosts = folded.data, folded.start, folded.host_end
        allowed = url_lists.domain_hits(*hosts, lists.allow) >= 0
        docs = docs.annotate("known", has_url).annotate("allowed", allowed)
        docs = self._drop_hosts(docs, lists, folded, ~allowed)
        if self.keep_domains or self.keep_hosts or self.keep_urls:
            docs = self._drop_unlisted(docs, lists, folded, ~allowed)
        return self._drop_words(docs, lists, folded, ~allowed)

    def _drop_hosts(
        self, docs: Documents, lists: _Lists, folded: Folded, judged: np.ndarray
    ) -> Documents:
        from curate.filters import url_lists

        data, start, host_end = folded.data, folded.start, folded.host_end
        ones = np.ones(len(docs))
        for rule, keys in (("excluded", lists.exclude), ("domain", lists.domains)):
            at = url_lists.domain_hits(data, start, host_end, keys)
            listed = (at >= 0) & judged
            docs = docs.drop(listed, rule, ones, 1, _matched_texts(folded, listed, at, host_end))
        listed = url_lists.exact_hits(data, start, host_end, lists.hosts) & judged
        docs = docs.drop(listed, "host", ones, 1, _matched_texts(folded, listed, start, host_end))
        first, last = url_lists.key_places(folded)
        listed = url_lists.exact_hits(data, first, last, lists.urls) & judged
        return docs.drop(listed, "url", ones, 1, _matched_texts(folded, listed, first, last))

    def _drop_unlisted(
        self, docs: Documents, lists: _Lists, folded: Folded, judged: np.ndarray
    ) -> Documents:
        from curate.filters import url_lists

        data, start, host_end = folded.data, folded.start, folded.host_end
        domains, hosts, addresses = lists.kept
        listed = url_lists.domain_hits(data, start, host_end, domains) >= 0
        listed |= url_lists.exact_hits(data, start, host_end, hosts)
        first, last = url_lists.key_places(folded)
        listed |= url_lists.exact_hits(data, first, last, addresses)
        dropped = ~listed & judged
        detail = _matched_texts(folded, dropped, start, host_end)
        return docs.drop(dropped, "not_listed", listed.astype(np.int32), 1, detail)

    def _drop_words(
        self, docs: Documents, lists: _Lists, folded: Folded, judged: np.ndarray
    ) -> Documents:
        from curate.filters.url_kernel import find_words
        from curate.text.words import character_tables

        kinds, _ = character_tables()
        hits = []
        for words, whole in ((lists.words, True), (lists.subwords, False)):
            extents = folded.data, folded.start, folded.end
            hits.append(find_words(*extents, kinds, *words.automaton, whole))
        (rows, number), (sub_rows, sub_number) = hits
        listed = lists.words
        rules: list[tuple[str, Any, np.ndarray, np.ndarray, int]] = [
            ("banned_word", listed, *_marked(rows, number, listed.banned), 1),
            ("soft_words", listed, *_marked(rows, number, listed.soft), self.max_soft_words),
            ("banned_subword", lists.subwords, sub_rows, sub_number, 1),
        ]
        for rule, words, at, which, least in rules:
            count = np.bincount(at, minlength=len(docs)).astype(np.int32)
            column = rule if rule.endswith("s") else rule + "s"
            docs = docs.annotate(column, pa.array(count))
            mask = (count >= least) & judged
            details: list[str | None] = [None] * len(docs)
            for row, p in zip(at[mask[at]].tolist(), which[mask[at]].tolist(), strict=True):
                before = details[row]
                details[row] = f"{before}, {words.patterns[p]}" if before else words.patterns[p]
            docs = docs.drop(mask, rule, count, least, details)
        return docs


def _marked(rows: np.ndarray, hits: np.ndarray, mark: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    marked = mark[hits] if len(hits) else np.zeros(0, np.bool_)
    return rows[marked], hits[marked]


def _matched_texts(
    folded: Folded, matched: np.ndarray, first: np.ndarray, last: np.ndarray
) -> list[str | None]:
    names: list[str | None] = [None] * len(matched)
    for row in np.flatnonzero(matched):
        names[int(row)] = folded.text(first[row], last[row])
    return names
