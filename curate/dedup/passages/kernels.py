"""Passages of documents: their keys and packing for sketches, and the cuts of what is removed.

A passage is a run of pieces (lines, or sentences). A unit names the pieces, how many of them make a
passage, and the folding of a piece before it is hashed; another unit is another entry of UNITS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.dedup.hashes import digests
from curate.documents.cutting import mark_ends
from curate.documents.documents import NUMBER
from curate.text.compared import compared
from curate.text.folding import LOOK, Folding, ccnet_folding, ccnet_normal, fold, lower_folding
from curate.text.hashing import hash128
from curate.text.lines import Extents, newline_lines, strip_space
from curate.text.sentences import count_words_sentences, sentences
from curate.text.unicode import space_bytes
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.documents.documents import Documents

DEFAULT_HASH = "murmur3-128"
MOST_BYTES = 2**32 - 1  # of a document whose spans 32-bit numbers can say
# States of a piece: without a key, with one, to be folded by Python.
BLANK, WRITTEN, ODD = 0, 1, 2


def lower_normal(piece: str) -> str:
    """`piece.strip().lower()`."""
    return piece.strip().lower()


@dataclass(frozen=True)
class Unit:
    """pieces: the pieces of a batch, in order; folding, normal: the normal form of a piece, on
    bytes and as Python has it; span: pieces a passage, where the settings do not say; lines:
    whether a piece is a line with its newline."""

    pieces: Callable[[Documents], Extents]
    folding: Callable[[], Folding]
    normal: Callable[[str], str]
    span: int
    lines: bool


# Lines as C4's code compares them (c4_utils.py); sentences, for which the C4 paper names no normal
# form, the same way; paragraphs, which are lines as well, as CCNet does.
UNITS = {
    "line": Unit(newline_lines, lower_folding, lower_normal, 1, True),
    "sentences": Unit(sentences, lower_folding, lower_normal, 3, False),
    "paragraph": Unit(newline_lines, ccnet_folding, ccnet_normal, 1, True),
}


@dataclass(frozen=True)
class Passages:
    """rows: int64[rows + 1], the first passage of each row; keys: uint64[passages, 2]; spans:
    uint32[passages, 2], first and last byte (exclusive) in the document."""

    rows: np.ndarray
    keys: np.ndarray
    spans: np.ndarray


@njit(nogil=True)
def _capacity(start, end):
    """Bytes that hold any of the pieces folded."""
    longest = np.int64(0)
    for k in range(len(start)):
        longest = max(longest, end[k] - start[k])
    return 2 * longest + 8


@njit(cache=True, nogil=True)
def _piece_keys(data, start, end, folding, blank, keys, state):
    """Fills keys and states; blank: pieces of which nothing is left have a key too."""
    out = np.empty(_capacity(start, end), np.uint8)
    for k in range(len(start)):
        a, z = strip_space(data, start[k], end[k])
        n = fold(data, a, z, folding, out)
        if n == LOOK:
            state[k] = ODD
        elif n or blank:
            state[k] = WRITTEN
            keys[k, 0], keys[k, 1] = hash128(out, np.int64(0), n)  # type: ignore[arg-type]


@njit(cache=True, nogil=True)
def _folded(data, start, end, folding, blank, state):
    """(out: uint8[], ends: int64[pieces + 1]): the folded pieces one after the other, and their
    states; those that Python must fold are empty here."""
    capacity = np.int64(8)
    for k in range(len(start)):
        capacity += 2 * (end[k] - start[k])
    out = np.empty(capacity, np.uint8)
    ends = np.zeros(len(start) + 1, np.int64)
    at = 0
    for k in range(len(start)):
        a, z = strip_space(data, start[k], end[k])
        n = fold(data, a, z, folding, out[at:])
        if n == LOOK:
            state[k] = ODD
        else:
            state[k] = n > 0 or blank
            at += n
        ends[k + 1] = at
    return out[:at], ends


def _key_of(text: bytes, name: str) -> np.ndarray:
    data = np.frombuffer(bytearray(text), np.uint8)
    return as_keys(digests(data, np.array([0, len(data)], np.int64), name))[0]


def as_keys(hashes: np.ndarray) -> np.ndarray:
    """uint64[rows, 2] of digests: uint8[rows, 8 or 16]; eight bytes, as CCNet has them, are the
    second half."""
    halves = np.ascontiguousarray(hashes).view("<u8")
    if halves.shape[1] == 2:
        return halves
    return np.column_stack([np.zeros(len(halves), np.uint64), halves[:, 0]])


def piece_keys(
    data: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    unit: Unit,
    name: str = DEFAULT_HASH,
    blank: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """(keys: uint64[pieces, 2], written: bool[pieces]): the hash of each piece in normal form; a
    piece of which that leaves nothing has none, unless blank."""
    keys = np.zeros((len(start), 2), np.uint64)
    state = np.zeros(len(start), np.uint8)
    folding = unit.folding()
    if name == DEFAULT_HASH:
        _piece_keys(data, start, end, folding, blank, keys, state)
    else:
        folded, ends = _folded(data, start, end, folding, blank, state)
        keys = as_keys(digests(folded, ends, name))
    odd = np.flatnonzero(state == ODD).tolist()
    if odd:
        keys = keys if keys.flags.writeable else keys.copy()
    for k in odd:
        piece = data[start[k] : end[k]].tobytes().decode("utf-8", "surrogateescape")
        folded = unit.normal(piece).encode("utf-8", "surrogateescape")
        state[k] = bool(folded) or blank
        keys[k] = _key_of(folded, name)
    return keys, state > 0


@njit(cache=True, nogil=True)
def _spans(rows, offsets, start, end, keys, written, span):
    """Passages of `span` written pieces that follow each other; blank ones lie between."""
    n_rows = len(rows) - 1
    out = np.empty(n_rows + 1, np.int64)
    passage_keys = np.empty((len(keys), 2), np.uint64)
    spans = np.empty((len(keys), 2), np.uint32)
    last_pieces = np.empty(span, np.int64)  # the last `span` written pieces
    joined = np.empty(2 * span, np.uint64)
    view = joined.view(np.uint8)
    n = 0
    for r in range(n_rows):
        out[r] = n
        written_pieces = 0
        base = offsets[r]
        for k in range(rows[r], rows[r + 1]):
            if not written[k]:
                continue
            if span == 1:
                passage_keys[n, 0], passage_keys[n, 1] = keys[k, 0], keys[k, 1]
                spans[n, 0], spans[n, 1] = start[k] - base, end[k] - base
                n += 1
                continue
            last_pieces[written_pieces % span] = k
            written_pieces += 1
            if written_pieces < span:
                continue
            for i in range(span):
                piece = last_pieces[(written_pieces + i) % span]
                joined[2 * i], joined[2 * i + 1] = keys[piece, 0], keys[piece, 1]
            passage_keys[n, 0], passage_keys[n, 1] = hash128(view, np.int64(0), 16 * span)  # type: ignore[arg-type]
            spans[n, 0], spans[n, 1] = (
                start[last_pieces[written_pieces % span]] - base,
                end[k] - base,
            )
            n += 1
    out[n_rows] = n
    return out, passage_keys[:n], spans[:n]


def passages(
    docs: Documents,
    unit: str,
    span: int,
    name: str = DEFAULT_HASH,
    blank: bool = False,
    most_bytes: int = MOST_BYTES,
    pieces: Extents | None = None,
    compare: str = "raw",
) -> Passages:
    """All passages of a batch, whose pieces are compared in that form; a document with fewer
    written pieces than a passage has none, and so has an empty one, and one of more than
    `most_bytes`. pieces: without them the unit's."""
    kind = UNITS[unit]
    pieces = kind.pieces(docs) if pieces is None else pieces
    data, offsets = docs.buffers()
    texts = compared(data, pieces.start, pieces.end, compare)
    keys, written = piece_keys(*texts, kind, name, blank)
    size = np.diff(offsets)
    without = size > most_bytes
    if blank and kind.lines:
        without |= size == 0  # such a document has one line
    for row in np.flatnonzero(without).tolist():
        written[pieces.rows[row] : pieces.rows[row + 1]] = False
    return Passages(*_spans(pieces.rows, offsets, pieces.start, pieces.end, keys, written, span))


KEY_BYTES = 16


def packed(values: np.ndarray, rows: np.ndarray) -> pa.LargeBinaryArray:
    """values: [passages, 2] as one value a document; rows: int64[documents + 1]."""
    data = np.ascontiguousarray(values)
    width = data.dtype.itemsize * 2
    buffers = [None, pa.py_buffer(np.ascontiguousarray(rows * width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(rows) - 1, buffers)


def unpacked(column: pa.LargeBinaryArray, dtype: type[np.generic]) -> tuple[np.ndarray, np.ndarray]:
    """The packed values: (values: dtype[passages, 2], rows: int64[documents + 1])."""
    width = np.dtype(dtype).itemsize * 2
    if len(column) == 0:
        return np.empty((0, 2), dtype), np.zeros(1, np.int64)
    _, offsets, data = column.buffers()
    at = np.frombuffer(offsets, np.int64, len(column) + 1, column.offset * 8)
    first, stop = int(at[0]), int(at[-1])
    if first == stop:
        return np.empty((0, 2), dtype), np.zeros(len(column) + 1, np.int64)
    count = (stop - first) // (width // 2)
    values = np.frombuffer(data, dtype, count, first).reshape(-1, 2)
    return values, (at - first) // width


def estimated_passages(metadata: pq.FileMetaData) -> int:
    """About how many passages a file of sketches holds, by its footer alone."""
    at = metadata.schema.names.index("keys")
    groups = range(metadata.num_row_groups)
    size = sum(metadata.row_group(g).column(at).total_uncompressed_size for g in groups)
    return max(metadata.num_rows, size // KEY_BYTES)


NONE = np.uint32(2**32 - 1)


@njit(cache=True, nogil=True)
def drop_repeats(keys, first, last_keys, last_numbers, repeated, keys_out, numbers_out):
    """The number of a group's keys that go on, into keys_out and numbers_out: those that are not
    among the remembered ones. keys: uint64, of the passages from number `first` on; last_keys,
    last_numbers: uint64 and uint32[2^k], the last key and its number by low bits, NONE for none;
    repeated:
    uint8[passages], set for both of equal keys."""
    mask = np.uint64(len(last_keys) - 1)
    count = 0
    for i in range(len(keys)):
        h = np.int64(keys[i] & mask)
        if last_numbers[h] != NONE and last_keys[h] == keys[i]:
            repeated[last_numbers[h]] = 1
            repeated[first + i] = 1
            continue
        last_keys[h] = keys[i]
        last_numbers[h] = np.uint32(first + i)
        keys_out[count] = keys[i]
        numbers_out[count] = np.uint32(first + i)
        count += 1
    return count


@njit(cache=True, nogil=True)
def preferred(order, low, high, preference, copies, run_of, first, last, total):
    """The number of runs of equal keys; keys ascend in `order`: uint32[rows].

    low, high: uint64[rows]; preference: uint64[rows], the least is preferred; copies: int64[rows]
    that a row stands for. Filled are run_of: uint32[rows], and by run first, last: uint32,
    its rows of the least and of the greatest preference, and total: int64, its copies.
    """
    runs = -1
    before = np.uint32(0)
    for i in range(len(order)):
        r = order[i]
        if i == 0 or low[r] != low[before] or high[r] != high[before]:
            runs += 1
            first[runs] = last[runs] = r
            total[runs] = 0
        elif preference[r] < preference[first[runs]]:
            first[runs] = r
        elif preference[r] > preference[last[runs]]:
            last[runs] = r
        total[runs] += copies[r]
        run_of[r] = runs
        before = r
    return runs + 1


# Marks: one more than their positions in step.RULES.
GLOBAL, LOCAL, SPACE = 1, 2, 3


@dataclass(frozen=True)
class Rest:
    """int64[rows] each: pieces that are cut; in documents that lose some, the pieces with more than
    white space that stay and, where they are counted, the words (`str.split`) and sentences."""

    cut: np.ndarray
    pieces: np.ndarray
    words: np.ndarray
    sentences: np.ndarray


def removed_pieces(docs: Documents, pieces: Extents, decisions: pa.Table) -> np.ndarray:
    """uint8[pieces]: GLOBAL or LOCAL for those in a passage that is cut, else 0. A piece in two
    such passages is GLOBAL if one of them is."""
    removed = np.zeros(len(pieces.start), np.uint8)
    cut = decisions.filter(decisions["drop"])
    if cut.num_rows == 0:
        return removed
    _, offsets = docs.buffers()
    row = np.searchsorted(docs.table[NUMBER].to_numpy(), cut["n"].to_numpy())
    base = offsets[row]
    first, last = base + cut["span_start"].to_numpy(), base + cut["span_end"].to_numpy()
    local = cut["local"].to_numpy(zero_copy_only=False)
    _fill(removed, pieces.rows, pieces.start, pieces.end, row, first, last, local)
    return removed


@njit(cache=True, nogil=True)
def _fill(removed, rows, start, end, row, first, last, local):
    """Marks the pieces from byte first[p] to last[p] in row[p]; passages are ordered."""
    for p in range(len(row)):
        # Within the row: an empty line at a document's end stands where the next one begins.
        low, high = rows[row[p]], rows[row[p] + 1]
        k = low + np.searchsorted(start[low:high], first[p])
        while k < high and end[k] <= last[p]:
            if not local[p] or removed[k] == 0:
                removed[k] = LOCAL if local[p] else GLOBAL
            k += 1


@njit(nogil=True)
def _is_blank(data, a, z):
    while a < z:
        n = space_bytes(data, a, z)
        if n == 0:
            return False
        a += n
    return True


@njit(nogil=True)
def _mark_lines(first, stop, start, end, removed, mark, base):
    """The other lines stay, joined by newlines: a line goes with the newline before it,
    and where no line before it stays, with the one behind it."""
    kept = False
    for k in range(first, stop):
        if removed[k] == 0:
            kept = True
            continue
        a, z = start[k], end[k]
        if kept:
            a -= 1
        elif k + 1 < stop:
            z += 1
        mark[a - base : z - base] = removed[k]


@njit(nogil=True)
def _has_newline(data, a, z):
    for i in range(a, z):
        if data[i] == 10:
            return True
    return False


@njit(nogil=True)
def _mark_sentences(data, first, stop, start, end, removed, mark, base):
    """A run of sentences goes with the white space behind it, or with that before it where this
    keeps a line end: `A. [B.]\\nC.` keeps its newline."""
    k = first
    while k < stop:
        if removed[k] == 0:
            k += 1
            continue
        j = k
        while j + 1 < stop and removed[j + 1]:
            j += 1
        for i in range(k, j + 1):
            z = start[i + 1] if i < j else end[i]
            mark[start[i] - base : z - base] = removed[i]
        if j + 1 < stop:
            a, z = end[j], start[j + 1]
            if (
                k > first
                and _has_newline(data, a, z)
                and not _has_newline(data, end[k - 1], start[k])
            ):
                a, z = end[k - 1], start[k]
            mark[a - base : z - base] = removed[k] if z == start[k] else removed[j]
        k = j + 1


@njit(cache=True, nogil=True)
def _mark(data, offsets, rows, start, end, removed, mark, lines, blank, count):
    n_rows = len(offsets) - 1
    base = offsets[0]
    cut = np.zeros(n_rows, np.int64)
    pieces = np.zeros(n_rows, np.int64)
    words = np.zeros(n_rows, np.int64)
    sentences = np.zeros(n_rows, np.int64)
    for r in range(n_rows):
        first, stop = rows[r], rows[r + 1]
        for k in range(first, stop):
            cut[r] += removed[k] > 0
        if cut[r] == 0:
            continue
        for k in range(first, stop):
            if removed[k]:
                continue
            if not count:
                pieces[r] += blank or not _is_blank(data, start[k], end[k])
                continue
            count_of_words, ended = count_words_sentences(data, start[k], end[k])
            pieces[r] += blank or count_of_words > 0
            words[r] += count_of_words
            sentences[r] += ended if lines else count_of_words > 0
        if lines:
            _mark_lines(first, stop, start, end, removed, mark, base)
        else:
            _mark_sentences(data, first, stop, start, end, removed, mark, base)
            mark_ends(data, offsets[r], offsets[r + 1], mark, base, SPACE)
    return cut, pieces, words, sentences


def mark_pieces(
    data: np.ndarray,
    offsets: np.ndarray,
    pieces: Extents,
    removed: np.ndarray,
    mark: np.ndarray,
    *,
    lines: bool,
    blank: bool = False,
    count: bool = True,
) -> Rest:
    """Marks what goes with the gone pieces in mark: uint8[bytes of the batch], and returns what is
    left. lines: the pieces are lines; else sentences, and white space at the ends of a document
    that loses some goes too. blank: a blank piece that stays is one that is left. count: whether
    words and sentences are counted."""
    bounds = (pieces.rows, pieces.start, pieces.end)
    return Rest(*_mark(data, offsets, *bounds, removed, mark, lines, blank, count))
