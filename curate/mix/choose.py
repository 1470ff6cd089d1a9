"""How often each document is taken: whole epochs, and of one more those with the least keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curate.mix.measure import Measured
from curate.mix.order import as_share, keys

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
    """Which rows are in an epoch. Keep one for a reading of all documents, in their order."""

    def __init__(self, chosen: Chosen) -> None:
        self.chosen, self._left = chosen, chosen.ties.copy()

    def last(self, number: np.ndarray, key: np.ndarray) -> np.ndarray:
        """bool[rows]: taken in the epoch that is not whole; key: of that epoch of each stratum."""
        taken = key < self.chosen.cut[number]
        if self._left.any():
            for row in np.flatnonzero((key == self.chosen.cut[number]) & (self._left[number] > 0)):
                stratum = number[row]
                if self._left[stratum] > 0:
                    self._left[stratum] -= 1
                    taken[row] = True
        return taken


def last_keys(base: np.ndarray, full: np.ndarray) -> np.ndarray:
    """uint64[rows]: keys in the epoch after the whole ones. full: of each row's stratum."""
    found = base.copy()
    for epoch in np.unique(full).tolist():
        mine = full == epoch
        found[mine] = keys(base[mine], int(epoch))
    return found


def choose(measured: Measured, quota: np.ndarray) -> Chosen:
    """For quotas of strata (int64[strata], of the unit): the number of documents whose size comes
    nearest, half a document away at most; exact where the unit is documents."""
    size = np.maximum(measured.sizes, 1)
    full = np.where(measured.sizes > 0, quota // size, 0)
    rest = np.where(measured.sizes > 0, quota - full * size, 0)
    chosen = Chosen(full, np.zeros(len(full), np.uint64), np.zeros(len(full), np.int64))
    open_ = np.flatnonzero(rest)
    if not len(open_):
        return chosen
    row_of = np.full(len(full), -1)
    row_of[open_] = np.arange(len(open_))
    sums = np.zeros(len(open_) << _BITS, np.int64)
    for number, base, weight in measured.rows("stratum", "key", "size"):
        mine = row_of[number] >= 0
        number, base, weight = number[mine], base[mine], weight[mine]
        first = last_keys(base, full[number]) >> np.uint64(64 - _BITS)
        np.add.at(sums, (row_of[number] << _BITS) + first.astype(np.int64), weight)
    ends = np.cumsum(sums.reshape(len(open_), 1 << _BITS), axis=1)
    crossed = np.array([np.searchsorted(e, rest[s]) for e, s in zip(ends, open_, strict=True)])
    before = np.where(crossed > 0, ends[np.arange(len(open_)), np.maximum(crossed - 1, 0)], 0)
    found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in open_]
    for number, base, weight in measured.rows("stratum", "key", "size"):
        row = row_of[number]
        mine = row >= 0
        row, number, base, weight = row[mine], number[mine], base[mine], weight[mine]
        key = last_keys(base, full[number])
        near = (key >> np.uint64(64 - _BITS)).astype(np.int64) == crossed[row]
        for place in np.unique(row[near]).tolist():
            of = near & (row == place)
            found[place].append((key[of], weight[of]))
    for place, stratum in enumerate(open_.tolist()):
        key = np.concatenate([k for k, _ in found[place]])
        weight = np.concatenate([w for _, w in found[place]])
        _cut(chosen, stratum, key, weight, int(rest[stratum] - before[place]), int(crossed[place]))
    return chosen


def _cut(
    chosen: Chosen, stratum: int, key: np.ndarray, weight: np.ndarray, rest: int, beginning: int
) -> None:
    """Ends the last epoch of a stratum within the keys of one beginning."""
    order = np.argsort(key, kind="stable")
    key = key[order]
    reached = np.concatenate([[0], np.cumsum(weight[order])])
    count = int(np.argmin(np.abs(reached - rest)))
    if count < len(key):
        chosen.cut[stratum] = key[count]
        chosen.ties[stratum] = count - np.searchsorted(key, key[count])
    elif beginning + 1 < 1 << _BITS:
        chosen.cut[stratum] = (beginning + 1) << (64 - _BITS)
    else:  # what is left out is less than half a document
        chosen.full[stratum] += 1
