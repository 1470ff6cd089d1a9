"""A stage in a worker: its specification and its steps, which are opened once per worker."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.manifests import kept_schema
from curate.documents.documents import NUMBER, Documents
from curate.run.messages import Specification, StepRecord
from curate.steps.contracts import CorpusStep, Step, fitting, open_in, source_of
from curate.steps.failures import failing, on_batch
from curate.steps.registry import step_class
from llmcurate.base.disk.parquet_writer import one_array
from llmcurate.base.errors import RunFailed


class Stage:
    def __init__(self, path: Path) -> None:
        spec = Specification.from_json(path.read_bytes())
        self.spec, self.folder, self.read = spec, path.parent, spec.read
        self.plan = spec.inputs(self.folder) if spec.plan else None
        beside = self.folder.parent
        self.input = beside / spec.input if spec.input else None
        self.ids = str(beside / spec.ids) if spec.ids else None
        self._steps: list[Step] = [build_step(record) for record in spec.steps]
        self._apply: CorpusStep | None = build_step(spec.apply) if spec.apply else None
        self._sketch: CorpusStep | None = build_step(spec.sketch) if spec.sketch else None

    @cached_property
    def steps(self) -> list[Step | CorpusStep]:
        """The steps, with their models loaded. A step on the whole corpus, such as dedup,
        may have decided before this stage which documents to remove. Such a step comes first."""
        if self._apply is not None:
            with failing(self._apply.label):
                self._apply.open()
        for step in self._steps:
            with failing(step.label):
                open_in(step, self.folder)
        return [*([self._apply] if self._apply else []), *self._steps]

    @cached_property
    def sketch(self) -> CorpusStep | None:
        """The step for which the stage writes sketches (data on each document, such as
        hashes), with the step's models loaded; None if the stage writes no sketches."""
        if self._sketch is not None:
            with failing(self._sketch.label):
                self._sketch.open()
        return self._sketch

    def to_rehearse(self) -> list[Step | CorpusStep]:
        """Return the steps whose kernels (compiled functions) the stage needs. Load no models."""
        return [*self._steps, *([self._sketch] if self._sketch else [])]

    def kinds(self) -> dict[str, str]:
        """Return {kind of file: the word for this kind in file names}, for the files that every
        partition has. The word is the kind itself; for `sketch` it also has a hash."""
        kinds = {"kept": "kept", "keys": "keys", "rejected": "rejected"}
        if self._sketch is not None:
            kinds["sketch"] = self.spec.sketch_kind
        return {**kinds, "ids": "ids"} if self.plan else kinds

    def empty_documents(self, part: int) -> Documents:
        if self.plan is None:
            assert self.input is not None
            return Documents(kept_schema(self.input, part).empty_table())
        from curate.formats.column_types import schema

        fields = [*schema(self.plan.columns), (NUMBER, pa.int64())]
        return Documents(pa.schema(fields).empty_table())

    def decisions(self, part: int) -> pa.Table:
        assert self.spec.decisions is not None
        path = self.folder.parent / self.spec.decisions
        return pq.read_table(path, filters=[("part", "=", part)])


def load_stage(path: Path) -> Stage:
    """Return the stage that the specification file `path` describes. Each worker loads it once."""
    return _load(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load(path: Path, stamp: int) -> Stage:
    return Stage(path)


def build_step(record: StepRecord) -> Any:
    """Return the step of a record. Raises RunFailed if the source of a plug-in has changed."""
    cls = fitting(step_class(record.step), record.settings)
    step = cast(Any, cls(**record.settings)).named(record.label)
    if record.source != source_of(step):
        raise RunFailed(
            f"{step.label}: its source has changed since the run began; run the same command"
            " again to recompute the stage"
        )
    return step


def sketch_rows(step: CorpusStep, kept: pa.Table, part: int) -> pa.Table:
    """Return a step's sketches: one row per kept document, with the columns part, n and id
    added."""
    rows = on_batch(step.label, step.sketch, Documents(kept).within(step.label))
    rows = rows.append_column("part", pa.array(np.full(kept.num_rows, part, np.int32)))
    rows = rows.append_column("n", one_array(kept[NUMBER]))
    return rows.append_column("id", one_array(kept["id"]))
