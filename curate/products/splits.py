"""Splits by cluster, which put near-duplicates either all into training or all into validation. A
cluster is a set of documents that share a MinHash band, directly or through other documents. All
documents of a cluster get the key of one of its documents. The key decides whether a document is
held out, so a cluster is held out with the same probability as a single document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.corpus import indexes
from curate.corpus.sketches import view
from curate.dedup.minhash.near_duplicates import DedupMinhash
from curate.text.buffers import as_large_string
from llmcurate.base.disk.database import arrow_batches, literal, scratch_database
from llmcurate.base.disk.files import TEMPORARY, remove
from llmcurate.base.disk.parquet_writer import TableWriter
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


_SETTINGS = ("bands", "rows", "shingle", "ngram", "normalize", "seed")
BANDS = pa.schema([("row", pa.int64()), ("key", pa.uint64())])
IDS = pa.schema([("row", pa.int64()), ("id", pa.string())])


def minhash_indexes(run: Path | None) -> list[indexes.Index]:
    """Return the indexes of MinHash dedups in the OUT folder `run`."""
    return [
        index
        for index in (indexes.all_in(run) if run is not None else ())
        if index.record.step == DedupMinhash.name
        and index.record.step_version == DedupMinhash.version
    ]


class BandKeys:
    """Collects the MinHash band keys of a corpus. Call `add` for its documents in order, then
    `close`, which writes every band key to the parquet file `path`, with the columns `row` (the
    number of the document) and `key`. If `run` has an index of a MinHash dedup, its keys and
    settings are used instead of `step`; `absent` counts the documents that this index lacks."""

    def __init__(self, run: Path | None, scratch: Path, step: DedupMinhash) -> None:
        self.scratch, self.path, self.absent, self._rows = scratch, scratch / "bands.parquet", 0, 0
        kept = minhash_indexes(run)
        if kept:
            stated = kept[0].record.comparable
            settings = {name: stated[name] for name in _SETTINGS}
            step = DedupMinhash(compare=stated.get("compare", "raw"), **settings)
        self.step, own = step, step.comparable()
        names = (*_SETTINGS, "compare", "unicode")
        fitting = (i for i in kept if all(i.record.comparable.get(n) == own.get(n) for n in names))
        self.index = next(fitting, None)
        self._ids = TableWriter(scratch / "ids.parquet")
        self._ids.write(IDS.empty_table())
        self._bands = TableWriter(self.path)
        self._bands.write(BANDS.empty_table())

    def add(self, batch: pa.RecordBatch) -> None:
        number = np.arange(self._rows, self._rows + batch.num_rows)
        self._rows += batch.num_rows
        if self.index is not None:
            ids = [pa.array(number), batch["id"].cast(pa.string())]
            self._ids.write(pa.table(ids, schema=IDS))
            return
        from curate.dedup.minhash.kernels import band_keys

        bands, rows = self.step.banding
        signature, count = self.step.signatures(as_large_string(batch["text"]))
        sketched = np.flatnonzero(count > 0)
        self._put(number[sketched], band_keys(signature[sketched], bands, rows))

    def _put(self, number: np.ndarray, keys: np.ndarray) -> None:
        table = [pa.array(np.repeat(number, keys.shape[1])), pa.array(keys.reshape(-1))]
        self._bands.write(pa.table(table, schema=BANDS))

    def close(self, failed: bool = False) -> None:
        """Add the band keys of the index to the file and close it. If `failed`, discard it."""
        self._ids.close(failed)
        done = False
        try:
            if self.index is not None and not failed:
                self._join(self.index)
            done = not failed
        finally:
            self._bands.close(not done)

    def _join(self, index: indexes.Index) -> None:
        files = tuple(replace(file, corpus="") for file in index.files(0))
        bands, _ = self.step.banding
        joined = 0
        with scratch_database(self.scratch / f"{TEMPORARY}spill-near") as db:
            view(db, files)
            ids = literal(self.scratch / "ids.parquet")
            reader = db.sql(
                f"""SELECT i.row, s.bands FROM read_parquet({ids}) i
                JOIN sketches s ON i.id = s.id"""
            )
            for batch in arrow_batches(reader):
                joined += batch.num_rows
                batch = batch.filter(batch["bands"].is_valid())
                raw = batch["bands"].cast(pa.binary())
                _, offsets, data = raw.buffers()
                first = np.frombuffer(offsets, np.int32)[raw.offset] if len(raw) else 0
                keys = np.frombuffer(data or b"", np.uint8)[first : first + 8 * bands * len(raw)]
                self._put(batch["row"].to_numpy(), keys.view(np.uint64).reshape(-1, bands))
        self.absent = self._rows - joined


def clusters(db: Any, bands: Path) -> None:
    """Create the table `clusters` in the database. Its rows are the documents that share a band key
    with others, directly or through other documents. Columns: `row`, the number of the document;
    `label`, the smallest such number in its cluster."""
    edges = db.execute(
        f"""SELECT DISTINCT min(row) OVER (PARTITION BY key) AS a, row AS b
        FROM read_parquet({literal(bands)}) QUALIFY count(*) OVER (PARTITION BY key) > 1"""
    ).fetchnumpy()
    a, b = (np.asarray(edges[name], np.int64) for name in ("a", "b"))
    rows, inverse = np.unique(np.concatenate([a, b]), return_inverse=True)
    label = connected(inverse[: len(a)], inverse[len(a) :], len(rows))
    table = pa.table({"row": rows, "label": rows[label] if len(rows) else rows})
    db.register("found", table)
    db.execute("CREATE TABLE clusters AS SELECT * FROM found")
    db.unregister("found")


def connected(a: np.ndarray, b: np.ndarray, count: int) -> np.ndarray:
    """Return int64[count]: the smallest node in each node's component. Edge i joins a[i] and
    b[i]."""
    label = np.arange(count)
    while True:
        least = np.minimum(label[a], label[b])
        after = label.copy()
        for ends in (a, b, label[a], label[b]):
            np.minimum.at(after, ends, least)
        after = after[after]
        if np.array_equal(after, label):
            return label
        label = after


def find_clusters(
    corpus: Callable[..., Iterator[pa.RecordBatch]], run: Path | None, folder: Path
) -> Clusters:
    """Return the clusters of near-duplicates in a corpus with the columns id and text. `run` is the
    OUT of the run that made the corpus, and `folder` a folder for temporary files. Memory holds the
    8-byte hashes of all ids, and a key for each document in a cluster."""
    scratch = folder / SCRATCH
    remove(scratch, inside=folder)
    scratch.mkdir(parents=True)
    try:
        near = BandKeys(run, scratch, DedupMinhash(threshold=THRESHOLD, recall=RECALL))
        hashes, complete = [np.empty(0, np.uint64)], False
        try:
            for batch in corpus(["id"] if near.index else ["id", "text"]):
                near.add(batch)
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
    how += f", {near.index.folder}" if near.index else ""
    count = len(np.unique(label))
    says = (
        f"split by cluster: {counted(len(member), 'document')} in"
        f" {counted(count, 'cluster')} of near-duplicates ({how})"
    )
    if near.absent:
        says += f"; {counted(near.absent, 'document')} not in the index, each split alone"
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
