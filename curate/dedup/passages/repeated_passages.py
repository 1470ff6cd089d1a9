"""Remove passages that occur more than once in a corpus: all but one occurrence, or all.

There are three kinds of passage. `line` is a line, compared as `line.strip().lower()`, as in C4's
code (tensorflow_datasets/text/c4_utils.py, remove_duplicate_text). `sentences` are those of C4's
paper (Raffel et al. 2020, section 2.2), "all but one of any three-sentence span occurring more than
once". `paragraph` is a paragraph of CCNet (Wenzek et al. 2020, section 3.2; cc_net/dedup.py), which
is a line, compared without case, digits and typographic punctuation.

`unit: paragraph, keep: none, hash: sha1-64` does what CCNet does, including blank lines. Passages
are compared by hashes (dedup/hashes.py), of 128 bits by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from curate.corpus.decisions import Decided
from curate.corpus.sketches import Sketches
from curate.dedup import survivors
from curate.dedup.removal import DedupStep
from curate.documents.documents import Documents
from curate.steps.contracts import Identity, step
from curate.steps.profiled import CountsWords

if TYPE_CHECKING:
    from curate.dedup.passages.kernels import Remaining
    from curate.text.lines import Extents

RULES = ("global_duplicate", "local_duplicate", "white_space")
# C4 and DataTrove's SentDedupConfig set a least number of sentences. C4's code and CCNet set no
# least number of words.
MIN_SENTENCES = {"line": 3, "sentences": 3, "paragraph": 0}
MIN_WORDS = {"line": 0, "sentences": 50, "paragraph": 0}


@step(
    "dedup_passages",
    methods={
        "lines": {"unit": "line"},
        "sentences": {"unit": "sentences"},
        "paragraphs": {"unit": "paragraph"},
    },
)
class DedupPassages(CountsWords, DedupStep):
    """Cuts lines, paragraphs or spans of sentences that occur more than once in the corpus."""

    paper: ClassVar[str] = "Raffel et al. 2020, section 2.2; Wenzek et al. 2020, section 3.2"
    decided_by: ClassVar[str | None] = "curate.dedup.passages.copies"
    in_tasks: ClassVar[bool] = True
    version: ClassVar[int] = 2  # sketches are packed
    free: ClassVar[frozenset[str]] = DedupStep.free | {"min_sentences", "min_words", "words"}
    after_sketches: ClassVar[frozenset[str]] = frozenset({"keep"})

    unit: Literal["line", "sentences", "paragraph"] = "line"
    """The passages to compare: `line` (C4's code, c4_utils.py), spans of `sentences` (Raffel et al.
    2020, section 2.2), or `paragraph`, a line in CCNet's normal form (Wenzek et al. 2020, section
    3.2)."""
    span: int | None = Field(None, ge=1, le=100)
    """Sentences in a passage. Default: 3 (Raffel et al. 2020, section 2.2)."""
    keep: Literal["one", "none"] = "one"
    """The occurrences of a passage to keep: `one`, or `none`, which cuts a passage that occurs in
    several documents from all of them (CCNet)."""
    hash: Literal["murmur3-128", "xxh3-128", "blake2b-128", "sha1-64"] = "murmur3-128"
    """Hash that compares passages; the number is its size in bits (CCNet: sha1-64)."""
    survivor: survivors.Survivor = "c4"
    """The document that keeps the passage: `longest`, `newest`, `c4` (the least md5 of the URL),
    `first` (the order of the inputs), `best:COLUMN` (the highest number in a column) or
    `prefer-source:A,B` (the first source in the list)."""
    min_sentences: int | None = Field(None, ge=0)
    """A document that lost a passage is dropped if fewer sentences than this remain. Default: 3
    (C4, DataTrove), and 0 for paragraphs (CCNet)."""
    min_words: int | None = Field(None, ge=0)
    """A document that lost a passage is dropped if fewer words than this remain. Default: 50 for
    `unit: sentences` (DataTrove), else 0."""

    @model_validator(mode="after")
    def _span_is_of_sentences(self) -> DedupPassages:
        if self.span is not None and self.unit != "sentences":
            raise ValueError("span: needs unit: sentences")
        return self

    def sketch_identity(self) -> Identity:
        identity = super().sketch_identity()
        identity.settings["blank"] = self._blank
        return identity

    @property
    def obstacle(self) -> None:
        """The obstacle to adding documents later: None, because past decisions would not change."""

    @property
    def of_arrival(self) -> dict[str, str]:
        return {**super().of_arrival, "keep": "one"}

    @property
    def method(self) -> str:
        return f"passages:{self.unit}"

    @property
    def _words(self) -> int:
        return MIN_WORDS[self.unit] if self.min_words is None else self.min_words

    @property
    def _sentences(self) -> int:
        return MIN_SENTENCES[self.unit] if self.min_sentences is None else self.min_sentences

    @property
    def _span(self) -> int:
        from curate.dedup.passages.kernels import UNITS

        return self.span or UNITS[self.unit].span

    @property
    def _blank(self) -> bool:
        return self.unit == "paragraph" and self.keep == "none"

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.passages.kernels import packed, passages

        how = (self.unit, self._span, self.hash, self._blank)
        batch = passages(docs, *how, pieces=self._pieces(docs), compare=self.compare)
        columns = {
            "passages": np.diff(batch.rows),
            "keys": packed(batch.keys, batch.rows),
            "spans": packed(batch.spans, batch.rows),
        }
        return pa.table({**columns, **survivors.columns(docs, self.survivor, self.label)})

    def _pieces(self, docs: Documents) -> Extents:
        from curate.dedup.passages.kernels import UNITS
        from curate.text.unspaced import sentences_of

        if self.unit == "sentences":
            return sentences_of(docs, self.unspaced(docs))
        return UNITS[self.unit].pieces(docs)

    def resolve(self, sketches: Sketches) -> Decided:
        from curate.dedup.passages.copies import Request, resolve

        return resolve(Request(self.survivor, self.keep, self.method), sketches)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        from curate.dedup.passages.kernels import UNITS, mark_pieces, removed_pieces
        from curate.documents.cutting import cut_marked

        unit = UNITS[self.unit]
        pieces = self._pieces(docs)
        data, offsets = docs.buffers()
        removed = removed_pieces(docs, pieces, decisions)
        mark = np.zeros(int(offsets[-1] - offsets[0]), np.uint8)
        counted = bool(self._sentences or self._words)
        remaining = mark_pieces(
            data, offsets, pieces, removed, mark, lines=unit.lines, blank=self._blank, count=counted
        )
        if counted and self.unspaced(docs):
            self._count(docs, pieces, removed == 0, remaining)
        edited = remaining.cut > 0
        docs = docs.annotate("cut", remaining.cut.astype(np.int32))
        docs = docs.drop(edited & (remaining.pieces == 0), "nothing_left", remaining.pieces, 1)
        if counted:
            for name, values in (
                ("sentences_left", remaining.sentences),
                ("words_left", remaining.words),
            ):
                column = pa.array(values.astype(np.int32), mask=~edited)
                docs = docs.annotate(name, column)
            short = edited & (remaining.words < self._words)
            docs = docs.drop(short, "few_words", remaining.words, self._words)
            short = edited & (remaining.sentences < self._sentences)
            docs = docs.drop(short, "few_sentences", remaining.sentences, self._sentences)
        return cut_marked(docs, mark, edited & ~docs.marked(), RULES)

    def _count(
        self, docs: Documents, pieces: Extents, kept: np.ndarray, remaining: Remaining
    ) -> None:
        from curate.text.unspaced import row_sums, sentences_of, words_within

        unspaced = self.unspaced(docs)
        starts = sentences_of(docs, unspaced).start
        sentences = np.searchsorted(starts, pieces.end) - np.searchsorted(starts, pieces.start)
        for profile, rows in unspaced:
            words = words_within(docs, profile, pieces.start, pieces.end) * kept
            remaining.words[rows] = np.rint(row_sums(pieces.rows, words, np.float64)[rows])
            remaining.sentences[rows] = row_sums(pieces.rows, sentences * kept)[rows]
