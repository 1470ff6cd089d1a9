"""Exact duplicates: documents whose text, or whose URL, is the same.

Keys are xxh3-128 hashes. Among 10^12 documents the odds that any two different ones share a key
are about 10^24 / 2^129, or 1.5e-15.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import xxhash

from curate.database import literal
from curate.dedup import survivors
from curate.dedup.step import DedupStep, dropped
from curate.documents import Documents
from curate.sketches import Sketches

_SPACE = re.compile(r"\s+")


def normal_url(url: str) -> str:
    """C4's normal form: without scheme, `www.`, tracking queries and slashes at the end.

    Source: tensorflow_datasets/text/c4_utils.py, normalize_url.
    """
    url = re.sub(r"https?:\/\/(www\.)?", "", url)
    url = re.sub(r"\?(utm_|ref|feed).*", "", url)
    return url.rstrip("/")


def normal_text(text: str) -> str:
    """Lower case, runs of white space as one blank, none at the ends."""
    return _SPACE.sub(" ", text.lower()).strip()


class DedupExact(DedupStep):
    """Keeps one document of each set with the same text or URL."""

    name: ClassVar[str] = "dedup_exact"

    key: Literal["text", "url"] = "text"
    normalize: bool | None = None
    """Text: lower case, single blanks (off by default). URL: C4's normal form (on by default)."""

    @property
    def method(self) -> str:
        """How decisions name this step: `exact:text` or `exact:url`."""
        return f"exact:{self.key}"

    def _keys(self, docs: Documents) -> list[bytes | None]:
        digest = xxhash.xxh3_128_digest
        normal = self.key == "url" if self.normalize is None else self.normalize
        if self.key == "url":
            urls = docs.table["url"].to_pylist()
            make = normal_url if normal else str
            return [digest(make(u).encode("utf-8", "replace")) if u else None for u in urls]
        if normal:
            texts = docs.text.to_pylist()
            return [digest(normal_text(t).encode("utf-8", "replace")) if t else None for t in texts]
        data, offsets = docs.buffers()
        view = memoryview(data)  # type: ignore[arg-type]
        pairs = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        return [digest(view[a:b]) if b > a else None for a, b in pairs]

    def sketch(self, docs: Documents) -> pa.Table:
        keys = pa.array(self._keys(docs), pa.binary(16))
        return pa.table({"key": keys, **survivors.columns(docs, self.survivor, self.label)})

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        db = sketches.connection
        order = survivors.preference(self.survivor)
        # Empty texts and absent URLs have no key and match nothing.
        db.execute(
            f"""CREATE OR REPLACE TABLE members AS
            WITH shared AS (
              SELECT key FROM sketches WHERE key IS NOT NULL GROUP BY key HAVING count(*) > 1)
            SELECT part, n, id, key,
                   row_number() OVER (PARTITION BY key ORDER BY {order}) AS rank,
                   first_value(id) OVER (PARTITION BY key ORDER BY {order}) AS kept_id
            FROM sketches WHERE key IN (SELECT key FROM shared)"""
        )
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
                   '{self.method}' AS method, NULL::BIGINT AS span_start, NULL::BIGINT AS span_end
            FROM members JOIN numbered USING (key) ORDER BY part, n
            ) TO {literal(sketches.decisions)} (FORMAT parquet)"""
        )
        clusters, members = db.execute(
            "SELECT count(DISTINCT key), count(*) FROM members"
        ).fetchone()
        return {"clusters": clusters, "members": members, "dropped": members - clusters}

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        mask, _, partner = dropped(docs, decisions)
        return docs.drop(mask, f"same_{self.key}", np.ones(len(docs)), 1.0, partner)
