"""Keys of 128 bits, and sorting what is larger than a run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.scoring.perplexity import table as runs
from curate.scoring.perplexity.table import Sorter, context_keys, ngram_keys, sort_order, words_of

SIZES = [(2, 32), (3, 21), (5, 17), (5, 25), (6, 21), (4, 2)]


def key(words: list[int], bits: int) -> int:
    """The last word highest."""
    return sum(w << (i * bits) for i, w in enumerate(words))


def split(keys: list[int]) -> tuple[np.ndarray, np.ndarray]:
    mask = (1 << 64) - 1
    high, low = [k >> 64 for k in keys], [k & mask for k in keys]
    return np.array(high, np.uint64), np.array(low, np.uint64)


@pytest.mark.parametrize(("order", "bits"), SIZES)
def test_keys_hold_the_words_before_each_word_and_pad_with_bos(order: int, bits: int) -> None:
    draw = np.random.default_rng(0)
    sizes = [3, 0, 7, 1]
    most = min(2**bits, 2**32) - 1
    ids = draw.integers(2, most, sum(sizes), np.uint32, endpoint=True)
    ends = np.cumsum(sizes)
    hi, lo = ngram_keys(ids, ends, order, bits)
    want, begin = [], 0
    for end in ends:
        line = [1] * order + ids[begin:end].tolist() + [2]
        want += [line[i - order + 1 : i + 1] for i in range(order, len(line))]
        begin = end
    assert [(h << 64) + v for h, v in zip(hi.tolist(), lo.tolist(), strict=True)] == [
        key(w, bits) for w in want
    ]
    assert words_of(hi, lo, order, bits).tolist() == want
    chi, clo = context_keys(hi, lo, order, bits)
    turned = [[w[-1], *w[:-1]] for w in want]  # as if the last word stood first
    assert [(h << 64) + v for h, v in zip(chi.tolist(), clo.tolist(), strict=True)] == [
        key(w, bits) for w in turned
    ]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 2**90 - 1) | st.integers(0, 5), max_size=60), st.integers(1, 20))
def test_runs_of_any_size_come_back_in_order_and_stable(
    tmp_path_factory: pytest.TempPathFactory, keys: list[int], rows: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    hi, lo = split(keys)
    assert sort_order(hi, lo, 90).tolist() == sorted(range(len(keys)), key=lambda i: keys[i])
    sorter = Sorter(folder, "s", 90, rows, {"at": "i8"})
    for a in range(0, len(keys), 7):
        sorter.add(hi[a : a + 7], lo[a : a + 7], np.arange(a, min(a + 7, len(keys))))
    before, runs.CHUNK = runs.CHUNK, 4
    try:
        chunks = [c[2].tolist() for c in sorter.sorted()]
    finally:
        runs.CHUNK = before
    assert [i for c in chunks for i in c] == sorted(range(len(keys)), key=lambda i: keys[i])
    sorter.remove()
    assert not list(folder.iterdir())
