"""Block lists in memory: sorted 64-bit hashes, 8 bytes an entry, looked up in folded URLs.

Two different entries share a hash once in about 10^13 look-ups for a list of a million; the
reason of a dropped document names what was found in its own URL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curate.filters.url_kernel import Automaton, Folded, automaton, fold_all, normal_word
from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import copy, hash_bytes, place_of

_COMMENT = re.compile(r"(^|\s)#.*")
MOST_HOST = 1024  # bytes; a name has 253 characters (RFC 1035)
BLOCK = 16 << 20  # bytes of a list that are taken up at once
_TRACKING = tuple(np.frombuffer(b, np.uint8) for b in (b"utm_", b"ref", b"feed"))
_UTM, _REF, _FEED = _TRACKING
# What stands before every host in lists made as /etc/hosts.
_NOWHERE = tuple(np.frombuffer(b, np.uint8) for b in (b"0.0.0.0", b"127.0.0.1"))
_ZERO, _LOOP = _NOWHERE


@dataclass(frozen=True)
class Words:
    """Words of one or more lists: text, and whether each is banned, soft or both."""

    patterns: tuple[str, ...]
    banned: np.ndarray
    soft: np.ndarray
    automaton: Automaton


@njit(nogil=True)
def _starts(data, at, end, prefix):
    if at + len(prefix) > end:
        return False
    for k in range(len(prefix)):
        if data[at + k] != prefix[k]:
            return False
    return True


@njit(cache=True, nogil=True)
def _list_lines(data, hosts):
    """(starts, ends, number): the entries of a list and their lines, counted from 0. hosts:
    entries are hosts, so that `*.` and the address of a hosts file are no part of them."""
    lines = 1
    for i in range(len(data)):
        lines += data[i] == 10
    out = np.empty((3, lines), np.int64)
    n = 0
    a = 0
    for number in range(lines):
        z = a
        while z < len(data) and data[z] != 10:
            z += 1
        begin, end = a, z
        a = z + 1
        while begin < end and data[begin] <= 32:
            begin += 1
        for k in range(begin, end):
            if data[k] == 35 and (k == begin or data[k - 1] <= 32):
                end = k
                break
        while end > begin and data[end - 1] <= 32:
            end -= 1
        if hosts:
            for size in (7, 9):
                nowhere = _starts(data, begin, end, _ZERO if size == 7 else _LOOP)
                if nowhere and begin + size < end and data[begin + size] <= 32:
                    begin += size
                    while begin < end and data[begin] <= 32:
                        begin += 1
            if begin + 1 < end and data[begin] == 42 and data[begin + 1] == 46:
                begin += 2
        if begin < end:
            out[0, n], out[1, n], out[2, n] = begin, end, number
            n += 1
    return out[0, :n], out[1, :n], out[2, :n]


@njit(cache=True, nogil=True)
def _gather(data, starts, ends):
    """The pieces data[starts:ends] one behind the other, and their offsets."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    for k in range(len(starts)):
        offsets[k + 1] = offsets[k] + ends[k] - starts[k]
    out = np.empty(offsets[-1], np.uint8)
    for k in range(len(starts)):
        copy(data, starts[k], ends[k], out, offsets[k])
    return out, offsets


@njit(cache=True, nogil=True)
def url_keys(data, start, host_end, path_end):
    """(first, last: int64[rows]): the part of folded URLs by which they are compared: without a
    leading `www.`, from `?utm_`, `?ref` or `?feed` on (as C4), and slashes at the end."""
    first, last = start.copy(), path_end.copy()
    for r in range(len(start)):
        a, host, z = start[r], host_end[r], path_end[r]
        www = host - a > 4 and data[a] == 119 and data[a + 1] == 119 and data[a + 2] == 119
        if www and data[a + 3] == 46:
            first[r] = a + 4
        for k in range(host, z):
            if data[k] == 63 and (
                _starts(data, k + 1, z, _UTM)
                or _starts(data, k + 1, z, _REF)
                or _starts(data, k + 1, z, _FEED)
            ):
                z = k
                break
        while z > host and data[z - 1] == 47:
            z -= 1
        last[r] = z
    return first, last


@njit(cache=True, nogil=True)
def hashes(data, first, last):
    """uint64[rows] of data[first[r]:last[r]]."""
    out = np.empty(len(first), np.uint64)
    for r in range(len(first)):
        out[r] = hash_bytes(data, first[r], last[r])
    return out


@njit(cache=True, nogil=True)
def exact_hits(data, first, last, keys):
    """bool[rows]: whether data[first[r]:last[r]] is in the list (keys: uint64[], sorted)."""
    out = np.zeros(len(first), np.bool_)
    for r in range(len(first)):
        if last[r] > first[r]:
            out[r] = place_of(keys, hash_bytes(data, first[r], last[r])) >= 0
    return out


@njit(cache=True, nogil=True)
def domain_hits(data, first, last, keys):
    """int64[rows]: where the longest suffix of each host starts that is in the list and begins
    with a whole label; -1 where none is."""
    out = np.full(len(first), -1, np.int64)
    for r in range(len(first)):
        a, z = first[r], last[r]
        if z - a > MOST_HOST:  # each suffix of each label would be hashed
            a = z - MOST_HOST
            while a < z and data[a - 1] != 46:
                a += 1
        while a < z:
            if place_of(keys, hash_bytes(data, a, z)) >= 0:
                out[r] = a
                break
            while a < z and data[a] != 46:
                a += 1
            a += 1
    return out


def _blocks(data: bytes) -> list[tuple[int, int]]:
    """(start, end) of blocks of whole lines."""
    blocks, at = [], 0
    while at < len(data):
        end = data.find(b"\n", at + BLOCK)
        end = len(data) if end < 0 else end + 1
        blocks.append((at, end))
        at = end
    return blocks


@njit(cache=True, nogil=True)
def _no_host(data, start, host_end, end):
    """bool[rows]: folded entries that are more than a host (and a slash), or no host at all."""
    out = np.zeros(len(start), np.bool_)
    for r in range(len(start)):
        host, behind = host_end[r], end[r] - host_end[r]
        out[r] = host == start[r] or behind > 1 or (behind == 1 and data[host] != 47)
        for k in range(start[r], host):
            out[r] = out[r] or data[k] <= 32
    return out


def _checked_hosts(folded: Folded, lines: np.ndarray, location: str, label: str) -> None:
    """UsageError where an entry of a host list is no host."""
    wrong = _no_host(folded.data, folded.start, folded.host_end, folded.end)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        entry = folded.text(folded.start[row], folded.end[row])
        raise UsageError(
            f"{label}: {location}:{lines[row] + 1}: {entry[:80]!r} is no host;"
            " addresses of pages go into `urls`"
        )


def _keys(data: bytes, location: str, label: str, hosts: bool) -> list[np.ndarray]:
    parts = []
    before = 0
    for a, z in _blocks(data):
        block = np.frombuffer(data, np.uint8)[a:z]
        starts, ends, lines = _list_lines(block, hosts)
        folded = fold_all(*_gather(block, starts, ends))
        if hosts:
            if len(starts):
                _checked_hosts(folded, lines + before, location, label)
            parts.append(hashes(folded.data, folded.start, folded.host_end))
        else:
            parts.append(hashes(folded.data, *url_keys(*_places(folded))))
        before += int(np.count_nonzero(block == 10))
    return parts


def _places(folded: Folded) -> tuple[np.ndarray, ...]:
    return folded.data, folded.start, folded.host_end, folded.path_end


def key_places(folded: Folded) -> tuple[np.ndarray, np.ndarray]:
    """Where the compared part of every URL begins and ends."""
    first, last = url_keys(*_places(folded))
    return first, last


def host_keys(locations: Sequence[str], sha256: dict[str, str], label: str) -> np.ndarray:
    """uint64[entries], sorted: the domains or hosts of lists. UsageError names a bad line."""
    return _merged(locations, sha256, label, hosts=True)


def address_keys(locations: Sequence[str], sha256: dict[str, str], label: str) -> np.ndarray:
    """uint64[entries], sorted: the URLs of lists."""
    return _merged(locations, sha256, label, hosts=False)


def named_keys(names: Sequence[str], label: str, key: str) -> np.ndarray:
    """uint64[entries], sorted: domains that stand in the settings themselves."""
    data = "\n".join(names).encode("utf-8", "replace")
    parts = _keys(data, key, label, hosts=True)
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.uint64)


def _content(location: str, sha256: dict[str, str], label: str) -> bytes:
    from curate.fetch.file_lists import read_list

    return read_list(location, sha256.get(location), label, f"its sha256 in {label}.sha256")


def _merged(
    locations: Sequence[str], sha256: dict[str, str], label: str, hosts: bool
) -> np.ndarray:
    parts = [np.empty(0, np.uint64)]
    for location in locations:
        data = _content(location, sha256, label)
        parts += _keys(data, location, label, hosts)
    return np.unique(np.concatenate(parts))


def words(
    banned: Sequence[str],
    soft: Sequence[str],
    sha256: dict[str, str],
    label: str,
    between: str = " ",
) -> Words:
    """The words of lists, ready to be looked for; `between` joins the words of one entry."""
    sets: list[set[str]] = []
    for locations in (banned, soft):
        entries_of_lists: set[str] = set()
        for location in locations:
            data = _content(location, sha256, label)
            kept = {normal_word(e, between) for e in _entries(data)} - {""}
            if not kept:
                raise UsageError(f"{label}: no word in {location}")
            entries_of_lists |= kept
        sets.append(entries_of_lists)
    patterns = tuple(sorted(sets[0] | sets[1]))
    marks = [np.array([p in s for p in patterns], np.bool_) for s in sets]
    return Words(patterns, marks[0], marks[1], automaton(patterns))


def _entries(data: bytes) -> list[str]:
    """The entries of a list of words, in the order of the lines. What stands behind `#`, at the
    beginning or behind white space, is a comment."""
    lines = (
        _COMMENT.sub("", line).strip() for line in data.decode("utf-8", "replace").splitlines()
    )
    return [line for line in lines if line]
