"""Overlap of sources: count the texts that several of them have.

Texts are equal by hash (xxh3-128, the default of exact deduplication), or near-duplicates by
MinHash band keys. A run with a MinHash dedup keeps band keys in OUT/index, by document id. If a
source is the output of such a run, its band keys are read from there. The first of these sources
sets bands, rows, shingles and seed for all sources. For a source without an index of these
settings, band keys are computed. Documents with a common band key, directly or through other
documents, count as duplicates, as in `dedup --method minhash` without `verify`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus import indexes
from curate.corpus.sketches import SketchFile, view
from curate.dedup.minhash.near_duplicates import DedupMinhash
from curate.mix.sources import Source
from curate.mix.table import EXACT, NEAR, Overlap
from curate.text.buffers import as_large_string
from llmcurate.base.disk.database import arrow_batches, literal, scratch_database
from llmcurate.base.disk.files import TEMPORARY
from llmcurate.base.disk.parquet_writer import TableWriter

_SETTINGS = ("bands", "rows", "shingle", "ngram", "normalize", "seed")
BANDS = pa.schema([("row", pa.int64()), ("key", pa.uint64())])
IDS = pa.schema([("row", pa.int64()), ("id", pa.string())])


class BandKeys:
    """Collects the MinHash band keys of all sources. Call `add` for their documents, then `close`,
    which writes every band key to the parquet file `path`, with the columns `row` (the number of
    the document) and `key`. `kept` are the sources whose keys come from an index. `absent` is the
    number of documents that are missing in each source's index."""

    def __init__(
        self, sources: list[Source], scratch: Path, step: DedupMinhash | None = None
    ) -> None:
        self.scratch, self.path = scratch, scratch / "bands.parquet"
        self.kept: dict[str, indexes.Index] = {}
        self.absent: dict[str, int] = {}
        indexes_of = {s.name: self._indexes(s) for s in sources}
        first_index = next((kept[0] for kept in indexes_of.values() if kept), None)
        self.step = step or DedupMinhash()
        if first_index:
            settings = {name: first_index.record.comparable[name] for name in _SETTINGS}
            self.step = DedupMinhash(
                compare=first_index.record.comparable.get("compare", "raw"), **settings
            )
        own = self.step.comparable()
        for name, kept in indexes_of.items():
            for index in kept:
                names = (*_SETTINGS, "compare", "unicode")
                if all(index.record.comparable.get(n) == own.get(n) for n in names):
                    self.kept.setdefault(name, index)
        self._ids = {n: TableWriter(scratch / f"ids-{k}.parquet") for k, n in enumerate(self.kept)}
        self._bands = TableWriter(self.path)
        self._bands.write(BANDS.empty_table())
        for writer in self._ids.values():
            writer.write(IDS.empty_table())

    @staticmethod
    def _indexes(source: Source) -> list[indexes.Index]:
        if len(source.inputs) != 1 or "://" in source.inputs[0]:
            return []
        out = Path(source.inputs[0])
        minhash = [index for index in indexes.all_in(out) if index.record.step == DedupMinhash.name]
        return [i for i in minhash if i.record.step_version == DedupMinhash.version]

    def add(self, source: str, first: int, batch: pa.RecordBatch) -> None:
        """Add the next documents of a source. `first` is the number of the batch's first document
        among the documents of all sources."""
        number = pa.array(np.arange(first, first + batch.num_rows))
        if source in self._ids:
            table = pa.table([number, batch["id"].cast(pa.string())], schema=IDS)
            self._ids[source].write(table)
            return
        from curate.dedup.minhash.kernels import band_keys

        bands, rows = self.step.banding
        signature, count = self.step.signatures(as_large_string(batch["text"]))
        sketched = np.flatnonzero(count > 0)
        self._put(number.to_numpy()[sketched], band_keys(signature[sketched], bands, rows))

    def _put(self, number: np.ndarray, keys: np.ndarray) -> None:
        table = [pa.array(np.repeat(number, keys.shape[1])), pa.array(keys.reshape(-1))]
        self._bands.write(pa.table(table, schema=BANDS))

    def close(self, failed: bool = False) -> None:
        """Add the band keys (hashes that near-duplicates share) from the sources' indexes to the
        file, and close the file. If `failed`, discard the file."""
        for writer in self._ids.values():
            writer.close(failed)
        done = False
        try:
            for k, name in enumerate(() if failed else self.kept):
                self._join(name, self.scratch / f"ids-{k}.parquet")
            done = not failed
        finally:
            self._bands.close(not done)

    def _join(self, name: str, ids: Path) -> None:
        files: list[SketchFile] = [replace(f, corpus="") for f in self.kept[name].files(0)]
        bands, _ = self.step.banding
        joined = 0
        with scratch_database(self.scratch / f"{TEMPORARY}spill-near") as db:
            view(db, tuple(files))
            reader = db.sql(
                f"""SELECT i.row, s.bands FROM read_parquet({literal(ids)}) i
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
        present = pq.read_metadata(ids).num_rows
        if present > joined:
            self.absent[name] = present - joined


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


def overlap(rows: Path, groups: list[str], bands: Path | None = None) -> Overlap:
    """Count the texts that several groups have. `rows` is the file that `count_taken` wrote, with
    the columns grp, hash, size and taken. `bands` is the file of band keys for near-duplicates;
    None compares texts by hash."""
    count = len(groups)
    documents = [[0] * count for _ in groups]
    size = [[0] * count for _ in groups]
    with scratch_database(rows.with_name(".spill-overlap")) as db:
        read = f"read_parquet({literal(rows)}, file_row_number = true)"
        if bands is None:
            texts = f"SELECT hash AS text, grp, size, taken FROM {read}"
        else:
            clusters(db, bands)
            texts = f"""SELECT coalesce(label, file_row_number) AS text, grp, size, taken
            FROM {read} r LEFT JOIN clusters c ON r.file_row_number = c.row"""
        db.execute(
            f"""CREATE TABLE texts AS
            SELECT text, grp, count(*) AS n, sum(size)::BIGINT AS s, max(size) AS one,
                   max(size) FILTER (taken) AS best
            FROM ({texts}) GROUP BY text, grp"""
        )
        pairs = db.execute(
            """WITH shared AS (
                 SELECT * FROM texts WHERE text IN (
                   SELECT text FROM texts GROUP BY text HAVING count(*) > 1))
            SELECT a.grp, b.grp, sum(a.n)::BIGINT, sum(a.s)::BIGINT
            FROM shared a JOIN shared b USING (text) WHERE a.grp <> b.grp GROUP BY a.grp, b.grp"""
        ).fetchall()
        inner = db.execute(
            "SELECT grp, sum(n - 1)::BIGINT, sum(s - one)::BIGINT FROM texts GROUP BY grp"
        ).fetchall()
        for a, b, n, s in [*pairs, *((g, g, n, s) for g, n, s in inner)]:
            documents[a][b], size[a][b] = n, s
        ((unique_documents, unique),) = db.execute(
            """SELECT count(*), coalesce(sum(best), 0)::BIGINT
            FROM (SELECT max(best) AS best FROM texts GROUP BY text HAVING max(best) IS NOT NULL)"""
        ).fetchall()
    by = EXACT if bands is None else NEAR
    return Overlap(by, groups, documents, size, unique_documents, unique)
