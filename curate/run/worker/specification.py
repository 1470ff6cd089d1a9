"""The specification of a stage as a worker loads it, and a partition's way through its steps into
files.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.stage_files import keys, part_path, public
from curate.documents.documents import NUMBER, Documents
from curate.engines import worker
from curate.engines.base import cpu_seconds
from curate.formats.inputs import InputPlan
from curate.formats.read_settings import ReadSettings
from curate.run.worker.traces import Traces
from curate.steps.contracts import CorpusStep, Step
from curate.steps.failures import failing, on_batch
from curate.steps.registry import step_class
from llmcurate.base.disk.parquet_writer import TableWriter, one_array
from llmcurate.base.disk.seals import Seal, seal
from llmcurate.base.errors import RunFailed

# The numbers of documents that a worker works on before the first one, and while it reads.
LOADING, READING = (-2, -2), (-1, -1)


def load_spec(path: str) -> dict[str, Any]:
    """The stage's specification; `open_steps` opens its steps, once a worker."""
    return _load(path, Path(path).stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load(path: str, stamp: int) -> dict[str, Any]:
    folder = Path(path).parent
    spec: dict[str, Any] = orjson.loads(Path(path).read_bytes())
    spec["folder"] = str(folder)
    spec["steps"] = [build_step(s) for s in spec["steps"]]
    for kind in ("apply", "sketch"):
        spec[kind] = build_step(spec[kind]) if spec[kind] else None
    spec["closed"] = ["apply", "steps", "sketch"]
    spec["plan"] = InputPlan.load(spec["plan"], folder) if spec["plan"] else None
    spec["read"] = ReadSettings(**spec["read"])
    return spec


def for_rehearsal(step: Step | CorpusStep) -> dict[str, Any]:
    """What `build_step` needs of a step of ours."""
    return {"step": step.name, "label": step.label, "settings": step.model_dump(mode="json")}


def build_step(identity: dict[str, Any]) -> Any:
    """The step of some settings; RunFailed where its source is not the recorded one."""
    settings = identity["settings"]
    cls = step_class(identity["step"]).fitting(settings)
    step = cast(Any, cls(**settings)).named(identity["label"])
    if identity.get("source") != step.own_source():
        raise RunFailed(
            f"{step.label}: its source is not what it was when the run began: run the same command"
            " again, which computes the stage anew"
        )
    return step


def open_steps(spec: dict[str, Any], *kinds: str) -> None:
    """Opens the stage's steps of these kinds, which are about to be used."""
    for kind in kinds:
        if kind in spec["closed"]:
            spec["closed"].remove(kind)
            if kind == "steps":
                for step in spec["steps"]:
                    with failing(step.label):
                        step.open_in(Path(spec["folder"]))
            elif spec[kind] is not None:
                with failing(spec[kind].label):
                    spec[kind].open()


def sketch_rows(step: CorpusStep, kept: pa.Table, part: int) -> pa.Table:
    """The step's sketch of kept rows, with their keys."""
    rows = on_batch(step.label, step.sketch, Documents(kept).within(step.label))
    rows = rows.append_column("part", pa.array(np.full(kept.num_rows, part, np.int32)))
    rows = rows.append_column("n", one_array(kept[NUMBER]))
    return rows.append_column("id", one_array(kept["id"]))


def written_kinds(spec: dict[str, Any]) -> dict[str, str]:
    """The kinds of files that every partition has, as records name them and as files do."""
    kinds = {"kept": "kept", "keys": "keys", "rejected": "rejected"}
    if spec["sketch"]:
        kinds["sketch"] = spec["sketch_kind"]
    if spec["plan"]:
        kinds["ids"] = "ids"
    return kinds


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
        self.traces = Traces(part)
        self.writers = {
            k: TableWriter(part_path(self.folder, part, kind))
            for k, kind in written_kinds(spec).items()
        }

    def steps(self, docs: Documents, traced: bool = True) -> Documents:
        """The batch after every step of the stage."""
        open_steps(self.spec, "apply", "steps")
        corpus_step: CorpusStep | None = self.spec["apply"]
        chain: list[CorpusStep | Step] = [corpus_step] if corpus_step is not None else []
        for step in (*chain, *self.spec["steps"]):
            start = time.perf_counter()
            self.lap("read")
            before = docs
            entering = docs.within(step.label)
            apply = step.apply if isinstance(step, Step) else self._decide
            docs = on_batch(step.label, apply, entering)
            self.seconds[step.label] += time.perf_counter() - start
            self.lap(step.label)
            worker.ready(step.label, self.spec["later"]["of"])
            if traced:
                self.traces.step(step.label, before, docs)
        return docs

    def _decide(self, docs: Documents) -> Documents:
        corpus_step: CorpusStep = self.spec["apply"]
        return corpus_step.apply(docs, self.decided(docs))

    def decided(self, docs: Documents) -> pa.Table:
        """The decisions on the documents of a batch."""
        if not hasattr(self, "_decisions"):
            self._decisions = pq.read_table(
                self.spec["decisions"], filters=[("part", "=", self.part)]
            )
            self._numbers = self._decisions["n"].to_numpy()
        numbers = docs.table[NUMBER].to_numpy()
        if len(numbers) == 0:
            return self._decisions.slice(0, 0)
        first, last = np.searchsorted(self._numbers, [numbers[0], numbers[-1] + 1])
        rows = self._decisions.slice(int(first), int(last - first))
        present = np.isin(self._numbers[first:last], numbers)  # not those in quarantine
        return rows if present.all() else rows.filter(pa.array(present))

    def rehearse(self, docs: Documents) -> None:
        """Everything that a worker does with documents, except writing."""
        kept = self.steps(docs, traced=False).split()[0]
        if self.spec["sketch"]:
            open_steps(self.spec, "sketch")
            sketch_rows(self.spec["sketch"], kept, self.part)

    def commit(self, docs: Documents, *, reading: bool = False) -> None:
        """Splits the batch, writes both streams and the sketches of kept documents. reading: the
        reader or the engine refused all of them, so no stream but the rejected one gets any."""
        start = time.perf_counter()
        kept, rejected = docs.split()
        self.read += len(docs)
        self.kept += kept.num_rows
        self.rejected += rejected.num_rows
        if kept.num_rows + rejected.num_rows != len(docs):
            raise RunFailed(f"partition {self.part}: documents were lost between two steps")
        for key, values in docs.counts(rejected).items():
            self.totals[key].update(values)
        self.writers["rejected"].write(rejected)
        if reading:
            return
        self.writers["kept"].write(public(kept))
        self.writers["keys"].write(keys(kept))
        self.bytes_out += _text_size(kept)
        self.seconds["write"] += time.perf_counter() - start
        self.lap("write")
        self._sketch(kept)

    def _sketch(self, kept: pa.Table) -> None:
        step: CorpusStep | None = self.spec["sketch"]
        if step is None:
            return
        start = time.perf_counter()
        open_steps(self.spec, "sketch")
        self.writers["sketch"].write(sketch_rows(step, kept, self.part))
        self.seconds[step.label] += time.perf_counter() - start
        self.lap(step.label)
        self.traces.counters["worked"][step.label] += _text_size(kept)

    def lap(self, label: str) -> None:
        """The CPU time since the last lap was this label's."""
        now = cpu_seconds()
        self.cpu[label] += now - self._lap
        self._lap = now

    def started(self) -> None:
        """What came before the first document (compiled code, models, files) is the start's."""
        self.lap("read")
        self.cpu = defaultdict(float, {"start": sum(self.cpu.values())})

    def seals(self) -> dict[str, Seal]:
        """Those of the files of all kinds, once they are closed, by the files' kinds."""
        kinds = [*written_kinds(self.spec).values(), "corrupt"]
        paths = {kind: part_path(self.folder, self.part, kind) for kind in kinds}
        return {kind: seal(path) for kind, path in paths.items() if path.exists()}

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
