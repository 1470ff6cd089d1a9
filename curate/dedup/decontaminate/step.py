"""Documents that hold items of evaluation sets are dropped, or cut where they hold them.

A dedup against a small corpus that must not be in the training data. The ways of comparing are
named after their sources (decontaminate_windows.py); cutting follows GPT-3 (decontaminate_cuts.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr, field_validator, model_validator

from curate.corpus.sketches import Sketches
from curate.dedup.step import Removal, dropped
from curate.documents.cutting import cut
from curate.documents.documents import NUMBER, Documents
from curate.documents.edits import Spans
from curate.text.unicode import row_chars

if TYPE_CHECKING:
    from curate.dedup.decontaminate.windows import Windows


# Documents without the passages that hold evaluation items.
#
# As GPT-3 did (Brown et al. 2020, appendix C): a match goes with 200 characters on either side,
# "splitting the original document into pieces", "pieces less than 200 characters long were
# discarded", "documents split into more than 10 pieces were considered contaminated and removed
# entirely". There the pieces became documents; here they stay one, with an empty line at each
# cut.

RULES = ("passage", "short_piece")
PASSAGE, SHORT = range(len(RULES))
_JOIN = "\n\n"


def cut_passages(
    docs: Documents, decisions: pa.Table, min_piece: int, max_pieces: int
) -> Documents:
    """The batch without the passages of the decisions, which do not overlap."""
    gone = decisions.filter(decisions["drop"])
    if gone.num_rows == 0:
        return docs
    row = np.searchsorted(docs.table[NUMBER].to_numpy(), gone["n"].to_numpy())
    first, last = gone["span_start"].to_numpy(), gone["span_end"].to_numpy()
    data, offsets = docs.buffers()
    pieces = np.zeros(len(docs), np.int64)
    left = np.zeros(len(docs), np.int64)
    found: list[tuple[int, int, int, int]] = []  # row, start, end, rule; all touch or leave text
    for r in np.unique(row).tolist():
        mine = slice(*np.searchsorted(row, [r, r + 1]))
        size = int(offsets[r + 1] - offsets[r])
        edges = np.empty(2 * (mine.stop - mine.start) + 2, np.int64)
        edges[0], edges[-1] = 0, size
        edges[1:-1:2], edges[2:-1:2] = first[mine], last[mine]
        chars = row_chars(data, offsets[r] + edges)[::2]
        pieces[r] = (chars > 0).sum()
        left[r] = (chars >= max(1, min_piece)).sum()
        for k, n in enumerate(chars.tolist()):
            if 0 < n < min_piece:
                found.append((r, int(edges[2 * k]), int(edges[2 * k + 1]), SHORT))
            if 2 * k + 2 < len(edges):
                found.append((r, int(edges[2 * k + 1]), int(edges[2 * k + 2]), PASSAGE))
    docs = docs.drop(pieces > max_pieces, "many_pieces", pieces, max_pieces)
    touched = np.zeros(len(docs), np.bool_)
    touched[row] = True
    docs = docs.drop(touched & (left == 0), "nothing_left", left, 1)
    return cut(docs, _spans(docs, found, offsets))


def _spans(docs: Documents, found: list[tuple[int, int, int, int]], offsets: np.ndarray) -> Spans:
    """What goes of documents that stay. The first of cuts that touch is replaced by an empty line
    where text stays on both sides."""
    marked = docs.marked()
    found = [f for f in found if not marked[f[0]]]
    rows, start, end, rule = np.array(found, np.int64).reshape(-1, 4).T
    joined = np.zeros(len(rows), np.int64)
    k = 0
    while k < len(rows):
        j = k
        while j + 1 < len(rows) and rows[j + 1] == rows[k] and start[j + 1] == end[j]:
            j += 1
        size = offsets[rows[k] + 1] - offsets[rows[k]]
        joined[k] = start[k] > 0 and end[j] < size
        k = j + 1
    return Spans(rows, start, end, rule.astype(np.uint8), RULES, joined, ("", _JOIN))


NGRAM, THRESHOLD = 8, 0.7  # PaLM, section 8: at least 70 % of the 8-grams


class Decontaminate(Removal):
    """Finds items of evaluation sets in documents."""

    name: ClassVar[str] = "decontaminate"

    evals: tuple[str, ...] = Field(min_length=1)
    """Files of test items (JSON lines, JSON, parquet, text with one item a line), or NAME=FILE."""
    fields: tuple[str, ...] = ()
    """What makes an item's text; by default `text`, else all strings of a row."""
    mode: Literal["13-gram", "50-char", "overlap"] = "13-gram"
    ngram: int | None = Field(None, ge=2, le=64)
    """overlap: words a window; 8."""
    threshold: float | None = Field(None, gt=0.0, le=1.0)
    """overlap: the share of an item's windows that a document holds to be dropped; 0.7."""
    shortest: int | None = Field(None, ge=1)
    """Items with fewer words (8), or letters and digits (50-char: 25), are not looked for."""
    samples: int | None = Field(None, ge=1)
    """50-char: random windows an item; by default all. GPT-4's report: 3."""
    seed: int = Field(0, ge=0)
    max_hits: int | None = Field(None, ge=1)
    """Windows found in more documents are ignored. GPT-3: 10, in a corpus without copies."""
    max_items: int | None = Field(100, ge=1)
    """Windows that more items share are instructions and templates, and are ignored."""
    action: Literal["drop", "cut"] = "drop"
    context: int = Field(200, ge=0, le=100_000)
    """cut: characters that go on either side of a match (GPT-3: 200)."""
    min_piece: int = Field(200, ge=0)
    """cut: shorter pieces between cuts go too (GPT-3: 200 characters)."""
    max_pieces: int = Field(10, ge=1)
    """cut: documents that fall into more pieces are dropped (GPT-3: 10)."""

    _windows: Any = PrivateAttr(default=None)
    _search: Any = PrivateAttr(default=None)

    @field_validator("evals", "fields", mode="before")
    @classmethod
    def _one_is_a_list_too(cls, value: Any, info: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts = value.split(",") if info.field_name == "fields" else [value]
        return tuple(p.strip() for p in parts if p.strip())

    @model_validator(mode="after")
    def _settings_have_a_mode(self) -> Decontaminate:
        for name in ("ngram", "threshold"):
            if getattr(self, name) is not None and self.mode != "overlap":
                raise ValueError(f"{name}: needs mode: overlap")
        if self.samples is not None and self.mode != "50-char":
            raise ValueError("samples: needs mode: 50-char")
        return self

    @property
    def reach(self) -> Literal["own", "any"]:
        """Windows that too many documents hold count for nothing."""
        return "own" if self.max_hits is None else "any"

    @property
    def method(self) -> str:
        """How decisions name this step: `decontaminate:13-gram`."""
        return f"{self.name}:{self.mode}"

    def leaves(self) -> list[str]:
        """The report on every item; a second step in a recipe has one of its own."""
        return [f"contamination{self.label.removeprefix(self.name)}.parquet"]

    def resources(self) -> list[str]:
        from curate.dedup.decontaminate.items import named_files

        return [path for _, path in named_files(self.evals, self.label)]

    def sketch_identity(self) -> dict[str, Any]:
        found = self.identity()
        settings = found["settings"]
        for name in ("threshold", "max_hits", "min_piece", "max_pieces"):
            del settings[name]
        if self.action == "drop":
            del settings["context"]
        return found

    def windows(self) -> Windows:
        """The windows of all items; read once."""
        if self._windows is None:
            self._windows = self._cut()
        found: Windows = self._windows
        return found

    def _cut(self) -> Windows:
        from curate.dedup.decontaminate.items import read_items
        from curate.dedup.decontaminate.windows import SHORTEST, Cutting, cut_windows

        cutting = Cutting(
            self.mode,
            self.ngram or NGRAM,
            self.shortest or SHORTEST[self.mode],
            self.samples,
            self.seed,
            self.max_items,
        )
        return cut_windows(read_items(self.evals, self.fields, self.label), cutting)

    def open(self) -> None:
        """A worker keeps only what finds windows, not the items."""
        self._search = self._cut().search

    def forecast(self) -> list[str]:
        from curate.dedup.decontaminate.report import said_of_sets

        return [f"{self.label}: {line}" for line in said_of_sets(self.windows())]

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.decontaminate.kernel import widen
        from curate.dedup.decontaminate.windows import find

        row, gram, first, last = find(docs, self._search or self.windows().search)
        columns = {"gram": gram, "first": first, "last": last}
        if self.action == "cut":
            data, offsets = docs.buffers()
            wide = widen(data, offsets, row, first, last, self.context)
            columns |= {"wide_first": wide[0], "wide_last": wide[1]}
        ends = pa.array(np.searchsorted(row, np.arange(len(docs) + 1)), pa.int64())
        return pa.table(
            {
                name: pa.LargeListArray.from_arrays(ends, pa.array(values))
                for name, values in columns.items()
            }
        )

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        from curate.dedup.decontaminate.report import write
        from curate.dedup.decontaminate.resolve import decide
        from curate.disk.atomic import clear_temporary

        clear_temporary(sketches.folder)
        threshold = 0.0 if self.mode != "overlap" else self.threshold or THRESHOLD
        found = decide(
            sketches, self.windows(), self.method, threshold, self.max_hits, self.action == "cut"
        )
        (name,) = self.leaves()
        return found | write(sketches, self.windows(), sketches.folder / name, self.max_hits)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        if self.action == "drop":
            mask, similarity, partner = dropped(docs, decisions)
            threshold = self.threshold or THRESHOLD if self.mode == "overlap" else None
            return docs.drop(mask, "contaminated", similarity, threshold, partner)
        return cut_passages(docs, decisions, self.min_piece, self.max_pieces)
