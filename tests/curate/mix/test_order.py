"""Order and choice of documents: pure functions of seed, source and id."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.mix.design import Strata
from curate.mix.make import count_taken
from curate.mix.measure import (
    Measured,
    PartialEpoch,
    _rows,
    choose,
    keys,
    last_keys,
    positions,
    seed_of,
)
from llmcurate.base.disk.parquet_writer import writing

DRAWN = np.random.default_rng(7).integers(0, 2**64, 4000, np.uint64)


def splitmix(base: int, epoch: int) -> int:
    """The reference: SplitMix64 of base + epoch * gamma, behind the four bits that stay."""
    mask = 2**64 - 1
    z = (base + 0x9E3779B97F4A7C15 * epoch) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    z ^= z >> 31
    return base if epoch == 0 else (base >> 60 << 60) | (z >> 4)


def test_keys_are_those_of_the_reference():
    for epoch in (0, 1, 2, 9):
        assert keys(DRAWN[:50], epoch).tolist() == [splitmix(int(k), epoch) for k in DRAWN[:50]]


def test_repetitions_of_a_document_are_at_least_fifteen_sixteenths_of_an_epoch_apart():
    epochs = 3.6
    drawn = [keys(DRAWN, e) for e in range(4)]
    drawn_positions = [positions(k, e, epochs) for e, k in enumerate(drawn)]
    taken = [np.ones(len(DRAWN), np.bool_)] * 3 + [drawn[3] < np.uint64(2**64 * 3 // 5)]
    assert 0.5 < taken[3].mean() < 0.7
    for e in range(3):
        apart = (drawn_positions[e + 1] - drawn_positions[e])[taken[e + 1]] * epochs
        assert apart.min() > 15 / 16 - 1e-9


def test_an_epoch_is_over_before_the_next_begins_and_orders_differ():
    drawn_positions = [positions(keys(DRAWN, e), e, 2.0) for e in range(2)]
    assert drawn_positions[0].max() <= drawn_positions[1].min()
    assert (np.argsort(drawn_positions[0]) != np.argsort(drawn_positions[1])).mean() > 0.9


def test_a_position_is_below_one_even_at_the_last_key():
    top = np.array([2**64 - 1], np.uint64)
    assert positions(top, 0, 1.0)[0] < 1 and positions(top, 2, 3.0)[0] < 1


def test_the_order_seed_depends_on_source_and_epoch_seed():
    assert len({seed_of("a", 0), seed_of("b", 0), seed_of("a", 1)}) == 3


def measured(path: Path, strata: list[int], base: list[int], sizes: list[int]) -> Measured:
    many = max(strata) + 1
    number = np.array(strata, np.int32)
    size = np.array(sizes, np.int64)
    with writing(path) as writer:
        writer.write(_rows(number, np.array(base, np.uint64), size, size, None))
    documents, sums = (np.zeros(many, np.int64) for _ in range(2))
    np.add.at(documents, number, 1)
    np.add.at(sums, number, size)
    named = Strata(keys={(f"s{i}", 0): i for i in range(many)})
    return Measured(path, named, documents, sums, sums)


def by_sorting(rows, stratum, full, rest):
    """The reference: documents by key in the epoch after the whole ones, as many as come nearest;
    equal keys in order of arrival. Returns their indexes."""
    keyed = [
        (splitmix(base, full), i, size) for i, (s, base, size) in enumerate(rows) if s == stratum
    ]
    best, taken, reached = (rest, 0), 0, 0
    for count, (_, _, size) in enumerate(sorted(keyed), 1):
        reached += size
        if abs(reached - rest) < best[0]:
            best = (abs(reached - rest), count)
    taken = best[1]
    return {i for _, i, _ in sorted(keyed)[:taken]}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([3, 3, 2**60, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1),
            st.integers(1, 50),
        ),
        min_size=1,
        max_size=30,
    ),
    st.data(),
)
def test_the_last_epoch_holds_the_documents_that_sorting_by_key_gives(tmp_path_factory, rows, data):
    path = tmp_path_factory.mktemp("choose") / "rows.parquet"
    measures = measured(path, *(list(column) for column in zip(*rows, strict=True)))
    quota = np.array([data.draw(st.integers(0, 3 * int(s))) for s in measures.sizes], np.int64)
    chosen = choose(measures, quota)
    full = np.where(measures.sizes > 0, quota // np.maximum(measures.sizes, 1), 0)
    taking = PartialEpoch(chosen)
    number, base, _ = (np.array(c) for c in zip(*((s, b, z) for s, b, z in rows), strict=True))
    number = number.astype(np.int32)
    base = np.array([b for _, b, _ in rows], np.uint64)
    taken = taking.last(number, last_keys(base, chosen.full[number]))
    for stratum in range(len(full)):
        chosen_rows = {i for i in np.flatnonzero(taken).tolist() if number[i] == stratum}
        rest = (
            int(quota[stratum] - full[stratum] * measures.sizes[stratum])
            if measures.sizes[stratum]
            else 0
        )
        wanted = by_sorting(rows, stratum, int(full[stratum]), rest) if rest else set()
        everything = {i for i in range(len(rows)) if number[i] == stratum}
        if chosen.full[stratum] == full[stratum] + 1:  # the last epoch is whole after all
            assert not chosen_rows and sum(rows[i][2] for i in wanted) == measures.sizes[stratum]
            assert all(rows[i][2] == 0 for i in everything - wanted)
        else:
            assert chosen_rows == wanted
    marked = path.with_name("marked.parquet")
    totals = count_taken(measures, chosen, np.zeros(len(full), np.int32), marked)
    assert np.array_equal(totals.copies, chosen.full * measures.documents + totals.drawn)
    for stratum, amount in enumerate(totals.amount.tolist()):
        largest = max((z for s, _, z in rows if s == stratum), default=0)
        assert abs(amount - int(quota[stratum])) <= largest / 2 or not measures.sizes[stratum]
