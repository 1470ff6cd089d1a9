"""One partition of a stage in a worker: read, apply the steps, write both streams.

A stage's folder holds, for partition 7, `part-00007.kept.parquet` and `.keys.parquet` (see
stage_files.py), `.rejected.parquet`, `.sketch-*.parquet` (if a CorpusStep follows), `.ids.parquet`
(first stage) and `.corrupt.parquet` (if anything was). All are in place before the ledger says that
the partition is done.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.stage_files import (
    changed_ids,
    kept_schema,
    part_path,
    read_kept,
    with_ids,
)
from curate.documents.documents import NUMBER, Documents
from curate.documents.edits import EDIT, EDITS
from curate.engines import worker
from curate.engines.base import cpu_seconds
from curate.formats.reading import ID_SCHEMA, NO_DOCUMENT, Account, Batch, PartitionReader
from curate.run.worker.rehearsal import begin_stage
from curate.run.worker.specification import (
    LOADING,
    READING,
    Work,
    load_spec,
    open_steps,
    sketch_rows,
    written_kinds,
)
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.parquet_writer import writing
from llmcurate.base.disk.process import peak_bytes
from llmcurate.base.disk.seals import seal, verify
from llmcurate.base.kernels import compile_time

LOADING_SECONDS = 3600.0  # that models may take to load, where there is a limit for batches
READING_SECONDS = 0.1  # between two words of a worker that reads
CORRUPT = pa.schema(
    [("file", pa.string()), ("offset", pa.int64()), ("what", pa.string()), ("count", pa.int64())]
)
EXAMPLES = 20  # of damage, in a partition's record


def warm_up() -> None:
    """Loads what every run needs and takes a moment: numba sets itself up when its first kernel
    runs, and the character tables are computed once."""
    from curate.text.tables import segment
    from curate.text.words import character_tables

    segment(np.frombuffer(bytearray(b"warm"), np.uint8), np.array([0, 4], np.int64))
    character_tables()


def sketch_partition(payload: dict[str, Any]) -> dict[str, Any]:
    """Sketches of what an earlier run kept of one partition (its stage is reused). sealed, shared:
    as of `run_partition`."""
    verify(payload)
    spec, part = load_spec(payload["spec"]), payload["part"]
    folder = Path(spec["folder"])
    open_steps(spec, "sketch")
    start = time.perf_counter()
    with writing(part_path(folder, part, spec["sketch_kind"])) as writer:
        schema = kept_schema(folder, part)
        writer.write(sketch_rows(spec["sketch"], schema.empty_table(), part))
        for table in read_kept(folder, part, spec["read"].batch_rows):
            writer.write(sketch_rows(spec["sketch"], table, part))
    seconds = {spec["sketch"].label: round(time.perf_counter() - start, 4)}
    kind = spec["sketch_kind"]
    return {"seconds": seconds, "files": {kind: seal(part_path(folder, part, kind))}}


def _with_edits(docs: Documents) -> Documents:
    """Every stage's rows carry an edits column, so that all partitions have one schema."""
    if EDITS in docs.table.column_names:
        return docs
    edits = pa.nulls(len(docs), pa.list_(EDIT))
    return replace(docs, table=docs.table.append_column(EDITS, edits))


def _empty(spec: dict[str, Any], part: int) -> Documents:
    """No document, in the schema of this stage's input."""
    if spec["plan"] is None:
        return Documents(kept_schema(Path(spec["input"]), part).empty_table())
    from curate.formats.columns import schema

    fields = [*schema(spec["plan"].columns), (NUMBER, pa.int64())]
    return Documents(pa.schema(fields).empty_table())


def _one_by_one(work: Work, docs: Documents, careful: list[int]) -> Documents:
    """The batch through the steps, the suspected rows one at a time, each announced. When none was
    at fault, the batch may take as long as all of them."""
    numbers = docs.table[NUMBER].to_numpy()
    if not ((numbers >= careful[0]) & (numbers <= careful[1])).any():
        return work.steps(docs)
    seconds = work.spec["read"].batch_seconds
    for row, n in enumerate(numbers):
        worker.beat(int(n), int(n), seconds)
        work.rehearse(Documents(docs.table.slice(row, 1).combine_chunks()))
    worker.beat(int(numbers[0]), int(numbers[-1]), seconds * len(numbers))
    return work.steps(docs)


def _split_quarantined(
    docs: Documents, quarantine: dict[str, str]
) -> tuple[Documents, Documents | None]:
    """(the batch without quarantined documents, those documents)."""
    numbers = docs.table[NUMBER].to_numpy()
    bad = np.isin(numbers, [int(n) for n in quarantine])
    if not bad.any():
        return docs, None
    held = Documents(docs.table.filter(pa.array(bad)), step="engine")
    details = [quarantine[str(n)] for n in numbers[bad]]
    held = held.drop(np.ones(len(held), np.bool_), "quarantine", detail=details)
    return Documents(docs.table.filter(pa.array(~bad)).combine_chunks()), held


def run_partition(payload: dict[str, Any]) -> dict[str, Any]:
    """One partition of the stage specified in the file payload["spec"].

    careful: [first, last] numbers to run one at a time, after a worker died on that batch, or those
    from it on; quarantine: number -> why, documents that killed their worker twice; sealed, shared:
    what it reads, which is compared first (disk/seals.py).
    """
    cpu_began, compile_began = cpu_seconds(), compile_time.seconds
    verify(payload)
    spec, part = load_spec(payload["spec"]), payload["part"]
    careful, quarantine = payload.get("careful"), payload.get("quarantine") or {}
    seconds = spec["read"].batch_seconds
    worker.beat(*LOADING, LOADING_SECONDS if seconds else 0.0)
    begin_stage(payload["spec"])
    work = Work(spec, part, cpu_began)
    account = Account().figures(0)
    done = False
    began = time.perf_counter()
    try:
        work.commit(work.steps(_with_edits(_empty(spec, part))))
        work.started()
        reading = Reading(seconds)
        reading.now()
        if spec["plan"]:
            work.writers["ids"].write(ID_SCHEMA.empty_table())
        for docs in _read(work, account, quarantine, reading):
            work.commit(_one_by_one(work, docs, careful) if careful else work.steps(docs))
            reading.now()
        done = True
    finally:
        work.close(failed=not done)
    steps_seconds = sum(work.seconds.values())
    work.seconds["read"] = max(0.0, time.perf_counter() - began - steps_seconds)
    work.lap("read")
    files = work.seals()
    work.lap("write")
    sketch = {spec["sketch_kind"]: files.pop(spec["sketch_kind"])} if spec["sketch"] else {}
    kinds = written_kinds(spec).items()
    return {
        "read": work.read,
        "kept": work.kept,
        "rejected": work.rejected,
        "bytes_out": work.bytes_out,
        **account,
        "seconds": {k: round(v, 4) for k, v in work.seconds.items()},
        "cpu": {k: round(v, 4) for k, v in work.cpu.items()},
        "compiled": round(compile_time.seconds - compile_began, 4),
        "written": {name: (files | sketch)[kind][0] for name, kind in kinds},
        "files": files,
        "sketch_files": sketch,
        "peak_bytes": peak_bytes(),
        **{k: dict(v) for k, v in (work.totals | work.traces.counters).items()},
        "cut_examples": work.traces.cuts,
    }


def _sizes(documents: list[int]) -> pa.Table:
    """Rows that say how many documents each slice has, where not all of them have rows."""
    numbers = pa.array([NO_DOCUMENT] * len(documents), pa.int64())
    slices = pa.array(range(len(documents)), pa.int32())
    no_ids = pa.nulls(len(documents), pa.string())
    return pa.table([numbers, no_ids, slices, pa.array(documents, pa.int64())], schema=ID_SCHEMA)


class Reading:
    """Says that this worker reads, record by record. The seconds are of CPU time, since a store may
    be slow."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._said = seconds, 0.0

    def now(self) -> None:
        """Says it."""
        worker.beat(*READING, self.seconds, of_cpu=True)
        self._said = time.monotonic()

    def at_record(self) -> None:
        """Says it where it has not been said for a while."""
        if time.monotonic() - self._said > READING_SECONDS:
            self.now()


def _read(
    work: Work, account: dict[str, Any], quarantine: dict[str, str], reading: Reading
) -> Iterator[Documents]:
    """The batches of the stage's input. account: gets what the input was."""
    spec, part = work.spec, work.part
    plan, seconds = spec["plan"], spec["read"].batch_seconds
    reader = PartitionReader(plan, part, spec["read"], reading.at_record) if plan else None
    changed = changed_ids(spec["ids"], part)
    batches: Iterator[Any] = (
        iter(reader) if reader else read_kept(Path(spec["input"]), part, spec["read"].batch_rows)
    )
    for batch in batches:
        if isinstance(batch, Batch):
            work.writers["ids"].write(batch.ids)
            if batch.refused is not None:
                work.commit(_with_edits(batch.refused), reading=True)
            docs = batch.docs
        else:
            docs = Documents(with_ids(batch, changed))
        if len(docs) == 0:
            continue
        numbers = docs.table[NUMBER]
        worker.beat(numbers[0].as_py(), numbers[-1].as_py(), seconds)
        docs = _with_edits(docs)
        if quarantine:
            docs, held = _split_quarantined(docs, quarantine)
            if held is not None:
                work.commit(held, reading=True)
        yield docs
    if reader is None:
        return
    of_input = reader.account
    if spec["read"].share is not None:
        work.writers["ids"].write(_sizes(of_input.documents))
    if of_input.corrupt.count:
        with replacing(part_path(work.folder, part, "corrupt")) as aside:
            pq.write_table(pa.Table.from_pylist(of_input.corrupt.entries(), CORRUPT), aside)
    account |= of_input.figures(EXAMPLES) | {"documents": of_input.documents}
