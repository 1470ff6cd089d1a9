"""What a worker does with one partition of a stage: read, apply the steps, write what was decided.

A stage's folder holds, for partition 7, `part-00007.kept.parquet` and `.keys.parquet` (see
stage_files.py), `.rejected.parquet`, `.sketch-*.parquet` (if a CorpusStep follows), `.ids.parquet`
(first stage) and `.corrupt.parquet` (if anything was). All are in place before the ledger says that
the partition is done.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from curate.atomic import replacing
from curate.documents import EDIT, NUMBER, Documents
from curate.engines import worker
from curate.errors import RunFailed
from curate.formats.inputs import InputPlan
from curate.formats.reading import ID_SCHEMA, Batch, PartitionReader, ReadSettings
from curate.memory import peak_bytes
from curate.stage_files import (
    changed_ids,
    kept_schema,
    keys,
    part_path,
    public,
    read_kept,
    with_ids,
)
from curate.steps import CorpusStep, Step, step_class
from curate.table_writer import TableWriter, conform, writing
from curate.text.buffers import one_array
from curate.traces import Traces
from curate.verdicts import counts

if TYPE_CHECKING:
    from curate.whatif.reused import Reused

READING = (-1, -1)  # what a worker says it works on while it reads
CORRUPT = pa.schema([("file", pa.string()), ("offset", pa.int64()), ("what", pa.string())])


@lru_cache(maxsize=4)
def load_spec(path: str) -> dict[str, Any]:
    """The stage's specification; `ready` opens its steps, once a worker."""
    spec: dict[str, Any] = orjson.loads(Path(path).read_bytes())
    spec["steps"] = [_made(s) for s in spec["steps"]]
    for kind in ("apply", "sketch"):
        spec[kind] = _made(spec[kind]) if spec[kind] else None
    spec["closed"] = ["apply", "steps", "sketch"]
    if spec.get("reuse"):  # the same steps under other limits; nothing measures with them
        spec["reuse"]["steps"] = [_made(s) for s in spec["reuse"]["steps"]]
    spec["plan"] = InputPlan.load(spec["plan"]) if spec["plan"] else None
    spec["read"] = ReadSettings(**spec["read"])
    return spec


def _made(identity: dict[str, Any]) -> Any:
    settings = identity["settings"]
    cls = step_class(identity["step"]).fitting(settings)
    return cast(Any, cls(**settings)).named(identity["label"])


def ready(spec: dict[str, Any], *kinds: str) -> None:
    """Opens the stage's steps of these kinds, which are about to be used."""
    for kind in kinds:
        if kind in spec["closed"]:
            spec["closed"].remove(kind)
            for step in spec["steps"] if kind == "steps" else [spec[kind]]:
                if step is not None:
                    step.open()


def sketch_rows(step: CorpusStep, kept: pa.Table, part: int) -> pa.Table:
    """The step's sketch of kept rows, with their keys."""
    rows = step.sketch(Documents(kept).within(step.label))
    rows = rows.append_column("part", pa.array(np.full(kept.num_rows, part, np.int32)))
    rows = rows.append_column("n", one_array(kept[NUMBER]))
    return rows.append_column("id", one_array(kept["id"]))


def sketch_partition(payload: dict[str, Any]) -> dict[str, Any]:
    """Sketches of what an earlier run kept of one partition (its stage is reused)."""
    spec, part = load_spec(payload["spec"]), payload["part"]
    folder = Path(spec["folder"])
    ready(spec, "sketch")
    start = time.perf_counter()
    with writing(part_path(folder, part, spec["sketch_kind"])) as writer:
        schema = kept_schema(folder, part)
        writer.write(sketch_rows(spec["sketch"], schema.empty_table(), part))
        for table in read_kept(folder, part, spec["read"].batch_rows):
            writer.write(sketch_rows(spec["sketch"], table, part))
    seconds = {spec["sketch"].label: round(time.perf_counter() - start, 4)}
    return {"seconds": seconds, "sketched": writer.rows}


class Work:
    """One partition on its way through a stage."""

    def __init__(self, spec: dict[str, Any], part: int, cpu_began: float) -> None:
        self.spec, self.part = spec, part
        self.folder = Path(spec["folder"])
        self.seconds: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)  # by label, of this process
        self._lap = cpu_began
        self.totals: dict[str, Counter[str]] = {
            k: Counter() for k in ("primary", "reasons", "cut", "cut_bytes")
        }
        self.read = self.kept = self.rejected = self.bytes_out = 0
        self.measured = self.sketched = 0  # documents
        self.schemas: tuple[pa.Schema, pa.Schema] | None = None  # of kept and rejected rows
        self.traces = Traces(part)
        self.writers = {
            k: TableWriter(part_path(self.folder, part, kind)) for k, kind in self._kinds().items()
        }

    def _kinds(self) -> dict[str, str]:
        kinds = {"kept": "kept", "keys": "keys", "rejected": "rejected"}
        if self.spec["sketch"]:
            kinds["sketch"] = self.spec["sketch_kind"]
        if self.spec["plan"]:
            kinds["ids"] = "ids"
        return kinds

    def steps(self, docs: Documents, traced: bool = True, first: int = 0) -> Documents:
        """The batch through every step of the stage from place `first` on."""
        ready(self.spec, "apply", "steps")
        corpus_step: CorpusStep | None = self.spec["apply"]
        chain: list[CorpusStep | Step] = [corpus_step] if corpus_step is not None else []
        for step in (*chain, *self.spec["steps"])[first:]:
            start = time.perf_counter()
            self.lap("read")
            before = docs
            entering = docs.within(step.label)
            if step is corpus_step:
                docs = corpus_step.apply(entering, self.decided(docs))
            else:
                docs = step.apply(entering)
            self.seconds[step.label] += time.perf_counter() - start
            self.lap(step.label)
            if traced:
                self.traces.step(step.label, before, docs)
        return docs

    def decided(self, docs: Documents) -> pa.Table:
        """The decisions on the documents of a batch."""
        if not hasattr(self, "_decisions"):
            self._decisions = pq.read_table(
                self.spec["decisions"], filters=[("part", "=", self.part)]
            )
            self._numbers = self._decisions["n"].to_numpy()
        wanted = docs.table[NUMBER].to_numpy()
        if len(wanted) == 0:
            return self._decisions.slice(0, 0)
        first, last = np.searchsorted(self._numbers, [wanted[0], wanted[-1] + 1])
        mine = self._decisions.slice(int(first), int(last - first))
        known = np.isin(self._numbers[first:last], wanted)  # not those in quarantine
        return mine if known.all() else mine.filter(pa.array(known))

    def rehearse(self, docs: Documents) -> None:
        """Everything that a worker does with documents, except writing."""
        kept = self.steps(docs, traced=False).split()[0]
        if self.spec["sketch"]:
            ready(self.spec, "sketch")
            sketch_rows(self.spec["sketch"], kept, self.part)

    def commit(self, docs: Documents, *, reading: bool = False) -> None:
        """Splits the batch and writes both streams."""
        start = time.perf_counter()
        kept, rejected = docs.split()
        if self.schemas is None:
            self.schemas = kept.schema, rejected.schema
        self.write(kept, rejected, counts(docs, rejected), len(docs), start, reading)
        if not reading:
            self.measured += len(docs)
            self.sketch(kept)

    def write(
        self,
        kept: pa.Table,
        rejected: pa.Table,
        counted: dict[str, dict[str, int]],
        read: int,
        start: float,
        reading: bool,
    ) -> None:
        """Writes documents of both streams, or those alone that are refused in reading; counted: as
        verdicts.counts has it; read: how many there are; start: since when they are worked on."""
        self.read += read
        self.kept += kept.num_rows
        self.rejected += rejected.num_rows
        if kept.num_rows + rejected.num_rows != read:
            raise RunFailed(f"partition {self.part}: documents were lost between two steps")
        for key, values in counted.items():
            self.totals[key].update(values)
        self.writers["rejected"].write(rejected)
        if reading:
            return
        self.writers["kept"].write(public(kept))
        self.writers["keys"].write(keys(kept))
        self.bytes_out += _text_size(kept)
        self.seconds["write"] += time.perf_counter() - start
        self.lap("write")

    def sketch(self, kept: pa.Table, others: Sequence[pa.Table] = ()) -> None:
        """Writes the sketches of kept documents, among others that there are already."""
        step: CorpusStep | None = self.spec["sketch"]
        if step is None:
            return
        start = time.perf_counter()
        tables = list(others)
        if kept.num_rows or not tables:
            ready(self.spec, "sketch")
            tables.insert(0, sketch_rows(step, kept, self.part))
        rows = pa.concat_tables([conform(t, tables[0].schema) for t in tables])
        if len(tables) > 1:
            rows = rows.sort_by("n").combine_chunks()
        self.writers["sketch"].write(rows)
        self.sketched += kept.num_rows
        self.seconds[step.label] += time.perf_counter() - start
        self.lap(step.label)
        self.traces.counters["worked"][step.label] += _text_size(kept)

    def lap(self, label: str) -> None:
        """The CPU time since the last lap was this label's."""
        now = time.process_time()
        self.cpu[label] += now - self._lap
        self._lap = now

    def started(self) -> None:
        """What came before the first document (compiled code, models, files) is the start's."""
        self.lap("read")
        self.cpu = defaultdict(float, {"start": sum(self.cpu.values())})

    def written(self) -> dict[str, int]:
        """Bytes of each kind of file, once they are closed."""
        kinds = self._kinds().items()
        return {k: part_path(self.folder, self.part, f).stat().st_size for k, f in kinds}

    def close(self, failed: bool) -> None:
        """Closes all files, also where one of them cannot be finished."""
        problem: BaseException | None = None
        for writer in self.writers.values():
            try:
                writer.close(failed or problem is not None)
            except BaseException as error:
                problem = problem or error
        if problem is not None and not failed:
            raise problem


def _text_size(table: pa.Table) -> int:
    """Bytes of text."""
    offsets = Documents(table).buffers()[1]
    return int(offsets[-1] - offsets[0])


def _with_edits(docs: Documents) -> Documents:
    """Every stage's rows carry an edits column, so that all partitions have one schema."""
    if "edits" in docs.table.column_names:
        return docs
    return Documents(docs.table.append_column("edits", pa.nulls(len(docs), pa.list_(EDIT))))


def _empty(spec: dict[str, Any]) -> Documents:
    """No document, in the schema of this stage's input."""
    if spec["plan"] is None:
        return Documents(kept_schema(Path(spec["input"]), 0).empty_table())
    from curate.formats.columns import schema

    fields = [*schema(spec["plan"].columns), (NUMBER, pa.int64())]
    return Documents(pa.schema(fields).empty_table())


def _single(work: Work, docs: Documents, careful: list[int]) -> Documents:
    """The batch through the steps, the suspected rows one at a time, each announced."""
    numbers = docs.table[NUMBER].to_numpy()
    if not ((numbers >= careful[0]) & (numbers <= careful[1])).any():
        return work.steps(docs)
    for row, n in enumerate(numbers):
        worker.beat(int(n), int(n))
        work.rehearse(Documents(docs.table.slice(row, 1).combine_chunks()))
    worker.beat(int(numbers[0]), int(numbers[-1]))
    return work.steps(docs)


def _without(docs: Documents, quarantine: dict[str, str]) -> tuple[Documents, Documents | None]:
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

    careful: [first, last] numbers to run one at a time, after a worker died on that batch;
    quarantine: number -> why, documents that killed their worker twice.
    """
    cpu_began = time.process_time()
    spec, part = load_spec(payload["spec"]), payload["part"]
    careful, quarantine = payload.get("careful"), payload.get("quarantine") or {}
    work = Work(spec, part, cpu_began)
    reuse = _reused(spec, payload) if spec.get("reuse") and not careful else None
    account: dict[str, Any] = {"bytes_in": 0, "skipped": {}, "corrupt": 0, "corrupt_examples": []}
    done = False
    began = time.perf_counter()
    try:
        if reuse is None:
            work.commit(work.steps(_with_edits(_empty(spec))))
        else:
            reuse.begin(work)
        work.started()
        if spec["plan"]:
            work.writers["ids"].write(ID_SCHEMA.empty_table())
        if reuse is not None and reuse.unread is not None:
            account = reuse.write(work)
        else:
            for docs in _read(work, account, quarantine):
                if reuse is not None:
                    reuse.decide(work, docs)
                else:
                    work.commit(_single(work, docs, careful) if careful else work.steps(docs))
                worker.beat(*READING)
        done = True
    finally:
        work.close(failed=not done)
    steps_seconds = sum(work.seconds.values())
    work.seconds["read"] = max(0.0, time.perf_counter() - began - steps_seconds)
    work.lap("read")
    return {
        "read": work.read,
        "kept": work.kept,
        "rejected": work.rejected,
        "measured": work.measured,
        "sketched": work.sketched,
        "bytes_out": work.bytes_out,
        **account,
        "seconds": {k: round(v, 4) for k, v in work.seconds.items()},
        "cpu": {k: round(v, 4) for k, v in work.cpu.items()},
        "written": work.written(),
        "peak_bytes": peak_bytes(),
        **{k: dict(v) for k, v in (work.totals | work.traces.counters).items()},
        "cut_examples": work.traces.cuts,
    }


def _read(work: Work, account: dict[str, Any], quarantine: dict[str, str]) -> Iterator[Documents]:
    """The batches of the stage's input. account: gets what the input was."""
    spec, part = work.spec, work.part
    reader = PartitionReader(spec["plan"], part, spec["read"]) if spec["plan"] else None
    changed = changed_ids(spec["ids"], part)
    sizes = []
    batches: Iterator[Any] = (
        iter(reader) if reader else read_kept(Path(spec["input"]), part, spec["read"].batch_rows)
    )
    for batch in batches:
        if isinstance(batch, Batch):
            work.writers["ids"].write(batch.ids)
            sizes.append(len(batch.ids))
            if batch.refused is not None:
                work.commit(_keep_marks(batch.refused), reading=True)
            docs = batch.docs
        else:
            docs = Documents(with_ids(batch, changed))
        if len(docs) == 0:
            continue
        numbers = docs.table[NUMBER]
        worker.beat(numbers[0].as_py(), numbers[-1].as_py())
        docs = _with_edits(docs)
        if quarantine:
            docs, held = _without(docs, quarantine)
            if held is not None:
                work.commit(held, reading=True)
        yield docs
    if reader is None:
        return
    found = reader.account
    if found.corrupt:
        with replacing(part_path(work.folder, part, "corrupt")) as aside:
            pq.write_table(pa.Table.from_pylist(found.corrupt, CORRUPT), aside)
    account |= {
        "bytes_in": found.bytes_in,
        "skipped": found.skipped,
        "corrupt": len(found.corrupt),
        "corrupt_examples": found.corrupt[:20],
        "batches": sizes,
    }


def _reused(spec: dict[str, Any], payload: dict[str, Any]) -> Reused:
    from curate.whatif.reused import Reused

    return Reused(spec, payload)


def _keep_marks(docs: Documents) -> Documents:
    """Rows refused by the reader, in the schema of the stage."""
    table = docs.table.append_column("edits", pa.nulls(len(docs), pa.list_(EDIT)))
    return Documents(table, drops=docs.drops)
