"""Signatures of a few bits: packing, and estimates that are unbiased as in the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dedup.minhash import kernels as kernel
from curate.dedup.minhash.near_duplicates import standard_error
from tests.callable_kernels import callable_kernel

signatures = callable_kernel(kernel.signatures)
equal_values = callable_kernel(kernel.equal_values)
estimated = callable_kernel(kernel.estimated)


def fmix32(h: int) -> int:
    h ^= h >> 16
    h = h * 0x85EBCA6B & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ (h >> 16)


def fields(row: list[int], bits: int) -> list[int]:
    return [fmix32((v + p * 0x9E3779B1) & 0xFFFFFFFF) >> (32 - bits) for p, v in enumerate(row)]


ROWS = st.integers(1, 40).flatmap(
    lambda n: st.lists(
        st.lists(st.integers(0, 2**32 - 1), min_size=n, max_size=n), min_size=2, max_size=2
    )
)


@given(ROWS, st.integers(1, 32))
@settings(max_examples=150, deadline=None)
def test_bits_are_packed_and_compared_as_plain_python_does(rows, bits):
    packed = kernel.pack(np.array(rows, np.uint32), bits)
    assert packed.shape == (2, kernel.packed_bytes(len(rows[0]), bits))
    kept = [fields(row, bits) for row in rows]
    for row, values in zip(packed, kept, strict=True):
        whole = sum(v << (p * bits) for p, v in enumerate(values))
        assert int.from_bytes(row.tobytes(), "little") == whole
    equal = sum(a == b for a, b in zip(*kept, strict=True))
    assert equal_values(packed[0], packed[1], len(rows[0]), bits) == equal


def pairs(similarity: float, count: int, draw: np.random.Generator, size: int = 300):
    """Signatures of pairs of sets of that exact Jaccard similarity, by 112 permutations."""
    shared = round(2 * size * similarity / (1 + similarity))
    a, b = kernel.permutations(112, 1)
    values = draw.integers(0, 2**32, (count, 2 * size - shared), np.uint64)
    first = values[:, :size]
    second = values[:, size - shared :]
    offsets = np.arange(count + 1) * size
    both = [signatures(offsets, x.reshape(-1).copy(), a, b) for x in (first, second)]
    return *both, shared / (2 * size - shared)


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("similarity", [0.0, 0.3, 0.8])
def test_the_estimate_is_unbiased_and_as_exact_as_theory_says(bits, similarity):
    """400 pairs: their mean within four of its standard errors, their spread within a fifth."""
    first, second, true = pairs(similarity, 400, np.random.default_rng(bits))
    x, y = kernel.pack(first, bits), kernel.pack(second, bits)
    equal = np.array([equal_values(p, q, 112, bits) for p, q in zip(x, y, strict=True)])
    chance = 2.0**-bits
    estimates = (equal / 112 - chance) / (1 - chance)  # not cut off at 0 as `estimated` is
    error = standard_error(true, 112, bits)
    assert abs(estimates.mean() - true) < 4 * error / 20 + 1e-9
    if error > 0.001:
        assert estimates.std() == pytest.approx(error, rel=0.2)
    cut = [estimated(int(e), 112, bits) for e in equal]
    assert cut == pytest.approx(np.clip(estimates, 0, 1))


def test_chance_matches_of_bits_are_independent_per_position():
    """Sets of one shingle: by the low bits of affine values all 112 places would agree at once."""
    draw = np.random.default_rng(0)
    a, b = kernel.permutations(112, 1)
    hashes = draw.integers(0, 2**32, 400, np.uint64)
    packed = kernel.pack(signatures(np.arange(401), hashes, a, b), 1)
    equal = [equal_values(packed[i], packed[i + 1], 112, 1) for i in range(0, 400, 2)]
    assert min(equal) > 20 and max(equal) < 92  # 56 and eight standard deviations of 5.3


def test_the_standard_error_is_that_of_the_paper():
    """Li and Koenig 2010: with all bits the variance is that of MinHash; one bit more than doubles
    it at 0.5 (0.25 / k against 0.75 * 0.25 / 0.25 / k)."""
    assert standard_error(0.5, 100, 32) == pytest.approx(0.05, rel=1e-6)
    assert standard_error(0.5, 100, 1) == pytest.approx((0.75 / 100) ** 0.5)
