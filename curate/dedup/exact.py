"""Exact duplicates: documents whose text, or whose URL, is the same.

Keys are hashes (dedup/hashes.py), xxh3-128 by default: among 10^12 documents the odds that any two
different ones share a key are about 10^24 / 2^129, or 1.5e-15.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.corpus.sketches import Sketches
from curate.dedup import survivors
from curate.dedup.step import DedupStep, dropped
from curate.documents.documents import Documents

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
    hash: Literal["xxh3-128", "murmur3-128", "blake2b-128", "blake2b-256", "sha256", "sha1-64"] = (
        "xxh3-128"
    )
    """What texts are compared by; `llmcurate dedup hashes` shows speeds and odds of a collision."""

    @property
    def reach(self) -> Literal["one"]:
        """One of all documents with the same text or URL stays."""
        return "one"

    @property
    def method(self) -> str:
        """How decisions name this step: `exact:text` or `exact:url`."""
        return f"exact:{self.key}"

    @classmethod
    def replaces(cls, settings: dict[str, Any]) -> bool:
        """Newer versions of a page replace those of earlier runs."""
        return settings.get("key") == "url" and settings.get("survivor") == "newest"

    def _texts(self, docs: Documents) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is hashed of each row, as (data: uint8[bytes], offsets: int64[rows + 1], absent:
        bool[rows], the rows that match no other)."""
        normal = self.key == "url" if self.normalize is None else self.normalize
        if self.key == "text" and not normal:
            data, offsets = docs.buffers()
            return data, offsets, np.diff(offsets) == 0
        values = docs.table["url"].to_pylist() if self.key == "url" else docs.text.to_pylist()
        make = str if not normal else normal_url if self.key == "url" else normal_text
        found = [make(v).encode("utf-8", "replace") if v else b"" for v in values]
        offsets = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(f) for f in found], out=offsets[1:])
        absent = np.array([not v for v in values], np.bool_)
        return np.frombuffer(bytearray().join(found), np.uint8), offsets, absent

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.hashes import digests

        data, offsets, absent = self._texts(docs)
        found = digests(data, offsets, self.hash)
        kind = pa.binary(found.shape[1])
        flat = pa.py_buffer(np.ascontiguousarray(found))
        keys = pa.FixedSizeBinaryArray.from_buffers(kind, len(found), [None, flat])
        # Empty texts and absent URLs have no key and match nothing.
        keys = pc.if_else(pa.array(absent), pa.scalar(None, kind), keys)
        return pa.table({"key": keys, **survivors.columns(docs, self.survivor, self.label)})

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        from curate.dedup.exact_resolve import resolve

        return resolve(self, sketches)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        mask, _, partner = dropped(docs, decisions)
        return docs.drop(mask, f"same_{self.key}", np.ones(len(docs)), 1.0, partner)
