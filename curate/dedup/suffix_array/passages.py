"""Passages: runs of windows that stand behind each other in one region.

Windows come in the order of their text's suffixes, so they are first put into the order of
positions: all of a corpus where they are few, else of a range of it (see merge.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from curate.dedup.suffix_array.windows import Regions, continues, window_end
from llmcurate.base.kernels import njit

_ROOM = 1 << 16
# Of the passage at hand: its region (-1: none), start and end; the region of the copy it equals and
# the copy's start and end; where its own region ends.
_REGION, _START, _END, _OTHER, _FROM, _TO, _STOP = range(7)


@dataclass(frozen=True)
class Passages:
    """int64[passages] each. region: its index; start, end: positions in the regions' text; other:
    the index of the region of the copy it equals, other_start, other_end: positions there."""

    region: np.ndarray
    start: np.ndarray
    end: np.ndarray
    other: np.ndarray
    other_start: np.ndarray
    other_end: np.ndarray


@njit(nogil=True)
def _region_of(at, position):
    """The region that holds a position."""
    low, high = 0, len(at)
    while low + 1 < high:
        middle = (low + high) >> 1
        if at[middle] <= position:
            low = middle
        else:
            high = middle
    return low


@njit(nogil=True)
def _close(state, out, n):
    """Notes the passage at hand."""
    for k in range(6):
        out[n, k] = state[k]
    state[_REGION] = -1
    return n + 1


@njit(cache=True, nogil=True)
def _join(data, firsts, base, begin, at, length, window, chars, total, state, out):
    """Passages of firsts[begin:]; (the position to go on from, how many). A passage goes on while
    windows stand side by side and the first positions of each begin within those before it.

    data: uint8[], looked at only where chars.
    """
    n = 0
    for k in range(begin, len(firsts)):
        p = base + k
        if chars and continues(data[p]):
            continue
        if n + 1 >= len(out):
            return k, n
        first = firsts[k]
        if first < 0 or (state[_REGION] >= 0 and p >= state[_STOP]):
            if state[_REGION] >= 0:
                n = _close(state, out, n)
            if first < 0:
                continue
        region = state[_REGION]
        if region < 0 or not chars:
            end = window_end(data, p, window, chars, total)
        else:  # one character further than the window before
            end = state[_END] + 1
            while end < total and continues(data[end]):
                end += 1
        stop = first + end - p  # equal windows are equally long
        if region >= 0 and state[_FROM] <= first < state[_TO]:  # so in one region too
            state[_END] = end
            state[_FROM] = min(state[_FROM], first)
            state[_TO] = max(state[_TO], stop)
            continue
        if region >= 0:
            n = _close(state, out, n)
        else:
            region = _region_of(at, p)
        state[_REGION], state[_START], state[_END] = region, p, end
        state[_OTHER] = _region_of(at, first)
        state[_FROM], state[_TO] = first, stop
        state[_STOP] = at[region] + length[region]
    return len(firsts), n


def passages(
    windows: Iterable[tuple[np.ndarray, np.ndarray]],
    text: np.ndarray,
    regions: Regions,
    window: int,
    chars: bool,
) -> Iterator[Passages]:
    """Passages in order of their positions. windows: as `merge.repeated` gives them; held are 8
    bytes a position."""
    firsts = np.full(len(text), -1, np.int64)
    for position, first in windows:
        firsts[position] = first
    yield from join([(0, firsts)], text, regions, window, chars)


def join(
    pieces: Iterable[tuple[int, np.ndarray]],
    text: np.ndarray,
    regions: Regions,
    window: int,
    chars: bool,
) -> Iterator[Passages]:
    """Passages in order of their positions. pieces: arrays that lie side by side, (first position,
    first: int64[]): for every position its window's first position, or -1; the first piece begins
    with a region and the last one ends with one."""
    data = text if chars else text[:0].view(np.uint8)
    total = len(text)
    state = np.full(7, -1, np.int64)
    out = np.empty((_ROOM, 6), np.int64)
    for base, firsts in pieces:
        begin = 0
        while begin < len(firsts):
            begin, n = _join(
                data, firsts, base, begin, regions.at, regions.length, window, chars, total, state,
                out,
            )  # fmt: skip
            if n:
                yield Passages(*out[:n].T.copy())
    if state[_REGION] >= 0:
        yield Passages(*state[:6].reshape(1, 6).T.copy())
