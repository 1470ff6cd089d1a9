"""Train a fastText classifier of languages from labelled documents.

The same documents give the same bytes, in whatever order they come: lines are ordered by hash
(a stretch of one language after another would also teach badly), one thread trains, and the seed
is given.
"""

from __future__ import annotations

import json
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import xxhash

from curate.atomic import TEMPORARY, clear_temporary, replacing, write_text
from curate.errors import UsageError
from curate.fasttext.model_file import PREFIX, sha256
from curate.language.fit import fit_apart
from curate.language.lines import fasttext_lines
from curate.language.native import Model
from curate.language.scores import Scores
from curate.language.training import Training
from curate.text.buffers import text_buffers

CARD = "card.json"
_BATCH = 1000


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


class _Lines:
    """Examples on disk: prepared lines one after another, and what is known of each."""

    def __init__(self, file: IO[bytes], training: Training) -> None:
        self.file, self.training = file, training
        self.names: dict[str, int] = {}
        self.label, self.held = array("i"), array("b")
        self.start, self.chars, self.key = array("q", [0]), array("q"), array("Q")
        self.documents: Counter[tuple[int, bool]] = Counter()
        self.empty = 0

    def add(self, examples: list[tuple[str, str]]) -> None:
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

    def ordered(self, held: bool) -> Iterator[tuple[int, bytes]]:
        """(label, line) of one side, in the order of the hashes."""
        self.file.flush()
        rows = np.flatnonzero(np.frombuffer(self.held, np.int8) == held)
        order = rows[np.argsort(np.frombuffer(self.key, np.uint64)[rows], kind="stable")]
        for row in order:
            self.file.seek(self.start[row])
            yield int(row), self.file.read(self.start[row + 1] - self.start[row])

    def write(self, path: Path) -> None:
        """fastText's training file."""
        names = list(self.names)
        with path.open("wb") as out:
            for row, line in self.ordered(held=False):
                out.write(f"{PREFIX}{names[self.label[row]]} ".encode() + line)


def train(examples: Iterable[tuple[str, str]], folder: Path, training: Training) -> dict[str, Any]:
    """Trains on (text, label) pairs; leaves language.bin (or .ftz) and card.json in the folder.

    Returns the card. UsageError with fewer than two labels, RunFailed where training diverges.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clear_temporary(folder)
    target = folder / f"language.{'ftz' if training.quantize else 'bin'}"
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder))
        file = stack.enter_context((Path(name) / "lines").open("wb+"))
        lines = _Lines(file, training)
        batch: list[tuple[str, str]] = []
        for example in examples:
            batch.append(example)
            if len(batch) == _BATCH:
                lines.add(batch)
                batch = []
        lines.add(batch)
        seen = {lines.label[i] for i, out in enumerate(lines.held) if not out}
        if len(seen) < 2:
            found = ", ".join(sorted(lines.names)) or "none"
            raise UsageError(f"a language model needs two labels at least; found: {found}")
        lines.write(Path(name) / "train.txt")
        with replacing(target) as aside:
            fit_apart(Path(name) / "train.txt", aside, training)
        scores = _held_out(Model(target), lines)
    card = {"version": 1, **_counts(lines), "settings": asdict(training), "held_out": scores}
    card |= {"file": target.name, "bytes": target.stat().st_size}
    card["sha256"] = sha256(target)
    write_text(folder / CARD, json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    return card


def _held_out(model: Model, lines: _Lines) -> dict[str, Any]:
    scores = Scores(model.labels)
    names, found = list(lines.names), [*model.labels, None]
    rows: list[int] = []
    texts: list[bytes] = []

    def count() -> None:
        ends = np.concatenate(([0], np.cumsum([len(t) for t in texts]))).astype(np.int64)
        packed = np.frombuffer(b"".join(texts), np.uint8)
        codes, sure = model.best(packed, ends, np.ones(len(texts), np.bool_))
        expected = [names[lines.label[r]] for r in rows]
        chars = [lines.chars[r] for r in rows]
        scores.add(expected, [found[c] for c in codes], chars, sure.tolist())
        rows.clear()
        texts.clear()

    for row, line in lines.ordered(held=True):
        rows.append(row)
        texts.append(line)
        if len(rows) == _BATCH:
            count()
    count()
    return scores.result()


def _counts(lines: _Lines) -> dict[str, Any]:
    """Documents of each label on both sides, lines, and lines without any word."""
    labels = {
        name: {
            "documents": lines.documents[code, False],
            "held_out": lines.documents[code, True],
        }
        for name, code in sorted(lines.names.items())
    }
    held = sum(lines.held)
    return {
        "labels": labels,
        "lines": {"train": len(lines.held) - held, "held_out": held, "empty": lines.empty},
    }
