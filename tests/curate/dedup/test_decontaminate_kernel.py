"""The kernel finds windows of evaluation items where plain Python finds them."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dedup.decontaminate import windows as kernel
from curate.dedup.decontaminate.items import Item
from curate.dedup.decontaminate.windows import (
    BLOCK_BYTES,
    FIRST_HITS,
    Cutting,
    Windows,
    cut_windows,
    find,
    item_blocks,
)
from curate.documents.documents import documents
from curate.text.words import word_table
from tests.curate.dedup import reference_decontaminate as reference
from tests.parameters import mostly_slow

ALPHABET = "ab B1_ .-éÉ\u0301ไท中文か\U0001f600\0\n"
TEXTS = st.lists(st.text(st.sampled_from(ALPHABET), max_size=40), min_size=1, max_size=4)


@st.composite
def sets_and_documents(draw) -> tuple[list[str], list[str]]:
    """Items, and documents most of which hold pieces of them."""
    items = draw(TEXTS)
    piece = st.builds(
        lambda t, a, n: t[a : a + n], st.sampled_from(items), *[st.integers(0, 40)] * 2
    )
    joined = st.lists(st.one_of(piece, st.text(st.sampled_from(ALPHABET), max_size=5)), max_size=4)
    return items, draw(st.lists(joined.map("".join), min_size=1, max_size=3))


def cut(
    texts: list[str],
    mode: str = "overlap",
    ngram: int = 3,
    block_bytes: int = BLOCK_BYTES,
    **more,
) -> Windows:
    items = [Item("set", str(k), t) for k, t in enumerate(texts)]
    cutting = {"shortest": 1, "samples": None, "seed": 0, "max_items": None} | more
    return cut_windows(items, Cutting(mode, ngram, **cutting), block_bytes)


def batch(texts: list[str]):
    return documents({"id": [str(k) for k in range(len(texts))], "text": texts})


def hits_of(texts: list[str], windows: Windows) -> list[list[tuple[int, int, int]]]:
    """(gram, first, last) of each document, by position."""
    row, gram, first, last = find(batch(texts), windows.search)
    assert (np.diff(row) >= 0).all()
    hits = list(zip(row.tolist(), gram.tolist(), first.tolist(), last.tolist(), strict=True))
    return [[h[1:] for h in hits if h[0] == r] for r in range(len(texts))]


def names(windows: Windows, texts: list[str], length: int) -> dict[int, tuple[str, ...]]:
    """What each gram is, as reference windows; all windows of one gram must be the same."""
    windows_of: dict[int, tuple[str, ...]] = {}
    for item, text in enumerate(texts):
        grams = windows.gram[windows.rows[item] : windows.rows[item + 1]].tolist()
        by_character = windows.cutting.by_character
        expected = reference.windows(text, by_character, length, windows.cutting.shortest)
        assert len(grams) == len(expected)
        for gram, window in zip(grams, expected, strict=True):
            assert windows_of.setdefault(gram, window) == window
    return windows_of


@given(sets_and_documents(), st.integers(2, 5), st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_words_are_found_where_plain_python_finds_them(both, ngram, shortest):
    items, texts = both
    windows = cut(items, ngram=ngram, shortest=shortest)
    by_key = names(windows, items, ngram)
    for text, hits in zip(texts, hits_of(texts, windows), strict=True):
        expected = reference.positions(text, False, set(by_key.values()))
        assert len(hits) == len(expected)
        assert {(by_key[g], a, z) for g, a, z in hits} == expected


@given(sets_and_documents(), st.integers(1, 12))
@settings(max_examples=150, deadline=None)
def test_characters_are_found_where_plain_python_finds_them(both, length):
    items, texts = both
    windows = cut(items, "50-char", characters=length)
    by_key = names(windows, items, length)
    for text, hits in zip(texts, hits_of(texts, windows), strict=True):
        expected = reference.positions(text, True, set(by_key.values()))
        assert len(hits) == len(expected)
        assert {(by_key[g], a, z) for g, a, z in hits} == expected


@given(st.text(st.sampled_from(ALPHABET), max_size=60))
@settings(max_examples=100, deadline=None)
def test_words_of_the_reference_are_those_of_the_word_table(text):
    data = np.frombuffer(text.encode() or b"\0", np.uint8)
    table = word_table(data, np.array([0, len(text.encode())]))
    bounds = [
        (len(text[: u.start].encode()), len(text[: u.end].encode())) for u in reference.words(text)
    ]
    assert list(zip(table.start.tolist(), table.end.tolist(), strict=True)) == bounds


@pytest.mark.parametrize("at", mostly_slow([-1, 0, 1, -60, -25, 40], 4))
def test_a_match_may_lie_across_blocks_of_a_long_document(at):
    draw = random.Random(at)
    plant = "".join(draw.choices("klmnopqrst ÄÖ", k=90))
    before = "".join(draw.choices("abcdefghij ä", k=4 * kernel.BLOCK))
    counted = [i for i, c in enumerate(before) if c.isalnum()]
    before = before[: counted[kernel.BLOCK + at]]
    text = before + plant + before
    windows = cut([plant], "50-char")
    (hits,) = hits_of([text], windows)
    wanted = set(reference.windows(plant, True, 50, 1))
    expected = reference.positions(text, True, wanted)
    assert {h[1:] for h in hits} == {p[1:] for p in expected}
    assert len(hits) == len(wanted)


def test_all_hits_are_found_when_the_first_buffer_overflows():
    text = "one two three four " * 3000
    items = ["one two three four five"]
    windows = cut(items, ngram=3)
    (hits,) = hits_of([text], windows)
    expected = reference.positions(text, False, set(names(windows, items, 3).values()))
    assert len(hits) == len(expected) > FIRST_HITS
    assert [h[1:] for h in hits] == sorted(p[1:] for p in expected)


def test_items_without_windows_find_nothing():
    assert hits_of(["a b c", "", "d"], cut(["", "...", "a"], ngram=3, shortest=2)) == [[], [], []]


@given(st.text(st.sampled_from("aé中\U0001f600"), min_size=1, max_size=30), st.data())
@settings(max_examples=60, deadline=None)
def test_a_passage_is_widened_by_characters_not_bytes(text, data):
    first = data.draw(st.integers(0, len(text) - 1))
    last = data.draw(st.integers(first + 1, len(text)))
    chars = data.draw(st.integers(0, 12))
    sizes = [len(text[:k].encode()) for k in range(len(text) + 1)]
    buffer, offsets = batch(["xx", text, "yy"]).buffers()
    array_of = lambda value: np.array([value], np.int64)  # noqa: E731
    a, z = kernel.widen(
        buffer, offsets, array_of(1), array_of(sizes[first]), array_of(sizes[last]), chars
    )
    assert (a[0], z[0]) == (sizes[max(0, first - chars)], sizes[min(len(text), last + chars)])


def test_the_bit_filter_passes_every_window():
    begins = np.unique(np.random.default_rng(1).integers(0, 2**63, 5000).astype(np.uint64) * 2)
    for shift in (40, 50, 58):
        bits = kernel.filter_bits(begins, shift)
        positions = begins >> np.uint64(shift)
        assert all(int(bits[p >> 6]) >> int(p & 63) & 1 for p in positions.astype(np.int64))
        assert sum(int(b).bit_count() for b in bits) == len(np.unique(positions))


def test_a_document_of_nothing_but_beginnings_of_items_is_searched_quickly():
    items = [f"{'same ' * 8}{k}" for k in range(2000)]
    windows = cut(items, "13-gram", shortest=8)
    find(batch([items[0]]), windows.search)  # compiled
    began = time.process_time()
    assert hits_of(["same " * 200_000], windows) == [[]]
    assert time.process_time() - began < 5


@pytest.mark.parametrize("mode", ["13-gram", "50-char", "overlap"])
def test_windows_do_not_depend_on_the_blocks_they_are_made_in(mode):
    draw = random.Random(3)
    vocabulary = "red green blue ätt mill".split()
    items = [" ".join(draw.choices(vocabulary, k=draw.randrange(40))) for _ in range(50)]
    whole = cut(items, mode, shortest=8, max_items=20)
    assert len(item_blocks(np.arange(0, 5000, 60), 100)) > 30
    blocks = cut(items, mode, shortest=8, max_items=20, block_bytes=100)
    for name in ("rows", "gram", "start", "end", "units", "shared"):
        assert getattr(whole, name).tolist() == getattr(blocks, name).tolist()
    assert whole.search.table[3].tolist() == blocks.search.table[3].tolist()
    assert len(whole.gram) > 50


@given(st.lists(st.integers(0, 9), max_size=30))
@settings(max_examples=50, deadline=None)
def test_distinct_values_are_numbered_in_sorted_order(values):
    array = np.array(values, np.uint64)
    different, number = kernel.number_sorted(array, np.argsort(array))
    expected = sorted(set(values))
    assert different[: len(expected)].tolist() == expected
    assert number.tolist() == [expected.index(v) for v in values]


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=6))
@settings(max_examples=50, deadline=None)
def test_the_first_window_of_a_kind_in_an_item_is_marked(items):
    rows = np.cumsum([0, *map(len, items)])
    flat = np.array([g for item in items for g in item], np.int64)
    expected = [g not in item[:k] for item in items for k, g in enumerate(item)]
    assert kernel.first_in_item(rows, flat, 6).tolist() == expected


def test_window_lengths_with_a_common_beginning_are_stored_as_bits():
    number, longer = np.array([0, 2, 0, 2]), np.array([0, 63, 5, 63])
    assert kernel.length_bits(number, longer, 3).tolist() == [0b100001, 0, 1 << 63]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย" * 3, 52),
        ("北京是中国的首都" * 4, 22),
        ("a b c " * 9, 13),
    ],
)
def test_a_window_of_thirteen_words_has_the_clusters_of_thirteen_words(text, size):
    windows = cut([text], "13-gram", shortest=8)
    assert windows.lengths == {"set": 13} and windows.search.most == size
