"""Compute the keys of passages for sketches, and mark the bytes of removed passages to be cut.

A passage is a run of pieces (lines or sentences). A `Unit` defines the pieces, how many of them
make a passage, and how a piece is folded before it is hashed. To add a unit, add an entry to UNITS.
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
from curate.text.compared import in_form
from curate.text.folding import LOOK, Folding, ccnet_folding, ccnet_normal, fold, lower_folding
from curate.text.hashing import hash128
from curate.text.lines import Extents, longest, newline_lines, strip_space
from curate.text.sentences import count_words_sentences, sentences
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.documents.documents import Documents

DEFAULT_HASH = "murmur3-128"
MOST_BYTES = 2**32 - 1  # of a document, because spans are 32-bit numbers
# States of a piece: it has no key, it has a key, Python must fold it.
BLANK, WRITTEN, ODD = 0, 1, 2


def lower_normal(piece: str) -> str:
    return piece.strip().lower()


@dataclass(frozen=True)
class Unit:
    """A kind of passage, made of pieces (lines or sentences)."""

    pieces: Callable[[Documents], Extents]  # splits the texts of a batch into pieces
    folding: Callable[[], Folding]  # makes the table by which kernels normalise a piece
    normal: Callable[[str], str]  # normalises a piece in Python
    span: int  # the default number of pieces per passage
    lines: bool  # True if a piece is a line with its newline


# Lines are compared as in C4's code (c4_utils.py), paragraphs, which are lines too, as in CCNet.
# The C4 paper names no normal form of sentences; they are compared like lines.
UNITS = {
    "line": Unit(newline_lines, lower_folding, lower_normal, 1, True),
    "sentences": Unit(sentences, lower_folding, lower_normal, 3, False),
    "paragraph": Unit(newline_lines, ccnet_folding, ccnet_normal, 1, True),
}


@dataclass(frozen=True)
class Passages:
    """The passages of a batch of documents."""

    rows: np.ndarray  # int64[documents + 1], the index of each document's first passage
    keys: np.ndarray  # uint64[passages, 2]
    spans: np.ndarray  # uint32[passages, 2], first and last byte (exclusive)


@njit(cache=True, nogil=True)
def _piece_keys(data, start, end, folding, blank, keys, state):
    out = np.empty(2 * longest(start, end) + 8, np.uint8)
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


def as_keys(hashes: np.ndarray) -> np.ndarray:
    """Convert hashes to keys: return uint64[rows, 2] from uint8[rows, 8 or 16]. A hash of eight
    bytes becomes the second half of the key."""
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
    """Hash the normal form of each piece. Returns (keys, written): the hashes (uint64[pieces, 2]),
    and True for each piece that has one (bool[pieces]). A piece with an empty normal form has no
    hash, unless `blank` is True."""
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
        one = np.frombuffer(bytearray(folded), np.uint8)
        keys[k] = as_keys(digests(one, np.array([0, len(one)]), name))[0]
    return keys, state > 0


@njit(cache=True, nogil=True)
def _spans(rows, offsets, start, end, keys, written, span):
    # A passage is `span` successive written pieces; blank pieces between them do not count.
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
    """Return all passages of a batch. A passage is `span` successive pieces (such as lines) of a
    document. Blank pieces are skipped if `blank` is False. A document of more than `most_bytes`
    bytes has no passages. `name` is the name of the hash. `pieces` are the pieces of the texts, by
    default those of `unit`. `compare` is the form in which texts are compared."""
    kind = UNITS[unit]
    pieces = kind.pieces(docs) if pieces is None else pieces
    data, offsets = docs.buffers()
    texts = in_form(data, pieces.start, pieces.end, compare)
    keys, written = piece_keys(*texts, kind, name, blank)
    size = np.diff(offsets)
    without = size > most_bytes
    if blank and kind.lines:
        without |= size == 0  # an empty document still has one line
    for row in np.flatnonzero(without).tolist():
        written[pieces.rows[row] : pieces.rows[row + 1]] = False
    return Passages(*_spans(pieces.rows, offsets, pieces.start, pieces.end, keys, written, span))


KEY_BYTES = 16


def packed(values: np.ndarray, rows: np.ndarray) -> pa.LargeBinaryArray:
    """Pack the values of passages, [passages, 2], into one binary value per document. `rows` is
    int64[documents + 1], the first passage of each document."""
    data = np.ascontiguousarray(values)
    width = data.dtype.itemsize * 2
    buffers = [None, pa.py_buffer(np.ascontiguousarray(rows * width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(rows) - 1, buffers)


def unpacked(column: pa.LargeBinaryArray, dtype: type[np.generic]) -> tuple[np.ndarray, np.ndarray]:
    """Undo `packed`: return (values: dtype[passages, 2], rows: int64[documents + 1])."""
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
    """Estimate the number of passages in a file of sketches from the file's metadata."""
    at = metadata.schema.names.index("keys")
    groups = range(metadata.num_row_groups)
    size = sum(metadata.row_group(g).column(at).total_uncompressed_size for g in groups)
    return max(metadata.num_rows, size // KEY_BYTES)


NONE = np.uint32(2**32 - 1)


@njit(cache=True, nogil=True)
def drop_repeats(keys, first, last_keys, last_numbers, repeated, keys_out, numbers_out):
    """Copy the keys that equal no remembered earlier key. Return the number of copied keys.

    `keys` (uint64) are the keys of passages numbered from `first` on. `last_keys` (uint64[2^k]) and
    `last_numbers` (uint32[2^k]) remember keys and their passages, each at the index made of the
    key's low bits; an empty entry has the number NONE. If two keys are equal, `repeated`
    (uint8[passages]) is set to 1 for both passages. Copied keys and their passages go to `keys_out`
    and `numbers_out`."""
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
    """Group rows by equal keys into runs, and find each run's most and least preferred row. Return
    the number of runs.

    The key of row r is (low[r], high[r]), and `order` sorts the rows by key. The row with the least
    `preference` is the most preferred. A row counts for copies[r] occurrences. Fills `run_of` with
    each row's run, and for each run `first` and `last` (the most and the least preferred row) and
    `total` (the number of occurrences)."""
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


# Values in `removed` and `mark`: one more than a rule's position in repeated_passages.RULES.
GLOBAL, LOCAL, SPACE = 1, 2, 3


@dataclass(frozen=True)
class Remaining:
    """Counts of what each document has left after cuts; each field is int64[documents]. The field
    `cut` is set for all documents, the other fields only for documents that lose pieces."""

    cut: np.ndarray  # pieces that are cut
    pieces: np.ndarray  # remaining pieces that are not blank
    words: np.ndarray  # remaining words (as by `str.split`), if they were counted
    sentences: np.ndarray  # remaining sentences, if they were counted


def removed_pieces(docs: Documents, pieces: Extents, decisions: pa.Table) -> np.ndarray:
    """Return uint8[pieces]: GLOBAL, LOCAL, or 0 for a piece in no cut passage. GLOBAL marks a piece
    in a cut passage that repeats another document (False in the column `local` of `decisions`).
    LOCAL marks a piece that is only in cut passages that repeat their own document."""
    removed = np.zeros(len(pieces.start), np.uint8)
    cut = decisions.filter(decisions["drop"])
    if cut.num_rows == 0:
        return removed
    _, offsets = docs.buffers()
    row = np.searchsorted(docs.table[NUMBER].to_numpy(), cut["n"].to_numpy())
    base = offsets[row]
    first, last = base + cut["span_start"].to_numpy(), base + cut["span_end"].to_numpy()
    local = cut["local"].to_numpy(zero_copy_only=False)
    _mark_removed(removed, pieces.rows, pieces.start, pieces.end, row, first, last, local)
    return removed


@njit(cache=True, nogil=True)
def _mark_removed(removed, rows, start, end, row, first, last, local):
    for p in range(len(row)):
        # Only within the row: an empty last line starts where the next document begins.
        low, high = rows[row[p]], rows[row[p] + 1]
        k = low + np.searchsorted(start[low:high], first[p])
        while k < high and end[k] <= last[p]:
            if not local[p] or removed[k] == 0:
                removed[k] = LOCAL if local[p] else GLOBAL
            k += 1


@njit(nogil=True)
def _mark_lines(first, stop, start, end, removed, mark, base):
    """Mark each removed line with the newline before it, or after it if no earlier line is kept."""
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
    """Mark each run of removed sentences and the white space after it. If only this space has a
    line end, and a kept sentence comes before the run, the space before the run is marked instead,
    to keep the line end: `A. B.\\nC.` becomes `A.\\nC.`"""
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
                a, z = strip_space(data, start[k], end[k])
                pieces[r] += blank or a < z
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
) -> Remaining:
    """Mark the bytes to cut in `mark` (uint8[bytes of the batch]): the removed pieces, and a
    newline or white space beside them. Return what remains of the documents. `lines` is True if
    pieces are lines, False if they are sentences. A document that loses sentences also loses white
    space at both ends. `blank` is True to count kept blank pieces as remaining. `count` is True to
    count words and sentences."""
    bounds = (pieces.rows, pieces.start, pieces.end)
    return Remaining(*_mark(data, offsets, *bounds, removed, mark, lines, blank, count))
