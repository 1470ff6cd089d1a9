"""Shingles and signatures: equal to datasketch bit for bit, and to plain Python."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dedup.minhash import kernels as kernel
from curate.dedup.minhash.kernels import (
    NONE,
    Compared,
    for_kernels,
    jaccard,
    keep_best,
    match_buckets,
    normal_form,
)
from curate.dedup.minhash.near_duplicates import PRESETS, curve_lines, estimate, midpoint, predicted
from curate.text.buffers import text_buffers
from curate.text.words import ascii_fold, character_tables, word_hashes, word_table
from tests.callable_kernels import callable_kernel

TEXTS = st.lists(
    st.text(st.sampled_from("aB1_ .-éÉ\u0301ไทย中文かk\u212a\ud7ff\U0001f600\0")), max_size=5
)
HASHES = st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=40), min_size=1, max_size=5)


def large(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def flat(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, lists)])
    return offsets, np.array([h for hashes in lists for h in hashes], np.uint64)


def theirs(hashes: list[int], permutations: int, seed: int):
    from datasketch import MinHash

    signature = MinHash(permutations, seed, hashfunc=lambda h: h)
    for h in hashes:
        signature.update(h)
    return signature


@given(HASHES, st.sampled_from([1, 16, 112, 130]), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_signatures_are_those_of_datasketch_bit_for_bit(lists, permutations, seed):
    a, b = kernel.permutations(permutations, seed)
    ours = callable_kernel(kernel.signatures)(*flat(lists), a, b)
    for row, hashes in zip(ours, lists, strict=True):
        assert row.tolist() == theirs(hashes, permutations, seed).hashvalues.tolist()


def test_signatures_of_texts_are_those_of_datasketch_over_the_shingles():
    draw = random.Random(5)
    texts = [" ".join(draw.choices("a b c d e f".split(), k=n)) for n in (0, 1, 4, 5, 60, 700)]
    data, offsets = text_buffers(large(*texts))
    a, b = kernel.permutations(112, 1)
    signature, counts = kernel.text_signatures(kernel.WORD, data, offsets, 5, a, b)
    starts, values = kernel.text_shingles(kernel.WORD, data, offsets, 5)
    assert counts.tolist() == [0, 1, 1, 1, 56, 696]
    for r in range(len(texts)):
        low = [int(h) & 0xFFFFFFFF for h in values[starts[r] : starts[r + 1]]]
        assert signature[r].tolist() == theirs(low, 112, 1).hashvalues.tolist()


def test_signatures_go_to_datasketch_and_come_back_through_its_buffers():
    from datasketch import LeanMinHash

    a, b = kernel.permutations(128, 7)
    signature = callable_kernel(kernel.signatures)(*flat([[1, 2, 3], [3, 2, 9], []]), a, b)
    read = [LeanMinHash.deserialize(x, "<") for x in kernel.lean_buffers(signature, 7)]
    assert [r.hashvalues.tolist() for r in read] == signature.tolist()
    assert all((r.seed, r.scheme) == (7, "affine32") for r in read)
    assert read[0].jaccard(theirs([1, 2, 3], 128, 7)) == 1.0
    written = bytearray(read[1].bytesize("<"))
    read[1].serialize(written, "<")
    assert bytes(written) == kernel.lean_buffers(signature, 7)[1]


@given(TEXTS)
@settings(max_examples=150, deadline=None)
def test_lean_word_hashes_are_those_of_the_word_table(texts):
    data, offsets = text_buffers(large(*texts))
    table = word_table(data, offsets)
    for r in range(len(texts)):
        out = np.zeros(offsets[r + 1] - offsets[r] + 1, np.uint64)
        tables = (ascii_fold(), *character_tables())
        n = callable_kernel(word_hashes)(data, offsets[r], offsets[r + 1], *tables, out)
        assert out[:n].tolist() == table.hash[table.rows[r] : table.rows[r + 1]].tolist()


def sets(kind: int, size: int, *texts: str) -> list[set[int]]:
    data, offsets = text_buffers(large(*texts))
    starts, values = kernel.text_shingles(kind, data, offsets, size)
    rows = [values[i:j].tolist() for i, j in itertools.pairwise(starts)]
    assert all(row == sorted(set(row)) for row in rows)
    return [set(row) for row in rows]


@pytest.mark.parametrize(
    ("kind", "text", "units"),
    [
        (kernel.WORD, "a b a b a b c", 7),
        (kernel.WORD, "ที่นี่ 中文", 4),
        (kernel.CHAR, "äöü äöü", 7),
        (kernel.BYTE, "äb", 3),
    ],
)
def test_shingles_are_the_runs_of_units(kind, text, units):
    data, offsets = text_buffers(large(text))
    a, b = kernel.permutations(1, 1)
    for size in (1, 2, 3, 9):
        counts = kernel.text_signatures(kind, data, offsets, size, a, b)[1]
        assert counts.tolist() == [max(1, units - size + 1)]


def test_sets_of_word_shingles_overlap_as_their_words_do():
    first, second, short, same = sets(kernel.WORD, 2, "a b c d", "x B c, D", "a b", "A  b!")
    assert (len(first), len(second), len(first & second)) == (3, 3, 2)
    assert short < first and short == same
    assert sets(kernel.WORD, 5, "a b")[0] == short
    assert sets(kernel.WORD, 5, "a b c d")[0].isdisjoint(sets(kernel.WORD, 5, "a b c d e")[0])


def test_texts_without_units_have_no_shingles():
    assert sets(kernel.WORD, 5, "", " .,;", "word") == [
        set(),
        set(),
        sets(kernel.WORD, 5, "word")[0],
    ]
    assert sets(kernel.CHAR, 5, "")[0] == sets(kernel.BYTE, 5, "")[0] == set()


def test_equal_rows_of_different_bands_have_different_keys():
    keys = kernel.band_keys(np.ones((2, 12), np.uint32), 4, 3)
    assert keys[0].tolist() == keys[1].tolist()
    assert len(set(keys[0].tolist())) == 4


def test_datatrove_form_knows_no_case_numbers_punctuation_or_accents():
    texts = large("Café, 1.5 km!", "cafe 27 KM", "x")
    words = [w.as_py().split() for w in normal_form(texts, "datatrove", "word")]
    assert words == [["cafe", "0", "km"], ["cafe", "0", "km"], ["x"]]
    assert normal_form(texts, "lower", "char").to_pylist()[1] == "cafe 27 km"


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.sampled_from([0.0, 0.3, 0.8]))
@settings(max_examples=200, deadline=None)
def test_jaccard_is_exact_from_its_least_value_on(x, y, least):
    true = len(x & y) / len(x | y) if x | y else 0.0
    similarity = callable_kernel(jaccard)(*(np.array(sorted(s), np.uint64) for s in (x, y)), least)
    assert similarity == (true if true >= least else -1.0)


def reference_edges(bucket: list[int], sets_: list[set[int]], least: float) -> list[set[int]]:
    """Components of a bucket when every pair is compared."""
    groups = [{d} for d in bucket]
    for i, d in enumerate(bucket):
        for e in bucket[:i]:
            if len(sets_[d] & sets_[e]) / len(sets_[d] | sets_[e]) >= least:
                group_d, group_e = (next(g for g in groups if m in g) for m in (d, e))
                if group_d is not group_e:
                    groups.remove(group_e)
                    group_d |= group_e
    return groups


def by_shingles(sets_: list[set[int]]) -> Compared:
    length = np.array([len(s) for s in sets_])
    extents = np.stack([np.cumsum(length) - length, length], axis=1)
    values = np.array([v for s in sets_ for v in sorted(s)], np.uint64)
    return for_kernels(Compared(values, extents, np.empty((0, 0), np.uint8)))


def matched(buckets: list[list[int]], sets_: list[set[int]], least: float, first: bool):
    sizes = np.array([len(b) for b in buckets], np.uint32)
    members = np.array([d for b in buckets for d in b], np.uint32)
    parent = np.arange(len(sets_), dtype=np.uint32)
    edges = match_buckets(members, sizes, by_shingles(sets_), least, first, 1000, parent)
    return list(zip(*(x.tolist() for x in edges), strict=True))


@given(st.lists(st.sets(st.integers(0, 8), min_size=1), min_size=2, max_size=9))
@settings(max_examples=150, deadline=None)
def test_no_match_within_a_bucket_is_lost(sets_):
    bucket = list(range(len(sets_)))
    edges = matched([bucket, bucket], sets_, 0.5, False)
    assert len(edges) == len(bucket) - len(reference_edges(bucket, sets_, 0.5))
    for d, e, s in edges:
        assert e < d and s == len(sets_[d] & sets_[e]) / len(sets_[d] | sets_[e]) >= 0.5
    later = {d for d, _, _ in matched([bucket, bucket], sets_, 0.5, True)}
    assert later == {
        d
        for d in bucket
        if any(len(sets_[d] & sets_[e]) / len(sets_[d] | sets_[e]) >= 0.5 for e in bucket[:d])
    }


def test_the_curve_of_the_presets_is_the_published_one():
    assert PRESETS["fineweb"] == (14, 8) and PRESETS["lee2022"] == PRESETS["refinedweb"] == (
        450,
        20,
    )
    # Penedo et al. 2024: 56%, 77%, 92% and 98.8% at 0.7, 0.75, 0.8 and 0.85.
    curve = [round(predicted(14, 8, s), 3) for s in (0.7, 0.75, 0.8, 0.85)]
    assert curve == [0.565, 0.772, 0.924, 0.988]
    assert [round(predicted(450, 20, s), 3) for s in (0.7, 0.8)] == [0.302, 0.995]
    assert [round(predicted(93, 15, s), 3) for s in (0.7, 0.8)] == [0.358, 0.964]
    assert predicted(14, 8, midpoint(14, 8)) == pytest.approx(0.5)
    assert estimate(0.8**8, 8) == pytest.approx(0.8)
    assert "92.4%" in curve_lines(14, 8)[-1]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=12), min_size=2, max_size=2))
@settings(max_examples=100, deadline=None)
def test_sets_of_shingles_are_as_large_and_as_alike_as_those_of_plain_python(texts):
    size = 3
    expected = [
        {tuple(t[i : i + size]) for i in range(max(1, len(t) - size + 1))} - {()} for t in texts
    ]
    ours = sets(kernel.WORD, size, *(" ".join(t) for t in texts))
    assert [len(s) for s in ours] == [len(s) for s in expected]
    assert len(ours[0] & ours[1]) == len(expected[0] & expected[1])


@pytest.mark.parametrize("forward", [True, False])
def test_of_equally_similar_partners_the_smaller_number_is_kept_in_any_order(forward):
    """5 has three partners, of which two are equally and most similar, and 7 has one."""
    pairs = [(5, 1, 0.8), (5, 3, 0.9), (5, 2, 0.9), (7, 5, 0.9)]
    none = int(NONE)
    both = [none, 5, 5, 5, none, 2, none, 5]
    for order in itertools.permutations(pairs):
        k, other, similar = map(np.array, zip(*order, strict=True))
        partner, best = np.full(8, NONE, np.uint32), np.zeros(8)
        keep_best(k.astype(np.uint32), other.astype(np.uint32), similar, forward, partner, best)
        assert partner.tolist() == ([none] * 5 + [2, none, 5] if forward else both)
        assert best[[5, 7]].tolist() == [0.9, 0.9]


def test_a_bucket_of_unlike_documents_is_cut_short():
    """Each of 40 unlike documents is compared with so many at most, the most preferred first."""
    sets_ = [{i} for i in range(40)] + [{3}, {39}]
    bucket = np.arange(42, dtype=np.uint32)
    sizes = np.array([42], np.uint32)
    for most, expected in ((1000, [(40, 3), (41, 39)]), (10, [(40, 3)])):
        first, second, _ = match_buckets(
            bucket, sizes, by_shingles(sets_), 1.0, False, most, bucket.copy()
        )
        assert list(zip(first.tolist(), second.tolist(), strict=True)) == expected
