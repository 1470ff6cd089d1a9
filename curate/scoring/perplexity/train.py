"""Training: texts to numbered words on disk, N-grams counted in sorted runs, smoothing, the tables.

Memory is bounded by `memory_mib` and the vocabulary; what is larger lies in files of the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.scoring.perplexity.estimate import Estimate, adjusted, estimate
from curate.scoring.perplexity.model_file import ModelData, write_model
from curate.scoring.perplexity.ngrams import BITS, Column, Sorter, mapped, ngram_keys, words_of
from curate.scoring.perplexity.sentences import (
    Sentences,
    Unit,
    Variant,
    load_pieces,
    of_pieces,
    of_words,
    piece_ids,
)
from curate.scoring.perplexity.table import Rows, tables
from curate.scoring.perplexity.vocabulary import SPECIAL, Growing, Vocabulary
from llmcurate.base.disk.safe_paths import remove
from llmcurate.base.errors import RunFailed, UsageError

_ROW_BYTES = 128  # of memory for an n-gram that is being sorted, its copies included
_BATCH = 1 << 16
Texts = Callable[[], Iterable[pa.LargeStringArray]]


@dataclass(frozen=True)
class Smoothing:
    """How a model is estimated. prune: for each order the largest count that is left out; the last
    one holds for all higher orders. min_count: times a word must come to be a word."""

    order: int = 5
    prune: tuple[int, ...] = (0,)
    min_count: int = 1
    fallback: bool = False
    memory_mib: int = 1024

    def pruned(self) -> list[int]:
        """One entry an order; UsageError where a longer n-gram could stay without its parts."""
        limits = [*self.prune, *[self.prune[-1]] * (self.order - len(self.prune))]
        if len(self.prune) > self.order or limits[0] != 0 or limits != sorted(limits):
            raise UsageError(
                "prune: numbers that begin with 0 and do not fall, one an order, as 0,0,1"
            )
        return limits


@dataclass(frozen=True)
class Numbered:
    """A corpus as numbers on disk: ids: uint32[words], ends: int64[sentences]."""

    ids: np.ndarray
    ends: np.ndarray
    words: Vocabulary


def number_words(texts: Texts, folder: Path, variant: Variant, unit: Unit, least: int) -> Numbered:
    """Words by frequency; those that come less than `least` times are <unk>."""
    growing = Growing()
    ids, ends = _written(folder, (of_words(t, variant, unit, growing.add) for t in texts()))
    words, new = growing.settled(least)
    return Numbered(_renumbered(ids, new), ends, words)


def number_pieces(texts: Texts, folder: Path, variant: Variant, pieces: bytes) -> Numbered:
    """Pieces in the order of the SentencePiece model, then what it has no piece for."""
    processor = load_pieces(pieces, "--pieces")
    growing = Growing()
    word_ids = piece_ids(growing.add, processor)
    first = growing.words - len(SPECIAL)
    sentences = (of_pieces(t, variant, processor, word_ids, growing.add) for t in texts())
    ids, ends = _written(folder, sentences)
    words, new = growing.settled(1, first)
    return Numbered(_renumbered(ids, new), ends, words)


def _renumbered(ids: np.ndarray, new: np.ndarray) -> np.ndarray:
    for a in range(0, len(ids), 1 << 20):
        ids[a : a + (1 << 20)] = new[ids[a : a + (1 << 20)]]
    return ids


def _written(folder: Path, batches: Iterator[Sentences]) -> tuple[np.ndarray, np.ndarray]:
    ids, ends = Column(folder / "ids", "u4"), Column(folder / "ends", "i8")
    for batch in batches:
        ends.append(batch.ends + ids.rows)
        ids.append(batch.ids)
    arrays = ids.array(), ends.array()
    ids.remove()
    ends.remove()
    if len(arrays[1]) == 0:
        raise RunFailed("there is no word in the input to train on")
    return arrays


def count_ngrams(
    corpus: Numbered, folder: Path, order: int, bits: int, rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(hi, lo: uint64[n], count: int64[n]) of all N-grams in suffix order."""
    sorter = Sorter(folder, "ngrams", order * bits, rows, {"count": "i8"})
    ends, s = corpus.ends, 0
    begin = 0
    while s < len(ends):
        stop = int(np.searchsorted(ends, begin + rows, "right"))
        stop = min(max(stop, s + 1), s + rows, len(ends))
        part = np.asarray(corpus.ids[begin : ends[stop - 1]])
        hi, lo = ngram_keys(part, np.asarray(ends[s:stop]) - begin, order, bits)
        for a in range(0, len(hi), rows):
            rows_of_part = _counted(hi[a : a + rows], lo[a : a + rows], order * bits)
            sorter.add(*rows_of_part)
        begin, s = int(ends[stop - 1]), stop
    kinds = {"hi": "u8", "lo": "u8", "n": "i8"}
    columns = [Column(folder / f"ngrams.{c}", d) for c, d in kinds.items()]
    held: list[np.ndarray] = []
    for chunk in sorter.sorted():
        if held:
            chunk = tuple(np.concatenate(pair) for pair in zip(held, chunk, strict=True))
        merged = _merged(*chunk)
        held = [m[-1:] for m in merged]  # the next chunk may begin with the same n-gram
        for column, values in zip(columns, merged, strict=True):
            column.append(values[:-1])
    for column, values in zip(columns, held, strict=True):
        column.append(values)
    sorter.remove()
    hi, lo, count = (c.array() for c in columns)
    for column in columns:
        column.remove()
    return hi, lo, count


def _counted(hi: np.ndarray, lo: np.ndarray, bits: int) -> tuple[np.ndarray, ...]:
    from curate.scoring.perplexity.ngrams import sort_order

    order = sort_order(hi, lo, bits)
    return _merged(hi[order], lo[order], np.ones(len(order), np.int64))


def _merged(hi: np.ndarray, lo: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sorted rows, equal keys as one with the sum of their counts."""
    new = np.empty(len(hi), np.bool_)
    new[0] = True
    new[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
    at = np.flatnonzero(new)
    return hi[at], lo[at], np.add.reduceat(count, at)


def train(
    texts: Texts,
    out: Path,
    name: str,
    how: Smoothing,
    variant: Variant,
    unit: Unit,
    pieces: bytes = b"",
) -> dict[str, Any]:
    """Trains on the texts and writes out/name; returns facts of the model.

    texts: gives the corpus anew each time, in batches. pieces: a SentencePiece model's file, where
    the unit is `pieces`. UsageError for settings, RunFailed where there is too little text.
    """
    prune = how.pruned()
    work = out / ".work"
    remove(work, inside=out)
    work.mkdir(parents=True)
    try:
        if unit == "pieces":
            corpus = number_pieces(texts, work, variant, pieces)
        else:
            corpus = number_words(texts, work, variant, unit, how.min_count)
        vocab = len(corpus.words)
        bits = max(2, (vocab - 1).bit_length())
        if how.order * bits > BITS:
            most = 1 << BITS // how.order
            raise UsageError(
                f"{vocab:,} words are too many for order {how.order} (at most {most:,}): raise"
                " --min-count, or train on pieces (--vocab 32000)"
            )
        rows = max(1 << 10, how.memory_mib * (1 << 20) // _ROW_BYTES)
        ngrams = count_ngrams(corpus, work, how.order, bits, rows)
        orders = adjusted(work, *ngrams, how.order, bits, prune)
        estimates, used = estimate(work, orders, vocab, bits, how.fallback, rows)
        facts = {
            "order": how.order,
            "sentences": len(corpus.ends),
            "tokens": len(corpus.ids),
            "vocabulary": vocab,
            "pruned": [int(o.pruned.sum()) for o in orders],
            "discounts": [[round(x, 9) for x in d] for d in used],
        }
        model = _tabled(estimates, corpus.words, bits, work, variant, unit, pieces, facts)
        write_model(out / name, model)
    finally:
        remove(work, inside=out)
    return {**facts, "counts": list(model.counts), "bytes": (out / name).stat().st_size}


def _log10(values: np.ndarray) -> np.ndarray:
    """float32; 0 becomes -99, as in ARPA files."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log10(values), -99.0).astype(np.float32)


def _tabled(
    estimates: list[Estimate],
    words: Vocabulary,
    bits: int,
    folder: Path,
    variant: Variant,
    unit: Unit,
    pieces: bytes,
    facts: dict[str, Any],
) -> ModelData:
    first = estimates[0]
    counts = [len(words), *(int((e.order.pruned == 0).sum()) for e in estimates[1:])]

    def level(e: Estimate) -> Iterator[Rows]:
        for a in range(0, len(e.order.hi), _BATCH):
            part = slice(a, a + _BATCH)
            stays = e.order.pruned[part] == 0
            hi, lo = e.order.hi[part][stays], e.order.lo[part][stays]
            grams = words_of(hi, lo, e.order.n, bits)
            yield grams, _log10(e.prob[part][stays]), _log10(e.backoff[part][stays])

    firsts, entries = tables(
        counts, (level(e) for e in estimates[1:]), lambda n: mapped(folder / "entries", n, "u8")
    )
    return ModelData(
        tuple(counts), variant, unit, words, _log10(first.prob), _log10(first.backoff), firsts,
        entries, pieces, {k: facts[k] for k in ("sentences", "tokens", "discounts", "pruned")},
    )  # fmt: skip
