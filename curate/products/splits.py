"""Splits by cluster, which put near-duplicates either all into training or all into validation. A
cluster is a set of documents that share a MinHash band, directly or through other documents. All
documents of a cluster get the key of one of its documents. The key decides whether a document is
held out, so a cluster is held out with the same probability as a single document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.corpus import indexes
from curate.mix.overlap import BandKeys, clusters
from curate.mix.sources import Source
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.disk.files import TEMPORARY, remove
from llmcurate.base.disk.units import counted
from tokenize_kit.shards.shuffle import DocumentKeys, keys

# Bands have fewer rows than in a dedup: no near-duplicate may be missed, and a wrong match only
# makes a cluster larger.
THRESHOLD, RECALL = 0.8, 0.99
SCRATCH = ".scratch-clusters"


@dataclass(frozen=True)
class Clusters:
    """Clusters of near-duplicates in a corpus."""

    draws: DocumentKeys  # a key for each document in a cluster of two or more
    clusters: int  # number of such clusters
    members: int  # number of documents in them
    says: str  # one line on how the clusters were found


def has_index(run: Path | None) -> bool:
    """Return True if the OUT folder `run` has an index of a MinHash dedup."""
    from curate.dedup.minhash.near_duplicates import DedupMinhash

    return run is not None and any(
        index.record.step == DedupMinhash.name and index.record.step_version == DedupMinhash.version
        for index in indexes.all_in(run)
    )


def find_clusters(
    corpus: Callable[..., Iterator[pa.RecordBatch]], run: Path | None, folder: Path
) -> Clusters:
    """Return the clusters of near-duplicates in a corpus with the columns id and text. `run` is the
    OUT of the run that made the corpus, and `folder` a folder for temporary files. Memory holds the
    8-byte hashes of all ids, and a key for each document in a cluster."""
    from curate.dedup.minhash.near_duplicates import DedupMinhash

    scratch = folder / SCRATCH
    remove(scratch, inside=folder)
    scratch.mkdir(parents=True)
    try:
        source = Source("corpus", lambda: iter(()), inputs=(str(run),) if run else ())
        near = BandKeys([source], scratch, DedupMinhash(threshold=THRESHOLD, recall=RECALL))
        hashes, complete = [np.empty(0, np.uint64)], False
        try:
            for batch in corpus(["id"] if near.kept else ["id", "text"]):
                near.add(source.name, sum(map(len, hashes)), batch)
                hashes.append(keys(pa.chunked_array([batch["id"]])))
            complete = True
        finally:
            near.close(failed=not complete)
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
        says += f"; {counted(absent, 'document')} not in the index, each split alone"
    return Clusters(_draws(member, label), count, len(member), says)


def _draws(member: np.ndarray, label: np.ndarray) -> DocumentKeys:
    """Return keys for the documents of each cluster. The id hash of one of the documents is the key
    of the whole cluster. The choice of this document does not depend on the order of documents.
    `member` is each document's id hash, `label` its cluster."""
    scattered = member * np.uint64(0x9E3779B97F4A7C15)
    scattered ^= scattered >> np.uint64(29)
    scattered *= np.uint64(0xBF58476D1CE4E5B9)
    order = np.lexsort((member, scattered, label))
    first = np.flatnonzero(np.diff(label[order], prepend=-1) != 0)
    sizes = np.diff(np.append(first, len(order)))
    return DocumentKeys.of_ids(member[order], np.repeat(member[order][first], sizes))
