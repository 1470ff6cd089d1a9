"""Remove paragraphs and documents that were mostly seen before, by a Bloom filter of n-grams.

The rules are those of DCLM's bff (Li et al. 2024; dedup/bff/src/main.rs) and of Dolma's deduper
(Soldaini et al. 2024; src/deduper.rs), applied in input order: workers make the keys, and one pass
looks them up and inserts them. The result does not depend on the number of workers or on
interruptions. A Bloom filter also reports some new n-grams as seen (false positives), and it does
not record where it saw an n-gram."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from curate.corpus.decisions import Decided
from curate.corpus.sketches import Sketches
from curate.dedup import survivors
from curate.dedup.removal import DedupStep
from curate.documents.documents import NUMBER, Documents
from curate.steps.contracts import Identity, step

Mode = Literal["old-both", "paragraph", "document", "dolma-paragraph", "dolma-document"]
DOLMA = "dolma-"  # prefix of Dolma's modes
# desired_false_positive_rate in Dolma's configurations (configs/dolma-v1_5, doc_dedupe/cc_en_*.yaml
# and para_dedupe/cc-middle.yaml).
DOLMA_RATE = 1e-6
FILTER = "filter.bloom"  # in the step's folder, and so in the index


@step(
    "dedup_bloom",
    methods={"bloom": {}},
    similarity={"bloom": "share of n-grams seen before"},
)
class DedupBloom(DedupStep):
    """Removes paragraphs and documents whose n-grams a Bloom filter has mostly seen before."""

    paper: ClassVar[str] = "Li et al. 2024 (DCLM's bff); Soldaini et al. 2024 (Dolma's deduper)"
    free: ClassVar[frozenset[str]] = DedupStep.free | {"expected"}
    after_sketches: ClassVar[frozenset[str]] = frozenset({"threshold", "false_positives"})
    cumulative: ClassVar[bool] = True

    mode: Mode = "old-both"
    """The rules to apply. `old-both`, `paragraph` and `document` are --remove-type values of DCLM's
    bff, which compares n-grams. `dolma-paragraph` and `dolma-document` are Dolma's rules, which
    compare whole paragraphs or documents."""
    ngram: int = Field(13, ge=1, le=1_000)
    """Words per n-gram, punctuation included (UAX #29; 13 in DCLM, Li et al. 2024)."""
    threshold: float = Field(0.8, ge=0.0, le=1.0)
    """Remove texts with a larger share of seen n-grams."""
    key: Literal["text", "url"] = "text"
    """The field by which mode `dolma-document` compares documents."""
    expected: int | None = Field(None, ge=1)
    """Number of n-grams that the filter has room for, including those of earlier runs. Default: the
    number of n-grams in the input."""
    false_positives: float = Field(0.01, ge=1e-9, le=0.5)
    """Share of new n-grams that a full filter wrongly reports as seen. Default: 0.01, and 0.000001
    in Dolma's modes (from its configurations)."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the hashes of n-grams."""
    survivor: survivors.Survivor = "first"
    """Always `first`: a Bloom filter cannot go back to an earlier document."""

    @model_validator(mode="before")
    @classmethod
    def _of_mode(cls, settings: Any) -> Any:
        dolma = isinstance(settings, dict) and str(settings.get("mode")).startswith(DOLMA)
        return {"false_positives": DOLMA_RATE, **settings} if dolma else settings

    @field_validator("survivor")
    @classmethod
    def _first_stays(cls, policy: str) -> str:
        if policy != "first":
            raise ValueError(
                "survivor must be `first`, because a Bloom filter cannot go back to an earlier"
                " document; sort the input to prefer other documents"
            )
        return policy

    @model_validator(mode="after")
    def _settings_fit(self) -> DedupBloom:
        if self.key == "url" and self.mode != "dolma-document":
            raise ValueError("key: url needs mode: dolma-document")
        return self

    def sketch_identity(self) -> Identity:
        identity = super().sketch_identity()
        if self.mode == "paragraph":
            identity.settings["mode"] = "old-both"  # both modes have the same keys
        return identity

    @property
    def obstacle(self) -> str | None:
        """The reason why this step cannot be refreshed, or None if it can be. All refreshes share
        one filter, so the setting `expected` must give its size."""
        if self.expected is not None:
            return None
        return (
            f"the filter needs a size: give --set {self.label}.expected=N, the number of keys of"
            " all refreshes together"
        )

    @property
    def method(self) -> str:
        return f"bloom:{self.mode}"

    @property
    def _dolma(self) -> bool:
        return self.mode.startswith(DOLMA)

    @property
    def limit(self) -> float:
        """The threshold in effect: 1.0 in Dolma's modes (whole paragraphs or documents)."""
        return 1.0 if self._dolma else self.threshold

    @property
    def keys(self) -> str:
        """A description of the keys. Only filters with equal descriptions can be combined."""
        from curate.text.uax29 import UNICODE

        form = f" in {self.compare} {self.comparison['unicode']}" if self.comparison else ""
        if self._dolma:
            return f"murmur3-128 low of {self.mode.removeprefix(DOLMA)} {self.key}{form}"
        units = "documents" if self.mode == "document" else "paragraphs"
        return f"{self.ngram}-grams of UAX29 words {UNICODE} in {units}{form}"

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.bloom import kernel

        how = (self.ngram, self.seed, self.compare)
        if self.mode == "dolma-paragraph":
            grams = kernel.paragraph_keys(docs, self.seed, self.compare)
        elif self.mode == "dolma-document":
            grams = kernel.document_keys(docs, self.seed, self.key, self.compare)
        else:
            grams = kernel.grams_of(docs, self.mode == "document", *how)
        return grams.table()

    def resolve(self, sketches: Sketches) -> Decided:
        from curate.dedup.bloom.filter import (
            BloomFilter,
            count_keys,
            decide,
            grown_from,
            report,
        )
        from llmcurate.base.disk.files import clear_temporary, replacing

        threshold = 0.0 if self._dolma else self.threshold
        documents = self.mode in ("old-both", "document", "dolma-document")
        clear_temporary(sketches.folder)  # left by a killed run; an index must not contain it
        earlier = grown_from([folder / FILTER for _, folder in sketches.earlier])
        with replacing(sketches.folder / FILTER) as aside:
            bloom = BloomFilter.create(aside, self.keys, self.false_positives, self.seed)
            for path in earlier:
                bloom.append_from(path)
            before = bloom.inserted
            # `expected` includes the keys of earlier runs.
            bloom.reserve(self.expected - before if self.expected else count_keys(sketches))
            tally = decide(sketches, bloom, threshold, documents, self.method)
            bloom.finish()
        unit = f"{self.mode.removeprefix(DOLMA)}s" if self._dolma else "n-grams"
        return report(bloom, tally, before, unit, self.expected)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        at = np.searchsorted(docs.table[NUMBER].to_numpy(), decisions["n"].to_numpy())
        from curate.dedup.bloom.filter import drop_seen

        return drop_seen(docs, at, decisions, self.limit)
