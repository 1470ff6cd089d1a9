"""Find candidates for personal data: bytes that may belong to an address or number. The rules in
pii.py judge each candidate by the text around it. A page without candidates is read only once."""

from __future__ import annotations

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import copy

EMAIL, IPV4, IPV6 = range(3)
_DIGIT, _AT, _COLON, _WIDE = 1, 2, 3, 4
_KIND = np.zeros(256, np.uint8)
_KIND[ord("0") : ord("9") + 1] = _DIGIT
_KIND[ord("@")] = _AT
_KIND[ord(":")] = _COLON
_KIND[0xEF] = _WIDE  # the first byte of the wide at sign, U+FF20
_HEX = np.zeros(256, np.bool_)
_HEX[[ord(c) for c in "0123456789abcdefABCDEF"]] = True
_OF_ADDRESS = _KIND != 0
_OF_NUMBER = _KIND == _DIGIT
_ONE = np.uint64(1)  # unsigned positions are not checked for being negative: see text/tables.py
_WORD = np.zeros(256, np.bool_)
_WORD[[c for c in range(128) if chr(c).isalnum() or chr(c) == "_"]] = True
# Bytes that may end a local part, and ASCII bytes of a domain's first label.
_LOCAL, _LABEL = _WORD | (np.arange(256) > 127), _WORD.copy()
_LOCAL[[ord("+"), ord("-")]] = _LABEL[ord("-")] = True
# ASCII separators between the digits of a number. No-break spaces, hyphens and dashes in UTF-8 are
# found by `_gap_bytes`.
_GAP = np.zeros(256, np.bool_)
_GAP[[ord(c) for c in " ()-./"]] = True
_MAX_GAP = 3
_LONGEST_IPV6 = 45


@njit(nogil=True, allocates=True)
def _room(array, n):
    if n < array.shape[1]:
        return array
    larger = np.empty((array.shape[0], 2 * array.shape[1]), array.dtype)
    for k in range(array.shape[0]):
        copy(array[k], 0, n, larger[k], 0)
    return larger


@njit(nogil=True)
def _skip(data, i, stop, kinds):
    """Return the first position from i on whose byte is in `kinds` (bool[256]), or `stop`. Written
    in a caller that assigns new arrays, this loop is slower: numba counts references in the
    loop."""
    at, end = np.uint64(i), np.uint64(stop)
    while at < end and not kinds[data[at]]:
        at += _ONE
    return np.int64(at)


@njit(nogil=True)
def _quad_end(data, i, stop):
    for group in range(4):
        first = i
        while i < stop and i - first < 4 and _KIND[data[i]] == _DIGIT:
            i += 1
        if i == first or i - first > 3:
            return 0
        if group < 3:
            if i >= stop or data[i] != 46:
                return 0
            i += 1
    if i < stop and _WORD[data[i]]:
        return 0
    longer = i + 1 < stop and data[i] == 46 and _KIND[data[i + 1]] == _DIGIT
    return 0 if longer else i


@njit(nogil=True)
def _ipv6_end(data, first, begin, i, stop):
    if first > begin and (_WORD[data[first - 1]] or data[first - 1] == 58):
        return 0
    colons = 0
    while i < stop and i - first <= _LONGEST_IPV6 and (_HEX[data[i]] or data[i] == 58):
        colons += data[i] == 58
        i += 1
    if colons < 2 or i - first > _LONGEST_IPV6 or (i < stop and _WORD[data[i]]):
        return 0
    return i


@njit(cache=True, nogil=True)
def find_addresses(data, offsets):
    """Return the candidates for e-mail and IP addresses as int64[4, found]: row, start, end and
    kind (EMAIL, IPV4, IPV6), sorted by row and start. Of an EMAIL, only the at sign is found."""
    out = np.empty((4, 256), np.int64)
    n = np.int64(0)
    for r in range(len(offsets) - 1):
        begin, stop = offsets[r], offsets[r + 1]
        i = _skip(data, begin, stop, _OF_ADDRESS)
        while i < stop:
            kind = _KIND[data[i]]
            first, end, address_kind = i, i + 1, -1
            if kind == _AT:
                while end < stop and _LABEL[data[end]]:
                    end += 1
                domain = end < stop and (data[end] > 127 or (data[end] == 46 and end > i + 1))
                end = i + 1
                if domain and i > begin and _LOCAL[data[i - 1]]:
                    address_kind = EMAIL
            elif kind == _WIDE:
                if i + 2 < stop and data[i + 1] == 0xBC and data[i + 2] == 0xA0:
                    end, address_kind = i + 3, EMAIL
            elif kind == _DIGIT:
                behind_word = i > begin and (_WORD[data[i - 1]] or data[i - 1] == 46)
                last = 0 if behind_word else _quad_end(data, i, stop)
                if last:
                    end, address_kind = last, IPV4
                else:
                    while end < stop and _KIND[data[end]] == _DIGIT:
                        end += 1
            else:
                while first > begin and i - first < 5 and _HEX[data[first - 1]]:
                    first -= 1
                if i - first == 4:
                    last = _ipv6_end(data, first, begin, i, stop)
                    if last:
                        end, address_kind = last, IPV6
            if address_kind >= 0:
                out = _room(out, n)
                out[0, n], out[1, n], out[2, n], out[3, n] = r, first, end, address_kind
                n += 1
            i = _skip(data, end, stop, _OF_ADDRESS)
    return out[:, :n].copy()


@njit(nogil=True)
def _gap_bytes(data, i, stop):
    b = data[i]
    if _GAP[b]:
        return 1
    if b == 0xC2 and i + 1 < stop and data[i + 1] == 0xA0:
        return 2
    if b == 0xE2 and i + 2 < stop and data[i + 1] == 0x80:
        c = data[i + 2]
        return 3 if 0x90 <= c <= 0x93 or c == 0xAF else 0
    return 0


@njit(nogil=True)
def _number_end(data, i, stop):
    count, last, gap = 0, i, 0
    while i < stop and gap <= _MAX_GAP:
        if _KIND[data[i]] == _DIGIT:
            count += 1
            gap = 0
            i += 1
            last = i
            continue
        size = _gap_bytes(data, i, stop)
        if size == 0:
            break
        gap += 1
        i += size
    return last, count


@njit(cache=True, nogil=True)
def find_numbers(data, offsets, digits):
    """Return int64[3, found]: the row, start and end of each number of at least `digits` digits.
    Between two digits there may be up to _MAX_GAP separators."""
    out = np.empty((3, 256), np.int64)
    n = np.int64(0)
    for r in range(len(offsets) - 1):
        begin, stop = offsets[r], offsets[r + 1]
        i = _skip(data, begin, stop, _OF_NUMBER)
        while i < stop:
            first = i
            while first > begin and i - first < 2 and (data[first - 1] in (40, 43)):
                first -= 1
            last, count = _number_end(data, i, stop)
            if count >= digits:
                out = _room(out, n)
                out[0, n], out[1, n], out[2, n] = r, first, last
                n += 1
            i = _skip(data, last, stop, _OF_NUMBER)
    return out[:, :n].copy()
