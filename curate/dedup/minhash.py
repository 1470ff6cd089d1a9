"""Near duplicates: documents that share most of their shingles, found by MinHash and banding.

Broder 1997; bands and rows as in Rajaraman and Ullman, Mining of Massive Datasets, chapter 3. Two
documents match if they share a band; with `verify` if moreover the exact Jaccard similarity of
their sets of shingles reaches it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from curate.dedup import minhash_clusters as clusters
from curate.dedup import survivors
from curate.dedup.minhash_presets import PRESETS, curve_text, midpoint
from curate.dedup.minhash_text import normal_form
from curate.dedup.step import DedupStep, dropped
from curate.documents import Documents
from curate.sketches import Sketches
from curate.text.buffers import as_large_string, text_buffers

# Words: the choice of all presets' papers. Characters: 9, as Rajaraman and Ullman advise for long
# documents (3.2.2). Bytes: about three English words, or five characters of three bytes.
NGRAM = {"word": 5, "char": 9, "byte": 16}


class DedupMinhash(DedupStep):
    """Keeps one document of each set of near duplicates."""

    name: ClassVar[str] = "dedup_minhash"

    preset: Literal["fineweb", "lee2022", "dclm", "refinedweb"] = "fineweb"
    """Sets bands and rows, nothing else."""
    bands: int | None = Field(None, ge=1, le=10_000)
    rows: int | None = Field(None, ge=1, le=1_000)
    shingle: Literal["word", "char", "byte"] | None = None
    """Units of a shingle; words by default (grapheme clusters in scripts without spaces)."""
    ngram: int | None = Field(None, ge=1, le=1_000)
    """Units a shingle: by default 5 words, 9 characters or 16 bytes."""
    normalize: Literal["lower", "datatrove"] = "lower"
    """datatrove: also numbers as 0, no punctuation, no accents."""
    verify: float | None = Field(None, gt=0.0, le=1.0)
    """Least exact Jaccard similarity of the sets of shingles; without it, sharing a band decides.
    """
    seed: int = Field(1, ge=0, lt=2**32)

    @property
    def method(self) -> str:
        """How decisions name this step."""
        return "minhash"

    def forecast(self) -> list[str]:
        return [curve_text(*self.banding)]

    @property
    def banding(self) -> tuple[int, int]:
        """(bands, rows) in force."""
        bands, rows = PRESETS[self.preset]
        return self.bands or bands, self.rows or rows

    @property
    def threshold(self) -> float:
        """`verify`, or the similarity at which half of the pairs share a band."""
        return midpoint(*self.banding) if self.verify is None else self.verify

    @property
    def _unit(self) -> str:
        return self.shingle or "word"

    @property
    def _size(self) -> int:
        return self.ngram or NGRAM[self._unit]

    def signatures(self, text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """(uint32[rows, permutations], int64[rows] shingles) of texts."""
        from curate.dedup import minhash_kernel as kernel

        bands, rows = self.banding
        data, offsets = text_buffers(normal_form(text, self.normalize, self._unit))
        a, b = kernel.permutations(bands * rows, self.seed)
        return kernel.text_signatures(kernel.KINDS[self._unit], data, offsets, self._size, a, b)

    def shingles(self, text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """(offsets: int64[rows + 1], uint64 values) of the sets of shingles of texts, sorted."""
        from curate.dedup import minhash_kernel as kernel

        data, offsets = text_buffers(normal_form(text, self.normalize, self._unit))
        return kernel.text_shingles(kernel.KINDS[self._unit], data, offsets, self._size)

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.minhash_kernel import band_keys

        bands, rows = self.banding
        text = as_large_string(pc.fill_null(docs.text, ""))
        signature, count = self.signatures(text)
        keys = band_keys(signature, bands, rows)
        ends = np.cumsum((count > 0) * bands)
        lists = pa.LargeListArray.from_arrays(
            np.concatenate([[0], ends]), pa.array(keys[count > 0].reshape(-1))
        )
        columns = {"bands": lists, **survivors.columns(docs, self.survivor, self.label)}
        if self.verify is not None:
            columns["text"] = text  # smaller than its shingles, which candidates alone need
        return pa.table(columns)

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        db = sketches.connection
        first = self.survivor == "first"
        count = clusters.find_candidates(db, survivors.preference(self.survivor))
        bands, rows = self.banding
        if self.verify is None:
            clusters.bucket_edges(db)
            if first:
                clusters.keep_best_edge(db)
            # Without signatures: shared / bands estimates s^rows.
            similarity = f"pow(shared / {bands}.0, 1.0 / {rows})"
        else:
            from curate.dedup.minhash_verify import verified_edges

            verified_edges(db, count, self.verify, first, self.shingles)
            similarity = "p.weight"
        clusters.find_roots(db, count)
        return clusters.write_decisions(db, sketches.decisions, similarity, forward=first)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        mask, similarity, partner = dropped(docs, decisions)
        return docs.drop(mask, "near_duplicate", similarity, self.threshold, partner)
