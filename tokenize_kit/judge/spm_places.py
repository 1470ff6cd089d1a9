"""Where SentencePiece's tokens come from, out of its serialized SentencePieceText.

All versions write that message, and it counts in bytes of the text; the wrappers that read it
differ between versions, or need protobuf (sentencepiece.proto, fields `pieces`, `begin`, `end`).
"""

from __future__ import annotations

import numpy as np

from kernel_cache import njit

_PIECES, _BEGIN, _END = 2, 4, 5
_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types


@njit(nogil=True)
def _varint(data, at):
    """(value, place behind it); the place is -1 where the message ends within it."""
    value, shift = np.int64(0), np.int64(0)
    while at < len(data) and shift < 63:
        byte = np.int64(data[at])
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at
    return np.int64(0), -1


@njit(nogil=True)
def _skip(data, at, wire):
    """The place behind a field's value; -1 for a value that is none."""
    if wire == _NUMBER:
        return _varint(data, at)[1]
    if wire == _EIGHT:
        return at + 8
    if wire == _FOUR:
        return at + 4
    if wire == _BYTES:
        size, at = _varint(data, at)
        return at + size if at >= 0 else -1
    return -1


@njit(cache=True, nogil=True)
def piece_places(message):
    """int64[pieces, 2]: first byte and the one behind the last; message: uint8[].

    A row of -1 ends what a message of another form gives.
    """
    places = np.empty((len(message) // 2 + 1, 2), np.int64)
    count = 0
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if at >= 0 and tag == (_PIECES << 3 | _BYTES):
            size, at = _varint(message, at)
            end = at + size
            begin, stop = np.int64(0), np.int64(0)
            while 0 <= at < end:
                tag, at = _varint(message, at)
                if at < 0:
                    break
                if tag == (_BEGIN << 3 | _NUMBER):
                    begin, at = _varint(message, at)
                elif tag == (_END << 3 | _NUMBER):
                    stop, at = _varint(message, at)
                else:
                    at = _skip(message, at, tag & 7)
            places[count] = begin, stop
            count += 1
        elif at >= 0:
            at = _skip(message, at, tag & 7)
        if at < 0 or at > len(message):
            places[count - 1 if count else 0] = -1, -1
            return places[: max(count, 1)]
    return places[:count]
