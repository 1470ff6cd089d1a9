"""A worker's partition of a stage that an earlier run did with other settings, from what it stored.

The specification says where (`reuse`, apply.py): what the stage stored, what entered it, decisions,
sketches. Its steps see only documents that they must measure again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.stage_files import changed_ids, kept_paths, kept_schema, part_path
from curate.disk.atomic import replacing
from curate.documents.documents import NUMBER, Documents
from curate.engines import worker
from curate.inspect.whatif.before import Before
from curate.inspect.whatif.reapplied import with_columns, with_entering
from curate.inspect.whatif.records import stored_counts, with_batch_edits
from curate.inspect.whatif.rows import merged
from curate.inspect.whatif.stored import Stored
from curate.inspect.whatif.unread import Unread
from curate.run.worker.specification import ready

if TYPE_CHECKING:
    from curate.run.worker.specification import Work


def stored_files(spec: dict[str, Any], part: int) -> list[str]:
    """The files of the earlier run that `Reused` may read, of those that are there."""
    reuse = spec["reuse"]
    folder = Path(reuse["folder"])
    kinds = ["rejected", *([reuse["sketch"]] if reuse["sketch"] else [])]
    kinds += ["ids", "corrupt"] if spec["plan"] else []
    named = [part_path(folder, part, kind) for kind in kinds]
    found = [*kept_paths(folder, part), *(str(path) for path in named if path.exists())]
    if reuse["input"]:
        found += kept_paths(Path(reuse["input"]), part)
    return [*found, reuse["decisions"]] if reuse["decisions"] else found


class Reused:
    """One partition. unread: where its input need not be read either."""

    def __init__(self, spec: dict[str, Any], payload: dict[str, Any]) -> None:
        reuse, part = spec["reuse"], payload["part"]
        folder = Path(reuse["folder"])
        before = None
        if reuse["input"] or spec["apply"]:
            before = Before(reuse, part, spec["apply"], changed_ids(spec["ids"], part))
        sketch = part_path(folder, part, reuse["sketch"]) if reuse["sketch"] else None
        self.stored = Stored(
            folder,
            part,
            reuse["steps"],
            spec["steps"],
            spec["apply"],
            before,
            reuse["pages_until"],
            sketch if sketch is not None and sketch.exists() else None,
        )
        self.unread: Unread | None = None
        if spec["plan"] and not payload.get("quarantine"):
            was, columns = payload.get("was"), spec["plan"].columns
            self.unread = Unread.of(self.stored, folder, part, was, columns)

    def begin(self, work: Work) -> None:
        """Writes no document, in the columns that were stored: but for what is applied with other
        settings, no step is needed for that."""
        work.schemas = self._schemas(work)
        kept, rejected = (schema.empty_table() for schema in work.schemas)
        nothing: dict[str, dict[str, int]] = {}
        work.write(kept, rejected, nothing, 0, time.perf_counter(), False)
        work.sketch(kept, self.stored.no_sketch())

    def _schemas(self, work: Work) -> tuple[pa.Schema, pa.Schema]:
        """The stored ones, with the columns that enter now and that the applied step makes now."""
        reuse, step = work.spec["reuse"], work.spec["apply"]
        kept, rejected = self.stored.schemas
        if reuse["input"]:
            old, new = (
                kept_schema(Path(i), work.part) for i in (reuse["input"], work.spec["input"])
            )
            kept, rejected = (with_entering(s, old, new) for s in (kept, rejected))
        if not reuse["same_settings"]:
            ready(work.spec, "apply")
            docs = Documents(kept_schema(Path(work.spec["input"]), work.part).empty_table())
            made = step.apply(docs.within(step.label), work.decided(docs)).table.schema
            kept, rejected = (
                with_columns(s, docs.table.schema, made, step.label) for s in (kept, rejected)
            )
        return kept, rejected

    def decide(self, work: Work, docs: Documents) -> None:
        """Writes both streams of a batch."""
        start = time.perf_counter()
        ready(work.spec, "apply")
        found = self.stored.decide(docs, work.decided(docs) if work.spec["apply"] else None)
        if found.again.any():
            again = Documents(docs.table.filter(pa.array(found.again)).combine_chunks())
            entering = self.unread.entering(again) if self.unread else [(0, again.table)]
            for place, table in entering:
                fresh = work.steps(Documents(table), traced=False, first=place).split()
                found.kept.append(fresh[0])
                found.rejected.append(fresh[1])
                found.unsketched.append(fresh[0])
                work.measured += table.num_rows
        assert work.schemas is not None
        kept, rejected = (
            merged(schema, tables)
            for schema, tables in zip(work.schemas, (found.kept, found.rejected), strict=True)
        )
        kept, rejected = with_batch_edits(docs, kept, rejected)
        counted = stored_counts(kept, rejected, [s.label for s in self.stored.chain])
        work.write(kept, rejected, counted, len(docs), start, False)
        work.sketch(merged(kept.schema, found.unsketched), found.sketched)

    def write(self, work: Work) -> dict[str, Any]:
        """Writes the whole partition of a first stage without its input; returns what a reader
        would have counted."""
        assert self.unread is not None
        work.writers["ids"].write(self.unread.ids())
        for docs, refused in self.unread.batches():
            counted = stored_counts(refused.slice(0, 0), refused, [])
            start = time.perf_counter()
            work.write(refused.slice(0, 0), refused, counted, len(refused), start, True)
            if len(docs) == 0:
                continue
            numbers = docs.table[NUMBER].to_numpy()
            worker.beat(int(np.min(numbers)), int(np.max(numbers)))
            self.decide(work, docs)
            worker.beat(-1, -1)
        listed = self.unread.corrupt()
        if listed.exists():
            with replacing(part_path(work.folder, work.part, "corrupt")) as aside:
                pq.write_table(pq.read_table(listed), aside)
        return self.unread.said()
