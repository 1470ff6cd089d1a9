"""Paragraphs and documents most of which was seen before, by a Bloom filter of n-grams.

The rules of DCLM's bff (Li et al. 2024; dedup/bff/src/main.rs) and of Dolma's deduper (Soldaini et
al. 2024; src/deduper.rs), but in the order of the input: workers make the keys, one pass over them
looks up and inserts. So a run gives the same result whatever the number of workers, and a resumed
run the same as one that was not killed. A Bloom filter answers "seen" of a share of new n-grams
too, the rate of false positives, and it does not know where it has seen one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from curate.corpus.sketches import Sketches
from curate.dedup import survivors
from curate.dedup.bloom import kernel
from curate.dedup.bloom.filter import PROBES, BloomFilter
from curate.dedup.bloom.ordered_pass import Tally
from curate.dedup.step import DedupStep
from curate.documents.cutting import cut
from curate.documents.documents import NUMBER, Documents
from curate.documents.edits import Spans
from curate.text.lines import strip_space
from kernel_cache import njit

if TYPE_CHECKING:
    from curate.documents.documents import Documents


# What a Bloom dedup says of its filter: how full it is and how often it is wrong.

POINTS = 40


def _share(value: float) -> str:
    return f"{value:.4g}" if value else f"none of {PROBES:,}"


def _curve(bloom: BloomFilter, rate: float, what: str) -> dict[str, Any]:
    """The modelled rate while the last slice fills; those before it are as they are."""
    held = bloom.slices[:, kernel.INSERTED].astype(np.float64)
    most = max(bloom.slices[-1, kernel.CAPACITY], held[-1])
    x = np.linspace(0, float(most), POINTS)
    y = [bloom.modelled_rate([*held[:-1], last]) for last in x]
    return {
        "title": "False positives while the filter fills",
        "x_label": f"{what} in the filter",
        "y_label": f"share of new {what} taken for seen",
        "x": [float(v + held[:-1].sum()) for v in x],
        "y": y,
        "mark": [float(held.sum()), rate, "this run (measured)"],
    }


def report(
    bloom: BloomFilter, tally: Tally, before: int, what: str, expected: int | None
) -> dict[str, Any]:
    """Counts, notes and the curve for run.json. before: keys that earlier runs had inserted; what:
    the filter's keys in a word, such as `n-grams`."""
    asked = bloom.rate
    rate, fill, new = bloom.measured_rate(), bloom.fill(), bloom.inserted - before
    slices = len(bloom.slices)
    notes = [
        f"The filter holds {bloom.inserted:,} {what} ({new:,} of this run's {tally.keys:,}) in"
        f" {bloom.bytes:,} bytes; {fill:.1%} of its bits are set.",
        f"False positives: {asked:g} asked for a full filter, {_share(rate)} measured with"
        f" {PROBES:,} random keys, {bloom.modelled_rate():.4g} expected at this fill.",
        "A Bloom filter does not know where it has seen what: decisions name no partner.",
    ]
    if before:
        notes.append(f"{before:,} of its {what} are of earlier runs.")
    if expected is not None and tally.grown:
        notes.append(
            f"More than the {expected:,} {what} expected came: the filter has {slices} slices now"
            " and is larger and slower than one made for all of them."
        )
    removed = tally.documents + tally.passages
    return {
        "clusters": 0,
        "members": removed,
        "dropped": removed,
        "documents": tally.documents,
        "passages": tally.passages,
        "keys": tally.keys,
        "inserted": new,
        "slices": slices,
        "filter_bytes": bloom.bytes,
        "false_positives": rate,
        "fill": fill,
        "notes": notes,
        "curves": [_curve(bloom, rate, what)],
    }


# The text without paragraphs that were seen before, and documents of which nothing is left.


@njit(cache=True, nogil=True)
def blank_without(data, offsets, rows, start, end):
    """bool[rows of the batch]: those with spans of which nothing but white space is left.

    rows, start, end: int64[spans], ordered, bytes within the row.
    """
    blank = np.zeros(len(offsets) - 1, np.bool_)
    s = 0
    while s < len(rows):
        r = rows[s]
        a = offsets[r]
        empty = True
        while s < len(rows) and rows[s] == r:
            if empty:
                left, right = strip_space(data, a, offsets[r] + start[s])
                empty = left >= right
            a = offsets[r] + end[s]
            s += 1
        if empty:
            left, right = strip_space(data, a, offsets[r + 1])
            empty = left >= right
        blank[r] = empty
    return blank


def without_seen(
    docs: Documents, at: np.ndarray, decisions: pa.Table, limit: float, rule: str
) -> Documents:
    """The batch after the decisions. at: int64[decisions], rows of the batch; limit: the threshold
    that reasons name; rule: the name of the cuts.

    `overlap` is annotated for every document of which something was seen.
    """
    overlap = np.full(len(docs), np.nan)
    overlap[at] = decisions["overlap"].to_numpy()
    docs = docs.annotate("overlap", pa.array(overlap, mask=np.isnan(overlap)))
    drop = decisions["drop"].to_numpy(zero_copy_only=False)
    passage = decisions["span_start"].is_valid().to_numpy(zero_copy_only=False)
    gone = np.zeros(len(docs), np.bool_)
    gone[at[drop & ~passage]] = True
    docs = docs.drop(gone, "seen_before", overlap, limit)
    spans = pa.array(passage)
    rows = at[passage]
    start = decisions["span_start"].filter(spans).to_numpy()
    end = decisions["span_end"].filter(spans).to_numpy()
    blank = blank_without(*docs.buffers(), rows, start, end)
    docs = docs.drop(blank, "nothing_left", overlap, limit)
    stays = ~blank[rows]
    rows, start, end = rows[stays], start[stays], end[stays]
    none = np.zeros(len(rows), np.uint8)
    return cut(docs, Spans(rows, start, end, none, (rule,), none))


Mode = Literal["old-both", "paragraph", "document", "both", "dolma-paragraph", "dolma-document"]
FILTER = "filter.bloom"  # in the step's folder, and so in the index
CUT = "seen_paragraph"


class DedupBloom(DedupStep):
    """Cuts paragraphs and drops documents that a Bloom filter has mostly seen."""

    name: ClassVar[str] = "dedup_bloom"
    free: ClassVar[frozenset[str]] = DedupStep.free | {"expected"}

    mode: Mode = "old-both"
    """old-both, paragraph, document, both: bff's (`--remove-type`), over n-grams. dolma-paragraph,
    dolma-document: Dolma's, over whole paragraphs or documents."""
    ngram: int = Field(13, ge=1, le=1_000)
    """Words of an n-gram (UAX #29 words, punctuation included): 13 as in DCLM."""
    min_ngram: int | None = Field(None, ge=1, le=1_000)
    """Least words of a unit that is looked up as a whole where it has fewer than `ngram`; by
    default `ngram`, so that shorter ones are never looked up."""
    threshold: float = Field(0.8, ge=0.0, le=1.0)
    """Share of n-grams that must have been seen: more than this (`both`: at least this)."""
    key: Literal["text", "url"] = "text"
    """dolma-document: what is compared."""
    expected: int | None = Field(None, ge=1)
    """n-grams that the filter is made for, those of `against` among them; by default all of the
    input are counted."""
    false_positives: float = Field(0.01, ge=1e-9, le=0.5)
    """Share of new n-grams that a full filter takes for seen ones."""
    seed: int = Field(0, ge=0, lt=2**63)
    survivor: survivors.Survivor = "first"

    @field_validator("survivor")
    @classmethod
    def _first_stays(cls, policy: str) -> str:
        if policy != "first":
            raise ValueError(
                "a Bloom filter knows no earlier copy to go back to, so what comes first stays:"
                " survivor must be `first`; sort the input to prefer others"
            )
        return policy

    @model_validator(mode="after")
    def _settings_fit(self) -> DedupBloom:
        if self.min_ngram is not None and self.min_ngram > self.ngram:
            raise ValueError("min_ngram: must not be larger than ngram")
        if self.key == "url" and self.mode != "dolma-document":
            raise ValueError("key: url needs mode: dolma-document")
        return self

    def sketch_identity(self) -> dict[str, Any]:
        found = super().sketch_identity()
        later = {"threshold", "false_positives"}
        settings = {k: v for k, v in found["settings"].items() if k not in later}
        if self.mode == "paragraph":
            settings["mode"] = "old-both"  # the same keys
        return found | {"settings": settings}

    @property
    def method(self) -> str:
        """How decisions name this step: `bloom:` and the mode."""
        return f"bloom:{self.mode}"

    @property
    def _dolma(self) -> bool:
        return self.mode.startswith("dolma-")

    @property
    def _what(self) -> str:
        return f"{self.mode.removeprefix('dolma-')}s" if self._dolma else "n-grams"

    @property
    def limit(self) -> float:
        """The threshold in force; Dolma's whole keys are seen or not."""
        return 1.0 if self._dolma else self.threshold

    @property
    def keys(self) -> str:
        """What the filter's keys are; filters of others cannot be used."""
        from curate.text.uax29 import UNICODE

        if self._dolma:
            return f"murmur3-128 low of {self.mode.removeprefix('dolma-')} {self.key}"
        least = self.min_ngram or self.ngram
        units = "documents" if self.mode in ("document", "both") else "paragraphs"
        return f"{self.ngram}-grams (least {least}) of UAX29 words {UNICODE} in {units}"

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.bloom import grams

        least = self.min_ngram or self.ngram
        if self.mode == "dolma-paragraph":
            found = grams.paragraph_keys(docs, self.seed)
        elif self.mode == "dolma-document":
            found = grams.document_keys(docs, self.seed, self.key)
        elif self.mode == "document":
            found = grams.document_grams(docs, self.ngram, least, self.seed)
        elif self.mode == "both":
            found = grams.both_grams(docs, self.ngram, least, self.seed)
        else:
            found = grams.paragraph_grams(docs, self.ngram, least, self.seed)
        return found.table()

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        from curate.dedup.bloom.filter import BloomFilter, grown_from
        from curate.dedup.bloom.ordered_pass import Rules, count_keys, decide
        from curate.disk.atomic import clear_temporary, replacing

        rules = Rules(
            0.0 if self._dolma else self.threshold,
            reached=self.mode == "both",
            documents=self.mode in ("old-both", "both"),
            spanning=self.mode == "both",
            whole=self.mode in ("document", "dolma-document"),
        )
        clear_temporary(sketches.folder)  # of a killed run; an index must not hold it
        earlier = grown_from([folder / FILTER for _, folder in sketches.earlier])
        with replacing(sketches.folder / FILTER) as aside:
            bloom = BloomFilter.create(aside, self.keys, self.false_positives, self.seed)
            for path in earlier:
                bloom.take_over(path)
            before = bloom.inserted
            # Earlier runs' keys are among those expected: one filter for all, as in one run.
            bloom.make_room(self.expected - before if self.expected else count_keys(sketches))
            tally = decide(sketches, bloom, rules, self.method)
            bloom.finish()
        return report(bloom, tally, before, self._what, self.expected)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        at = np.searchsorted(docs.table[NUMBER].to_numpy(), decisions["n"].to_numpy())
        return without_seen(docs, at, decisions, self.limit, CUT)
