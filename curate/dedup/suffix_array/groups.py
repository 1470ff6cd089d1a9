"""All places of each window that stands more than once: the chunks' orders merged.

The orders are read side by side through a heap of their heads. Where the first head's window stands
at the head of several orders, all its places are the beginnings of these orders.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curate.dedup.suffix_array.sort import SAME
from curate.dedup.suffix_array.windows import order_of, same_window, window_end
from kernel_cache import njit

PLACE = ~SAME
FLUSH = 1 << 20  # places that are told at a time
# Where a merge stands between two calls: orders in the heap, orders of the group at hand, the one
# of them that is told, and the group's first and second place.
_HEAP, _GROUP, _AT, _FIRST, _SECOND = range(5)


@njit(nogil=True, inline="always")
def _place(places, bases, next_, s):
    return bases[s] + np.int64(places[next_[s]] & PLACE)


@njit(nogil=True)
def _before(data, places, bases, next_, s, t, window, width, chars):
    """Whether order s comes before order t, by their heads' windows, then by number."""
    found = order_of(
        data,
        _place(places, bases, next_, s),
        _place(places, bases, next_, t),
        window,
        width,
        chars,
    )
    return found < 0 or (found == 0 and s < t)


@njit(nogil=True)
def _push(data, places, bases, next_, heap, n, s, window, width, chars):
    """Adds order s to a heap of n orders."""
    k = n
    while k > 0:
        up = (k - 1) >> 1
        if not _before(data, places, bases, next_, s, heap[up], window, width, chars):
            break
        heap[k] = heap[up]
        k = up
    heap[k] = s


@njit(nogil=True)
def _pop(data, places, bases, next_, heap, n, window, width, chars):
    """Takes the first order off a heap of n orders."""
    top = heap[0]
    s = heap[n - 1]
    n -= 1
    k = 0
    while 2 * k + 1 < n:
        down = 2 * k + 1
        if down + 1 < n and _before(
            data, places, bases, next_, heap[down + 1], heap[down], window, width, chars
        ):
            down += 1
        if not _before(data, places, bases, next_, heap[down], s, window, width, chars):
            break
        heap[k] = heap[down]
        k = down
    heap[k] = s
    return top


@njit(cache=True, nogil=True)
def _start(data, places, bases, next_, stops, heap, window, width, chars):
    """Makes the heap of all orders that hold something; how many."""
    n = np.int64(0)
    for s in range(len(bases)):
        if next_[s] < stops[s]:
            _push(data, places, bases, next_, heap, n, s, window, width, chars)
            n += 1
    return n


@njit(nogil=True)
def _run(places, a, stop):
    """Where the windows equal to that of places[a] end in this order."""
    z = a + 1
    while z < stop and places[z] & SAME:
        z += 1
    return z


@njit(cache=True, nogil=True)
def _merge(
    data, places, bases, next_, stops, heap, group, ends, state, window, width, chars, all_, own,
    out_place, out_first,
):  # fmt: skip
    """Fills out_place, out_first with places that go; how many, 0 where all is told.

    all_: all places of a window go, else all but the first and those that overlap it; own: places
    before it stay in any case.
    """
    n = 0
    while True:
        while state[_AT] < state[_GROUP]:
            s = group[state[_AT]]
            first, second = state[_FIRST], state[_SECOND]
            stop = np.int64(0)
            if not all_:
                stop = first + window
                if chars and second < first + 4 * window:  # else nothing can overlap it
                    stop = window_end(data, first, window, chars, np.int64(len(data)))
            while next_[s] < ends[s]:
                if n == len(out_place):
                    return n
                p = _place(places, bases, next_, s)
                next_[s] += 1
                if p < own or (not all_ and p < stop):
                    continue
                out_place[n] = p
                out_first[n] = first if p != first else second
                n += 1
            if next_[s] < stops[s]:
                _push(data, places, bases, next_, heap, state[_HEAP], s, window, width, chars)
                state[_HEAP] += 1
            state[_AT] += 1
        if state[_HEAP] == 0:
            return n
        state[_GROUP] = state[_AT] = 0
        lead = np.int64(-1)
        first = second = np.int64(2**62)
        count = 0
        while state[_HEAP] > 0:
            if lead >= 0 and not same_window(
                data, lead, _place(places, bases, next_, heap[0]), window, width, chars
            ):
                break
            s = _pop(data, places, bases, next_, heap, state[_HEAP], window, width, chars)
            state[_HEAP] -= 1
            lead = _place(places, bases, next_, s)
            ends[s] = _run(places, next_[s], stops[s])
            for k in range(next_[s], ends[s]):
                p = bases[s] + np.int64(places[k] & PLACE)
                if p < first:
                    first, second = p, first
                elif p < second:
                    second = p
            count += ends[s] - next_[s]
            group[state[_GROUP]] = s
            state[_GROUP] += 1
        state[_FIRST], state[_SECOND] = first, second
        if count == 1:
            s = group[0]
            next_[s] = ends[s]


def repeated(
    text: np.ndarray,
    places: np.ndarray,
    bases: list[int],
    counts: list[int],
    window: int,
    chars: bool,
    all_: bool,
    own: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(place, first: int64[]) of the windows that go, in no useful order; first: the first place of
    the same window, and for that place itself the second one.

    text: uint8[], uint16[] or uint32[], of the regions; places: uint32[], of each order all or what
    lies between two windows, one behind the other; bases: as Orders has them; counts: places of
    each order; all_: every place of a window that stands twice goes, else all but the first and
    those that overlap it; own: windows before this place stay.
    """
    k = max(1, len(bases))
    width = text.dtype.itemsize
    data = text.view(np.uint8)
    starts = np.array(bases, np.int64)
    stops = np.cumsum(np.array(counts, np.int64), dtype=np.int64)
    next_ = stops - np.array(counts, np.int64)
    heap, group, ends = (np.zeros(k, np.int64) for _ in range(3))
    state = np.zeros(5, np.int64)
    state[_HEAP] = _start(data, places, starts, next_, stops, heap, window, width, chars)
    while True:
        place, first = np.empty(FLUSH, np.int64), np.empty(FLUSH, np.int64)
        n = _merge(
            data, places, starts, next_, stops, heap, group, ends, state, window, width, chars,
            all_, own, place, first,
        )  # fmt: skip
        if n == 0:
            return
        yield place[:n], first[:n]
