"""Order of a mix: the copies that it takes of each document, and their positions.

Both are pure functions of seed, source and id.

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

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from curate.mix.measure import Measured

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


_BITS = 12  # of a key: sizes are first summed by its beginning, so that memory is bounded


@dataclass
class Chosen:
    """Of each stratum, by number. full: whole epochs; cut: of one more epoch documents with a key
    below it are taken, and the first `ties` of those with that key; 0 and 0: no further epoch."""

    full: np.ndarray  # int64
    cut: np.ndarray  # uint64
    ties: np.ndarray  # int64

    @property
    def epochs(self) -> np.ndarray:
        """float64[strata]: how many epochs a stratum lays over the mix."""
        part = np.array([as_share(int(cut)) for cut in self.cut], np.float64)
        return np.maximum(self.full + part, np.finfo(np.float64).tiny)


class Taking:
    """The rows that are in an epoch. Keep one for a reading of all documents, in their order."""

    def __init__(self, chosen: Chosen) -> None:
        self.chosen, self._ties = chosen, chosen.ties.copy()

    def last(self, number: np.ndarray, key: np.ndarray) -> np.ndarray:
        """bool[rows]: taken in the epoch that is not whole; key: of that epoch of each stratum."""
        taken = key < self.chosen.cut[number]
        if self._ties.any():
            for row in np.flatnonzero((key == self.chosen.cut[number]) & (self._ties[number] > 0)):
                stratum = number[row]
                if self._ties[stratum] > 0:
                    self._ties[stratum] -= 1
                    taken[row] = True
        return taken


def last_keys(base: np.ndarray, full: np.ndarray) -> np.ndarray:
    """uint64[rows]: keys in the epoch after the whole ones. full: of each row's stratum."""
    result = base.copy()
    for epoch in np.unique(full).tolist():
        of_epoch = full == epoch
        result[of_epoch] = keys(base[of_epoch], int(epoch))
    return result


def choose(measured: Measured, quota: np.ndarray) -> Chosen:
    """For quotas of strata (int64[strata], of the unit): the number of documents whose size comes
    nearest, half a document away at most; exact where the unit is documents."""
    size = np.maximum(measured.sizes, 1)
    full = np.where(measured.sizes > 0, quota // size, 0)
    remainder = np.where(measured.sizes > 0, quota - full * size, 0)
    chosen = Chosen(full, np.zeros(len(full), np.uint64), np.zeros(len(full), np.int64))
    open_ = np.flatnonzero(remainder)
    if not len(open_):
        return chosen
    row_of = np.full(len(full), -1)
    row_of[open_] = np.arange(len(open_))
    sums = np.zeros(len(open_) << _BITS, np.int64)
    for number, base, weight in measured.rows("stratum", "key", "size"):
        open_rows = row_of[number] >= 0
        number, base, weight = number[open_rows], base[open_rows], weight[open_rows]
        first = last_keys(base, full[number]) >> np.uint64(64 - _BITS)
        np.add.at(sums, (row_of[number] << _BITS) + first.astype(np.int64), weight)
    ends = np.cumsum(sums.reshape(len(open_), 1 << _BITS), axis=1)
    crossed = np.array([np.searchsorted(e, remainder[s]) for e, s in zip(ends, open_, strict=True)])
    before = np.where(crossed > 0, ends[np.arange(len(open_)), np.maximum(crossed - 1, 0)], 0)
    near_keys: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in open_]
    for number, base, weight in measured.rows("stratum", "key", "size"):
        row = row_of[number]
        open_rows = row >= 0
        row, number, base, weight = (x[open_rows] for x in (row, number, base, weight))
        key = last_keys(base, full[number])
        near = (key >> np.uint64(64 - _BITS)).astype(np.int64) == crossed[row]
        for index in np.unique(row[near]).tolist():
            selected = near & (row == index)
            near_keys[index].append((key[selected], weight[selected]))
    for index, stratum in enumerate(open_.tolist()):
        key = np.concatenate([k for k, _ in near_keys[index]])
        weight = np.concatenate([w for _, w in near_keys[index]])
        _cut(
            chosen,
            stratum,
            key,
            weight,
            int(remainder[stratum] - before[index]),
            int(crossed[index]),
        )
    return chosen


def _cut(
    chosen: Chosen,
    stratum: int,
    key: np.ndarray,
    weight: np.ndarray,
    missing: int,
    beginning: int,
) -> None:
    """Ends the last epoch of a stratum within the keys of one beginning."""
    order = np.argsort(key, kind="stable")
    key = key[order]
    reached = np.concatenate([[0], np.cumsum(weight[order])])
    count = int(np.argmin(np.abs(reached - missing)))
    if count < len(key):
        chosen.cut[stratum] = key[count]
        chosen.ties[stratum] = count - np.searchsorted(key, key[count])
    elif beginning + 1 < 1 << _BITS:
        chosen.cut[stratum] = (beginning + 1) << (64 - _BITS)
    else:  # what is left out is less than half a document
        chosen.full[stratum] += 1
