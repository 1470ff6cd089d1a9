"""Train n-gram models: number the words on disk, count n-grams in sorted runs, and smooth the
counts.

Memory is bounded by `memory_mib` and the vocabulary; larger data is in files of the folder.

The smoothing is interpolated modified Kneser-Ney (Chen and Goodman 1998, section 3; streaming as in
Heafield et al. 2013): adjusted counts of all orders, discounts, probabilities and back-offs. An
n-gram's adjusted count is its count if it has the highest order or begins with <s>, else the number
of different words before it (Heafield et al. 2013, section 3.2). With adjusted counts a,

p(w | c) = (a(cw) - D(a(cw))) / sum_v a(cv) + g(c) p(w | c without its first word),

where g(c), the back-off of c, is the share taken by discounts and pruned n-grams. The recursion
ends at the uniform distribution over the vocabulary without <s>.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.scoring.perplexity.model_file import ModelData, write_model
from curate.scoring.perplexity.sentences import (
    SPECIAL,
    Sentences,
    Unit,
    Variant,
    Vocabulary,
    VocabularyBuilder,
    load_pieces,
    of_pieces,
    of_words,
    piece_ids,
)
from curate.scoring.perplexity.table import (
    BITS,
    BOS,
    CHUNK,
    Column,
    Rows,
    Sorter,
    context_keys,
    mapped,
    ngram_keys,
    shift_right,
    tables,
    words_of,
)
from llmcurate.base.disk.files import remove
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.kernels import njit

_FILES = (("hi", "u8"), ("lo", "u8"), ("count", "i8"), ("pruned", "u1"))


@dataclass(frozen=True)
class Order:
    """The n-grams of one order, sorted by the last word, then the word before it, and so on. The
    128-bit key of an n-gram holds the numbers of its words."""

    n: int
    hi: np.ndarray  # uint64[n]: upper half of the keys
    lo: np.ndarray  # uint64[n]: lower half of the keys
    count: np.ndarray  # int64[n]: adjusted counts
    pruned: np.ndarray  # uint8[n]: 1 if the model leaves the n-gram out


@njit(nogil=True)
def _effective(hi, lo, order, bits):
    """Return the order of an n-gram after removing all but one of the <s> at its beginning."""
    width = np.uint64(bits)
    mask = (np.uint64(1) << width) - np.uint64(1)
    n = order
    ahi, alo = shift_right(hi, lo, width)  # the second word
    while n > 1 and (alo & mask) == np.uint64(BOS):
        n -= 1
        ahi, alo = shift_right(ahi, alo, width)
    return n


@njit(nogil=True)
def _shared(ahi, alo, bhi, blo, order, bits):
    n = order
    while n > 0:
        xhi, xlo = shift_right(ahi, alo, np.uint64((order - n) * bits))
        yhi, ylo = shift_right(bhi, blo, np.uint64((order - n) * bits))
        if xhi == yhi and xlo == ylo:
            return n
        n -= 1
    return 0


@njit(nogil=True)
def _unknown(hi, lo, n, bits):
    width = np.uint64(bits)
    mask = (np.uint64(1) << width) - np.uint64(1)
    for _ in range(n):
        if lo & mask == 0:
            return True
        hi, lo = shift_right(hi, lo, width)
    return False


@njit(cache=True, nogil=True)
def order_sizes(hi, lo, order, bits):
    """Return the number of different n-grams of each order, int64[order + 1]."""
    sizes = np.zeros(order + 1, np.int64)
    for j in range(len(hi)):
        e = _effective(hi[j], lo[j], order, bits)
        same = _shared(hi[j - 1], lo[j - 1], hi[j], lo[j], order, bits) if j else 0
        for n in range(same + 1, e + 1):
            sizes[n] += 1
    return sizes


@njit(cache=True, nogil=True)
def adjust_order(hi, lo, count, order, bits, n, least, outh, outl, outc, pruned):
    """Fill `outh` and `outl` with the keys of the n-grams of order n, and `outc` with their
    Kneser-Ney adjusted counts (numbers of different words before them). Set `pruned` to 1 for
    n-grams left out of the model: those that occur at most `least` times, and those with <unk>.
    <unk> replaces rare words, so its n-grams would make a text of unknown words probable."""
    k = -1
    plain = 0
    for j in range(len(hi)):
        e = _effective(hi[j], lo[j], order, bits)
        if e < n:
            continue
        same = _shared(hi[j - 1], lo[j - 1], hi[j], lo[j], order, bits) if j else 0
        if same < n:
            if k >= 0:
                pruned[k] = plain <= least or _unknown(outh[k], outl[k], n, bits)
            k += 1
            shift = np.uint64((order - n) * bits)
            outh[k], outl[k] = shift_right(hi[j], lo[j], shift)
            outc[k] = 0
            plain = 0
        plain += count[j]
        if e == n:  # of the highest order, or begins with <s>
            outc[k] += count[j]
        elif same < n + 1:  # another word before it
            outc[k] += 1
    if k >= 0:
        pruned[k] = plain <= least or _unknown(outh[k], outl[k], n, bits)


def adjusted(
    folder: Path,
    hi: np.ndarray,
    lo: np.ndarray,
    count: np.ndarray,
    order: int,
    bits: int,
    prune: Sequence[int],
) -> list[Order]:
    """Return the n-grams of each order from 1 to `order`, with adjusted counts (see the top of this
    file), as files in the folder. `hi`, `lo`: uint64[] and `count`: int64[] are keys and counts of
    the n-grams of order `order`, sorted as in `Order`; a key has `bits` bits per word. n-grams of
    order n that occur at most `prune[n - 1]` times, and those with <unk>, are marked as pruned."""
    sizes = order_sizes(hi, lo, order, bits)
    orders = []
    for n in range(1, order + 1):
        rows = int(sizes[n])
        arrays = [mapped(folder / f"order{n}.{c}", rows, d) for c, d in _FILES]
        adjust_order(hi, lo, count, order, bits, n, prune[n - 1], *arrays)
        orders.append(Order(n, *arrays))
    return orders


@njit(cache=True, nogil=True)
def counts_of_counts(count):
    """Return int64[4]: the number of n-grams with adjusted count 1, 2, 3 and 4."""
    counts = np.zeros(4, np.int64)
    for c in count:
        if 1 <= c <= 4:
            counts[c - 1] += 1
    return counts


Discounts = tuple[float, float, float]
# The discounts of `lmplz --discount_fallback`.
FALLBACK: Discounts = (0.5, 1.0, 1.5)


def discounts(counts: Sequence[int], order: int, fallback: bool = False) -> Discounts:
    """Return the discounts (D1, D2, D3+) of one order. `counts` are the numbers n_k of n-grams with
    adjusted count k = 1, 2, 3 and 4. By Chen and Goodman 1998, equation 26, Y = n_1 / (n_1 + 2 n_2)
    and D_k = k - (k + 1) Y n_{k+1} / n_k for k = 1, 2, 3. If a D_k cannot be computed or is not
    between 0 and k, return FALLBACK if `fallback` is set, otherwise raise RunFailed."""
    why = ""
    values = []
    for k in (1, 2, 3):
        if counts[k - 1] == 0:
            why = f"no {order}-gram has the adjusted count {k}"
            break
        y = counts[0] / (counts[0] + 2 * counts[1])
        values.append(k - (k + 1) * y * counts[k] / counts[k - 1])
        if not 0 <= values[-1] <= k:
            why = f"the discount of {order}-grams with adjusted count {k} would be {values[-1]:.3g}"
            break
    if not why:
        return values[0], values[1], values[2]
    if fallback:
        return FALLBACK
    raise RunFailed(
        f"no Kneser-Ney discounts: {why}; the corpus is too small or repeats itself: give more"
        " text, a lower --order, or --discount-fallback"
    )


@dataclass(frozen=True)
class Estimate:
    """The smoothed model of one order."""

    order: Order
    prob: np.ndarray  # float64[n]: probabilities (order 1: of the whole vocabulary)
    backoff: np.ndarray  # float64[n]: 1 if no word follows the n-gram


@njit(cache=True, nogil=True)
def unigrams(ids, count, vocab, d, prob):
    """Write the probability of each word to `prob`, float64[vocab]. `ids` are the numbers of the
    words that occur, uint64[words], `count` their adjusted counts, int64[words], and `d` the
    discount by count, float64[4]. <s> gets probability 1, because it is never predicted. <unk>,
    number 0, gets the probability of an unseen word, whatever its count."""
    total = 0.0
    taken = 0.0
    for i in range(len(ids)):
        total += count[i]
        taken += count[i] if ids[i] == 0 else d[min(count[i], 3)]
    uniform = taken / total / (vocab - 1)
    prob[:] = uniform
    for i in range(len(ids)):
        if ids[i] != 0:
            prob[ids[i]] = (count[i] - d[min(count[i], 3)]) / total + uniform
    prob[BOS] = 1.0


@njit(cache=True, nogil=True)
def normalize(hi, lo, count, pruned, bits, d, low_hi, low_lo, backoff, share, weight):
    """Compute each n-gram's discounted share in its context (all words but the last), and the
    context's back-off. Return True if all contexts are among the n-grams that are one word shorter.

    Arrays (keys have `bits` bits per word):
        hi, lo          uint64[n]: keys of the n-grams, sorted by context
        count, pruned   int64[n] and uint8[n]: adjusted counts; 1 if the model leaves the n-gram out
        d               float64[4]: discount by count
        low_hi, low_lo  uint64[]: keys of the n-grams one word shorter; empty if these are words
        share           float64[n], written: share of the n-gram in its context
        weight          float64[n], written: back-off of the context, in the row of each n-gram
        backoff         float64[], written: the same back-off, in the row of the shorter n-gram
    """
    width = np.uint64(bits)
    i, n, p = 0, len(hi), np.int64(0)
    while i < n:
        chi, clo = shift_right(hi[i], lo[i], width)
        total = taken = 0.0
        stop = i
        while stop < n:
            xhi, xlo = shift_right(hi[stop], lo[stop], width)
            if xhi != chi or xlo != clo:
                break
            c = count[stop]
            total += c
            taken += c if pruned[stop] else d[min(c, 3)]
            stop += 1
        if len(low_hi) == 0:
            p = np.int64(clo)
        else:
            while p < len(low_hi) and (low_hi[p] != chi or low_lo[p] != clo):
                p += 1
            if p == len(low_hi):
                return False
        backoff[p] = taken / total
        for k in range(i, stop):
            share[k] = 0.0 if pruned[k] else (count[k] - d[min(count[k], 3)]) / total
            weight[k] = taken / total
        i = stop
    return True


@njit(cache=True, nogil=True)
def interpolate(hi, lo, bits, share, weight, low_hi, low_lo, low_prob, prob):
    """Write the probability of each n-gram to `prob`, float64[n]: its discounted relative frequency
    `share`, plus `weight` times the probability `low_prob` of the n-gram without its first word.
    `hi` and `lo` are halves of n-grams' keys, `low_hi` and `low_lo` those of the shorter ones."""
    width = np.uint64(bits)
    p = np.int64(0)
    for i in range(len(hi)):
        shi, slo = shift_right(hi[i], lo[i], width)
        if len(low_hi) == 0:
            p = np.int64(slo)
        else:
            while low_hi[p] != shi or low_lo[p] != slo:
                p += 1
        prob[i] = share[i] + weight[i] * low_prob[p]


def _table(d: Discounts) -> np.ndarray:
    return np.array([0.0, *d])


_KINDS = {"count": "i8", "pruned": "u1", "at": "i8"}


def _by_context(folder: Path, order: Order, bits: int, rows: int) -> list[np.ndarray]:
    sorter = Sorter(folder, f"context{order.n}", order.n * bits, rows, _KINDS)
    for a in range(0, len(order.hi), rows):
        z = min(a + rows, len(order.hi))
        keys = context_keys(order.hi[a:z], order.lo[a:z], order.n, bits)
        sorter.add(*keys, order.count[a:z], order.pruned[a:z], np.arange(a, z))
    names = {"hi": "u8", "lo": "u8", **_KINDS}
    return _sorted(sorter, [Column(folder / f"context{order.n}.{c}", d) for c, d in names.items()])


def _sorted(sorter: Sorter, columns: list[Column]) -> list[np.ndarray]:
    for chunk in sorter.sorted():
        for column, values in zip(columns, chunk[-len(columns) :], strict=True):
            column.append(values)
    sorter.remove()
    arrays = [c.array() for c in columns]
    for column in columns:
        column.remove()
    return arrays


def _to_suffix_order(
    folder: Path, at: np.ndarray, values: tuple[np.ndarray, ...], rows: int
) -> list[np.ndarray]:
    bits = max(1, len(at).bit_length())
    sorter = Sorter(folder, "back", bits, rows, {"share": "f8", "weight": "f8"})
    for a in range(0, len(at), rows):
        z = min(a + rows, len(at))
        key = at[a:z].astype(np.uint64)
        sorter.add(np.zeros(z - a, np.uint64), key, *(v[a:z] for v in values))
    return _sorted(sorter, [Column(folder / f"back.{c}", "f8") for c in ("share", "weight")])


def estimate(
    folder: Path, orders: Sequence[Order], vocab: int, bits: int, fallback: bool, rows: int
) -> tuple[list[Estimate], list[Discounts]]:
    """Return the probabilities and back-offs of all orders, and their discounts. `rows` is the
    number of n-grams to sort in memory at a time. Raises RunFailed if discounts cannot be
    computed."""
    used = [discounts(counts_of_counts(o.count).tolist(), o.n, fallback) for o in orders]
    prob, first = np.empty(vocab), orders[0]
    unigrams(first.lo, first.count, vocab, _table(used[0]), prob)
    none = np.empty(0, np.uint64)
    done = [Estimate(first, prob, np.ones(vocab))]
    for order, d in zip(orders[1:], used[1:], strict=True):
        below = done[-1]
        low_hi, low_lo = (none, none) if order.n == 2 else (below.order.hi, below.order.lo)
        hi, lo, count, pruned, at = _by_context(folder, order, bits, rows)
        n = len(hi)
        share = mapped(folder / "share", n, "f8")
        weight = mapped(folder / "weight", n, "f8")
        (folder / "share").unlink(missing_ok=True)
        (folder / "weight").unlink(missing_ok=True)
        complete = normalize(
            hi, lo, count, pruned, bits, _table(d), low_hi, low_lo, below.backoff, share, weight
        )
        assert complete, "a context without its own n-gram"
        share, weight = _to_suffix_order(folder, at, (share, weight), rows)
        prob = mapped(folder / f"order{order.n}.prob", n, "f8")
        interpolate(order.hi, order.lo, bits, share, weight, low_hi, low_lo, below.prob, prob)
        backoff = mapped(folder / f"order{order.n}.backoff", n, "f8")
        for a in range(0, n, CHUNK):
            backoff[a : a + CHUNK] = 1.0
        done.append(Estimate(order, prob, backoff))
    return done, used


_ROW_BYTES = 128  # memory per n-gram while sorting, with temporary copies
_BATCH = 1 << 16
Texts = Callable[[], Iterable[pa.LargeStringArray]]


@dataclass(frozen=True)
class Smoothing:
    """The settings for estimating a model."""

    order: int = 5
    prune: tuple[int, ...] = (0,)  # largest count to leave out, by order; the last one repeats
    min_count: int = 1  # least count of a word in the vocabulary
    fallback: bool = False  # use FALLBACK if discounts cannot be computed
    memory_mib: int = 1024

    def pruned(self) -> list[int]:
        """Return the largest count to leave out, for each order. Raises UsageError if these counts
        might leave out an n-gram that is part of a longer n-gram in the model."""
        limits = [*self.prune, *[self.prune[-1]] * (self.order - len(self.prune))]
        if len(self.prune) > self.order or limits[0] != 0 or limits != sorted(limits):
            raise UsageError(
                "prune: give at most one number per order, starting with 0 and never falling,"
                " such as 0,0,1"
            )
        return limits


@dataclass(frozen=True)
class Numbered:
    """A corpus on disk, with words as numbers."""

    ids: np.ndarray  # uint32[words]
    ends: np.ndarray  # int64[sentences]: end of each sentence in `ids`
    words: Vocabulary


def number_words(texts: Texts, folder: Path, variant: Variant, unit: Unit, least: int) -> Numbered:
    """Return the corpus with each word replaced by its id. Frequent words have the lower ids. Words
    that occur fewer than `least` times get the id of <unk>."""
    growing = VocabularyBuilder()
    ids, ends = _written(folder, (of_words(t, variant, unit, growing.add) for t in texts()))
    words, new = growing.settled(least)
    return Numbered(_renumbered(ids, new), ends, words)


def number_pieces(texts: Texts, folder: Path, variant: Variant, pieces: bytes) -> Numbered:
    """Return the corpus with each piece (part of a word) replaced by its id. Ids follow the order
    of the SentencePiece model. Strings of the corpus that this model lacks get higher ids."""
    processor = load_pieces(pieces, "--pieces")
    growing = VocabularyBuilder()
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
        raise RunFailed("the input has no words to train on")
    return arrays


def count_ngrams(
    corpus: Numbered, folder: Path, order: int, bits: int, rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the n-grams of the highest order as (hi, lo, count), sorted by the last word first
    (see `Order`): the halves of the keys, uint64[n], and the numbers of occurrences, int64[n]."""
    from curate.scoring.perplexity.table import sort_order

    sorter = Sorter(folder, "ngrams", order * bits, rows, {"count": "i8"})
    ends, s = corpus.ends, 0
    begin = 0
    while s < len(ends):
        stop = int(np.searchsorted(ends, begin + rows, "right"))
        stop = min(max(stop, s + 1), s + rows, len(ends))
        part = np.asarray(corpus.ids[begin : ends[stop - 1]])
        hi, lo = ngram_keys(part, np.asarray(ends[s:stop]) - begin, order, bits)
        for a in range(0, len(hi), rows):
            some_hi, some_lo = hi[a : a + rows], lo[a : a + rows]
            by_key = sort_order(some_hi, some_lo, order * bits)
            ones = np.ones(len(by_key), np.int64)
            sorter.add(*_merged(some_hi[by_key], some_lo[by_key], ones))
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


def _merged(hi: np.ndarray, lo: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, ...]:
    new = np.empty(len(hi), np.bool_)
    new[0] = True
    new[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
    at = np.flatnonzero(new)
    return hi[at], lo[at], np.add.reduceat(count, at)


@dataclass(frozen=True)
class Card:
    """Facts about a model."""

    file: str
    variant: Variant
    unit: Unit
    order: int
    sentences: int
    tokens: int
    vocabulary: int
    pruned: list[int]  # number of n-grams left out, by order
    discounts: list[list[float]]
    counts: list[int]  # number of n-grams in the model, by order
    bytes: int


def train(
    texts: Texts,
    out: Path,
    name: str,
    how: Smoothing,
    variant: Variant,
    unit: Unit,
    pieces: bytes = b"",
) -> Card:
    """Train a model, write out/name and return facts about it. Each call of `texts` returns the
    corpus in batches, from the beginning. `pieces` is the content of a SentencePiece model file, if
    the unit is `pieces`. Raises UsageError for wrong settings, RunFailed for too little text."""
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
        sentences, tokens = len(corpus.ends), len(corpus.ids)
        pruned = [int(o.pruned.sum()) for o in orders]
        rounded = [[round(x, 9) for x in d] for d in used]
        about = {"sentences": sentences, "tokens": tokens, "pruned": pruned, "discounts": rounded}
        counts = [vocab, *(int((e.order.pruned == 0).sum()) for e in estimates[1:])]
        firsts, entries = tables(
            counts,
            (_level(e, bits) for e in estimates[1:]),
            lambda n: mapped(work / "entries", n, "u8"),
        )
        first = estimates[0]
        model = ModelData(
            tuple(counts), variant, unit, corpus.words, _log10(first.prob), _log10(first.backoff),
            firsts, entries, pieces, about,
        )  # fmt: skip
        write_model(out / name, model)
    finally:
        remove(work, inside=out)
    size = (out / name).stat().st_size
    sizes = (how.order, sentences, tokens, vocab)
    return Card(name, variant, unit, *sizes, pruned, rounded, counts, size)


def _log10(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.maximum(np.log10(values), -99.0).astype(np.float32)


def _level(e: Estimate, bits: int) -> Iterator[Rows]:
    for a in range(0, len(e.order.hi), _BATCH):
        part = slice(a, a + _BATCH)
        kept = e.order.pruned[part] == 0
        hi, lo = e.order.hi[part][kept], e.order.lo[part][kept]
        grams = words_of(hi, lo, e.order.n, bits)
        yield grams, _log10(e.prob[part][kept]), _log10(e.backoff[part][kept])
