"""Splits by cluster: near-duplicates lie on one side of training and validation.

Documents that share a band of MinHash, directly or through others, make a cluster. All of it has
the key of one of its documents, so a cluster is held out as often as a document would be. The bands
are those of the MinHash dedup beside the corpus (OUT/index), else they are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.corpus import indexes
from curate.mix.overlap import Near, clusters
from curate.mix.sources import Source
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.disk.files import TEMPORARY, remove
from llmcurate.base.disk.units import counted
from tokenize_kit.shards.shuffle import Draws, keys

# Twins are to be found for certain, and a pair that is less alike than these costs nothing here
# but a larger cluster: so bands of few rows, unlike those of a dedup.
THRESHOLD, RECALL = 0.8, 0.99
SCRATCH = ".scratch-clusters"


@dataclass(frozen=True)
class Clusters:
    """draws: of the documents in clusters of two or more; clusters, members: how many there are;
    says: how they were found, in a line."""

    draws: Draws
    clusters: int
    members: int
    says: str


def has_index(run: Path | None) -> bool:
    """Return whether a MinHash dedup has left its bands beside the corpus of that OUT."""
    from curate.dedup.minhash.near_duplicates import DedupMinhash

    return run is not None and any(
        index.record.step == DedupMinhash.name and index.record.step_version == DedupMinhash.version
        for index in indexes.all_in(run)
    )


def find_clusters(
    corpus: Callable[..., Iterator[pa.RecordBatch]], run: Path | None, folder: Path
) -> Clusters:
    """The clusters of a corpus with columns id and text. run: the OUT that it is the corpus of;
    folder: for files meanwhile. Held are 8 bytes a document, and the documents in clusters."""
    from curate.dedup.minhash.near_duplicates import DedupMinhash

    scratch = folder / SCRATCH
    remove(scratch, inside=folder)
    scratch.mkdir(parents=True)
    try:
        source = Source("corpus", lambda: iter(()), inputs=(str(run),) if run else ())
        near = Near([source], scratch, DedupMinhash(threshold=THRESHOLD, recall=RECALL))
        hashes, done = [np.empty(0, np.uint64)], False
        try:
            for batch in corpus(["id"] if near.kept else ["id", "text"]):
                near.add(source.name, sum(map(len, hashes)), batch)
                hashes.append(keys(pa.chunked_array([batch["id"]])))
            done = True
        finally:
            near.close(failed=not done)
        with scratch_database(scratch / f"{TEMPORARY}spill") as db:
            clusters(db, near.path)
            columns = db.execute("SELECT row, label FROM clusters ORDER BY row").fetchnumpy()
    finally:
        remove(scratch, inside=folder)
    member = np.concatenate(hashes)[np.asarray(columns["row"], np.int64)]
    label = np.asarray(columns["label"], np.int64)
    bands, rows = near.step.banding
    how = f"{counted(bands, 'band')} of {counted(rows, 'row')}"
    how += f", {near.kept[source.name].folder}" if near.kept else ""
    count = len(np.unique(label))
    says = (
        f"split by cluster: {counted(len(member), 'document')} in"
        f" {counted(count, 'cluster')} of near-duplicates ({how})"
    )
    if absent := near.absent.get(source.name):
        says += f"; the index does not know {counted(absent, 'document')}, which are on their own"
    return Clusters(_draws(member, label), count, len(member), says)


def _draws(member: np.ndarray, label: np.ndarray) -> Draws:
    """One key a cluster: that of the member whose scattered key is least, whatever the order."""
    scattered = member * np.uint64(0x9E3779B97F4A7C15)
    scattered ^= scattered >> np.uint64(29)
    scattered *= np.uint64(0xBF58476D1CE4E5B9)
    order = np.lexsort((member, scattered, label))
    first = np.flatnonzero(np.diff(label[order], prepend=-1) != 0)
    sizes = np.diff(np.append(first, len(order)))
    return Draws.of_ids(member[order], np.repeat(member[order][first], sizes))
