"""Near duplicates by SimHash: documents whose 64-bit fingerprints differ in few bits.

Fingerprints: Charikar 2002, "Similarity Estimation Techniques from Rounding Algorithms". Search:
Manku, Jain and Das Sarma 2007, "Detecting Near-Duplicates for Web Crawling", section 3. The bits
are divided into k + 3 blocks. If two fingerprints differ in at most k bits, three blocks are equal.
Each choice of three blocks is a table. Documents with equal blocks in a table are candidates, whose
bits are then compared."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from curate.corpus.decisions import Decided
from curate.corpus.sketches import Sketches
from curate.dedup import survivors
from curate.dedup.minhash.near_duplicates import NearDuplicates, binary_rows
from curate.documents.documents import Documents
from curate.steps.contracts import step
from curate.text.buffers import as_large_string
from llmcurate.base.disk.units import counted

BITS = 64
EQUAL_BLOCKS = 3  # of max_distance + 3 blocks, as in the example of 20 tables in section 3.1


@step(
    "dedup_simhash",
    methods={"simhash": {}},
    similarity={"simhash": "1 for equal SimHash fingerprints, 0 if half of their bits differ"},
)
class DedupSimhash(NearDuplicates):
    """Keeps one document of each set whose SimHash fingerprints differ in few bits.

    Column: `cluster_size`, the number of documents in the set, the kept document included."""

    paper = "Charikar 2002; Manku et al. 2007"

    max_distance: int = Field(3, ge=0, le=12)
    """Two documents are near duplicates if their fingerprints differ in at most this many of 64
    bits (Manku et al. 2007, section 4: 3)."""

    @property
    def method(self) -> str:
        return "simhash"

    @property
    def least(self) -> float:
        """The least similarity of a match. If d bits differ, the similarity is 1 - d / 32."""
        return 1.0 - self.max_distance / (BITS / 2)

    def masks(self) -> np.ndarray:
        """Return a bit mask per table (uint64[tables]), for the bits that must be equal."""
        count = self.max_distance + EQUAL_BLOCKS
        edges = [BITS * at // count for at in range(count + 1)]
        blocks = [(1 << z) - (1 << a) for a, z in pairwise(edges)]
        return np.array([sum(table) for table in combinations(blocks, EQUAL_BLOCKS)], np.uint64)

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.minhash.kernels import band_keys, fingerprints

        offsets, shingles = self.shingles(as_large_string(pc.fill_null(docs.text, "")))
        bits, masks, some = fingerprints(offsets, shingles), self.masks(), np.diff(offsets) > 0
        keys = band_keys((bits[:, None] & masks).view(np.uint32), len(masks), 2)
        return pa.table(
            {
                "bands": binary_rows(keys, some),
                **survivors.columns(docs, self.survivor, self.label),
                "signature": binary_rows(bits[:, None].view(np.uint8), some),
            }
        )

    def resolve(self, sketches: Sketches) -> Decided:
        from curate.dedup.minhash.clusters import Request, resolve

        tables = len(self.masks())
        request = Request(
            label=self.label,
            method=self.method,
            banding=(tables, 2),
            width=BITS // 8,
            verify=self.least,
            survivor=self.survivor,
            shingling=None,
        )
        facts, counts = resolve(request, sketches)
        sentence = (
            f"Fingerprints of {BITS} bits in {tables:,} tables: {facts['candidates']:,} of"
            f" {counted(facts['documents'], 'document')} share a table's blocks with another one."
        )
        return Decided(counts, [sentence])
