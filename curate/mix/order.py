"""Where each copy of a document stands in the mix: a pure function of seed, source and id.

An epoch of a source is all of its documents once. Its key in an epoch orders it there: the first
four bits are the same in every epoch, the others are drawn anew. So an epoch is complete before the
next one begins, none of its windows holds a document twice, two copies stand 15/16 of an epoch
apart or more, and neighbours change from epoch to epoch. Of an epoch that is not taken whole the
documents with the least keys are taken.

A source whose E epochs fill the mix has the copy of epoch e with key k at (e + k) / E of the mix,
k in [0, 1). All sources are laid over each other so: each keeps its share in any stretch of the
mix, up to the noise of a random order.
"""

from __future__ import annotations

import numpy as np

BLOCK = np.uint64(60)  # bits drawn anew in every epoch; the other four keep copies apart
_GAMMA = 0x9E3779B97F4A7C15  # of SplitMix64 (Steele et al. 2014)
_ONE = 2.0**-64


def seed_of(source: str, seed: int) -> int:
    """The seed of a source's ids: equal ids of two sources have nothing to do with each other."""
    import xxhash

    return xxhash.xxh3_64_intdigest(source.encode("utf-8", "surrogatepass"), seed)


def keys(base: np.ndarray, epoch: int) -> np.ndarray:
    """uint64[rows]: the keys in an epoch, from those that id and seed give (uint64[rows])."""
    if epoch == 0:
        return base
    z = base + np.uint64(_GAMMA * epoch % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (base >> BLOCK << BLOCK) | (z >> np.uint64(64 - int(BLOCK)))


def positions(key: np.ndarray, epoch: int, epochs: float) -> np.ndarray:
    """float64[rows] in [0, 1): where the copies of an epoch stand in a mix that holds so many."""
    return np.minimum((epoch + key * _ONE) / epochs, np.nextafter(1.0, 0.0))


def as_share(key: int) -> float:
    """A key as a part of an epoch: what is taken of the last one, where the key ends it."""
    return key * _ONE
