"""Near duplicates: documents that share most of their shingles, found by MinHash and banding.

Broder 1997; bands and rows as in Rajaraman and Ullman, Mining of Massive Datasets, chapter 3. Two
documents match if they share a band (some values of their signatures). If `verify` is set, the
Jaccard similarity of their shingles must also be at least `verify`."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from curate.corpus.decisions import Curve, Decided
from curate.corpus.sketches import Sketches
from curate.dedup import survivors
from curate.dedup.removal import DocumentDedup, dropped
from curate.documents.documents import NUMBER, Documents
from curate.steps.contracts import Identity, step
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.disk.units import counted
from llmcurate.base.terminal import table

if TYPE_CHECKING:
    from curate.corpus.phases import Facts

# Words: the choice of all presets' papers. Characters: 9, as Rajaraman and Ullman advise for long
# documents (3.2.2). Bytes: about three English words, or five characters of three bytes.
NGRAM = {"word": 5, "char": 9, "byte": 16}

# Bands and rows: published choices, choices for a threshold, and the S-curve of a choice. Two
# documents of Jaccard similarity s share one band of r rows with probability s^r, and at least one
# of b bands with 1 - (1 - s^r)^b (Rajaraman and Ullman, Mining of Massive Datasets, 3.4).

# name -> (bands, rows). A preset does not set shingles or normal forms, although these pipelines
# also differ in them.
PRESETS: dict[str, tuple[int, int]] = {
    "fineweb": (14, 8),  # Penedo et al. 2024 (FineWeb); the defaults of DataTrove
    "lee2022": (450, 20),  # Lee et al. 2022: 9,000 hashes, 450 bands of 20
    "refinedweb": (450, 20),  # Penedo et al. 2023: as Lee et al.
    "dclm": (93, 15),  # Li et al. 2024 (DCLM): 1,395 hashes
}
# The Jaccard similarity by which a preset verifies matches. Lee et al. 2022 keep pairs whose edit
# similarity is above 0.8 (read in others' accounts, not at the source). Edit similarity costs the
# product of two lengths per pair. This step uses the exact Jaccard similarity, which the bands
# approximate.
VERIFIED = {"lee2022": 0.8}
SIMILARITIES = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def predicted(bands: int, rows: int, similarity: float) -> float:
    """Return the probability that two documents with this Jaccard similarity share a band."""
    return 1.0 - (1.0 - similarity**rows) ** bands


def midpoint(bands: int, rows: int) -> float:
    """Return the Jaccard similarity at which half of all pairs of documents share a band."""
    return float((1.0 - 0.5 ** (1.0 / bands)) ** (1.0 / rows))


def estimate(share: float, rows: int) -> float:
    """Return the Jaccard similarity at which `share` of the bands are expected to be equal."""
    return float(share ** (1.0 / rows))


def curve_lines(bands: int, rows: int) -> list[str]:
    """Return the S-curve, the probability of a match by similarity, as lines of a table."""
    shares = [("found", *(f"{predicted(bands, rows, s):.1%}" for s in SIMILARITIES))]
    half = f"half of the pairs at {midpoint(bands, rows):.3f}"
    lines = table(("Jaccard", *(f"{s:.2f}" for s in SIMILARITIES)), shares, indent=2)
    return [f"minhash: {bands} bands of {counted(rows, 'row')}; {half}", *lines]


def curve(bands: int, rows: int, steps: int = 100) -> Curve:
    """Return the S-curve, match probability by similarity, with a mark at probability 1/2."""
    x = [i / steps for i in range(steps + 1)]
    middle = midpoint(bands, rows)
    return Curve(
        f"MinHash, {bands} bands of {counted(rows, 'row')}",
        "Jaccard similarity of two documents",
        "probability that they share a band",
        x,
        [predicted(bands, rows, s) for s in x],
        (middle, 0.5, f"half of the pairs at {middle:.3f}"),
    )


# Bands and rows for a threshold are chosen for a recall, or as in datasketch, which minimises the
# weighted sum of two areas (Zhu, MinHashLSH). The areas weigh all similarities equally; in a corpus
# low ones are far more frequent.

PERMUTATIONS = 128  # datasketch's default
_NODES = 64  # of the quadrature, exact to about 1e-12 for the curves of up to 10,000 hashes


@lru_cache
def least_error(
    threshold: float, permutations: int = PERMUTATIONS, weight: float = 0.5
) -> tuple[int, int]:
    """Return the numbers of bands and rows that minimise weight * false positives + (1 - weight) *
    false negatives. False positives are the area under the S-curve (the probability of a match by
    similarity) below the threshold; false negatives are the area above the curve beyond the
    threshold. This is datasketch's choice with weights=(weight, 1 - weight)."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)

    def area(low: float, high: float, bands: np.ndarray, rows: int, missed: bool) -> np.ndarray:
        similarity = low + (high - low) * (nodes + 1) / 2
        share = (1 - similarity**rows) ** bands[:, None]
        of_bands: np.ndarray = (share if missed else 1 - share) @ weights * (high - low) / 2
        return of_bands

    best = (np.inf, 0, 0)
    for rows in range(1, permutations + 1):
        bands = np.arange(1, permutations // rows + 1)
        error = weight * area(0.0, threshold, bands, rows, missed=False)
        error += (1 - weight) * area(threshold, 1.0, bands, rows, missed=True)
        at = int(np.argmin(error))
        best = min(best, (float(error[at]), int(bands[at]), rows))
    return best[1], best[2]


@lru_cache
def with_recall(threshold: float, recall: float, permutations: int) -> tuple[int, int]:
    """Return (bands, rows): the most rows, so the fewest false positives, with which a pair at the
    threshold is found with at least probability `recall`. Raises ValueError if none reaches it."""
    for rows in range(permutations, 0, -1):
        bands = permutations // rows
        if predicted(bands, rows, threshold) >= recall:
            while bands > 1 and predicted(bands - 1, rows, threshold) >= recall:
                bands -= 1
            return bands, rows
    most = predicted(permutations, 1, threshold)
    raise ValueError(
        f"no bands and rows of {permutations} permutations find a pair of similarity"
        f" {threshold:g} with probability {recall:g} (at most {most:.4f}); raise permutations"
    )


def binary_rows(matrix: np.ndarray, valid: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return each row of a matrix as one binary value, null where `valid` is False."""
    data = np.ascontiguousarray(matrix)
    bits = np.packbits(valid, bitorder="little")
    kind = pa.binary(data.shape[1] * data.itemsize)
    buffers = [pa.py_buffer(bits), pa.py_buffer(data)]
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(data), buffers)


class NearDuplicates(DocumentDedup):
    """A dedup step that finds similar texts by shingles: runs of words, characters or bytes."""

    decided_by: ClassVar[str | None] = "curate.dedup.minhash.clusters"
    in_tasks: ClassVar[bool] = True
    of_texts: ClassVar[bool] = True

    shingle: Literal["word", "char", "byte"] | None = None
    """Units of a shingle: words (grapheme clusters in scripts without spaces), characters or bytes.
    Default: `word`."""
    ngram: int | None = Field(None, ge=1, le=1_000)
    """Units in a shingle. Default: 5 words, 9 characters (Rajaraman and Ullman, Mining of Massive
    Datasets, 3.2.2) or 16 bytes."""
    normalize: Literal["lower", "datatrove"] = "lower"
    """Normal form of texts before shingles are taken: `lower` folds case; `datatrove` also turns
    numbers to 0 and removes punctuation and accents (DataTrove, utils/text.py)."""

    @property
    def least(self) -> float:
        """The least similarity of a match."""
        raise NotImplementedError

    @property
    def _unit(self) -> str:
        return self.shingle or "word"

    @property
    def _size(self) -> int:
        return self.ngram or NGRAM[self._unit]

    def shingling(self) -> tuple[str, str, int]:
        """Return (normal form, unit, units per shingle), the arguments of `shingle_sets`."""
        return self.normalize, self._unit, self._size

    def shingles(self, text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """Return (offsets: int64[rows + 1], uint64 values): the sorted shingles of each text."""
        from curate.dedup.minhash.kernels import shingle_sets
        from curate.text.compared import texts_in_form

        return shingle_sets(texts_in_form(text, self.compare), *self.shingling())

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        mask, similarity, partner = dropped(docs, decisions)
        size = np.ones(len(docs), np.int64)
        members = np.searchsorted(docs.table[NUMBER].to_numpy(), decisions["n"].to_numpy())
        size[members] = decisions["cluster_size"].to_numpy()
        docs = docs.annotate("cluster_size", size)
        return docs.drop(mask, "near_duplicate", similarity, self.least, partner)


@step(
    "dedup_minhash",
    methods={"minhash": {}, "newest": {"survivor": "newest"}},
    similarity={"minhash": "share of short runs of words (shingles) that two texts have in common"},
)
class DedupMinhash(NearDuplicates):
    """Keeps one document of each set of near duplicates.

    Column: `cluster_size`, the number of documents in the set, the kept document included. By this
    number, training may repeat a document (rehydration: FineWeb2, Penedo et al. 2025)."""

    paper: ClassVar[str] = "Broder 1997; Mining of Massive Datasets, chapter 3"
    version: ClassVar[int] = 2  # sketches hold band keys as bytes

    preset: Literal["fineweb", "lee2022", "dclm", "refinedweb"] = "fineweb"
    """A published choice of bands and rows: `fineweb` has 14 bands of 8 rows (Penedo et al. 2024),
    `lee2022` and `refinedweb` 450 of 20 (Lee et al. 2022, Penedo et al. 2023), `dclm` 93 of 15 (Li
    et al. 2024). `lee2022` also sets `verify` to 0.8."""
    bands: int | None = Field(None, ge=1, le=10_000)
    """Bands in a signature. More bands find more pairs. Default: the preset's."""
    rows: int | None = Field(None, ge=1, le=1_000)
    """Hash values per band. More find fewer unlike pairs. Default: the preset's."""
    threshold: float | None = Field(None, gt=0.0, lt=1.0)
    """Jaccard similarity above which pairs should be found. Bands and rows are computed from it
    instead of taken from a preset (Zhu, datasketch's MinHashLSH)."""
    recall: float | None = Field(None, gt=0.0, lt=1.0)
    """Least probability that a pair at the threshold shares a band. Without it, false positives and
    false negatives are weighed against each other, as in datasketch."""
    permutations: int | None = Field(None, ge=1, le=10_000)
    """Most hash values (bands * rows) for `threshold`. Default: 128 (datasketch)."""
    false_positive_weight: float | None = Field(None, gt=0.0, lt=1.0)
    """Weight of false positives, from 0 to 1, if `threshold` is set without `recall`. False
    negatives weigh 1 minus this value. Default: 0.5."""
    verify: float | None = Field(None, gt=0.0, le=1.0)
    """Least Jaccard similarity of the sets of shingles of two documents that share a band. Without
    it, every two documents that share a band are near duplicates. Default with preset `lee2022`:
    0.8."""
    seed: int = Field(1, ge=0, lt=2**32)
    """Seed of the permutations, as in datasketch."""

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, settings: Any) -> Any:
        preset = settings.get("preset") if isinstance(settings, dict) else None
        if not isinstance(preset, str) or preset not in VERIFIED:
            return settings
        return {"verify": VERIFIED[preset], **settings}

    @model_validator(mode="after")
    def _belong_together(self) -> DedupMinhash:
        names = {k for k, v in self.model_dump().items() if v is not None}
        for name in ("recall", "permutations", "false_positive_weight"):
            if name in names and "threshold" not in names:
                raise ValueError(f"{name}: needs threshold")
        for first, second in (
            ("threshold", "bands"),
            ("threshold", "rows"),
            ("recall", "false_positive_weight"),
        ):
            if {first, second} <= names:
                raise ValueError(f"{first} and {second} exclude each other; give only one of them")
        self.banding  # noqa: B018 (raises ValueError if no bands and rows reach the recall)
        return self

    @property
    def shared_key_column(self) -> str | None:
        """The sketch column with the band keys: documents that share no key do not affect each
        other's decisions. None with `verify` or `keep: none`: any document may affect any other."""
        return "bands" if self.verify is None and self.keep == "one" else None

    @property
    def method(self) -> str:
        return "minhash"

    def comparable(self) -> dict[str, Any]:
        """Return the settings that sketches depend on, with the bands and rows in effect."""
        bands, rows = self.banding
        return {
            "bands": bands,
            "rows": rows,
            "shingle": self._unit,
            "ngram": self._size,
            "normalize": self.normalize,
            "seed": self.seed,
            "verify": self.verify is not None,
            **self.comparison,
        }

    def sketch_identity(self) -> Identity:
        identity = super().sketch_identity()
        survivor = identity.settings["survivor"]
        return replace(identity, settings={**self.comparable(), "survivor": survivor})

    def forecast(self) -> list[str]:
        return curve_lines(*self.banding)

    @property
    def banding(self) -> tuple[int, int]:
        if self.threshold is not None:
            permutations = self.permutations or PERMUTATIONS
            if self.recall is not None:
                return with_recall(self.threshold, self.recall, permutations)
            return least_error(self.threshold, permutations, self.false_positive_weight or 0.5)
        bands, rows = PRESETS[self.preset]
        return self.bands or bands, self.rows or rows

    @property
    def least(self) -> float:
        """The least similarity of a match: the setting `verify`, or else the similarity at which
        half of all pairs share a band."""
        return midpoint(*self.banding) if self.verify is None else self.verify

    def signatures(self, text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """Return each text's signature (uint32[rows, permutations]) and number of shingles
        (int64[rows])."""
        from curate.dedup.minhash import kernels
        from curate.text.compared import texts_in_form

        bands, rows = self.banding
        text = texts_in_form(text, self.compare)
        data, offsets = text_buffers(kernels.normal_form(text, self.normalize, self._unit))
        a, b = kernels.permutations(bands * rows, self.seed)
        kind = kernels.KINDS[self._unit]
        return kernels.text_signatures(kind, data, offsets, self._size, a, b)

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.minhash.kernels import band_keys
        from curate.text.compared import texts_in_form

        bands, rows = self.banding
        text = as_large_string(pc.fill_null(docs.text, ""))
        signature, count = self.signatures(text)
        keys = band_keys(signature, bands, rows)
        columns = {
            "bands": binary_rows(keys, count > 0),
            **survivors.columns(docs, self.survivor, self.label),
        }
        if self.verify is not None:
            # The text is smaller than its shingles, and only candidates need shingles.
            columns["text"] = texts_in_form(text, self.compare)
        return pa.table(columns)

    def resolve(self, sketches: Sketches) -> Decided:
        from curate.dedup.minhash.clusters import Request, resolve

        bands, rows = self.banding
        request = Request(
            label=self.label,
            method=self.method,
            banding=(bands, rows),
            width=0,
            verify=self.verify,
            survivor=self.survivor,
            shingling=self.shingling(),
        )
        facts, counts = resolve(request, sketches)
        return Decided(counts, self._sentences(facts), [curve(bands, rows)])

    def _sentences(self, facts: Facts) -> list[str]:
        bands, rows = self.banding
        chance = predicted(bands, rows, self.least)
        found = (
            f"{bands} bands of {counted(rows, 'row')}: two documents of Jaccard similarity"
            f" {self.least:.3f} share"
            f" a band with probability {chance:.3f}. {facts['candidates']:,} of"
            f" {counted(facts['documents'], 'document')} share a band with another document."
        )
        if self.verify is None:
            how = (
                f"Similarities are rough estimates from the share of common bands, out of {bands}."
            )
        else:
            how = "Similarities are exact: sets of shingles were compared."
        return [found, how]
