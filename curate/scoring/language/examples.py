"""The settings of a classifier's training, and its examples on disk in an order by hash.

The same documents give the same training file, in whatever order they come: lines are ordered by
hash (a stretch of one label after another would also teach badly), and a hash of the text decides
what is held out.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import xxhash

from curate.scoring.fasttext.model_file import PREFIX
from curate.scoring.language.model import fasttext_lines
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.errors import UsageError


@dataclass(frozen=True)
class Training:
    """dim, minn, maxn, word_ngrams, loss and bucket are those of lid.176, as its header says; the
    rest is explained where the product `language_model` asks for it."""

    dim: int = 16
    minn: int = 2
    maxn: int = 4
    word_ngrams: int = 1
    loss: str = "hs"
    bucket: int = 2_000_000
    epochs: int = 10
    lr: float = 0.5
    min_count: int = 1
    held_out: float = 0.05
    piece_chars: int = 0
    quantize: bool = False
    cutoff: int = 0
    seed: int = 0


BATCH = 1000
Buffers = tuple[np.ndarray, np.ndarray]  # data: uint8[], offsets: int64[rows + 1]
Example = tuple[str, str]  # text, label


def pieces(text: str, chars: int) -> Iterator[str]:
    """The text in pieces of at most so many characters, cut at a blank of the second half where
    there is one; 0: the text."""
    start, size = 0, chars or len(text)
    while start < len(text):
        end = min(start + size, len(text))
        if end < len(text):
            blank = text.rfind(" ", start + size // 2, end)
            end = blank + 1 if blank >= 0 else end
        yield text[start:end]
        start = end


class Lines:
    """Examples in a file: prepared lines one after another, and what is known of each.

    prepare: what is done to texts before they become lines; None: nothing.
    """

    def __init__(
        self,
        file: IO[bytes],
        training: Training,
        prepare: Callable[[np.ndarray, np.ndarray], Buffers] | None = None,
    ) -> None:
        self.file, self.training, self.prepare = file, training, prepare
        self.names: dict[str, int] = {}
        self.label, self.held = array("i"), array("b")
        self.start, self.chars, self.key = array("q", [0]), array("q"), array("Q")
        self.documents: Counter[tuple[int, bool]] = Counter()
        self.empty = 0

    def add_all(self, examples: Iterable[Example]) -> None:
        """All examples, in batches."""
        batch: list[Example] = []
        for example in examples:
            batch.append(example)
            if len(batch) == BATCH:
                self.add(batch)
                batch = []
        self.add(batch)

    def add(self, examples: list[Example]) -> None:
        """A batch of (text, label)."""
        texts: list[str] = []
        marks: list[tuple[int, bool]] = []
        for text, label in examples:
            code = self.names.setdefault(label, len(self.names))
            held = xxhash.xxh3_64_intdigest(text.encode(), self.training.seed)
            mark = (code, held < self.training.held_out * 2.0**64)
            self.documents[mark] += 1
            for piece in pieces(text, self.training.piece_chars):
                texts.append(piece)
                marks.append(mark)
        data, offsets = text_buffers(pa.array(texts, pa.large_string()))
        if self.prepare is not None:
            data, offsets = self.prepare(data, offsets)
        lines, ends, words = fasttext_lines(data, offsets, 0)
        packed, names = lines.tobytes(), list(self.names)
        for row, (code, out) in enumerate(marks):
            if not words[row]:
                self.empty += 1
                continue
            line = packed[ends[row] : ends[row + 1]]
            self.file.write(line)
            self.start.append(self.start[-1] + len(line))
            self.label.append(code)
            self.held.append(out)
            self.chars.append(len(texts[row]))
            # The seed below held-out's is its own, so that both draws are independent.
            key = xxhash.xxh3_64(names[code].encode() + b"\0", self.training.seed + 1)
            key.update(line)
            self.key.append(key.intdigest())

    def order(self, held: bool) -> np.ndarray:
        """int64[rows]: the lines of one side, in the order of the hashes."""
        rows = np.flatnonzero(np.frombuffer(self.held, np.int8) == held)
        return rows[np.argsort(np.frombuffer(self.key, np.uint64)[rows], kind="stable")]

    def first(self, rows: np.ndarray, most: int) -> np.ndarray:
        """Those rows of an order that are among the first `most` of their label."""
        labels = np.frombuffer(self.label, np.int32)[rows]
        kept = np.zeros(len(rows), np.bool_)
        for code in range(len(self.names)):
            kept[np.flatnonzero(labels == code)[:most]] = True
        return rows[kept]

    def ordered(self, held: bool) -> Iterator[tuple[int, bytes]]:
        """(row, line) of one side, in the order of the hashes."""
        yield from self.read(self.order(held))

    def read(self, rows: np.ndarray) -> Iterator[tuple[int, bytes]]:
        """(row, line) of the rows."""
        self.file.flush()
        for row in rows.tolist():
            self.file.seek(self.start[row])
            yield row, self.file.read(self.start[row + 1] - self.start[row])

    def write(self, path: Path, rows: np.ndarray | None = None) -> None:
        """fastText's training file, of all lines that are not held out or of the given rows."""
        names = list(self.names)
        with path.open("wb") as out:
            for row, line in self.read(self.order(held=False) if rows is None else rows):
                out.write(f"{PREFIX}{names[self.label[row]]} ".encode() + line)

    def labels_in_training(self) -> list[str]:
        """Labels with a line that is not held out."""
        names = list(self.names)
        seen = {self.label[i] for i, out in enumerate(self.held) if not out}
        return sorted(names[code] for code in seen)

    def counts(self) -> dict[str, Any]:
        """Documents of each label on both sides, lines, and lines without any word."""
        labels = {
            name: {
                "documents": self.documents[code, False],
                "held_out": self.documents[code, True],
            }
            for name, code in sorted(self.names.items())
        }
        held = sum(self.held)
        return {
            "labels": labels,
            "lines": {"train": len(self.held) - held, "held_out": held, "empty": self.empty},
        }


def labelled(batch: pa.RecordBatch, label: str) -> tuple[pa.LargeStringArray, list[str | None]]:
    """(texts, labels) of a batch; a label without prefix, None where there is none or where it
    holds white space, which fastText's labels cannot. UsageError without such a column."""
    if label not in batch.schema.names:
        names = ", ".join(n for n in batch.schema.names if n != "text" and not n.startswith("_"))
        raise UsageError(f"no column {label!r} with labels; there are {names}")
    values = batch.column(label).cast(pa.string()).to_pylist()
    clean = [None if v is None else v.removeprefix("__label__") for v in values]
    usable = [v if v and v.split() == [v] and "\0" not in v else None for v in clean]
    return as_large_string(batch.column("text")), usable
