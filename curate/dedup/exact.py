"""Exact duplicates: documents with the same text or the same URL.

Keys are hashes (dedup/hashes.py), xxh3-128 by default: among 10^12 documents the odds that any two
different ones share a key are about 10^24 / 2^129, or 1.5e-15.

In a small corpus (Sizes.query_documents) one database query finds the duplicates. In a larger one,
a shuffle of 64 bits of each key (corpus/shuffle) first selects the documents that may share a key,
and the query reads only those."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.corpus.decisions import Decided
from curate.corpus.phases import Done, Facts, Phase, forget, run_phases
from curate.corpus.shuffle.tasks import (
    MOST,
    Group,
    groups,
    part_files,
)
from curate.corpus.sketches import Sketches
from curate.dedup import survivors
from curate.dedup.removal import DocumentDedup, dropped
from curate.documents.documents import Documents
from curate.steps.contracts import step
from llmcurate.base.disk.database import literal, paths_literal
from llmcurate.base.disk.units import counted

_SPACE = re.compile(r"\s+")


def normal_url(url: str) -> str:
    """Return a URL in C4's normal form: without scheme, `www.`, tracking queries and trailing
    slashes.

    Source: tensorflow_datasets/text/c4_utils.py, normalize_url."""
    url = re.sub(r"https?:\/\/(www\.)?", "", url)
    url = re.sub(r"\?(utm_|ref|feed).*", "", url)
    return url.rstrip("/")


def normal_text(text: str) -> str:
    """Return the text in lower case, with a single blank for each run of white space, stripped."""
    return _SPACE.sub(" ", text.lower()).strip()


@step(
    "dedup_exact",
    methods={
        "exact": {},
        "url": {"key": "url"},
        "newest": {"key": "url", "survivor": "newest"},  # first per URL, then among near duplicates
    },
)
class DedupExact(DocumentDedup):
    """Keeps one document of each set with the same text or URL."""

    in_tasks: ClassVar[bool] = True
    of_texts: ClassVar[bool] = True

    key: Literal["text", "url"] = "text"
    """The field that is the same in two duplicates: the text or the URL."""
    normalize: bool | None = None
    """Normalise before comparing: texts to lower case and single blanks, URLs to C4's normal form
    (c4_utils.py, normalize_url). Default: true for URLs, false for texts."""
    hash: Literal[
        "xxh3-128", "murmur3-128", "blake2b-128", "blake2b-256", "sha256", "sha3-256", "sha1-64"
    ] = "xxh3-128"
    """Hash to compare texts or URLs with; the number is its size in bits."""

    @property
    def shared_key_column(self) -> str | None:
        """The sketch column with the hashes: only documents with equal hashes affect each other's
        decisions. The value is None with `keep: none`, where any document may affect any other."""
        return "key" if self.keep == "one" else None

    @property
    def method(self) -> str:
        return f"exact:{self.key}"

    @property
    def replaces(self) -> bool:
        """True if a newer version of a page replaces the version of an earlier run."""
        return self.key == "url" and self.survivor == "newest" and self.keep == "one"

    def _texts(self, docs: Documents) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        normal = self.key == "url" if self.normalize is None else self.normalize
        if self.key == "text":
            docs = self.compared(docs)
        if self.key == "text" and not normal:
            data, offsets = docs.buffers()
            return data, offsets, np.diff(offsets) == 0
        values = docs.table["url"].to_pylist() if self.key == "url" else docs.text.to_pylist()
        make = str if not normal else normal_url if self.key == "url" else normal_text
        keys = [make(v).encode("utf-8", "replace") if v else b"" for v in values]
        offsets = np.zeros(len(keys) + 1, np.int64)
        np.cumsum([len(f) for f in keys], out=offsets[1:])
        absent = np.array([not v for v in values], np.bool_)
        return np.frombuffer(bytearray().join(keys), np.uint8), offsets, absent

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.hashes import digests

        data, offsets, absent = self._texts(docs)
        hashes = digests(data, offsets, self.hash)
        kind = pa.binary(hashes.shape[1])
        flat = pa.py_buffer(np.ascontiguousarray(hashes))
        keys = pa.FixedSizeBinaryArray.from_buffers(kind, len(hashes), [None, flat])
        # Empty texts and missing URLs match nothing.
        keys = pc.if_else(pa.array(absent), pa.scalar(None, kind), keys)
        return pa.table({"key": keys, **survivors.columns(docs, self.survivor, self.label)})

    def resolve(self, sketches: Sketches) -> Decided:
        return resolve(self, sketches)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        mask, _, partner = dropped(docs, decisions)
        return docs.drop(mask, f"same_{self.key}", np.ones(len(docs)), 1.0, partner)


def members_query(source: str, survivor: str) -> str:
    """Return SQL that selects the rows of `source` whose key occurs in several rows. Columns: part,
    n, id, key, rank (place in the order of preference) and kept_id (the id of the kept
    document)."""
    order = survivors.preference(survivor)
    return f"""
        WITH shared AS (
          SELECT key FROM {source} WHERE key IS NOT NULL GROUP BY key HAVING count(*) > 1)
        SELECT part, n, id, key,
               row_number() OVER (PARTITION BY key ORDER BY {order}) AS rank,
               first_value(id) OVER (PARTITION BY key ORDER BY {order}) AS kept_id
        FROM {source} WHERE key IN (SELECT key FROM shared)"""


def resolve(step: DedupExact, sketches: Sketches) -> Decided:
    """Write the decisions of a step. Return the counts for the report."""
    sizes = sketches.sizes
    sketch_groups = groups(sketches, sizes.task_documents)
    if not sizes.query_documents < sum(group.rows for group in sketch_groups) < MOST:
        sketches.make_view()
        query = members_query("sketches", step.survivor)
        sketches.connection.execute(f"CREATE OR REPLACE TABLE members AS {query}")
        decided = write_decisions(sketches.connection, sketches.decisions, step.method)
        counted_keys = "SELECT count(*), count(*) - count(key) FROM sketches"
        rows, without = sketches.connection.execute(counted_keys).fetchone()
        if step.key == "url" and without:
            decided.tables["notices"] = [
                f"{step.label}: {without:,} of {counted(rows, 'document')} without a URL are no"
                " duplicates of any; read.columns.url names the column of URLs"
            ]
        return decided
    done = run_phases(sketches.folder, phases(step, sketches, sketch_groups))
    paths = part_files(done.folder("rows"), "rows.parquet", len(sketch_groups))
    query = members_query(f"read_parquet({paths_literal(paths)})", step.survivor)
    sketches.connection.execute(f"CREATE OR REPLACE TABLE members AS {query}")
    counts = write_decisions(sketches.connection, sketches.decisions, step.method)
    forget(sketches.folder)
    return counts


def phases(step: DedupExact, sketches: Sketches, groups: list[Group]) -> list[Phase]:
    """Return the phases that find the rows of possible duplicates in a large corpus."""
    from curate.corpus.shuffle.buckets import BITS, find_buckets, write_candidate_rows
    from curate.corpus.shuffle.partitions import partition_keys

    columns = ["key", *survivors.preferred_by(step.survivor)]

    def keys(folder: Path, done: Done) -> Facts:
        return partition_keys(sketches, folder, groups, step.label, "key", 1)

    def buckets(folder: Path, done: Done) -> Facts:
        return find_buckets(sketches, folder, done.folder("keys"), done.facts)

    def rows(folder: Path, done: Done) -> Facts:
        write_candidate_rows(sketches, folder, groups, done.file("buckets", BITS), columns)
        return {}

    return [
        Phase("keys", keys),
        Phase("buckets", buckets, frees=("keys",)),
        Phase("rows", rows, frees=("buckets",)),
    ]


def write_decisions(db: Any, path: Path, method: str) -> Decided:
    """Write to `path` the decision on each row of the database table `members` (see
    `members_query`), ordered by the columns part and n. Return the counts for the report."""
    db.execute(
        """CREATE OR REPLACE TABLE numbered AS
        SELECT key, row_number() OVER (ORDER BY min(kept_id)) - 1 AS cluster
        FROM members GROUP BY key"""
    )
    db.execute(
        f"""COPY (
        SELECT part, n, rank > 1 AS drop, id, cluster::BIGINT AS cluster, kept_id,
               CASE WHEN rank > 1 THEN kept_id END AS partner_id,
               CASE WHEN rank > 1 THEN 1.0::DOUBLE END AS similarity,
               '{method}' AS method, NULL::BIGINT AS span_start, NULL::BIGINT AS span_end
        FROM members JOIN numbered USING (key) ORDER BY part, n
        ) TO {literal(path)} (FORMAT parquet)"""
    )
    clusters, members = db.execute("SELECT count(DISTINCT key), count(*) FROM members").fetchone()
    return Decided({"clusters": clusters, "members": members, "dropped": members - clusters})
