"""The list of documents to be forgotten, by URL, domain or id, matched against Arrow columns.

URLs are compared in the normal form of exact dedup; a domain means itself and all below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from llmcurate.base.errors import UsageError

KINDS = ("url", "domain", "id")
LABELS = 12  # deepest host name that is taken apart
REMOVED = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("by", pa.string()),  # url, domain or id, as was asked; superseded: by a newer version
        ("snapshot", pa.string()),  # the first one without the document
    ]
)


def normal_urls(urls: pa.Array) -> pa.Array:
    """`curate.dedup.exact.normal_url` of each."""
    normal = pc.replace_substring_regex(urls, r"https?://(www\.)?", "")
    normal = pc.replace_substring_regex(normal, r"\?(utm_|ref|feed)[^\n]*", "")
    return pc.utf8_rtrim(normal, characters="/")


def hosts(urls: pa.Array) -> pa.Array:
    """Host names in lower case, without user, port and a last dot; null where there is none."""
    pattern = r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(?P<host>[^/?#:@]+)"
    names = pc.struct_field(pc.extract_regex(urls, pattern), "host")
    return pc.utf8_rtrim(pc.utf8_lower(names), characters=".")


def normal_domain(text: str) -> str:
    """A domain as it is compared; UsageError where it can be none."""
    name = text.strip().lower().removeprefix("*.").strip(".")
    if not name or any(c in name for c in "/:@ \t\0") or "." not in name:
        raise UsageError(f"--domain {text}: write a host name such as example.org")
    return name


@dataclass(frozen=True)
class Removals:
    """The whole list."""

    urls: frozenset[str] = frozenset()  # in normal form
    domains: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    superseded: frozenset[str] = frozenset()  # ids of pages that newer versions replace
    _sets: dict[str, pa.Array] = field(default_factory=dict, compare=False, init=False)

    @staticmethod
    def of(entries: Iterable[tuple[str, str]]) -> Removals:
        """From (kind, value) as they are recorded."""
        by: dict[str, set[str]] = {kind: set() for kind in KINDS}
        for kind, value in entries:
            by[kind].add(value)
        urls = normal_urls(pa.array(sorted(by["url"]), pa.string())).to_pylist()
        return Removals(frozenset(urls), frozenset(by["domain"]), frozenset(by["id"]))

    def __bool__(self) -> bool:
        return bool(self.urls or self.domains or self.ids or self.superseded)

    def _among(self, values: pa.Array, name: str) -> pa.Array:
        if name not in self._sets:
            self._sets[name] = pa.array(sorted(getattr(self, name)), pa.string())
        return pc.fill_null(pc.is_in(values, value_set=self._sets[name]), False)

    def by(self, ids: pa.Array, urls: pa.Array) -> pa.Array:
        """Why each document goes: string[rows], null for those that stay."""
        reason = pa.nulls(len(ids), pa.string())
        domain = pa.array([False] * len(ids), pa.bool_())
        if self.domains:
            name = hosts(urls)
            for _ in range(LABELS):
                domain = pc.or_(domain, self._among(name, "domains"))
                name = pc.replace_substring_regex(name, r"^[^.]*\.?", "")
        for kind, mask in (
            ("superseded", self._among(ids, "superseded")),
            ("domain", domain),
            ("url", self._among(normal_urls(urls), "urls")),
            ("id", self._among(ids, "ids")),
        ):
            reason = pc.if_else(mask, pa.scalar(kind, pa.string()), reason)
        return reason

    def count(self, removed: pa.Table) -> int:
        """How many rows of a table of REMOVED it means."""
        ids, urls = (removed[n].combine_chunks() for n in ("id", "url"))
        return len(ids) - int(self.by(ids, urls).null_count)

    def in_part(self, path: Path, snapshot: str) -> pa.Table:
        """The rows of REMOVED for a part of a corpus."""
        tables = [REMOVED.empty_table()]
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["id", "url"], use_threads=False):
                ids, urls = (batch.column(n).cast(pa.string()) for n in ("id", "url"))
                by = self.by(ids, urls)
                gone = pc.is_valid(by)
                if not pc.any(gone).as_py():
                    continue
                rows = pa.table(
                    [ids, urls, by, pa.repeat(snapshot, len(ids)).cast(pa.string())], schema=REMOVED
                )
                tables.append(rows.filter(gone))
        return pa.concat_tables(tables)
