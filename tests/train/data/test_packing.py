"""Every packing holds every token once; each kernel does what its plain reference does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from tests.train.data.causal_rows import causal
from train.data.feed import permuted
from train.data.kernels import best_fit, counting_sort, prefix_hashes
from train.data.packing import PACKINGS, figures, pack, packing_for
from train.data.rows import Rows
from train.data.shards import read_shards
from train.objectives.example import IGNORED

LENGTHS = st.lists(st.integers(0, 60), max_size=40).map(lambda lengths: np.array(lengths, np.int64))


@pytest.mark.parametrize("name", PACKINGS)
@given(length=LENGTHS, context=st.integers(1, 24), seed=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_each_packing_holds_each_token_once_and_counts_right(name, length, context, seed):
    packing = pack(name, length, context, seed)
    seen = [np.zeros(size, int) for size in length]
    rows_of = [set() for _ in length]
    padded = 0
    for row in range(packing.count):
        spans = packing.spans(row)
        filled = sum(taken for _, _, taken in spans)
        assert 0 < filled <= context and all(taken > 0 for _, _, taken in spans)
        padded += context - filled
        for index, first, taken in spans:
            seen[index][first : first + taken] += 1
            assert first + taken <= length[index]
            rows_of[index].add(row)
    assert all((part == 1).all() for part in seen)
    actual = figures(name, packing, length, context)
    assert (actual.tokens, actual.padded, actual.rows) == (length.sum(), padded, packing.count)
    assert actual.split == sum(len(rows) > 1 for rows in rows_of) and actual.cropped == 0


@given(length=LENGTHS, context=st.integers(1, 24))
@settings(max_examples=60, deadline=None)
def test_best_fit_splits_no_document_that_fits_a_row(length, context):
    packing = pack("best-fit", length, context, 0)
    places = [p for row in range(packing.count) for p, _, _ in packing.spans(row)]
    for index, size in enumerate(length):
        assert places.count(index) == -(-size // context)


def plain_best_fit(sizes, context):
    rooms, rows, stamp = [], [], []
    for turn, size in enumerate(sizes):
        fits = [r for r in range(len(rooms)) if rooms[r] >= size]
        row = min(fits, key=lambda r: (rooms[r], -stamp[r]), default=None)
        if row is None:
            row = len(rooms)
            rooms.append(context)
            stamp.append(turn)
        rooms[row] -= size
        stamp[row] = turn
        rows.append(row)
    return rows, len(rooms)


@given(data=st.data(), context=st.integers(1, 70))
@settings(max_examples=100, deadline=None)
def test_best_fit_is_its_plain_reference(data, context):
    """In any order of sizes, though a packing gives them largest first."""
    sizes = data.draw(st.lists(st.integers(1, context), max_size=60))
    rows, count = best_fit(np.array(sizes, np.int64), context)
    assert (rows.tolist(), count) == plain_best_fit(sizes, context)


@given(keys=st.lists(st.integers(0, 9), max_size=50))
@settings(max_examples=50, deadline=None)
def test_grouping_is_a_stable_sort(keys):
    ends, order = counting_sort(np.array(keys, np.int64), 10)
    assert order.tolist() == sorted(range(len(keys)), key=lambda index: keys[index])
    assert ends.tolist() == [sum(key <= last for key in keys) for last in range(10)]


def plain_beginning(tokens, prefix, seed):
    m = (1 << 64) - 1
    mixed = seed ^ (len(tokens) * 0x9E3779B97F4A7C15 & m)
    for token in tokens[:prefix]:
        mixed = (mixed ^ token) * 0xBF58476D1CE4E5B9 & m
        mixed ^= mixed >> 29
    mixed = mixed * 0x94D049BB133111EB & m
    return mixed ^ (mixed >> 31)


@given(texts=st.lists(st.lists(st.integers(0, 65535), max_size=9), max_size=5))
@settings(max_examples=30, deadline=None)
def test_the_hash_of_a_beginning_is_its_plain_reference(texts):
    length = np.array([len(text) for text in texts], np.int64)
    tokens = np.array([token for text in texts for token in text], np.uint16)
    seed = 2**63 + 7
    hashes = prefix_hashes(tokens, np.cumsum(length) - length, length, 4, np.uint64(seed))
    assert hashes.tolist() == [plain_beginning(text, 4, seed) for text in texts]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 17, 1000, 4097])
def test_an_order_is_a_permutation_and_follows_its_key(count):
    orders = [permuted(np.arange(count), count, key) for key in (0, 1, 2**64 - 1)]
    assert all(sorted(order) == list(range(count)) for order in orders)
    if count > 16:
        assert len({tuple(order) for order in orders}) == 3
    some = permuted(np.array([count - 1, 0]), count, 1).tolist()
    assert some == [orders[1][-1], orders[1][0]]


def test_a_permuted_order_has_no_trend():
    """Over many keys each index holds each number about as often as any other."""
    places = np.arange(20)
    hits = np.zeros((20, 20))
    for key in range(500):
        hits[places, permuted(places, 20, key)] += 1
    expected = 500 / 20
    chi = ((hits - expected) ** 2 / expected).sum()
    assert chi < 19 * 19 + 6 * (2 * 19 * 19) ** 0.5 + 40


@pytest.mark.parametrize("name", PACKINGS)
def test_a_token_is_predicted_from_the_one_before_it_in_its_document(shard_folder, name):
    shards = read_shards(shard_folder)
    rows = Rows(shards, np.arange(0, shards.documents, 2), 32, packing=name)
    batch = causal(rows)
    assert batch.tokens == rows.tokens
    for line in range(rows.count):
        index = 0
        for document, first, taken in rows.spans(line):
            tokens = shards.document(document).tolist()
            inputs = [shards.end, *tokens[:-1]][first : first + taken]
            span = slice(index, index + taken)
            assert batch.inputs[line, span].tolist() == inputs
            assert batch.targets[line, span].tolist() == tokens[first : first + taken]
            assert (batch.documents[line, span] == document).all()
            index += taken
        assert (batch.targets[line, index:] == IGNORED).all()
        assert (batch.documents[line, index:] == -1).all()


def test_best_fit_of_short_documents_pads_little_and_splits_none():
    length = np.random.default_rng(0).lognormal(3.0, 0.8, 5000).astype(np.int64).clip(1, 256)
    packed = {name: figures(name, pack(name, length, 256, 0), length, 256) for name in PACKINGS}
    assert packed["best-fit"].used > 0.995 and packed["best-fit"].split == 0
    assert packed["concat"].used > 0.995 and packed["concat"].split > 300
    assert packed["padding"].used < 0.2


def test_the_seed_decides_which_documents_of_one_size_share_a_row():
    length = np.full(40, 5, np.int64)
    rows = [[pack("best-fit", length, 10, seed).spans(0)] for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]


def test_an_unknown_packing_is_refused():
    with pytest.raises(LlmcurateError, match="choose one of auto, concat, best-fit, padding"):
        packing_for("crop", True)


def test_documents_are_cut_anywhere_only_where_the_objective_allows_it():
    assert packing_for("auto", True) == "concat" and packing_for("auto", False) == "best-fit"
    assert packing_for("padding", False) == "padding"
    with pytest.raises(LlmcurateError, match="choose best-fit or padding"):
        packing_for("concat", False)


def test_a_token_outside_the_vocabulary_is_named_not_looked_up(shard_folder):
    from dataclasses import replace

    shards = replace(read_shards(shard_folder), vocab_size=200)
    rows = Rows(shards, np.arange(shards.documents), 64)
    with pytest.raises(LlmcurateError, match=r"document doc-\d+ has token \d+, outside"):
        causal(rows)
