"""The loss mask marks the tokens that count in training. A column of the documents selects them.

The column holds a boolean per document, or a list of the ranges of characters that count. A range
[start, end) is a list or a struct of two integers. The value may also be JSON text. A token counts
if it shares a character with a range. The end-of-text token counts if the last character of the
text counts, or if the whole document counts. The beginning-of-text token never counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.kernels import njit
from tokenize_kit.judge.candidate import Candidate
from tokenize_kit.shards.shard_files import add_edges
from tokenize_kit.shards.texts import Texts


@dataclass(frozen=True)
class Ranges:
    """Ranges of texts that count in training. rows, starts, ends: int64[ranges], the row (text) of
    each range and its bounds in characters; whole: bool[rows], True if all of the text counts."""

    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    whole: np.ndarray


def mask_of(
    texts: Texts,
    name: str,
    candidate: Candidate,
    ids: np.ndarray,
    counts: np.ndarray,
    begin: bool,
    end: bool,
) -> np.ndarray:
    """Return uint8[tokens]: 1 for tokens that count in training. name: the name of `texts.column`.
    ids, counts: the tokens of the texts; begin, end: True if a token is added at the beginning or
    end of each document. Raises LlmcurateError naming a document with an invalid value."""
    assert texts.column is not None
    ranges = read_ranges(texts.column, name, texts)
    starts, ends = _in_bytes(ranges, name, texts)
    whole = np.flatnonzero(ranges.whole)
    first, last = texts.offsets[:-1], texts.offsets[1:]
    starts, ends = np.append(starts, first[whole]), np.append(ends, last[whole])
    row_of = np.append(ranges.rows, whole)
    full = starts < ends
    starts, ends, row_of = starts[full], ends[full], row_of[full]
    closed = ranges.whole.copy()
    closed[row_of[ends == last[row_of]]] = True
    order = np.argsort(starts)
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    token_starts, token_ends = candidate.spans(texts.data, texts.offsets, ids, counts)
    before = np.searchsorted(starts, token_ends, "left")  # ranges that begin before a token's end
    reach = np.append(reach, -1)  # index -1: no range
    counted = (reach[before - 1] > token_starts) & (token_ends > token_starts)
    edges = (0 if begin else None, 0 if end else None)
    mask, lengths = add_edges(counted, counts, *edges, np.dtype(np.uint8))
    if end:
        mask[np.cumsum(lengths) - 1] = closed
    return mask


def read_ranges(column: pa.Array, name: str, texts: Texts) -> Ranges:
    """Read the ranges in the column. Raises LlmcurateError for a wrong type or an invalid value."""
    if column.null_count:
        raise _mask_error(texts, int(column.is_null().index(True).as_py()), name, "null: give true")
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        kind = column.type
        raise UsageError(
            f"column {name!r} is of the type {kind}: give booleans, or lists of [start, end)"
        )
    ranges: list[tuple[int, int, int]] = []
    whole = np.zeros(len(column), np.bool_)
    for row, value in enumerate(column.to_pylist()):
        parsed: Any = value
        if isinstance(value, str):
            try:
                parsed = json.loads(value)
            except ValueError:
                raise _mask_error(texts, row, name, "not JSON") from None
        if isinstance(parsed, bool):
            whole[row] = parsed
            continue
        if not isinstance(parsed, list):
            raise _mask_error(texts, row, name, "not a list")
        for pair in parsed:
            positions = [*pair.values()] if isinstance(pair, dict) else pair
            is_range = isinstance(positions, list) and len(positions) == 2
            if not (is_range and all(map(_is_position, positions))):
                raise _mask_error(
                    texts, row, name, f"{json.dumps(pair, default=str)[:40]} is not [start, end)"
                )
            ranges.append((row, *positions))
    rows, starts, ends = np.array(ranges, np.int64).reshape(-1, 3).T
    return Ranges(rows, starts, ends, whole)


def _is_position(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62


def _in_bytes(ranges: Ranges, name: str, texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    rows, chars = np.tile(ranges.rows, 2), np.append(ranges.starts, ranges.ends)
    order = np.lexsort((chars, rows))
    positions = np.empty(len(rows), np.int64)
    positions[order] = _positions(texts.data, texts.offsets, rows[order], chars[order])
    starts, ends = np.split(positions, 2)
    wrong = np.flatnonzero((starts < 0) | (ends < 0) | (starts > ends))
    if len(wrong):
        k = int(wrong[0])
        reason = f"[{ranges.starts[k]}, {ranges.ends[k]}) is not within the text's characters"
        raise _mask_error(texts, int(ranges.rows[k]), name, reason)
    return starts, ends


@njit(cache=True, nogil=True)
def _positions(data, offsets, rows, chars):
    """Return int64[], the byte position of character chars[i] (a number) in row rows[i] (a text).
    The number of characters in a row gives the row's end; numbers outside the row give -1. Rows
    must be sorted, and the numbers of a row, too."""
    positions = np.full(len(rows), -1, np.int64)
    k = 0
    while k < len(rows):
        row = rows[k]
        while k < len(rows) and rows[k] == row and chars[k] < 0:
            k += 1
        number = 0
        for at in range(offsets[row], offsets[row + 1]):
            if data[at] & 0xC0 != 0x80:
                while k < len(rows) and rows[k] == row and chars[k] == number:
                    positions[k] = at
                    k += 1
                number += 1
        while k < len(rows) and rows[k] == row:
            if chars[k] == number:
                positions[k] = offsets[row + 1]
            k += 1
    return positions


def _mask_error(texts: Texts, row: int, name: str, reason: str) -> LlmcurateError:
    return RunFailed(f"document {texts.names['id'][row]}: its {name} is wrong: {reason}")
