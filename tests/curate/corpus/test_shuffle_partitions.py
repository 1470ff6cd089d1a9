"""The external sort returns every pair once, in the right order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.shuffle.partitions import (
    PairFiles,
    PartitionWriter,
    keep_repeated,
    order_by_partition,
    partition_bits,
    read_partitions,
    sort_pairs,
    sort_pass,
)
from llmcurate.base.errors import Damaged

KEYS = st.lists(
    st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**63, 2**64 - 1, 3 << 62])),
    max_size=60,
)


def arrays_of(size: int):
    return lambda dtype: np.empty(size, dtype)


@given(KEYS, st.sampled_from([0, 1, 3, 8]))
@settings(max_examples=80, deadline=None)
def test_pairs_are_partitioned_by_their_high_bits_in_order_of_arrival(keys, bits):
    array, values = np.array(keys, np.uint64), np.arange(len(keys), dtype=np.uint32)
    out = np.empty_like(array), np.empty_like(values)
    starts = order_by_partition(array, values, bits, *out)
    expected = sorted(range(len(keys)), key=lambda i: keys[i] >> (64 - bits))
    assert out[1].tolist() == expected and out[0].tolist() == [keys[i] for i in expected]
    highs = [k >> (64 - bits) for k in keys]
    counts = [highs.count(p) for p in range(1 << bits)]
    assert np.diff(starts).tolist() == counts and starts[0] == 0


@given(KEYS)
@settings(max_examples=80, deadline=None)
def test_the_sort_is_by_key_and_equal_keys_stay_in_order(keys):
    array, values = np.array(keys, np.uint64), np.arange(len(keys), dtype=np.uint32)
    ordered = sort_pairs(array, values, 0, arrays_of(len(keys)))
    expected = sorted(range(len(keys)), key=lambda i: keys[i])
    assert ordered[1].tolist() == expected
    assert ordered[0].tolist() == [keys[i] for i in expected]


def test_a_pass_over_equal_digits_moves_nothing():
    keys = np.array([5 << 11, 5 << 11], np.uint64)
    values = np.zeros(2, np.uint32)
    out = np.zeros(2, np.uint64), np.zeros(2, np.uint32)
    assert not sort_pass(keys, values, 0, *out)
    assert not sort_pass(keys[:0], values[:0], 0, out[0][:0], out[1][:0])
    assert sort_pass(np.array([2, 1], np.uint64), values, 0, *out) and out[0].tolist() == [1, 2]


@given(KEYS, st.sampled_from([1, 4, 1024]))
@settings(max_examples=80, deadline=None)
def test_every_repeated_key_is_kept(keys, counters):
    array, values = np.array(keys, np.uint64), np.arange(len(keys), dtype=np.uint32)
    count = keep_repeated(array, values, np.zeros(counters, np.uint8))
    repeated = values[:count].tolist()
    assert repeated == sorted(repeated)
    assert [keys[i] for i in repeated] == array[:count].tolist()
    assert {i for i, k in enumerate(keys) if keys.count(k) > 1} <= set(repeated)


@pytest.mark.parametrize("mapped_bytes", [64 << 20, 1], ids=["memory", "mapped"])
@pytest.mark.parametrize("valued", [True, False])
def test_partitions_hold_what_writers_wrote_in_order_whatever_the_segments(
    tmp_path, mapped_bytes, valued
):
    draw = np.random.default_rng(4)
    keys = draw.integers(0, 2**64, 1000, np.uint64)
    values = np.arange(1000, dtype=np.uint32)
    files = [PairFiles.within(tmp_path, number) for number in range(3)]
    for each, begin, stop in zip(files, (0, 700, 700), (700, 700, 1000), strict=True):
        writer = PartitionWriter(each, 3, 128, valued)
        for at in range(begin, stop, 300):
            segment = slice(at, min(at + 300, stop))
            writer.add(keys[segment], values[segment] if valued else None)
        writer.close()
    names = sorted(p.name for p in tmp_path.iterdir())
    seen = 0
    for begin, stop in ((0, 1), (1, 5), (5, 8), (3, 3)):
        parts = read_partitions(files, begin, stop, tmp_path, mapped_bytes, valued)
        assert len(parts) == stop - begin
        for part, (columns, make_array) in enumerate(parts, begin):
            positions = np.flatnonzero(keys >> np.uint64(61) == part)
            assert columns[0].tolist() == keys[positions].tolist()
            assert len(make_array(np.uint32)) == len(positions)
            if valued:
                assert columns[1].tolist() == positions.tolist()
            seen += len(positions)
    assert seen == 1000
    assert sorted(p.name for p in tmp_path.iterdir()) == names


@pytest.mark.parametrize("which", ["keys", "values"])
def test_a_changed_bit_is_noticed_only_when_its_partition_is_read(tmp_path, which):
    files = PairFiles.within(tmp_path)
    writer = PartitionWriter(files, 2, 64)
    writer.add(np.arange(100, dtype=np.uint64) << np.uint64(57), np.arange(100, dtype=np.uint32))
    writer.close()
    path = getattr(files, which)
    data = bytearray(path.read_bytes())
    data[64 * (8 if which == "keys" else 4)] ^= 1  # of the first pair of partition 2
    path.write_bytes(data)
    for begin in (0, 1, 3):
        read_partitions([files], begin, begin + 1, tmp_path, 1 << 20)
    with pytest.raises(Damaged, match=r"keys-00000\.u64 is not what was written"):
        read_partitions([files], 2, 3, tmp_path, 1 << 20)


def test_nothing_written_is_nothing_read(tmp_path):
    files = PairFiles.within(tmp_path)
    PartitionWriter(files, 2, 128).close()
    for writers, count in (([files], 4), ([], 2)):
        parts = read_partitions(writers, 0, count, tmp_path, 1 << 20)
        assert [len(columns[0]) for columns, _ in parts] == [0] * count


def test_partitions_grow_in_number_with_the_pairs():
    counts = [0, 1, 1000, 1001, 4000, 4001, 10**9]
    assert [partition_bits(n, 1000) for n in counts] == [0, 0, 0, 1, 2, 3, 14]
