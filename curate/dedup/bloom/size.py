"""How large a blocked Bloom filter has to be for a wanted rate of false positives.

The classical formula (1 - e^(-kn/m))^k holds for bits spread over the whole filter. In blocks the
number of keys a block holds varies, and full blocks answer wrongly more often than empty ones do
rightly, so the rate is a mean over the Poisson distribution of that number (Putze et al. 2007,
section 3). This file computes that mean and searches the size for which it is what was asked.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from curate.dedup.bloom.kernel import BLOCK_BITS, MOST_BLOCKS
from curate.errors import UsageError

MOST_PROBES = 32


def expected_rate(keys_a_block: float, probes: int) -> float:
    """False positives of a slice whose blocks hold that many keys in the mean."""
    if keys_a_block <= 0:
        return 0.0
    reach = 12 * math.sqrt(keys_a_block) + 40
    keys = np.arange(max(0, int(keys_a_block - reach)), int(keys_a_block + reach) + 1)
    log_factorial = np.array([math.lgamma(k + 1) for k in keys.tolist()])
    weight = np.exp(keys * math.log(keys_a_block) - keys_a_block - log_factorial)
    return float(np.sum(weight * _full(keys, probes)))


def _full(keys: np.ndarray, probes: int) -> np.ndarray:
    """The chance that all probes of an absent key hit set bits of a block with `keys` keys."""
    # Mean and variance of the share of set bits after `throws` throws at BLOCK_BITS bits.
    throws = keys * float(probes)
    one, two = 1 - 1 / BLOCK_BITS, 1 - 2 / BLOCK_BITS
    empty = one**throws
    both = two**throws
    variance = empty / BLOCK_BITS + both * (1 - 1 / BLOCK_BITS) - empty**2
    share = 1 - empty
    spread = np.divide(variance, share**2, out=np.zeros_like(share), where=share > 0)
    return np.minimum(1.0, share**probes * (1 + 0.5 * probes * (probes - 1) * spread))


@lru_cache(maxsize=64)
def best_load(rate: float) -> tuple[float, int]:
    """(keys a block, probes): the most keys a block may hold in the mean for that rate."""
    best = (0.0, 1)
    for probes in range(1, MOST_PROBES + 1):
        low, high = 0.0, float(BLOCK_BITS)
        for _ in range(60):
            middle = (low + high) / 2
            if expected_rate(middle, probes) > rate:
                high = middle
            else:
                low = middle
        if low > best[0]:
            best = (low, probes)
        elif low < best[0] * 0.9:
            break
    return best


def blocks_for(keys: int, rate: float) -> tuple[int, int]:
    """(blocks, probes) of a slice that holds so many keys at that rate.

    UsageError where no slice is large enough.
    """
    load, probes = best_load(rate)
    blocks = max(1, math.ceil(keys / load)) if load > 0 else MOST_BLOCKS + 1
    if blocks > MOST_BLOCKS:
        raise UsageError(
            f"a Bloom filter of {keys:,} keys with {rate:g} false positives is larger than 256 GiB;"
            " raise false_positives or lower expected"
        )
    return blocks, probes
