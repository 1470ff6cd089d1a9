"""ARPA files, the text form of n-gram models: ours and KenLM's, read and written.

Format: `\\data\\`, the number of n-grams of each order, then a section an order of lines
`log10 probability TAB words TAB log10 back-off`, `\\end\\`. Source: ngram-format(5) of SRILM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from curate.scoring.perplexity.model_file import MOST_ORDER, ModelData
from curate.scoring.perplexity.sentences import Unit, Variant
from curate.scoring.perplexity.table import MOST_SLOTS, NotClosed, Rows, level, tables
from curate.scoring.perplexity.vocabulary import SPECIAL, vocabulary
from llmcurate.base.disk.files import replacing
from llmcurate.base.errors import UsageError

_COUNT = re.compile(r"ngram (\d{1,9})=(\d{1,15})")
_MOST = 3.4e38  # of a float32
_MOST_LINE = 1 << 20
_BATCH = 50_000
# KenLM's log10 probability of <unk> where a file has none.
_NO_UNK = -100.0


class _Lines:
    """Lines of a file with their numbers, stripped."""

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 0
        self._file = open(path, "rb")  # noqa: SIM115

    def next(self) -> str:
        """The next line without white space at its ends; UsageError at the end of the file."""
        raw = self._file.readline(_MOST_LINE)
        self.number += 1
        if not raw:
            raise UsageError(f"{self.path}: ends before \\end\\; it is cut off")
        if len(raw) == _MOST_LINE:
            raise self.wrong("is too long")
        return raw.decode("utf-8", "surrogateescape").strip(" \t\r\n")

    def wrong(self, problem: str) -> UsageError:
        """The error that names this line."""
        return UsageError(f"{self.path}, line {self.number}: {problem}")

    def close(self) -> None:
        """The file is closed."""
        self._file.close()


def read_arpa(
    path: Path, variant: Variant, unit: Unit, pieces: bytes, about: dict[str, Any]
) -> ModelData:
    """The model of an ARPA file; what texts are cut into is not in it. UsageError names the line
    that is wrong. <unk> with log10 -100 is added where the file has none, as KenLM does."""
    lines = _Lines(path)
    try:
        return _read(lines, variant, unit, pieces, about)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    finally:
        lines.close()


def _read(
    lines: _Lines, variant: Variant, unit: Unit, pieces: bytes, about: dict[str, Any]
) -> ModelData:
    counts = _head(lines)
    words: dict[str, int] = {w.decode(): i for i, w in enumerate(SPECIAL)}
    prob, backoff = [_NO_UNK, 0.0, _NO_UNK], [0.0, 0.0, 0.0]
    seen: set[int] = set()
    for value, parts, back in _section(lines, 1, counts[0]):
        number = words.setdefault(parts[0], len(words))
        if number in seen:
            raise lines.wrong(f"the word {parts[0][:200]!r} is there twice")
        seen.add(number)
        if number == len(prob):
            prob.append(value)
            backoff.append(back)
        else:
            prob[number], backoff[number] = value, back
    if 2 not in seen:
        raise UsageError(f"{lines.path}: has no </s>; models of sentences are needed")
    prob[1] = 0.0
    sizes = (len(words), *counts[1:])
    if sum(sizes) > MOST_SLOTS // 2:
        raise UsageError(f"{lines.path}: {sum(sizes):,} n-grams are more than a model can hold")
    if sum((2 * n + 2) * size for n, size in enumerate(counts, 1)) > lines.path.stat().st_size:
        raise UsageError(f"{lines.path}: ngram counts of more lines than the file has")
    levels = (_level(lines, n, sizes[n - 1], words) for n in range(2, len(sizes) + 1))
    try:
        firsts, entries = tables(sizes, levels, lambda n: np.zeros(n, np.uint64))
    except NotClosed as error:
        names = list(words)
        ngram = " ".join(names[w] for w in error.words.tolist())
        raise UsageError(f"{lines.path}: the n-gram {ngram[:200]!r}: {error.why}") from None
    if lines.next() != "\\end\\":
        raise lines.wrong("\\end\\ belongs here")
    return ModelData(
        sizes, variant, unit, vocabulary([w.encode("utf-8", "surrogateescape") for w in words]),
        np.array(prob, np.float32), np.array(backoff, np.float32), firsts, entries, pieces, about,
    )  # fmt: skip


def _head(lines: _Lines) -> list[int]:
    for _ in range(1000):  # a header of some kind may come first
        if lines.next() == "\\data\\":
            break
    else:
        raise UsageError(f"{lines.path} is no ARPA file: it has no \\data\\")
    counts: list[int] = []
    while line := lines.next():
        match = _COUNT.fullmatch(line)
        if not match or int(match[1]) != len(counts) + 1:
            raise lines.wrong(f"`ngram {len(counts) + 1}=COUNT` belongs here")
        counts.append(int(match[2]))
    if not 1 <= len(counts) <= MOST_ORDER:
        raise UsageError(f"{lines.path}: is of order {len(counts)}; 1 to {MOST_ORDER} can be read")
    return counts


def _section(lines: _Lines, n: int, count: int) -> Iterator[tuple[float, list[str], float]]:
    line = lines.next()
    while not line:
        line = lines.next()
    if line != f"\\{n}-grams:":
        raise lines.wrong(f"\\{n}-grams: belongs here")
    for _ in range(count):
        fields = lines.next().replace("\t", " ").split(" ")
        try:
            value = float(fields[0])
            back = float(fields[n + 1]) if len(fields) == n + 2 else 0.0
        except ValueError:
            raise lines.wrong("log10 probability, words, log10 back-off belong here") from None
        if len(fields) not in (n + 1, n + 2) or not -_MOST < value <= 0 or not abs(back) < _MOST:
            raise lines.wrong(f"is no {n}-gram with a log10 probability of 0 at most")
        yield value, fields[1 : n + 1], back
    if lines.next():
        raise lines.wrong(f"more {n}-grams than \\data\\ says")


def _level(lines: _Lines, n: int, count: int, words: dict[str, int]) -> Iterator[Rows]:
    ids: list[list[int]] = []
    values: list[tuple[float, float]] = []

    def rows() -> Rows:
        pairs = np.array(values, np.float32)
        return np.array(ids, np.uint32), pairs[:, 0].copy(), pairs[:, 1].copy()

    for value, parts, back in _section(lines, n, count):
        try:
            ids.append([words[w] for w in parts])
        except KeyError as error:
            raise lines.wrong(f"{error.args[0][:200]!r} is no word of the 1-grams") from None
        values.append((value, back))
        if len(ids) == _BATCH:
            yield rows()
            ids, values = [], []
    if ids:
        yield rows()


def write_arpa(path: Path, model: ModelData) -> None:
    """The model as an ARPA file, n-grams sorted by the numbers of their words; numbers are written
    so that the same float32 come back."""
    words = [w.decode("utf-8", "surrogateescape") for w in model.words.words()]
    order = model.order
    with (
        replacing(path) as aside,
        open(aside, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as f,
    ):
        f.write("\\data\\\n")
        f.writelines(f"ngram {n}={c}\n" for n, c in enumerate(model.counts, 1))
        for n in range(1, order + 1):
            f.write(f"\n\\{n}-grams:\n")
            if n == 1:
                ids = np.arange(len(words), dtype=np.uint32)[:, None]
                rows = (ids, model.word_prob, model.word_backoff)
            else:
                try:
                    rows = level(model.entries, model.firsts, model.counts, n)
                except ValueError as error:
                    raise UsageError(f"the model cannot be written: {error}") from None
            for line, value, back in zip(*(r.tolist() for r in rows), strict=True):
                ngram = " ".join([words[w] for w in line])
                end = f"\t{back:.9g}\n" if n < order else "\n"
                f.write(f"{value:.9g}\t{ngram}{end}")
        f.write("\n\\end\\\n")
