"""Traces of steps for the report: bytes in and out, and examples of cut passages. Traces depend
only on the documents, not on batches or workers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow.compute as pc
import xxhash

from curate.documents.documents import Documents
from curate.run.messages import CutExample

KINDS = ("text_in", "payload_in", "text_out", "worked")
CUT_EXAMPLES = 3  # per rule
SAMPLED_PARTS = 16  # only the first partitions give examples, to keep records small
CUT_BYTES, AROUND_BYTES = 240, 80


class Traces:
    """Counts of bytes by step: `text_in`, `payload_in`, `text_out` and `worked`.

    `worked` is the text and payload (raw page) of all documents that a step got. The other counts
    leave out documents marked to be dropped. `text_in` is the text of documents unmarked before the
    step, and `payload_in` the payload of those without text. `text_out` is the text of documents
    unmarked after the step."""

    def __init__(self, part: int) -> None:
        self.counters: dict[str, Counter[str]] = {k: Counter() for k in KINDS}
        self.cuts: dict[str, list[CutExample]] = {}
        self._sampled = part < SAMPLED_PARTS

    def step(self, label: str, before: Documents, after: Documents) -> None:
        if len(before) == 0:
            return
        size, payload = _text_bytes(before), _payload_bytes(before)
        entering = ~before.marked()
        self.counters["text_in"][label] += int(size[entering].sum())
        self.counters["payload_in"][label] += int(payload[entering].sum())
        self.counters["worked"][label] += int(size.sum() + payload.sum())
        unmarked = ~after.marked()
        self.counters["text_out"][label] += int(_text_bytes(after)[unmarked].sum())
        if self._sampled and len(after.edits) > len(before.edits):
            self._sample_cuts(label, before, after, unmarked)

    def _sample_cuts(
        self, label: str, before: Documents, after: Documents, unmarked: np.ndarray
    ) -> None:
        data, offsets = before.buffers()
        spans = after.edits[-1][1]
        for code, rule in enumerate(spans.rules):
            cuts = np.flatnonzero((spans.rule == code) & unmarked[spans.rows])
            if len(cuts) == 0:
                continue
            rows = np.unique(spans.rows[cuts])
            view = memoryview(data)  # type: ignore[arg-type]
            keys = [xxhash.xxh3_64_intdigest(view[offsets[r] : offsets[r + 1]]) for r in rows]
            examples = self.cuts.get(f"{label}.{rule}", [])
            for at in np.argsort(np.array(keys, np.uint64), kind="stable")[:CUT_EXAMPLES]:
                row = int(rows[at])
                of_row = cuts[spans.rows[cuts] == row]
                longest = of_row[np.argmax((spans.end - spans.start)[of_row])]
                text = bytes(data[offsets[row] : offsets[row + 1]])
                put = spans.replacements[int(spans.replacement[longest])]
                start, end = int(spans.start[longest]), int(spans.end[longest])
                example = _example(keys[at], text, start, end, put)
                if example.cut.strip():
                    examples.append(example)
            if examples:
                self.cuts[f"{label}.{rule}"] = smallest(examples)


def smallest(examples: list[CutExample]) -> list[CutExample]:
    """Return the CUT_EXAMPLES examples with the smallest keys (hashes of texts), sorted by key."""
    return sorted({e.key: e for e in examples}.values(), key=lambda e: e.key)[:CUT_EXAMPLES]


def _example(key: int, text: bytes, start: int, end: int, put: str) -> CutExample:
    def plain(piece: bytes) -> str:
        return piece.decode("utf-8", "ignore")

    return CutExample(
        key,
        plain(text[max(0, start - AROUND_BYTES) : start]),
        plain(text[start : min(end, start + CUT_BYTES)]),
        end - start,
        plain(text[end : end + AROUND_BYTES]),
        put,
    )


def _text_bytes(docs: Documents) -> np.ndarray:
    size: np.ndarray = np.diff(docs.buffers()[1])
    return size


def _payload_bytes(docs: Documents) -> np.ndarray:
    if "payload" not in docs.table.column_names:
        return np.zeros(len(docs), np.int64)
    size = pc.fill_null(pc.binary_length(docs.table["payload"]), 0).to_numpy().astype(np.int64)
    without = docs.text.is_null().to_numpy(zero_copy_only=False)
    bytes_of_each: np.ndarray = np.where(without, size, 0)
    return bytes_of_each
