"""One partition of a stage in a worker: read, apply the steps, write kept and rejected documents.
For partition 7, a stage's folder holds `part-00007.kept.parquet` and `.keys.parquet` (see
manifests.py), `.rejected.parquet`, `.sketch-*.parquet` (if a CorpusStep follows), `.ids.parquet`
(in the first stage) and `.corrupt.parquet` (if any input was corrupt). All these files are complete
before the ledger records the partition as done."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.manifests import (
    changed_ids,
    kept_schema,
    keys,
    part_path,
    public,
    read_kept,
    with_ids,
)
from curate.documents.attributes import chosen, pack
from curate.documents.documents import NUMBER, Documents
from curate.documents.edits import EDIT, EDITS
from curate.engines import worker
from curate.engines.base import cpu_seconds
from curate.formats.reading import ID_SCHEMA, NO_DOCUMENT, Account, PartitionReader
from curate.run.messages import LOADING, READING, Sketched, StageResult, StageTask
from curate.run.worker.rehearsal import begin_stage
from curate.run.worker.stage import Stage, load_stage, sketch_rows
from curate.run.worker.traces import Traces
from curate.steps.contracts import CorpusStep, Step
from curate.steps.failures import on_batch
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.parquet_writer import TableWriter, writing
from llmcurate.base.disk.process import peak_bytes
from llmcurate.base.disk.seals import seal
from llmcurate.base.disk.store import current, verify
from llmcurate.base.errors import RunFailed
from llmcurate.base.kernels import compile_time

LOADING_SECONDS = 3600.0  # time limit for loading models, if batches have a time limit
READING_SECONDS = 0.1  # between two messages of a worker that reads
CORRUPT = pa.schema(
    [("file", pa.string()), ("offset", pa.int64()), ("what", pa.string()), ("count", pa.int64())]
)
EXAMPLES = 20  # of damaged places in a partition's record


def warm_up() -> None:
    """Load numba and the character tables. Every run needs them, and loading them takes long."""
    from curate.text.tables import segment
    from curate.text.words import character_tables

    segment(np.frombuffer(bytearray(b"warm"), np.uint8), np.array([0, 4], np.int64))
    character_tables()


def run_partition(task: StageTask) -> StageResult:
    """Read a partition, apply the stage's steps, and write kept and rejected documents. Raises
    Damaged if a file that the task reads differs from its recorded digest."""
    work = Work(task)
    done = False
    try:
        work.process(work.stage.empty_documents(task.part))  # loads the steps and sets the schemas
        work.started()
        for docs in work.read():
            if task.careful is None:
                work.process(docs)
            else:
                work.process_one_by_one(docs, task.careful)
            work.report_reading()
        done = True
    finally:
        work.close(failed=not done)
    return work.result()


def sketch_partition(task: StageTask) -> Sketched:
    """Write sketches of the kept documents of a partition whose stage ran in an earlier run."""
    verify(task.sealed, task.shared)
    stage, part = load_stage(task.spec), task.part
    step = stage.sketch
    assert step is not None
    path = part_path(stage.folder, part, stage.spec.sketch_kind)
    with writing(path) as writer:
        schema = kept_schema(stage.folder, part)
        writer.write(sketch_rows(step, schema.empty_table(), part))
        for table in read_kept(stage.folder, part, stage.read.batch_rows):
            writer.write(sketch_rows(step, table, part))
    current().put(path)
    return Sketched({stage.spec.sketch_kind: seal(path)})


class Work:
    """The work on one partition of a stage: reads documents, applies steps and writes files."""

    def __init__(self, task: StageTask) -> None:
        self._lap, self._compiled = cpu_seconds(), compile_time.seconds
        verify(task.sealed, task.shared)
        self.stage: Stage = load_stage(task.spec)
        self.task, self.part = task, task.part
        self._limit = self.stage.read.batch_seconds  # seconds per batch; 0: no limit
        worker.beat(*LOADING, LOADING_SECONDS if self._limit else 0.0)
        begin_stage(task.spec)
        self.seconds: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)  # of this process, by step label
        self.counts: dict[str, Counter[str]] = {
            k: Counter() for k in ("primary", "reasons", "cut", "cut_bytes")
        }
        self.documents = self.kept = self.rejected = self.bytes_out = 0
        self.account = Account()
        self.traces = Traces(self.part)
        self.writers = {
            k: TableWriter(part_path(self.stage.folder, self.part, kind))
            for k, kind in self.stage.kinds().items()
        }
        self._decisions: tuple[pa.Table, np.ndarray] | None = None
        self._reported_at = 0.0
        self._began = time.perf_counter()

    def read(self) -> Iterator[Documents]:
        """Yield the input's batches, without quarantined documents, and tell the engine the numbers
        of each batch's first and last document. In the first stage, also write the ids of all
        documents, and the documents that the reader rejected."""
        stage = self.stage
        self.report_reading()
        if stage.plan is None:
            assert stage.input is not None
            changed = changed_ids(stage.ids, self.part)
            for table in read_kept(stage.input, self.part, stage.read.batch_rows):
                yield from self._announced(Documents(with_ids(table, changed)))
            return
        ids = self.writers["ids"]
        ids.write(ID_SCHEMA.empty_table())
        reader = PartitionReader(stage.plan, self.part, stage.read, self._report_at_record)
        for batch in reader:
            ids.write(batch.ids)
            if batch.refused is not None:
                self.commit(with_edits(batch.refused), reading=True)
            yield from self._announced(batch.docs)
        self.account = reader.account
        if stage.read.share is not None:
            ids.write(_slice_sizes(self.account.documents))
        if self.account.corrupt.total:
            with replacing(part_path(stage.folder, self.part, "corrupt")) as aside:
                places = [asdict(place) for place in self.account.corrupt.places()]
                pq.write_table(pa.Table.from_pylist(places, CORRUPT), aside)

    def _announced(self, docs: Documents) -> Iterator[Documents]:
        if len(docs) == 0:
            return
        numbers = docs.table[NUMBER]
        worker.beat(numbers[0].as_py(), numbers[-1].as_py(), self._limit)
        docs, quarantined = _split_quarantined(with_edits(docs), self.task.quarantine)
        if quarantined is not None:
            self.commit(quarantined, reading=True)
        yield docs

    def report_reading(self) -> None:
        """Tell the engine that this worker is reading. The time limit for reading counts CPU
        seconds, because the storage may be slow."""
        worker.beat(*READING, self._limit, of_cpu=True)
        self._reported_at = time.monotonic()

    def _report_at_record(self) -> None:
        if time.monotonic() - self._reported_at > READING_SECONDS:
            self.report_reading()

    def process(self, docs: Documents) -> None:
        self.commit(self._apply_steps(with_edits(docs)))

    def process_one_by_one(self, docs: Documents, careful: tuple[int, int]) -> None:
        """Process a batch. If it has suspects (documents that may have killed a worker), first run
        each of its documents alone. `careful` holds the numbers of the first and last suspect. The
        time limit of the batch is then the sum of the documents' limits."""
        numbers = docs.table[NUMBER].to_numpy()
        if ((numbers >= careful[0]) & (numbers <= careful[1])).any():
            for row, n in enumerate(numbers):
                worker.beat(int(n), int(n), self._limit)
                alone = Documents(docs.table.slice(row, 1).combine_chunks())
                kept = self._apply_steps(alone, traced=False).split()[0]
                if (step := self.stage.sketch) is not None:
                    sketch_rows(step, kept, self.part)
            worker.beat(int(numbers[0]), int(numbers[-1]), self._limit * len(numbers))
        self.process(docs)

    def _apply_steps(self, docs: Documents, traced: bool = True) -> Documents:
        for step in self.stage.steps:
            start = time.perf_counter()
            self.lap("read")
            before, entering = docs, docs.within(step.label)
            apply = step.apply if isinstance(step, Step) else self._decide
            docs = on_batch(step.label, apply, entering)
            self.seconds[step.label] += time.perf_counter() - start
            self.lap(step.label)
            worker.ready(step.label, self.stage.spec.of)
            if traced:
                self.traces.step(step.label, before, docs)
        return docs

    def _decide(self, docs: Documents) -> Documents:
        step = self.stage.steps[0]
        assert isinstance(step, CorpusStep)
        return step.apply(docs, self.decisions_on(docs))

    def decisions_on(self, docs: Documents) -> pa.Table:
        if self._decisions is None:
            rows = self.stage.decisions(self.part)
            self._decisions = rows, rows["n"].to_numpy()
        rows, decided = self._decisions
        numbers = docs.table[NUMBER].to_numpy()
        if len(numbers) == 0:
            return rows.slice(0, 0)
        first, last = np.searchsorted(decided, [numbers[0], numbers[-1] + 1])
        rows = rows.slice(int(first), int(last - first))
        present = np.isin(decided[first:last], numbers)  # without quarantined documents
        return rows if present.all() else rows.filter(pa.array(present))

    def commit(self, docs: Documents, *, reading: bool = False) -> None:
        """Write the kept and rejected documents of a batch, and the sketches (hashes) of the kept
        ones. `reading`: True if all documents of the batch are rejected before the first step, by
        the reader or because an earlier worker failed on them."""
        start = time.perf_counter()
        kept, rejected = docs.split()
        self.documents += len(docs)
        self.kept += kept.num_rows
        self.rejected += rejected.num_rows
        if kept.num_rows + rejected.num_rows != len(docs):
            raise RunFailed(f"partition {self.part}: documents were lost between two steps")
        for key, values in docs.counts(rejected).items():
            self.counts[key].update(values)
        self.writers["rejected"].write(rejected)
        if reading:
            return
        spec = self.stage.spec
        self.writers["kept"].write(chosen(pack(public(kept), spec.own), spec.columns))
        self.writers["keys"].write(keys(kept))
        self.bytes_out += _text_size(kept)
        self.seconds["write"] += time.perf_counter() - start
        self.lap("write")
        self._sketch(kept)

    def _sketch(self, kept: pa.Table) -> None:
        step = self.stage.sketch
        if step is None:
            return
        start = time.perf_counter()
        self.writers["sketch"].write(sketch_rows(step, kept, self.part))
        self.seconds[step.label] += time.perf_counter() - start
        self.lap(step.label)
        self.traces.counters["worked"][step.label] += _text_size(kept)

    def lap(self, label: str) -> None:
        """Add the CPU seconds since the last call of `lap` to the seconds counted for `label`."""
        now = cpu_seconds()
        self.cpu[label] += now - self._lap
        self._lap = now

    def started(self) -> None:
        self.lap("read")
        self.cpu = defaultdict(float, {"start": sum(self.cpu.values())})

    def close(self, failed: bool) -> None:
        problem: BaseException | None = None
        for writer in self.writers.values():
            try:
                writer.close(failed or problem is not None)
            except BaseException as error:
                problem = problem or error
        if problem is not None and not failed:
            raise problem

    def result(self) -> StageResult:
        """Return the partition's record for the ledger. Call it after all files are closed."""
        passed = time.perf_counter() - self._began
        self.seconds["read"] = max(0.0, passed - sum(self.seconds.values()))
        self.lap("read")
        kinds = self.stage.kinds()
        names = [*kinds.values(), "corrupt"]
        paths = {kind: part_path(self.stage.folder, self.part, kind) for kind in names}
        seals = {kind: seal(path) for kind, path in paths.items() if path.exists()}
        current().put(*(paths[kind] for kind in seals))
        self.lap("write")
        counts: dict[str, Any] = {**self.counts, **self.traces.counters}
        sketch = {k: seals[k] for k in [self.stage.spec.sketch_kind] if k in seals}
        return StageResult(
            read=self.documents,
            kept=self.kept,
            rejected=self.rejected,
            bytes_out=self.bytes_out,
            **self.account.figures(EXAMPLES),
            documents=self.account.documents,
            seconds={k: round(v, 4) for k, v in self.seconds.items()},
            cpu={k: round(v, 4) for k, v in self.cpu.items()},
            compiled=round(compile_time.seconds - self._compiled, 4),
            written={name: seals[kind][0] for name, kind in kinds.items()},
            files={k: v for k, v in seals.items() if k not in sketch},
            sketch_files=sketch,
            peak_bytes=peak_bytes(),
            **counts,
            cut_examples=self.traces.cuts,
        )


def with_edits(docs: Documents) -> Documents:
    """Add an empty column `edits` if it is missing, so that all partitions have one schema."""
    if EDITS in docs.table.column_names:
        return docs
    edits = pa.nulls(len(docs), pa.list_(EDIT))
    return replace(docs, table=docs.table.append_column(EDITS, edits))


def _split_quarantined(
    docs: Documents, quarantine: dict[int, str]
) -> tuple[Documents, Documents | None]:
    if not quarantine:
        return docs, None
    numbers = docs.table[NUMBER].to_numpy()
    bad = np.isin(numbers, list(quarantine))
    if not bad.any():
        return docs, None
    quarantined = Documents(docs.table.filter(pa.array(bad)), step="engine")
    details = [quarantine[int(n)] for n in numbers[bad]]
    quarantined = quarantined.drop(
        np.ones(len(quarantined), np.bool_), "quarantine", detail=details
    )
    return Documents(docs.table.filter(pa.array(~bad)).combine_chunks()), quarantined


def _slice_sizes(documents: list[int]) -> pa.Table:
    """Return a table with the number of documents per slice (part of an input file). The table is
    stored in the file of ids."""
    numbers = pa.array([NO_DOCUMENT] * len(documents), pa.int64())
    slices = pa.array(range(len(documents)), pa.int32())
    no_ids = pa.nulls(len(documents), pa.string())
    return pa.table([numbers, no_ids, slices, pa.array(documents, pa.int64())], schema=ID_SCHEMA)


def _text_size(table: pa.Table) -> int:
    offsets = Documents(table).buffers()[1]
    return int(offsets[-1] - offsets[0])
