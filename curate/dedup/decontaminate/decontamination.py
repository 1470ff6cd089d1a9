"""Drop documents that contain items of evaluation sets, or cut the items out.

This is a deduplication against a small corpus that must not be in the training data. windows.py
describes the ways to compare, with their sources. Passages are cut as in GPT-3 (matches.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr, field_validator, model_validator

from curate.corpus.decisions import Decided, Decision
from curate.corpus.sketches import Sketches
from curate.dedup.removal import Removal, dropped
from curate.documents.documents import Documents
from curate.steps.contracts import DescribesDecisions, FromFiles, Identity, step
from llmcurate.base.disk.units import counted

if TYPE_CHECKING:
    from curate.dedup.decontaminate.windows import Windows


# Defaults of `ngram` and `threshold`. overlap: at least 70 % of the 8-grams (PaLM, section 8).
# jaccard: a similarity of 13-grams of at least 0.8 (RETRO, Borgeaud et al. 2022, section 2.1).
NGRAM = {"overlap": 8, "jaccard": 13}
THRESHOLD = {"overlap": 0.7, "jaccard": 0.8}


@step(
    "decontaminate",
    similarity={"decontaminate": "share of the test item's n-grams found in the document"},
)
class Decontaminate(Removal, FromFiles, DescribesDecisions):
    """Drops documents that contain items of evaluation sets, or cuts the items out."""

    version: ClassVar[int] = 2  # 2: windows have as many words in scripts without spaces
    paper: ClassVar[str] = "Brown et al. 2020, appendix C"
    decided_by: ClassVar[str | None] = "curate.dedup.decontaminate.matches"
    after_sketches: ClassVar[frozenset[str]] = frozenset(
        {"threshold", "max_hits", "min_piece", "max_pieces"}
    )

    evals: tuple[str, ...] = Field(min_length=1)
    """Files of evaluation items, as FILE or NAME=FILE: JSONL, a JSON array, parquet, or text with
    one item per line."""
    fields: tuple[str, ...] = ()
    """Fields whose strings form the text of an item, in order. Default: the field `text`, or else
    all strings of a row except `id`."""
    mode: Literal["13-gram", "50-char", "overlap", "jaccard"] = "13-gram"
    """The way to compare items with documents: `13-gram` as in GPT-3 (Brown et al. 2020, appendix
    C), `50-char` as in GPT-4 (technical report, appendix C), `overlap` as in PaLM (Chowdhery et al.
    2022, section 8). `jaccard` finds documents that are near duplicates of an item, by the Jaccard
    similarity of their n-grams (Borgeaud et al. 2022, section 2.1)."""
    ngram: int | None = Field(None, ge=2, le=64)
    """Words in a window. Default: 8 for mode `overlap` (Chowdhery et al. 2022, section 8), 13 for
    mode `jaccard` (Borgeaud et al. 2022)."""
    threshold: float | None = Field(None, gt=0.0, le=1.0)
    """Share from which a document is contaminated. Mode `overlap`: share of the item's windows in
    the document, default 0.7 (Chowdhery et al. 2022, section 8). Mode `jaccard`: Jaccard similarity
    of the windows of both, default 0.8."""
    shortest: int | None = Field(None, ge=1)
    """Length of the shortest item to search for, in words, or in letters and digits for mode
    `50-char`. Default: 8 words, or 25 letters and digits; `ngram` in mode `jaccard`."""
    samples: int | None = Field(None, ge=1)
    """Random windows per item in mode `50-char` (GPT-4's report: 3). Default: all."""
    seed: int = Field(0, ge=0)
    """Seed of the random windows."""
    max_hits: int | None = Field(None, ge=1)
    """Ignore windows that are in more documents than this (10 in Brown et al. 2020, in a
    deduplicated corpus). Default: no limit."""
    max_items: int | None = Field(100, ge=1)
    """Ignore windows of more items than this, such as instructions. In a recipe, null: no limit."""
    action: Literal["drop", "cut"] = "drop"
    """`drop` removes a contaminated document, `cut` its matches with their context."""
    context: int = Field(200, ge=0, le=100_000)
    """Characters to cut on each side of a match (Brown et al. 2020, appendix C)."""
    min_piece: int = Field(200, ge=0)
    """Cut pieces of fewer characters as well (Brown et al. 2020, appendix C)."""
    max_pieces: int = Field(10, ge=1)
    """Drop documents that are cut into more pieces (Brown et al. 2020, appendix C)."""

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
            if getattr(self, name) is not None and self.mode not in NGRAM:
                raise ValueError(f"{name}: needs mode: overlap or jaccard")
        if self.mode == "jaccard" and self.action == "cut":
            raise ValueError(
                "action: cut does not work with mode: jaccard, which drops whole documents"
            )
        if self.samples is not None and self.mode != "50-char":
            raise ValueError("samples: needs mode: 50-char")
        return self

    @property
    def shared_key_column(self) -> str | None:
        """Return "" (each document is decided alone), or None with `max_hits`, which counts
        documents of the whole corpus."""
        return "" if self.max_hits is None else None

    @property
    def obstacle(self) -> str | None:
        return None if self.max_hits is None else "`max_hits` counts documents of the whole corpus"

    @property
    def method(self) -> str:
        return f"{self.name}:{self.mode}"

    def describe(self, decision: Decision) -> str | None:
        item = f"the item {decision.partner}, which is in an evaluation set"
        if decision.span_start is not None:
            return f"contain {item}, and {counted(self.context, 'character')} around it"
        return f"contains {decision.similarity:.0%} of {item}"

    def leaves(self) -> list[str]:
        """Return the file name of the report on contamination, with the suffix of this step's
        label."""
        return [f"contamination{self.label.removeprefix(self.name)}.parquet"]

    def resources(self) -> list[str]:
        from curate.dedup.decontaminate.items import named_files

        return [path for _, path in named_files(self.evals, self.label)]

    def sketch_identity(self) -> Identity:
        identity = super().sketch_identity()
        return identity if self.action == "cut" else identity.without(["context"])

    def windows(self) -> Windows:
        """Return all windows. The files of items are read only on the first call."""
        if self._windows is None:
            self._windows = self._cut()
        windows: Windows = self._windows
        return windows

    def _cut(self) -> Windows:
        from curate.dedup.decontaminate.items import read_items
        from curate.dedup.decontaminate.windows import SHORTEST, Cutting, cut_windows
        from curate.text.compared import texts_in_form

        # Mode jaccard compares whole n-grams only, so shorter items are left out. It has no
        # `max_items`.
        similar, ngram = self.mode == "jaccard", self.ngram or NGRAM.get(self.mode, 0)
        shortest = ngram if similar else SHORTEST[self.mode]
        cutting = Cutting(
            self.mode,
            ngram,
            max(shortest, self.shortest or 0) if similar else self.shortest or shortest,
            self.samples,
            self.seed,
            None if similar else self.max_items,
        )
        items = read_items(self.evals, self.fields, self.label)
        texts = texts_in_form(pa.array([i.text for i in items], pa.large_string()), self.compare)
        same = zip(items, texts.to_pylist(), strict=True)
        return cut_windows([replace(item, text=text) for item, text in same], cutting)

    def open(self) -> None:
        """Load the search table in a worker. The evaluation items are not kept in memory."""
        self._search = self._cut().search

    def forecast(self) -> list[str]:
        from curate.dedup.decontaminate.matches import set_sentences

        return [f"{self.label}: {line}" for line in set_sentences(self.windows())]

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.decontaminate.windows import find, widen

        docs = self.compared(docs)
        row, gram, first, last = find(docs, self._search or self.windows().search)
        columns = {"gram": gram, "first": first, "last": last}
        if self.action == "cut":
            data, offsets = docs.buffers()
            wide = widen(data, offsets, row, first, last, self.context)
            columns |= {"wide_first": wide[0], "wide_last": wide[1]}
        ends = pa.array(np.searchsorted(row, np.arange(len(docs) + 1)), pa.int64())
        lists = {
            name: pa.LargeListArray.from_arrays(ends, pa.array(values))
            for name, values in columns.items()
        }
        if self.mode == "jaccard":
            from curate.dedup.decontaminate.windows import different_ngrams

            lists["grams"] = pa.array(different_ngrams(docs, np.unique(row), self._ngram))
        return pa.table(lists)

    @property
    def _ngram(self) -> int:
        return self.ngram or NGRAM[self.mode]

    @property
    def least(self) -> float | None:
        """The least share of an item's windows that makes a document contaminated, or None if one
        window is enough."""
        return None if self.mode not in THRESHOLD else self.threshold or THRESHOLD[self.mode]

    def resolve(self, sketches: Sketches) -> Decided:
        from curate.dedup.decontaminate.matches import decide, write_report
        from llmcurate.base.disk.files import clear_temporary

        clear_temporary(sketches.folder)
        counts = decide(
            sketches,
            self.windows(),
            self.method,
            self.least or 0.0,
            self.max_hits,
            self.action == "cut",
        )
        (name,) = self.leaves()
        path = sketches.folder / name
        sets, notes = write_report(sketches, self.windows(), path, self.max_hits)
        return Decided(counts, notes, tables={"sets": sets})

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        if self.action == "drop":
            mask, similarity, partner = dropped(docs, decisions)
            return docs.drop(mask, "contaminated", similarity, self.least, partner)
        from curate.dedup.decontaminate.matches import cut_passages

        return cut_passages(docs, decisions, self.min_piece, self.max_pieces)
