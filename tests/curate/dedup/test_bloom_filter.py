"""The blocked Bloom filter: answers, false-positive rate, growth, and its file."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dedup.bloom import kernel
from curate.dedup.bloom.filter import (
    HEADER,
    BloomFilter,
    best_load,
    blocks_for,
    expected_rate,
    grown_from,
    read_header,
)
from llmcurate.base.errors import UsageError
from tests.curate.dedup.bloom_cases import add, inserted, opened
from tests.curate.dedup.reference_bloom import Blocked


def random_keys(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def made(path, count: int, rate: float = 0.01, seed: int = 1, keys: str = "k") -> BloomFilter:
    """A finished filter, made for so many keys and full of them."""
    bloom = BloomFilter.create(path, keys, rate)
    bloom.reserve(count)
    add(bloom, random_keys(count, seed))
    bloom.finish()
    return bloom


@pytest.mark.parametrize("rate", [1e-1, 1e-2, 1e-3])
def test_the_measured_rate_of_a_full_filter_is_the_one_asked_for(tmp_path, rate):
    bloom = made(tmp_path / "f", 200_000, rate)
    assert bloom.measured_rate(3_000_000) == pytest.approx(rate, rel=0.2)
    assert bloom.modelled_rate() == pytest.approx(bloom.measured_rate(3_000_000), rel=0.1)


@pytest.mark.parametrize("rate, load", [(1e-1, 100), (1e-2, 50), (1e-3, 33)])
def test_the_model_knows_that_blocks_are_worse_than_one_field_of_bits(rate, load):
    keys, probes = best_load(rate)
    bits = 512 / keys
    classical = (1 - np.exp(-probes / bits)) ** probes
    assert classical < expected_rate(keys, probes) == pytest.approx(rate, rel=1e-6)
    assert keys == pytest.approx(load, rel=0.1)


def test_a_filter_too_large_to_address_is_refused_in_one_line():
    with pytest.raises(UsageError, match="would exceed 256 GiB") as error:
        blocks_for(10**15, 1e-6)
    assert "\n" not in str(error.value)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=60),
    st.integers(1, 40),
    st.integers(1, 20),
)
def test_kernels_do_what_the_plain_filter_does(keys, blocks, probes):
    plain = Blocked(blocks, probes)
    words = np.zeros(blocks * 8, np.uint64)
    slices = np.array([[0, blocks, probes, 10**9, 0]], np.int64)
    want, new = [], 0
    for key in keys:
        want.append(key in plain)
        new += key not in plain
        plain.add(key)
    array = np.array(keys, np.uint64)
    assert inserted(words, slices, array).tolist() == want
    assert (words == plain.words()).all()
    assert slices[0, kernel.INSERTED] == new
    assert kernel.count_hits(words, slices, array) == len(keys)  # none is forgotten
    assert kernel.count_bits(words) == sum(m.bit_count() for m in plain.bits.values())


def test_a_full_filter_grows_and_stays_near_the_rate_asked_for(tmp_path):
    bloom = BloomFilter.create(tmp_path / "f", "k", 0.01)
    sizes = []
    for seed in range(12):
        add(bloom, random_keys(20_000, seed))
        sizes.append(bloom.capacity)
    assert len(bloom.slices) == 5  # 1, 2, 4, 8, 16 times the first
    assert sizes == sorted(sizes) and bloom.bytes < 16 * 20_000 * 4
    assert all(bloom.count(random_keys(20_000, s)) == 20_000 for s in range(12))
    assert bloom.measured_rate() < 0.01 * 1.2 * 1.05
    assert bloom.modelled_rate() == pytest.approx(bloom.measured_rate(), rel=0.1)


def test_a_filter_in_a_file_is_the_filter(tmp_path):
    bloom = made(tmp_path / "f", 5_000)
    again = opened(tmp_path / "f")
    assert (again.words == bloom.words).all() and (again.slices == bloom.slices).all()
    assert (again.keys, again.rate, again.checksum) == ("k", 0.01, bloom.checksum)
    assert 4_900 < again.inserted <= 5_000 == again.capacity
    assert again.measured_rate() == bloom.measured_rate()


def test_a_grown_filter_contains_the_keys_of_the_first_and_leaves_its_file_unchanged(tmp_path):
    made(tmp_path / "one", 5_000, seed=1)
    before = (tmp_path / "one").read_bytes()
    bloom = BloomFilter.create(tmp_path / "two", "k", 0.01)
    bloom.append_from(tmp_path / "one")
    assert add(bloom, random_keys(5_000, 1)).all()
    new = random_keys(5_000, 2)
    assert add(bloom, new).mean() < 0.02
    bloom.finish()
    two = opened(tmp_path / "two")
    assert len(two.slices) == 2 and two.slices[1, kernel.PROBES] > two.slices[0, kernel.PROBES]
    assert two.count(random_keys(5_000, 1)) == two.count(new) == 5_000
    assert (tmp_path / "one").read_bytes() == before


def test_spare_room_is_used_before_a_filter_grows(tmp_path):
    bloom = BloomFilter.create(tmp_path / "one", "k", 0.01)
    bloom.reserve(10_000)
    add(bloom, random_keys(4_000, 1))
    bloom.finish()
    two = BloomFilter.create(tmp_path / "two", "k", 0.01)
    two.append_from(tmp_path / "one")
    assert not two.reserve(6_000)
    add(two, random_keys(6_000, 2))
    assert len(two.slices) == 1 and two.bytes == bloom.bytes


def test_of_nested_filters_only_the_outermost_is_used(tmp_path):
    first, second, other = (tmp_path / n for n in ("one", "two", "other"))
    made(first, 1_000)
    bloom = BloomFilter.create(second, "k", 0.01)
    bloom.append_from(first)
    add(bloom, random_keys(1_000, 2))
    bloom.finish()
    made(other, 1_000, seed=3)
    assert (
        grown_from([first, second, other]) == [second, other] == grown_from([second, first, other])
    )
    copy = tmp_path / "copy"
    shutil.copy(other, copy)
    assert grown_from([other, copy]) == [other]


def damaged(path, position: int, byte: int = 0xAA) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= byte
    path.write_bytes(data)


@pytest.mark.parametrize("position", [0, 9, 17, 60])
def test_a_damaged_header_is_refused_in_one_line(tmp_path, position):
    made(tmp_path / "f", 100)
    damaged(tmp_path / "f", position)
    with pytest.raises(UsageError) as error:
        opened(tmp_path / "f")
    assert str(tmp_path / "f") in str(error.value) and "\n" not in str(error.value)


def test_damaged_blocks_are_found_when_a_filter_is_taken_over(tmp_path):
    made(tmp_path / "f", 100)
    damaged(tmp_path / "f", HEADER + 20)
    bloom = BloomFilter.create(tmp_path / "g", "k", 0.01)
    with pytest.raises(UsageError, match="blocks of this Bloom filter are damaged"):
        bloom.append_from(tmp_path / "f")


def test_cut_absent_foreign_and_unfinished_files_are_refused(tmp_path):
    path = tmp_path / "f"
    bloom = made(path, 100)
    whole = path.read_bytes()
    for data in (whole[:-1], whole + b"x", whole[:100], b""):
        path.write_bytes(data)
        with pytest.raises(UsageError, match=r"bytes instead of|is not a Bloom filter"):
            read_header(path)
    unfinished = BloomFilter.create(tmp_path / "u", "k", 0.01)
    unfinished.reserve(10)
    with pytest.raises(UsageError, match="is not a Bloom filter"):
        read_header(tmp_path / "u")
    with pytest.raises(UsageError, match="cannot read"):
        read_header(tmp_path / "absent")
    path.write_bytes(whole)
    for keys, seed in (("other", 0), ("k", 7)):
        other = BloomFilter.create(tmp_path / "o", keys, 0.01, seed)
        with pytest.raises(UsageError, match="of other keys"):
            other.append_from(path)
    assert bloom.checksum == read_header(path).checksum


def with_header(path, header):
    """The filter with another header, its checksum made to fit."""
    import xxhash

    text = json.dumps(header).encode()
    data = bytearray(path.read_bytes())
    front = data[:8] + len(text).to_bytes(8, "little")
    front += xxhash.xxh3_64_intdigest(text).to_bytes(8, "little") + text
    path.write_bytes(front.ljust(HEADER) + data[HEADER:])


def test_a_header_of_another_version_names_what_it_does_not_know(tmp_path):
    path = tmp_path / "f"
    made(path, 100)
    with_header(path, {**read_header(path).model_dump(), "version": 2})
    with pytest.raises(UsageError, match=r"another version of llmcurate \(version is 2"):
        read_header(path)


@pytest.mark.parametrize("keys", [1 << 31, 1 << 62, 1 << 64])
@pytest.mark.parametrize("field", ["capacity", "inserted"])
def test_a_slice_that_claims_more_keys_than_it_has_bits_is_refused(tmp_path, field, keys):
    """Its rate was computed with an array as long as the root of that number."""
    path = tmp_path / "f"
    made(path, 100)
    header = read_header(path).model_dump()
    header["slices"][0][field] = keys
    with_header(path, header)
    with pytest.raises(UsageError, match="f: a slice has more keys"):
        read_header(path)


def test_the_same_keys_in_the_same_order_make_the_same_bytes(tmp_path):
    made(tmp_path / "a", 1_000)
    made(tmp_path / "b", 1_000)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
