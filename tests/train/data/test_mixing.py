"""Mixtures are exact: whole rows of each source, after any number of steps."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from tests.train.data.causal_rows import causal
from train.config import Source
from train.data.feed import Sampler
from train.data.rows import Mixture, Rows, counts, shares_of
from train.data.shards import read_shards

SHARES = st.lists(st.integers(1, 1000), min_size=1, max_size=9)


@given(shares=SHARES, rows=st.integers(0, 5000))
@settings(max_examples=200, deadline=None)
def test_counts_add_up_and_stay_by_their_shares(shares, rows):
    numbers = counts(shares, rows)
    depth = (len(shares) - 1).bit_length()
    assert sum(numbers) == rows and all(count >= 0 for count in numbers)
    for share, count in zip(shares, numbers, strict=True):
        assert abs(count - rows * share / sum(shares)) <= depth / 2


@given(shares=SHARES, rows=st.integers(0, 5000))
@settings(max_examples=200, deadline=None)
def test_one_row_more_is_one_row_more_of_one_source(shares, rows):
    steps = np.array(counts(shares, rows + 1)) - np.array(counts(shares, rows))
    assert sorted(steps)[-1] == 1 and steps.sum() == 1 and (steps >= 0).all()


@given(shares=SHARES)
@settings(max_examples=50, deadline=None)
def test_shares_are_met_exactly_after_their_sum(shares):
    assert counts(shares, sum(shares)) == shares
    assert counts(shares, 7 * sum(shares)) == [7 * share for share in shares]


@pytest.mark.parametrize(
    ("shares", "rows", "expected"),
    [
        ([1, 1], 1, [1, 0]),
        ([1, 1], 3, [2, 1]),
        ([1, 3], 2, [1, 1]),
        ([1, 1, 1, 1], 2, [1, 0, 1, 0]),
        ([1, 1, 1], 1, [0, 1, 0]),
        ([0, 1], 5, [0, 5]),
    ],
)
def test_half_a_row_goes_to_the_first_source(shares, rows, expected):
    assert counts(shares, rows) == expected


@pytest.fixture(scope="module")
def parts(shard_folder):
    """Two sources of different sizes, cut out of one folder."""
    shards = read_shards(shard_folder)
    return [
        Rows(shards, np.arange(0, 30), 32, packing="best-fit"),
        Rows(shards, np.arange(30, 40), 32, first=1000),
    ]


def source(name, **much):
    return Source(shards=f"data/{name}", **much)


def test_each_epoch_of_each_source_is_a_permutation_whatever_the_weights(parts):
    sampler = Sampler(Mixture(parts), batch_rows=5, seed=1, shares=[1, 3])
    seen = [row for step in range(200) for row in sampler.row_numbers(step)]
    for number, part in enumerate(parts):
        base = parts[0].count * number
        own = [row - base for row in seen if base <= row < base + part.count]
        assert abs(len(own) - 1000 * (1, 3)[number] / 4) <= 1
        epochs = [own[k : k + part.count] for k in range(0, len(own), part.count)]
        assert len(epochs) > 2
        assert all(sorted(epoch) == list(range(part.count)) for epoch in epochs[:-1])
        assert len(set(epochs[-1])) == len(epochs[-1])
        assert epochs[0] != epochs[1]


def test_a_step_of_a_mixture_is_a_function_of_seed_and_step(parts):
    def sampler(seed):
        return Sampler(Mixture(parts), batch_rows=4, seed=seed, shares=[2, 1])

    forwards = [sampler(3).row_numbers(step) for step in range(30)]
    once = sampler(3)
    assert [once.row_numbers(step) for step in reversed(range(30))] == forwards[::-1]
    assert [sampler(4).row_numbers(step) for step in range(30)] != forwards


def test_what_an_earlier_stage_took_is_skipped(parts):
    whole = Sampler(Mixture(parts), batch_rows=4, seed=3, shares=[1, 1])
    rest = Sampler(Mixture(parts), batch_rows=4, seed=3, shares=[1, 1], skip=whole.taken(5))
    assert [rest.row_numbers(step) for step in range(20)] == [
        whole.row_numbers(step + 5) for step in range(20)
    ]


def test_a_batch_of_a_mixture_is_the_batches_of_its_sources(parts):
    mixture = Mixture(parts)
    rows = [0, parts[0].count + 1, 2, parts[0].count, 1]
    batch = causal(mixture, rows)
    for line, row in enumerate(rows):
        number, place = mixture.locate(row)
        alone = causal(parts[number], [place])
        assert (batch.targets[line] == alone.targets[0]).all()
        assert (batch.inputs[line] == alone.inputs[0]).all()
        assert set(batch.documents[line].tolist()) - {-1} == {
            document for document, _, _ in mixture.spans(row)
        }


def test_a_mixture_names_the_documents_of_a_step(parts):
    sampler = Sampler(Mixture(parts), batch_rows=4, seed=0, shares=[1, 1])
    documents = sampler.documents(3)
    ids = sampler.document_ids(3)
    for number, name in zip(documents, ids, strict=True):
        assert name == f"doc-{number - 1000 if number >= 1000 else number}"
    assert sum(documents.values()) == causal(sampler.rows, sampler.row_numbers(3)).tokens


def test_weights_may_be_any_decimals(parts):
    sources = [source("a", weight=0.1), source("b", weight=0.2)]
    assert shares_of(sources, parts, steps=10, batch=4) == [1, 2]
    assert shares_of(sources, parts, steps=99, batch=4) == [1, 2]


def test_without_amounts_every_source_has_the_same_epochs(parts):
    shares = shares_of([source("a"), source("b")], parts, steps=10, batch=4)
    assert shares == [part.count for part in parts]


def test_epochs_and_tokens_are_rows_of_the_run(parts):
    sources = [source("a", epochs=1.5), source("b", tokens=parts[1].tokens * 2)]
    expected = [round(1.5 * parts[0].count), 2 * parts[1].count]
    steps = -(-sum(expected) // 4)
    assert shares_of(sources, parts, steps=steps, batch=4) == expected
    with pytest.raises(LlmcurateError, match=f"set steps to {steps}, or give weights"):
        shares_of(sources, parts, steps=steps + 1, batch=4)


def test_every_requested_source_gives_at_least_one_row(parts):
    sources = [source("a", epochs=1e-9), source("b", tokens=1)]
    assert shares_of(sources, parts, steps=1, batch=2) == [1, 1]


def test_a_weight_beside_epochs_is_refused_by_name(parts):
    with pytest.raises(LlmcurateError, match="source b: give every source a weight"):
        shares_of([source("a", epochs=1), source("b", weight=1)], parts, steps=1, batch=4)


@pytest.mark.parametrize(
    ("much", "message"),
    [
        ({"weight": 0}, "weight is 0: give more than 0"),
        ({"epochs": float("inf")}, "epochs is inf"),
        ({"tokens": -3}, "tokens is -3"),
        ({"weight": 1, "epochs": 1}, "source wiki: give weight or epochs"),
    ],
)
def test_impossible_amounts_are_refused_by_name(much, message):
    with pytest.raises(LlmcurateError, match=message):
        source("wiki", **much)


def test_a_step_holds_what_its_weights_say(parts):
    """8 rows at 5 : 3 are 5 and 3 in each step; at 1 : 2 the third parts take turns."""
    exact = Sampler(Mixture(parts), batch_rows=8, seed=0, shares=[5, 3])
    turns = Sampler(Mixture(parts), batch_rows=4, seed=0, shares=[1, 2])
    assert {tuple(np.diff([exact.taken(k), exact.taken(k + 1)], axis=0)[0]) for k in range(9)} == {
        (5, 3)
    }
    seen = Counter(int(b - a) for a, b in itertools.pairwise(turns.taken(k)[0] for k in range(10)))
    assert seen == {1: 6, 2: 3}
