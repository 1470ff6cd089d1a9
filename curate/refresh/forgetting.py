"""Forget documents: remove their texts from the files of earlier runs (rejected documents, excerpts
in reports, ledgers, indexes).

A document's id and URL stay, with the rule that dropped it and the values that the rule compared.
Its hashes also stay, because they find duplicates under other names. Every step can be repeated, so
a second call completes a call that was killed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Set
from contextlib import closing
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.indexes import FOLDER as INDEX
from curate.corpus.indexes import IDS, OWN, seal_again
from curate.corpus.manifests import file_record, manifest_path
from curate.dedup.suffix_array.search_index import RECORD
from curate.documents.attributes import DocumentsFile, pack
from curate.documents.documents import NUMBER
from curate.documents.rejected import FOLDER, emptied, rejected_files
from curate.run.ledger import Ledger, packed, unpacked
from llmcurate.base.disk.files import part_files, path_inside, remove, replacing, write_text
from llmcurate.base.disk.parquet_writer import writing
from llmcurate.base.errors import RunFailed, UsageError, disk_error
from llmcurate.base.pages.html import without_texts


@dataclass
class Scrubbed:
    """The outcome of removing the texts of forgotten documents from earlier runs."""

    documents: int = 0  # rejected documents whose texts were removed
    runs: int = 0  # runs in which something was removed
    indexes: tuple[str, ...] = ()  # indexes that can no longer be searched for phrases


def scrub(runs: Iterable[Path], removals: Removals, held: frozenset[str]) -> Scrubbed:
    """Remove the texts of forgotten documents from earlier runs: rejected documents that `removals`
    names, documents whose ids are in `held`, and duplicates of all these documents. `held` has the
    ids of documents that were removed from the corpus."""
    scrubbed = Scrubbed()
    searched: set[str] = set()
    for run in runs:
        ids = set(held)
        for path in rejected_files(run):
            ids.update(_naming_damaged(removals.in_part)(path, "")["id"].to_pylist())
        own_ids = _ids_in(run / "ids.parquet", ids)
        gone = own_ids | _duplicates(run / "decisions.parquet", ids)
        if not gone:
            continue
        documents = _blank_rejected(run, gone)
        excerpts = _records(run / "run.json") + _page(run / "report.html")
        excerpts += _ledger(run / Ledger.file)
        scrubbed.documents += documents
        scrubbed.runs += bool(documents or excerpts)
        searched |= _indexes(run, gone)
    scrubbed.indexes = tuple(sorted(searched))
    return scrubbed


Work = TypeVar("Work", bound=Callable[..., Any])


def _naming_damaged(work: Work) -> Work:
    @wraps(work)
    def named(path: Path, *args: Any) -> Any:
        try:
            return work(path, *args)
        except (OSError, pa.ArrowException, ValueError, LookupError, sqlite3.Error) as error:
            raise disk_error(error) or RunFailed(
                f"{path} cannot be read to forget documents in it ({str(error).splitlines()[0]}):"
                " restore it from a backup, or remove it"
            ) from None

    return cast(Work, named)


@_naming_damaged
def _ids_in(path: Path, ids: Iterable[str]) -> set[str]:
    if not path.is_file():
        return set()
    keys = pa.array(sorted(i for i in ids if i is not None), pa.string())
    present: set[str] = set()
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["id"], use_threads=False):
            column = batch.column(0).cast(pa.string())
            present.update(column.filter(pc.is_in(column, value_set=keys)).to_pylist())
    return present


@_naming_damaged
def _duplicates(path: Path, ids: Set[str]) -> set[str]:
    if not path.is_file():
        return set()
    table = pq.read_table(path, columns=["id", "partner_id", "kept_id"])
    keys = pa.array(sorted(ids), pa.string())
    of = [pc.fill_null(pc.is_in(table[n], value_set=keys), False) for n in table.column_names[1:]]
    return set(table.filter(pc.or_(*of))["id"].to_pylist())


def _blank_rejected(run: Path, ids: set[str]) -> int:  # number of texts emptied
    folder, count = path_inside(run, FOLDER), 0
    record = manifest_path(folder)
    if not record.is_file():
        return 0
    manifest = json.loads(record.read_text(encoding="utf-8"))
    stale = manifest.pop("stale", False)
    for path in part_files(folder):
        texts = _count_texts(path, ids)
        if texts and not stale:
            stale = True  # recorded first: the next call completes the work after a kill
            write_text(record, json.dumps(manifest | {"stale": True}, indent=1) + "\n")
        if texts:
            _blank(path, ids)
        count += texts
    if stale:
        for name, entry in manifest["files"].items():
            part = path_inside(folder, name, record)
            if not part.is_file():  # removed by a user
                continue
            entry |= {**file_record(part), "text_bytes": _text_bytes(part)}
        manifest["text_bytes"] = sum(f["text_bytes"] for f in manifest["files"].values())
        write_text(record, json.dumps(manifest, indent=1) + "\n")
    return count


def _text_bytes(path: Path) -> int:
    with pq.ParquetFile(path) as file:
        batches = file.iter_batches(columns=["text"], use_threads=False)
        return sum(pc.sum(pc.binary_length(b.column(0))).as_py() or 0 for b in batches)


@_naming_damaged
def _count_texts(path: Path, ids: set[str]) -> int:
    keys = pa.array(sorted(ids), pa.string())
    count = 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["id", "text"], use_threads=False):
            matches = pc.is_in(batch.column(0).cast(pa.string()), value_set=keys)
            length = pc.fill_null(pc.binary_length(batch.column(1)), 0)
            count += pc.sum(pc.and_(matches, pc.greater(length, 0))).as_py() or 0
    return count


def _blank(path: Path, ids: set[str]) -> None:
    keys = pa.array(sorted(ids), pa.string())
    schema = pq.read_schema(path)
    with DocumentsFile(path) as file, writing(path) as writer:
        writer.write(schema.empty_table())
        for batch in file.iter_batches(use_threads=False):
            table = pa.Table.from_batches([batch])
            table = emptied(table, pc.is_in(table["id"].cast(pa.string()), value_set=keys))
            writer.write(pack(table, schema.names))


@_naming_damaged
def _records(path: Path) -> int:
    if not path.is_file():
        return 0
    record = json.loads(path.read_text(encoding="utf-8"))
    count = 0
    for stage in record.get("stages", ()):
        count += len(stage.pop("cut_examples", None) or {})
    if count:
        write_text(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return int(count > 0)


def _page(path: Path) -> int:
    if not path.is_file():
        return 0
    before = path.read_text(encoding="utf-8")
    after = without_texts(before)
    if after != before:
        write_text(path, after)
    return int(after != before)


@_naming_damaged
def _ledger(path: Path) -> int:
    if not path.is_file():
        return 0
    count = 0
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete=ON")
        rows = db.execute("SELECT stage, part, result FROM parts").fetchall()
        for stage, part, text in rows:
            result = unpacked((stage, part), text, dict)
            if result is not None and result.pop("cut_examples", None):
                values = (packed((stage, part), result), stage, part)
                db.execute("UPDATE parts SET result = ? WHERE stage = ? AND part = ?", values)
                count += 1
        if count:
            db.execute("VACUUM")
    return int(count > 0)


def _indexes(run: Path, ids: set[str]) -> set[str]:
    searched: set[str] = set()
    for folder in sorted(path_inside(run, f"{INDEX}/{p.name}") for p in (run / INDEX).glob("*")):
        for path in sorted(folder.glob("sketch-*.parquet")):
            if "text" in pq.read_schema(path).names:
                _blank_sketch(path, folder / IDS, ids)
        # Remove the record first: without it, the other files do not count as an index.
        for path in sorted((folder / OWN).glob("search*"), key=lambda p: p.name != RECORD):
            remove(path, inside=folder)
            searched.add(folder.name)
        seal_again(folder)
    return searched


@_naming_damaged
def _blank_sketch(path: Path, settled: Path, ids: set[str]) -> None:
    # `settled` is a file with the ids that documents got after they were sketched, if any.
    table = pq.read_table(path)
    names = table["id"].to_pylist()
    if settled.is_file():
        part, n, id_ = (pq.read_table(settled)[c].to_pylist() for c in ("part", NUMBER, "id"))
        later = dict(zip(zip(part, n, strict=True), id_, strict=True))
        keys = zip(table["part"].to_pylist(), table["n"].to_pylist(), strict=True)
        names = [later.get(key, name) for key, name in zip(keys, names, strict=True)]
    mask = pa.chunked_array([pa.array([name in ids for name in names], pa.bool_())])
    with_text = pc.sum(pc.and_(mask, pc.greater(pc.binary_length(table["text"]), 0))).as_py()
    if not with_text:
        return
    for at, column in enumerate(table.schema):
        if column.name == "text":
            texts = pc.if_else(mask, pa.scalar("", column.type), table["text"])
            table = table.set_column(at, column, texts)
        elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            pairs = zip(table[column.name].to_pylist(), mask.to_pylist(), strict=True)
            without = pa.array([[] if gone else value for value, gone in pairs], column.type)
            table = table.set_column(at, column, without)
    with replacing(path) as aside:
        pq.write_table(table, aside)


KINDS = ("url", "domain", "id")
LABELS = 12  # most labels of a host name that are compared
REMOVED = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("by", pa.string()),  # url, domain or id; superseded: replaced by a newer version
        ("snapshot", pa.string()),  # the first one without the document
    ]
)


# A page on the web: scheme, user, host and default port; the scheme decides nothing.
_WEB = r"(?i)^https?://(?:[^/?#]*@)?[^/?#:@]+(?::(?:80|443)?([/?#]|$))?"


def normal_urls(urls: pa.Array) -> pa.Array:
    """Return each URL in the form in which URLs are compared: without scheme (http, https), user,
    default port, `www.`, fragment, slashes at the end, and parameters that begin with `utm_`. The
    host is as in `hosts`. Text without a scheme keeps its host as it is written."""
    web = pc.match_substring_regex(urls, _WEB)
    host = pc.replace_substring_regex(hosts(urls), r"^www\.", "")
    host = pc.coalesce(pc.if_else(web, host, ""), "")
    rest = pc.replace_substring_regex(urls, _WEB, r"\1")
    rest = pc.replace_substring_regex(rest, r"(?s)#.*", "")
    page = pc.replace_substring_regex(rest, r"(?s)\?.*", "")
    query = pc.replace_substring_regex(rest, r"(?s)^[^?]*\??", "&")
    query = pc.replace_substring_regex(query, r"&utm_[^&]*", "")
    query = pc.replace_substring_regex(pc.utf8_rtrim(query, characters="&"), r"^&", "?")
    return pc.utf8_rtrim(pc.binary_join_element_wise(host, page, query, ""), characters="/")


def _fold(names: Collection[str]) -> list[str]:
    if not names:
        return []  # a refresh that forgets nothing does without numba
    from curate.filters.url_kernel import fold_host

    return list(map(fold_host, names))


def hosts(urls: pa.Array) -> pa.Array:
    """Return the host name of each URL in lower case and Unicode, without user, port and final dot;
    null for a URL without a host."""
    pattern = r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?(?P<host>[^/?#:@]+)"
    names = pc.struct_field(pc.extract_regex(urls, pattern), "host")
    names = pc.utf8_rtrim(pc.utf8_lower(names), characters=".")
    others = pc.match_substring_regex(names, r"xn--|[^\x00-\x7F]")
    folded = pa.array(_fold(names.filter(others).to_pylist()), pa.string())
    return pc.replace_with_mask(names, others, folded)


def normal_domain(text: str) -> str:
    """Return a domain in the form in which domains are compared: in lower case and Unicode, without
    `*.` and outer dots. Raise UsageError if the text is not a domain."""
    name = text.strip().lower().removeprefix("*.").strip(".")
    if not name or any(c in name for c in "/:@ \t\0") or "." not in name:
        raise UsageError(f"--domain {text}: write a host name such as example.org")
    return _fold([name])[0]


@dataclass(frozen=True)
class Removals:
    """The documents to remove, by URL, domain or id. The fields except `superseded` are what users
    asked to forget."""

    urls: frozenset[str] = frozenset()  # in the form of normal_urls
    domains: frozenset[str] = frozenset()  # with their subdomains
    ids: frozenset[str] = frozenset()
    superseded: frozenset[str] = frozenset()  # ids of documents replaced by newer versions
    _sets: dict[str, pa.Array] = field(default_factory=dict, compare=False, init=False)

    @staticmethod
    def of(entries: Iterable[tuple[str, str]]) -> Removals:
        by: dict[str, set[str]] = {kind: set() for kind in KINDS}
        for kind, value in entries:
            by[kind].add(value)
        urls = normal_urls(pa.array(sorted(by["url"]), pa.string())).to_pylist()
        domains = frozenset(_fold(by["domain"]))
        return Removals(frozenset(urls), domains, frozenset(by["id"]))

    def __bool__(self) -> bool:
        return bool(self.urls or self.domains or self.ids or self.superseded)

    def _among(self, values: pa.Array, name: str) -> pa.Array:
        if name not in self._sets:
            self._sets[name] = pa.array(sorted(getattr(self, name)), pa.string())
        return pc.fill_null(pc.is_in(values, value_set=self._sets[name]), False)

    def by(self, ids: pa.Array, urls: pa.Array) -> pa.Array:
        """Return string[rows]: the reason to remove each document (`superseded`, `domain`, `url` or
        `id`), or null to keep the document."""
        reason = pa.nulls(len(ids), pa.string())
        domain = url = pa.array([False] * len(ids), pa.bool_())
        if self.urls:
            url = self._among(normal_urls(urls), "urls")
        if self.domains:
            name = hosts(urls)
            for _ in range(LABELS):
                domain = pc.or_(domain, self._among(name, "domains"))
                name = pc.replace_substring_regex(name, r"^[^.]*\.?", "")
        for kind, mask in (
            ("superseded", self._among(ids, "superseded")),
            ("domain", domain),
            ("url", url),
            ("id", self._among(ids, "ids")),
        ):
            reason = pc.if_else(mask, pa.scalar(kind, pa.string()), reason)
        return reason

    def count(self, removed: pa.Table) -> int:
        """Return how many documents of a table with the columns id and url are to be removed."""
        ids, urls = (removed[n].combine_chunks() for n in ("id", "url"))
        return len(ids) - int(self.by(ids, urls).null_count)

    def in_part(self, path: Path, snapshot: str) -> pa.Table:
        """Return a table of the documents in a Parquet file that are to be removed: id, URL,
        reason, and the name `snapshot`."""
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
