"""Exact substring deduplication (Lee et al. 2022, "Deduplicating Training Data Makes Language
Models Better", ExactSubstr). Of every passage of at least `threshold` units that occurs repeatedly,
one occurrence is kept. A passage may begin and end anywhere.

The paper's code (google-research/deduplicate-text-datasets) removes every occurrence, as does
`keep: none`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, PrivateAttr, model_validator

from curate.corpus.decisions import Decided, Decision
from curate.corpus.sketches import Sketches
from curate.dedup import survivors
from curate.dedup.removal import DedupStep
from curate.documents.documents import Documents
from curate.steps.contracts import DescribesDecisions, FromFiles, Identity, digest, step
from curate.text.buffers import text_buffers
from llmcurate.base.disk.units import counted

_BATCH = 64  # documents encoded together


class Encoder:
    """Encodes texts to tokens with a tokenizer.json. Special tokens in a text are ordinary text."""

    def __init__(self, path: Path) -> None:
        """Load the tokenizer from its file. Raises RunFailed if the file is not a tokenizer."""
        from tokenize_kit.formats.tekken import load_json

        self._tokenizer = load_json(path)
        vocab = max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.dtype = np.dtype(np.uint16 if vocab <= 1 << 16 else np.uint32)

    def columns(self, texts: pa.LargeStringArray) -> dict[str, pa.Array]:
        """Return the lists tokens, token_start, token_end: the tokens of each document and their
        byte ranges. A token that is part of a character has the byte range of the whole character.
        """
        data, offsets = text_buffers(texts)
        ends = np.zeros(len(texts) + 1, np.int64)
        parts: dict[str, list[np.ndarray]] = {"tokens": [], "token_start": [], "token_end": []}
        for first in range(0, len(texts), _BATCH):
            batch = [t or "" for t in texts.slice(first, _BATCH).to_pylist()]
            encoded = self._tokenizer.encode_batch(batch, add_special_tokens=False)
            for r, encoding in enumerate(encoded, first):
                row = data[offsets[r] : offsets[r + 1]]
                positions = np.append(np.flatnonzero((row & 0xC0) != 0x80), len(row))
                spans = positions[np.array(encoding.offsets, np.int64).reshape(-1, 2)]
                parts["tokens"].append(np.array(encoding.ids, self.dtype))
                parts["token_start"].append(spans[:, 0].astype(np.uint32))
                parts["token_end"].append(spans[:, 1].astype(np.uint32))
                ends[r + 1] = len(encoding.ids)
        lists = pa.array(np.cumsum(ends), pa.int64())
        position_type = np.dtype(np.uint32)
        kinds = {"tokens": self.dtype, "token_start": position_type, "token_end": position_type}
        return {
            name: pa.LargeListArray.from_arrays(
                lists, pa.array(np.concatenate([np.empty(0, kinds[name]), *values]))
            )
            for name, values in parts.items()
        }


RULES = ("duplicate", "local_duplicate")
# In the paper: 50 tokens of a BPE like GPT-2's, about 200 characters of English.
THRESHOLD = {"bytes": 200, "characters": 200, "tokens": 50}


@step("dedup_suffix_array", methods={"suffix-array": {}})
class DedupSuffixArray(DedupStep, FromFiles, DescribesDecisions):
    """Cuts passages that also occur elsewhere in the corpus, found with suffix arrays."""

    paper: ClassVar[str] = "Lee et al. 2022, ExactSubstr"
    decided_by: ClassVar[str | None] = "curate.dedup.suffix_array.repeats"
    decide_nothing: ClassVar[frozenset[str]] = DedupStep.decide_nothing | {"memory_mib"}

    compare: Literal["raw"] = "raw"
    """The form of comparison: only `raw`, unchanged."""
    survivor: survivors.Survivor = "first"
    """The document that keeps the passage, with `keep: first`: `longest`, `newest`, `c4` (the least
    md5 of the URL), `first` (the order of the inputs), `best:COLUMN` (the highest number in a
    column) or `prefer-source:A,B` (the first source in the list)."""
    unit: Literal["bytes", "characters", "tokens"] | None = None
    """Unit of `threshold`. Default: `tokens` with a tokenizer, else `characters`."""
    threshold: int | None = Field(None, ge=1)
    """Least length of a passage in units. Default: 200 characters or bytes, or 50 tokens (Lee et
    al. 2022)."""
    tokenizer: str | None = None
    """Path of a tokenizer.json, or of its folder, for the unit `tokens`."""
    keep: Literal["first", "none"] = "first"
    """The occurrence of a passage to keep: the `first` in order of preference, or `none` (as in the
    code of Lee et al. 2022)."""
    boundary: Literal["character", "word", "line"] = "character"
    """Where cuts may begin and end. Cuts shrink to the boundary and never grow."""
    min_chars: int = Field(0, ge=0)
    """Drop a cut document if fewer characters, or only white space, remain."""
    keep_index: bool = True
    """Keep the suffix arrays for `llmcurate search`."""
    memory_mib: int = Field(2048, ge=64)
    """Memory in MiB per worker to sort a chunk."""

    _encoder: Any = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _tokens_need_a_tokenizer(self) -> DedupSuffixArray:
        if self.unit == "tokens" and not self.tokenizer:
            raise ValueError("unit: tokens needs tokenizer: FILE (a tokenizer.json)")
        if self.tokenizer and self.unit not in (None, "tokens"):
            raise ValueError(f"tokenizer: needs unit: tokens, not {self.unit}")
        return self

    @property
    def method(self) -> str:
        return "suffix-array"

    def describe(self, decision: Decision) -> str | None:
        """Return words on the text that was cut, or None if the repeated passage is unknown."""
        if decision.partner_id is None or decision.kept_id is None:
            return None
        place = "earlier in it" if decision.partner == decision.id else f"in {decision.partner}"
        return f"consist of passages that also occur {place}"

    @property
    def unit_in_effect(self) -> str:
        """The unit of the threshold: the chosen unit, or else the default."""
        return self.unit or ("tokens" if self.tokenizer else "characters")

    @property
    def window(self) -> int:
        """The number of units per window: the setting `threshold`, or its default for the unit."""
        return self.threshold or THRESHOLD[self.unit_in_effect]

    @property
    def description(self) -> str:
        """A text that describes the passages to search for."""
        return f"passages of {self.window} {self.unit_in_effect} or more"

    @property
    def sort_bytes(self) -> int:
        """The memory to use for sorting, in bytes."""
        return self.memory_mib << 20

    @property
    def obstacle(self) -> None:
        """None: a refresh can add documents, because past decisions would not change."""

    @property
    def of_arrival(self) -> dict[str, str]:
        return {**super().of_arrival, "keep": "first"}

    def sketch_identity(self) -> Identity:
        identity = super().sketch_identity()
        survivor = identity.settings["survivor"]
        settings = {"survivor": survivor, "tokens": self.tokenizer is not None}
        return replace(identity, settings=settings)

    def resources(self) -> list[str]:
        return [str(self._tokenizer_file())] if self.tokenizer else []

    def comparable(self) -> dict[str, Any]:
        """Return the tokenizer's digest, which must be equal in an index for this step to use
        it."""
        files = self.resources()
        return {"tokenizer": digest(self.label, files[0]) if files else None}

    def _tokenizer_file(self) -> Path:
        path = Path(self.tokenizer or "")
        return path / "tokenizer.json" if path.is_dir() else path

    def open(self) -> None:
        if self.tokenizer:
            self._encoder = Encoder(self._tokenizer_file())

    def sketch(self, docs: Documents) -> pa.Table:
        columns = {"text": pc.fill_null(docs.text, "")}
        if self.tokenizer:
            if self._encoder is None:
                self.open()
            columns |= self._encoder.columns(docs.text)
        return pa.table({**columns, **survivors.columns(docs, self.survivor, self.label)})

    def resolve(self, sketches: Sketches) -> Decided:
        from curate.dedup.suffix_array.repeats import resolve
        from curate.dedup.suffix_array.windows import Request

        request = Request(self.window, self.unit_in_effect, self.survivor, self.keep, self.boundary)
        counts = resolve(request, sketches, self.sort_bytes, self.keep_index)
        cut, passages = counts.pop("cut_bytes"), counted(counts["dropped"], "passage")
        return Decided(counts, [f"{self.description}: {passages}, {cut:,} bytes are cut."])

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        from curate.dedup.suffix_array.windows import marks_of, remaining_text
        from curate.documents.cutting import cut_marked

        mark, rows = marks_of(docs, decisions)
        cut, chars, written = remaining_text(docs, mark, rows)
        edited = cut > 0
        docs = docs.annotate("cut_bytes", cut)
        docs = docs.drop(edited & ~written, "nothing_left", chars, 1)
        docs = docs.drop(edited & (chars < self.min_chars), "too_short", chars, self.min_chars)
        return cut_marked(docs, mark, edited & ~docs.marked(), RULES)
