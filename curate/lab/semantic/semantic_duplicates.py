"""Semantic duplicates: documents with similar embeddings.

SemDeDup (Abbas et al. 2023, arXiv 2303.09540): within clusters of spherical k-means, a document is
dropped if its cosine to a preferred one is above 1 - epsilon. D4 (Tirumala et al. 2023, arXiv
2308.12284): the kept documents are clustered again, and the most prototypical ones, nearest to
their centroid, are dropped too. The shares kept by both multiply: R = R_dedup * R_proto.

Embeddings come from a model's folder, or are hashed TF-IDF vectors reduced by an SVD. The latter
need no model, but detect little more than duplicates and near-duplicates.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field, PrivateAttr

from curate.corpus.decisions import Decided
from curate.corpus.sketches import Sketches
from curate.dedup import survivors
from curate.dedup.removal import DocumentDedup, dropped
from curate.documents.documents import Documents
from curate.steps.contracts import FromFiles, step

if TYPE_CHECKING:
    from curate.lab.semantic.model import Embedder

HASHED = "hashed"


def _policy(value: str) -> str:
    return value if value == "hard" else survivors.checked(value)


@step(
    "dedup_semantic",
    methods={"semantic": {}},
    similarity={
        "semantic": "cosine of the two embeddings",
        "semantic:prototypical": "cosine of the embedding to its centroid",
    },
)
class DedupSemantic(DocumentDedup, FromFiles):
    """Keeps one document of each chain of documents with similar embeddings."""

    paper: ClassVar[str] = "Abbas et al. 2023 (SemDeDup); Tirumala et al. 2023 (D4)"
    decided_by: ClassVar[str | None] = "curate.lab.semantic.neighbours"
    free: ClassVar[frozenset[str]] = DocumentDedup.free | {
        "clusters", "nearest", "epsilon", "keep_fraction", "prototypicality", "recluster", "seed"
    }  # fmt: skip

    after_sketches: ClassVar[frozenset[str]] = frozenset({"dimensions", "residual"})
    after_folder: ClassVar[frozenset[str]] = frozenset(
        {"epsilon", "keep", "keep_fraction", "prototypicality", "recluster"}
    )

    compare: Literal["raw"] = "raw"
    """The form in which texts are compared: unchanged, as models read them."""
    survivor: Annotated[str, AfterValidator(_policy)] = "longest"
    """The document of similar ones that is kept: a policy of every dedup (`longest`, `newest`,
    `c4`, `first`, `best:COLUMN`, `prefer-source:A,B`), or `hard`, the one farther from its centroid
    (SemDeDup's code)."""
    embedding: str = HASHED
    """The embedding: `hashed` (TF-IDF and an SVD, without a model), or the path of a model's
    folder: model.onnx with tokenizer.json, or a folder of sentence-transformers or transformers."""
    max_tokens: int = Field(512, ge=8, le=131_072)
    """The most tokens of a document that a model reads; the rest is ignored."""
    features: int = Field(2**18, ge=2**8, le=2**26)
    """Number of hash buckets for words and pairs of words, for hashed embeddings."""
    dimensions: int = Field(128, ge=1, le=2048)
    """Dimensions of the SVD, for hashed embeddings."""
    residual: int = Field(64, ge=0, le=2048)
    """Dimensions for the residual of a document after the SVD, for hashed embeddings; 0 is plain
    latent semantic analysis (Deerwester et al. 1990)."""
    clusters: int | None = Field(None, ge=1, le=1_000_000)
    """Number of clusters. Without a value the square root of the number of documents, or more if
    clusters would have over 50,000 documents on average."""
    nearest: int = Field(2, ge=1, le=16)
    """Number of nearest clusters in which a document is compared: 1 is SemDeDup, 2 also finds pairs
    on either side of a border."""
    epsilon: float = Field(0.07, gt=0.0, lt=1.0)
    """Distance below which two documents are duplicates: their cosine is above 1 - epsilon (Abbas
    et al. 2023)."""
    keep_fraction: float | None = Field(None, gt=0.0, le=1.0)
    """Share of the documents to keep, instead of epsilon: the documents most similar to a preferred
    one are dropped (D4's R_dedup, Tirumala et al. 2023). Without a value epsilon decides."""
    prototypicality: float | None = Field(None, gt=0.0, le=1.0)
    """Share of the remaining documents to keep: the most prototypical ones, nearest to their
    centroid, are dropped too (D4's R_proto, Tirumala et al. 2023). Without a value none of them is
    dropped."""
    recluster: bool = True
    """Cluster the remaining documents again before the most prototypical ones are chosen, as D4
    does."""
    seed: int = Field(1, ge=0, lt=2**32)
    """Seed of the centroids and of the SVD."""
    _embedder: Embedder | None = PrivateAttr(default=None)

    @property
    def obstacle(self) -> str:
        """The reason why the step needs the whole corpus to decide: it clusters all documents."""
        return "it decides by the whole corpus"

    @property
    def method(self) -> str:
        return "semantic"

    @property
    def least(self) -> float:
        """The cosine above which documents are duplicates, rounded like the similarities."""
        return round(1.0 - self.epsilon, 12)

    @property
    def hashed(self) -> bool:
        return self.embedding == HASHED

    @property
    def hard(self) -> bool:
        """True if documents farther from their centroid are preferred."""
        return self.survivor == "hard"

    def resources(self) -> list[str]:
        if self.hashed:
            return []
        from curate.lab.semantic.model import model_files

        return [str(path) for path in model_files(Path(self.embedding), self.label)]

    def comparable(self) -> dict[str, Any]:
        """Return the settings that must be equal in this step and in an index of an earlier run
        that the step uses. The model's path is replaced by digests of the model's files."""
        settings = super().comparable()
        if not self.hashed:
            settings["embedding"] = super().identity().contents["resources"]
        return settings

    def open(self) -> None:
        if not self.hashed:
            from curate.lab.semantic.model import load

            self._embedder = load(Path(self.embedding), self.max_tokens, self.label)

    def sketch(self, docs: Documents) -> pa.Table:
        order = survivors.columns(docs, "first" if self.hard else self.survivor, self.label)
        if not self.hashed:
            if self._embedder is None:
                self.open()
            assert self._embedder is not None
            return pa.table({"vector": self._embedder.column(docs.text), **order})
        from curate.lab.semantic.matrix import hashed_counts
        from curate.text.words import words

        table = words(docs)
        ends, buckets, counts = hashed_counts(table.rows, table.hash, self.features)
        offsets = pa.array(ends)
        lists = {
            name: pa.LargeListArray.from_arrays(offsets, pa.array(values))
            for name, values in (("buckets", buckets), ("counts", counts))
        }
        return pa.table({**lists, **order})

    def resolve(self, sketches: Sketches) -> Decided:
        # With `hard` the order comes from the clusters.
        order = survivors.preference("longest" if self.hard else self.survivor)
        decided: Decided = import_module(str(self.decided_by)).decide(self, order, sketches)
        return decided

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        copies = pc.equal(decisions["method"], self.method)
        similar = decisions.filter(copies)
        mask, similarity, partner = dropped(docs, similar)
        least = similar["threshold"][0].as_py() if similar.num_rows else self.least
        docs = docs.drop(mask, "semantic_duplicate", similarity, least, partner)
        pruned = decisions.filter(pc.invert(copies))
        if pruned.num_rows == 0:
            return docs
        mask, similarity, _ = dropped(docs, pruned)
        return docs.drop(mask, "prototypical", similarity, pruned["threshold"][0].as_py())
