"""How often intervals of differences hold the truth, in simulated experiments whose deviations are
known (docs/experiments.md): `python benchmarks/interval_coverage.py [EXPERIMENTS]`."""

from __future__ import annotations

import math
import sys

import numpy as np

from train.evaluate import paired

TRUTH = 0.01
SEED = 0
paired.RESAMPLES = 200  # the variance over documents needs no more
# Of the variance of the difference, the shares of seeds, of documents, and of both together.
CASES = {
    "seeds": (1.0, 0.0, 0.0),
    "mostly seeds": (0.8, 0.1, 0.1),
    "half and half": (0.5, 0.5, 0.0),
    "mostly documents": (0.1, 0.8, 0.1),
    "documents": (0.0, 1.0, 0.0),
    "documents by seed": (0.0, 0.0, 1.0),
}


def held(shares: tuple[float, float, float], seeds: int, documents: int, count: int) -> float:
    """The share of so many experiments whose interval holds the truth. Documents differ in size as
    those of the web do (lognormal), and are of two sources."""
    draw = np.random.default_rng(SEED)
    by_seed, by_document, by_both = (
        0.01 * math.sqrt(share * many)
        for share, many in zip(shares, (seeds, documents, seeds * documents), strict=True)
    )
    hits = 0
    for _ in range(count):
        sizes = draw.lognormal(7, 0.6, documents).astype(np.int64) + 1
        bits = TRUTH + draw.normal(0, by_seed, (seeds, 1)) + draw.normal(0, by_document, documents)
        bits = bits + draw.normal(0, by_both, (seeds, documents))
        nats = bits * sizes * math.log(2)
        difference = paired.paired_difference(
            np.zeros_like(nats), nats, sizes, np.arange(documents) % 2, seed=SEED
        )
        interval = difference.interval
        assert interval is not None
        hits += interval[0] <= TRUTH <= interval[1]
    return hits / count


def main(count: int) -> None:
    """Prints a table: rows by where the variance is, columns by seeds and documents."""
    shapes = [(2, 100), (3, 50), (3, 100), (3, 400), (5, 100)]
    print(f"{count:,} experiments each, seed {SEED}: share of intervals that hold the truth")
    head = "".join(f"{f'{s} seeds, {d}':>14}" for s, d in shapes)
    print(f"{'variance by':<20}{head}")
    for name, shares in CASES.items():
        rates = [held(shares, seeds, documents, count) for seeds, documents in shapes]
        print(f"{name:<20}" + "".join(f"{100 * rate:>13.1f}%" for rate in rates))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
