"""The parts of suffix-array dedup against plain Python."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from curate.corpus.sketches import run_here
from curate.dedup.suffix_array import windows
from curate.dedup.suffix_array.merge import (
    REGIONS,
    SAME,
    TEXT,
    Orders,
    RegionText,
    find_cuts,
    find_passages,
    passages,
    repeated,
    sort,
    suffix_array,
    window_of,
)
from curate.dedup.suffix_array.windows import Regions, RegionsWriter, Sieve, find_regions, preferred
from llmcurate.base.messages import Task

TEXTS = st.lists(st.text("abé日", max_size=20), min_size=1, max_size=5)
CHECK = settings(deadline=None, max_examples=60)


@njit
def _end(data, i, window, chars, stop):
    return windows.window_end(data, i, window, chars, stop)


@njit
def _same(data, i, j, window, width, chars):
    return windows.same_window(data, i, j, window, width, chars)


@njit
def _order(data, i, j, window, width, chars):
    return windows.order_of(data, i, j, window, width, chars)


def buffers(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    data = [t.encode() for t in texts]
    joined = np.frombuffer(b"".join(data), np.uint8).copy()
    return joined, np.cumsum([0, *map(len, data)]).astype(np.int64)


def window_at(text: str, at: int, window: int) -> bytes | None:
    """The window of so many characters that starts at a byte; None where there is none."""
    data = text.encode()
    if at < len(data) and (data[at] & 0xC0) == 0x80:
        return None
    letters = data[at:].decode()[:window]
    return letters.encode() if len(letters) == window else None


@CHECK
@given(st.text("aé日😀", max_size=40), st.integers(1, 20))
def test_windows_agree_with_python_slices(text, window):
    data = np.frombuffer(text.encode() + b" ", np.uint8)[:-1]
    positions = [i for i in range(len(data)) if window_at(text, i, window) is not None]
    for i in range(len(data)):
        want = window_at(text, i, window)
        if (data[i] & 0xC0) != 0x80:
            window_end = _end(data, i, window, True, len(data))
            assert window_end == (-1 if want is None else i + len(want))
    for i in positions:
        for j in positions:
            a, b = window_at(text, i, window), window_at(text, j, window)
            assert _same(data, i, j, window, 1, True) == (a == b)
            assert _order(data, i, j, window, 1, True) == (a > b) - (a < b)


@CHECK
@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 12))
def test_windows_of_tokens_compare_by_their_bytes(tokens, window):
    for dtype in (np.uint16, np.uint32):
        text = np.array(tokens, dtype) * 255
        data = np.frombuffer(text.tobytes(), np.uint8)
        for i in range(len(text) - window + 1):
            for j in range(len(text) - window + 1):
                a, b = (text[k : k + window].tobytes() for k in (i, j))
                assert _same(data, i, j, window, text.itemsize, False) == (a == b)
                assert _order(data, i, j, window, text.itemsize, False) == (a > b) - (a < b)


@CHECK
@given(TEXTS, st.integers(1, 12))
def test_the_sieve_passes_every_repeated_window(texts, window):
    data, offsets = buffers(texts)
    sieve = Sieve(window, len(data))
    for k in range(len(texts)):  # one document after the other
        sieve.count(data, offsets[k : k + 2])
    marks = sieve.passing(data, offsets)
    seen: dict[bytes, list[int]] = {}
    for k, text in enumerate(texts):
        for i in range(offsets[k], offsets[k] + len(text.encode()) - window + 1):
            seen.setdefault(data[i : i + window].tobytes(), []).append(i)
    for positions in seen.values():
        assert len(positions) < 2 or marks[positions].all()


def test_the_sieve_rejects_most_unique_windows():
    data = np.random.default_rng(1).integers(0, 256, 300_000).astype(np.uint8)
    data[200_000:201_000] = data[1000:2000]
    offsets = np.array([0, len(data)], np.int64)
    sieve = Sieve(100, len(data))
    sieve.count(data, offsets)
    marks = sieve.passing(data, offsets)
    assert marks[1000:1901].all() and marks[200_000:200_901].all()
    assert marks.sum() < 1802 + 0.01 * len(data)


@CHECK
@given(TEXTS, st.integers(1, 6), st.booleans(), st.randoms(use_true_random=False))
def test_regions_are_the_unions_of_marked_windows(texts, window, chars, draw):
    data, offsets = buffers(texts)
    marks = np.array([draw.random() < 0.3 for _ in data], np.bool_)
    want = []
    for r, text in enumerate(texts):
        size = len(text.encode())
        for i in range(size):
            if chars:
                cut = window_at(text, i, window)
                end = None if cut is None else i + len(cut)
            else:
                end = i + window if i + window <= size else None
            if end is None or not marks[offsets[r] + i]:
                continue
            if want and want[-1][0] == r and i <= want[-1][2]:
                want[-1][2] = end
            else:
                want.append([r, i, end])
    rows, start, end = find_regions(data, offsets, marks, window, chars)
    base = offsets[rows]
    assert np.stack([rows, start - base, end - base], axis=1).tolist() == want


def regions_of(texts: list[str], folder: Path, window: int, chars: bool = False) -> RegionText:
    data, offsets = buffers(texts)
    writer = RegionsWriter(folder / TEXT, window, chars)
    writer.add(0, data, offsets, np.ones(len(data), np.bool_))
    writer.close().save(folder / REGIONS)
    return RegionText(folder, "|u1", window, chars)


def unused(function: str, tasks: list[Task], result: Any) -> Iterator[tuple[Task, Any]]:
    assert tasks == []
    return iter(())


def repeated_of(of: RegionText, orders: Orders) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The windows that go, of all orders at once."""
    held = orders.part([0] * len(orders.counts), orders.counts, of.folder / "held")
    text = of.text().values
    return repeated(text, held, orders.bases, orders.counts, of.window, of.chars, False, 0)


def test_regions_move_into_the_order_of_preference(tmp_path):
    of = regions_of(["aaaa", "x", "bbbbb", "cccc"], tmp_path, 3)
    text = of.text().values
    moved = preferred(of.regions(), np.array([2, 9, 0, 1]), text, tmp_path / "moved")
    assert (tmp_path / "moved").read_bytes() == b"bbbbbccccaaaa"
    assert moved.document.tolist() == [2, 3, 0] and moved.at.tolist() == [0, 5, 9]
    assert moved.start.tolist() == [0, 0, 0] and moved.length.tolist() == [5, 4, 4]
    moved.save(tmp_path / "saved")
    again = Regions.load(tmp_path / "saved")
    assert again.at.tolist() == moved.at.tolist() and again.symbols == 13


@CHECK
@given(st.binary(max_size=60))
def test_suffixes_are_ordered_by_their_bytes(data):
    order = suffix_array(np.frombuffer(data, np.uint8))
    assert order.tolist() == sorted(range(len(data)), key=lambda i: data[i:])


def test_more_than_libdivsufsort_can_take_is_refused():
    class Long:
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(ValueError, match="too many"):
        suffix_array(Long())  # type: ignore[arg-type]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.text("ab", max_size=20), min_size=1, max_size=5), st.integers(1, 8))
def test_chunks_and_tasks_merge_to_what_one_of_each_gives(tmp_path_factory, texts, window):
    """And a sort that goes on in the same folder finds what is done."""
    outcomes = []
    for room, size in ((1, 7), (400, 20), (1 << 20, 1 << 20)):
        of = regions_of(texts, tmp_path_factory.mktemp("orders"), window)
        total = of.regions().symbols
        sort(run_here, of, total, room)
        orders = sort(unused, of, total, room)
        whole = of.text().values.tobytes()
        for chunk, (base, count) in enumerate(zip(orders.bases, orders.counts, strict=True)):
            held = np.fromfile(orders.path(chunk), np.uint32)
            keys = [whole[p : p + window] for p in base + (held & ~SAME).astype(int)]
            assert len(held) == count and keys == sorted(keys)
            same = [k > 0 and keys[k] == keys[k - 1] for k in range(count)]
            assert same == (held & SAME != 0).tolist()
        pairs = sorted(
            (int(p), int(f)) for a, b in repeated_of(of, orders) for p, f in zip(a, b, strict=True)
        )
        joined = [list(find_passages(run_here, of, orders, False, 0, s)) for s in (size, 1 << 20)]
        joined.append(list(find_passages(unused, of, orders, False, 0, size)))
        rows = [
            [row for p in parts for row in zip(*vars(p).values(), strict=True)] for parts in joined
        ]
        assert rows[0] == rows[1] == rows[2]
        outcomes.append((pairs, rows[0]))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    for p, first in outcomes[0][0]:
        assert whole[p : p + window] == whole[first : first + window] and first + window <= p


def test_one_window_at_millions_of_positions_is_given_in_parts(tmp_path):
    of = regions_of(["a" * 2_500_000], tmp_path, 20)
    orders = sort(run_here, of, 2_500_000, 1 << 26)
    parts = list(repeated_of(of, orders))
    assert len(parts) == 3 and len(orders.bases) == 1
    assert sum(len(p) for p, _ in parts) == 2_500_000 - 19 - 20
    chunks = list(passages(parts, of.text().values, of.regions(), 20, False))
    assert [p.start.tolist() for p in chunks] == [[20]] and chunks[0].end.tolist() == [2_500_000]
    # One range of positions and one cut, however small a task may be; positions in a file.
    (whole,) = find_passages(run_here, of, orders, False, 0, 500_000, held_positions=1000)
    assert whole.start.tolist() == [20] and whole.end.tolist() == [2_500_000]
    assert not list(orders.folder.glob(".part-*"))


@CHECK
@given(
    st.lists(st.text("ab日é", min_size=4, max_size=40), min_size=1, max_size=4), st.integers(2, 9)
)
def test_orders_are_cut_at_the_same_windows(texts, parts):
    """So that what one cut leaves to the left stands before all that is to the right."""
    with tempfile.TemporaryDirectory() as folder:
        of = regions_of(texts, Path(folder), 4, chars=True)
        orders = sort(run_here, of, of.regions().symbols, 1)
        cuts = find_cuts(of.text(), orders, of, parts)
        assert cuts[0] == [0] * len(orders.bases) and cuts[-1] == orders.counts
        whole = of.text().values
        before = b""
        for begins, ends in pairwise(cuts):
            keys = []
            for chunk, base in enumerate(orders.bases):
                held = np.fromfile(orders.path(chunk), np.uint32) & ~SAME
                positions = held[begins[chunk] : ends[chunk]].tolist()
                keys += [window_of(whole, base + p, of) for p in positions]
            assert all(len(key.decode()) == 4 for key in keys)
            assert not keys or before < min(keys)
            before = max([before, *keys])
