"""Counting sequences that repeat themselves, compared with a plain search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.filters.periodic import PeriodicRepetition
from curate.filters.repeats import longest_repeats
from tests.curate.filters.filter_texts import PROSE, applied


def reference(tokens: list[int], periods: int) -> int:
    best = int(bool(tokens))
    for start in range(len(tokens)):
        for period in range(1, periods + 1):
            unit, times = tokens[start : start + period], 1
            if len(unit) < period:
                break
            while tokens[start + times * period : start + (times + 1) * period] == unit:
                times += 1
            best = max(best, times)
    return best


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(st.integers(0, 2), max_size=25), max_size=4), st.integers(1, 5))
def test_the_kernel_counts_what_a_plain_search_counts(texts: list[list[int]], periods: int) -> None:
    rows = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    hashes = np.array([t for text in texts for t in text], np.uint64)
    counts = longest_repeats(hashes, rows, periods)
    assert counts.tolist() == [reference(text, periods) for text in texts]


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("buy now " * 100, True),
        ("buy now " * 99, False),
        ("one two three four five six seven eight nine ten eleven twelve thirteen " * 100, True),
        (" ".join(f"w{i}" for i in range(14)) * 100, False),
        ("x" * 500, False),
        (PROSE, False),
        ("", False),
    ],
)
def test_a_hundred_times_in_a_row_is_the_limit(text: str, goes: bool) -> None:
    rules = applied(PeriodicRepetition(), [text])[1][0]
    assert ("repeated" in rules) == goes
