"""The filter before passages are compared, and how their keys lie in a sketch."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dedup.passages.filter import LARGEST, SMALLEST, Filter
from curate.dedup.passages.owners import packed, unpacked


def keys_of(lows: list[int]) -> np.ndarray:
    return np.column_stack([np.arange(len(lows), dtype=np.uint64), np.array(lows, np.uint64)])


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 40), max_size=30), max_size=4))
def test_what_stands_twice_is_never_missed(batches):
    seen = Filter.of(sum(map(len, batches)))
    for lows in batches:
        seen.add(keys_of(lows))
    counts = Counter(low for lows in batches for low in lows)
    slots = len(seen.slots) * 32
    hit = Counter()
    for low, n in counts.items():
        hit[low % slots] += n
    for lows in batches:
        found = seen.shared(keys_of(lows)).tolist()
        assert found == [k for k, low in enumerate(lows) if hit[low % slots] > 1]
        assert {k for k, low in enumerate(lows) if counts[low] > 1} <= set(found)


def test_of_passages_that_stand_once_one_in_sixteen_goes_on_at_most():
    draw = np.random.default_rng(0)
    lows = draw.integers(0, 2**64, 200_000, dtype=np.uint64)
    keys = np.column_stack([lows, lows])
    seen = Filter.of(len(keys))
    seen.add(keys)
    assert len(seen.shared(keys)) < len(keys) / 16


def test_its_memory_is_bounded():
    assert Filter.of(0).slots.nbytes == SMALLEST // 4
    assert Filter.of(10**6).slots.nbytes <= 2 * 10**6 * 16 // 4
    assert LARGEST // 4 == 256 << 20 and len(Filter.of(10**12).slots) == LARGEST // 32


@given(st.lists(st.integers(0, 5), max_size=8), st.integers(0, 3), st.integers(0, 3))
def test_what_is_packed_comes_back_from_any_slice(counts, left, right):
    rows = np.cumsum([0, *counts]).astype(np.int64)
    for dtype in (np.uint64, np.uint32):
        values = np.arange(2 * rows[-1], dtype=dtype).reshape(-1, 2) * 7
        column = packed(values, rows)
        stop = max(len(counts) - right, left)
        mine = column.slice(left, stop - left)
        found, bounds = unpacked(mine, dtype)
        assert len(bounds) == len(mine) + 1
        for i in range(len(mine)):
            want = values[rows[left + i] : rows[left + i + 1]]
            assert np.array_equal(found[bounds[i] : bounds[i + 1]], want)
