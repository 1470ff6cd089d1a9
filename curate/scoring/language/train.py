"""Train a fastText classifier of languages from labelled documents.

The same documents give the same bytes in any order: lines are ordered by hash, one thread trains,
the seed is a setting, and the process's memory starts as zeros, since fastText 0.9.2 with one
thread initializes only a tenth of the input matrix (`DenseMatrix::uniform` runs block 0 of ten)."""

from __future__ import annotations

import json
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import xxhash

from curate.scoring.fasttext.model_file import PREFIX
from curate.scoring.fasttext.supervised import Training
from curate.scoring.language.model import Model, fasttext_lines, library, need_library
from curate.scoring.language.scores import Scores
from curate.steps.contracts import CallApart
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.disk.files import TEMPORARY, clear_temporary, file_digest, replacing, write_text
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.messages import Message

BATCH = 1000
Buffers = tuple[np.ndarray, np.ndarray]  # data: uint8[], offsets: int64[rows + 1]
Example = tuple[str, str]  # text, label


def pieces(text: str, chars: int) -> Iterator[str]:
    """Yield the text in pieces of at most `chars` characters, cut at a blank in the second half of
    a piece if there is one. If `chars` is 0, yield the whole text."""
    start, size = 0, chars or len(text)
    while start < len(text):
        end = min(start + size, len(text))
        if end < len(text):
            blank = text.rfind(" ", start + size // 2, end)
            end = blank + 1 if blank >= 0 else end
        yield text[start:end]
        start = end


class Counts(NamedTuple):
    labels: dict[str, dict[str, int]]
    lines: dict[str, int]


class Lines:
    """Training examples, written to a file as lines for fastText, with the label, length and hash
    of each. `prepare` is a function to apply to texts first, or None."""

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
        left = iter(examples)
        while batch := list(islice(left, BATCH)):
            self.add(batch)

    def add(self, examples: list[Example]) -> None:
        texts: list[str] = []
        sides: list[tuple[int, bool]] = []
        for text, label in examples:
            code = self.names.setdefault(label, len(self.names))
            held = xxhash.xxh3_64_intdigest(text.encode(), self.training.seed)
            side = (code, held < self.training.held_out * 2.0**64)
            self.documents[side] += 1
            for piece in pieces(text, self.training.piece_chars):
                texts.append(piece)
                sides.append(side)
        data, offsets = text_buffers(pa.array(texts, pa.large_string()))
        if self.prepare is not None:
            data, offsets = self.prepare(data, offsets)
        lines, ends, words = fasttext_lines(data, offsets, 0)
        packed, names = lines.tobytes(), list(self.names)
        for row, (code, out) in enumerate(sides):
            if not words[row]:
                self.empty += 1
                continue
            line = packed[ends[row] : ends[row + 1]]
            self.file.write(line)
            self.start.append(self.start[-1] + len(line))
            self.label.append(code)
            self.held.append(out)
            self.chars.append(len(texts[row]))
            # Another seed than for `held`, so that both draws are independent.
            key = xxhash.xxh3_64(names[code].encode() + b"\0", self.training.seed + 1)
            key.update(line)
            self.key.append(key.intdigest())

    def order(self, held: bool) -> np.ndarray:
        """Return int64[rows]: held-out lines if `held`, else training lines, sorted by hash."""
        rows = np.flatnonzero(np.frombuffer(self.held, np.int8) == held)
        return rows[np.argsort(np.frombuffer(self.key, np.uint64)[rows], kind="stable")]

    def first(self, rows: np.ndarray, most: int) -> np.ndarray:
        """Return the first `most` rows of each label, in the order of `rows`."""
        labels = np.frombuffer(self.label, np.int32)[rows]
        kept = np.zeros(len(rows), np.bool_)
        for code in range(len(self.names)):
            kept[np.flatnonzero(labels == code)[:most]] = True
        return rows[kept]

    def held_out(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield batches of held-out lines, sorted by hash: (their rows: int64[lines], bytes of the
        lines: uint8[], ends: int64[lines + 1])."""
        rows = self.order(held=True)
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            texts = [line for _, line in self.read(part)]
            ends = np.concatenate(([0], np.cumsum([len(t) for t in texts]))).astype(np.int64)
            yield part, np.frombuffer(bytearray().join(texts), np.uint8), ends

    def read(self, rows: np.ndarray) -> Iterator[tuple[int, bytes]]:
        self.file.flush()
        for row in rows.tolist():
            self.file.seek(self.start[row])
            yield row, self.file.read(self.start[row + 1] - self.start[row])

    def write(self, path: Path, rows: np.ndarray) -> None:
        names = list(self.names)
        with path.open("wb") as out:
            for row, line in self.read(rows):
                out.write(f"{PREFIX}{names[self.label[row]]} ".encode() + line)

    def labels_in_training(self) -> list[str]:
        names = list(self.names)
        seen = {self.label[i] for i, out in enumerate(self.held) if not out}
        return sorted(names[code] for code in seen)

    def counts(self) -> Counts:
        labels = {
            name: {
                "documents": self.documents[code, False],
                "held_out": self.documents[code, True],
            }
            for name, code in sorted(self.names.items())
        }
        held = sum(self.held)
        lines = {"train": len(self.held) - held, "held_out": held, "empty": self.empty}
        return Counts(labels, lines)


def labelled(batch: pa.RecordBatch, label: str) -> tuple[pa.LargeStringArray, list[str | None]]:
    """Return (texts, labels without prefix) of a batch. Raises UsageError if the column `label` is
    missing. A label that is missing or has white space is None."""
    if label not in batch.schema.names:
        names = ", ".join(n for n in batch.schema.names if n != "text" and not n.startswith("_"))
        raise UsageError(f"no column {label!r} with labels; the columns are {names}")
    values = batch.column(label).cast(pa.string()).to_pylist()
    clean = [None if v is None else v.removeprefix("__label__") for v in values]
    usable = [v if v and v.split() == [v] and "\0" not in v else None for v in clean]
    return as_large_string(batch.column("text")), usable


# glibc fills memory with the complement of 255, that is 0 (mallopt(3), M_PERTURB). macOS fills it
# with 0xAA, which is -3e-13 as a float.
FILLED = {
    "MALLOC_PERTURB_": "255",
    "GLIBC_TUNABLES": "glibc.malloc.perturb=255",
    "MallocPreScribble": "1",
}


def fit_apart(source: Path, target: Path, training: Training, call_apart: CallApart) -> None:
    """Train a model on the file `source` (in fastText's format) in a separate process, and write
    the model to `target`. Raises RunFailed with the reason if training fails."""
    need_library()
    call_apart("curate.scoring.language.train:fit", FitTask(source, target, training), FILLED)


@dataclass(frozen=True)
class FitTask(Message):
    """The task to train a model on one file and write it to another."""

    source: Path
    target: Path
    training: Training


def fit(task: FitTask) -> None:
    source, training = str(task.source), task.training
    native = library()
    arguments = native.args()
    values = {
        "input": source,
        "output": "",
        "saveOutput": False,
        "model": native.model_name.supervised,
        "loss": getattr(native.loss_name, training.loss),
        "label": PREFIX,
        "lr": training.lr,
        "dim": training.dim,
        "epoch": training.epochs,
        "minCount": training.min_count,
        "minCountLabel": 0,
        "wordNgrams": training.word_ngrams,
        "minn": training.minn,
        "maxn": training.maxn,
        "bucket": training.bucket if training.maxn or training.word_ngrams > 1 else 0,
        "thread": 1,  # several threads would update the matrix in random order
        "seed": training.seed,
        "verbose": 0,
    }
    for key, value in values.items():
        setattr(arguments, key, value)
    model = native.fasttext()
    try:
        native.train(model, arguments)
        if training.quantize:
            cut, again = training.cutoff, training.cutoff > 0
            options = (training.epochs, training.lr, 1, 0, 2, True)  # dsub 2, separate norms
            model.quantize(source, False, cut, again, *options)
        model.saveModel(str(task.target))
    except (RuntimeError, ValueError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else "out of memory"
        if "NaN" in reason:
            reason = f"it diverged; set an lr below {training.lr}"
        raise RunFailed(f"training the language model failed: {reason}") from None


CARD = "card.json"
T = TypeVar("T")


def train_on(
    examples: Iterable[Example],
    target: Path,
    training: Training,
    call_apart: CallApart,
    choose: Callable[[Lines], np.ndarray],
    judge: Callable[[Path, Lines], T],
    prepare: Callable[[np.ndarray, np.ndarray], Buffers] | None = None,
) -> tuple[Lines, np.ndarray, T]:
    """Train on (text, label) pairs and write the model to `target`. Return (all lines, the rows
    used for training, the result of `judge`). `choose` selects the training rows. `judge` computes
    figures on the held-out lines."""
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    clear_temporary(folder)
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder))
        file = stack.enter_context((Path(name) / "lines").open("wb+"))
        lines = Lines(file, training, prepare)
        lines.add_all(examples)
        rows = choose(lines)
        lines.write(Path(name) / "train.txt", rows)
        with replacing(target) as aside:
            fit_apart(Path(name) / "train.txt", aside, training, call_apart)
        return lines, rows, judge(target, lines)


def write_card(target: Path, **facts: Any) -> dict[str, Any]:
    size, digest = target.stat().st_size, file_digest(target)
    card = {"version": 1, **facts, "file": target.name, "bytes": size, "sha256": digest}
    write_text(target.with_name(CARD), json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    return card


def train(
    examples: Iterable[Example], folder: Path, training: Training, call_apart: CallApart
) -> dict[str, Any]:
    """Train on (text, label) pairs, and write language.bin (or .ftz) and card.json to the folder.
    Return the model card. `call_apart` is a function that runs fastText's training in a separate
    process. Raises UsageError if there are fewer than two labels, RunFailed if training diverges.
    """

    def choose(lines: Lines) -> np.ndarray:
        if len(lines.labels_in_training()) < 2:
            labels = ", ".join(sorted(lines.names)) or "none"
            raise UsageError(
                f"a language model needs at least two labels; found: {labels}"
                " (give their column with --label-column)"
            )
        return lines.order(held=False)

    target = folder / f"language.{'ftz' if training.quantize else 'bin'}"
    lines, _, scores = train_on(examples, target, training, call_apart, choose, _held_out)
    counts = lines.counts()._asdict()
    return write_card(target, **counts, settings=asdict(training), held_out=scores)


def _held_out(file: Path, lines: Lines) -> object:
    model = Model(file)
    scores = Scores(model.labels)
    names, labels = list(lines.names), [*model.labels, None]
    for rows, packed, ends in lines.held_out():
        codes, sure = model.best(packed, ends, np.ones(len(rows), np.bool_))
        expected = [names[lines.label[r]] for r in rows]
        chars = [lines.chars[r] for r in rows]
        scores.add(expected, [labels[c] for c in codes], chars, sure.tolist())
    return scores.result()
