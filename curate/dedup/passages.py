"""Passages that stand more than once in a corpus: all copies but one are cut out.

`line`: C4's code (tensorflow_datasets/text/c4_utils.py, remove_duplicate_text), whose keys are
`line.strip().lower()`. `sentences`: C4's paper (Raffel et al. 2020, section 2.2), "all but one of
any three-sentence span occurring more than once". Equality is of 128-bit hashes (text/hash128.py).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from curate.dedup import survivors
from curate.dedup.step import DedupStep
from curate.documents import Documents
from curate.sketches import Sketches

RULES = ("global_duplicate", "local_duplicate", "white_space")
# DataTrove's SentDedupConfig; C4's code has no rule on words.
MIN_WORDS = {"line": 0, "sentences": 50}


class DedupPassages(DedupStep):
    """Cuts lines, or spans of sentences, of which a copy stands elsewhere in the corpus."""

    name: ClassVar[str] = "dedup_passages"

    unit: Literal["line", "sentences"] = "line"
    span: int | None = Field(None, ge=1, le=100)
    """Sentences a passage; 3, as in the C4 paper."""
    survivor: survivors.Survivor = "c4"
    min_sentences: int = Field(3, ge=0)
    """Documents that lost a passage and have fewer left are dropped (C4, DataTrove: 3)."""
    min_words: int | None = Field(None, ge=0)
    """The same for words: by default 50 for sentences (DataTrove) and no rule for lines (C4)."""

    @model_validator(mode="after")
    def _span_is_of_sentences(self) -> DedupPassages:
        if self.span is not None and self.unit != "sentences":
            raise ValueError("span: needs unit: sentences")
        return self

    @property
    def method(self) -> str:
        """How decisions name this step: `passages:line` or `passages:sentences`."""
        return f"passages:{self.unit}"

    @property
    def _words(self) -> int:
        return MIN_WORDS[self.unit] if self.min_words is None else self.min_words

    @property
    def _span(self) -> int:
        from curate.dedup.passage_keys import UNITS

        return self.span or UNITS[self.unit].span

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.passage_keys import UNITS, passages

        found = passages(docs, self.unit, self._span)
        pieces = UNITS[self.unit].pieces(docs)
        _, offsets = docs.buffers()
        base = np.repeat(offsets[:-1], np.diff(found.rows))
        columns = {
            "high": found.high,
            "low": found.low,
            "first": pieces.start[found.first] - base,
            "last": pieces.end[found.last] - base,
        }
        ends = pa.array(found.rows, pa.int64())
        lists = {
            name: pa.LargeListArray.from_arrays(ends, pa.array(values))
            for name, values in columns.items()
        }
        return pa.table({**lists, **survivors.columns(docs, self.survivor, self.label)})

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        from curate.dedup.passage_owners import decide

        order = survivors.preference(self.survivor)
        return decide(sketches.connection, sketches.decisions, order, self.method)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        from curate.dedup import passage_cuts
        from curate.dedup.passage_keys import UNITS
        from curate.text.cutting import cut_marked

        unit = UNITS[self.unit]
        pieces = unit.pieces(docs)
        data, offsets = docs.buffers()
        gone = passage_cuts.gone_pieces(docs, pieces, decisions)
        mark = np.zeros(int(offsets[-1] - offsets[0]), np.uint8)
        left = passage_cuts.mark_pieces(data, offsets, pieces, gone, unit.lines, mark)
        edited = left.cut > 0
        docs = docs.annotate("cut", left.cut.astype(np.int32))
        for name, values in (("sentences_left", left.sentences), ("words_left", left.words)):
            known = pa.array(values.astype(np.int32), mask=~edited)
            docs = docs.annotate(name, known)
        docs = docs.drop(edited & (left.pieces == 0), "nothing_left", left.pieces, 1)
        few = edited & (left.words < self._words)
        docs = docs.drop(few, "few_words", left.words, self._words)
        few = edited & (left.sentences < self.min_sentences)
        docs = docs.drop(few, "few_sentences", left.sentences, self.min_sentences)
        return cut_marked(docs, mark, edited & ~docs.marked(), RULES)
