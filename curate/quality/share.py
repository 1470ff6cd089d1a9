"""The score that a share of the corpus reaches: from scores to decisions, by tasks on groups of
sketch files.

seen -> threshold -> pieces. The threshold is exact (score_ranks.py). Nothing of this is a decision
between documents: `drop` is left to the step's `apply`, and no row has a cluster, so that
OUT/decisions.parquet has none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from curate.decision_pieces import COLUMNS, ROWS, join_pieces, piece_files, write_piece
from curate.dedup.phases import Done, Phase, forget, run_phases
from curate.dedup.shuffle.groups import Group, groups, run_tasks
from curate.quality.measures import kept_count
from curate.score_ranks import ALL, find_ranks, seen_in, write_counts
from curate.sketches import Sketches, Task, sketch_batches

if TYPE_CHECKING:
    from curate.quality.step import QualityShare

SCHEMA = pa.schema([*COLUMNS, ("score", pa.float64()), ("threshold", pa.float64())])


def resolve(step: QualityShare, sketches: Sketches) -> dict[str, Any]:
    """Writes the decisions; returns counts for the report."""
    found, run, db = groups(sketches.files), sketches.run, sketches.connection
    share = step.keep_fraction
    assert share is not None

    def seen(folder: Path, done: Done) -> dict[str, Any]:
        write_counts(run, folder, found, by_lang=False)
        return {}

    def threshold(folder: Path, done: Done) -> dict[str, Any]:
        counted = done.folder("seen")
        documents = seen_in(db, counted, len(found)).get(ALL, (0,))[0]
        if not documents:
            return {"documents": 0, "threshold": 0.0}
        rank = documents - kept_count(documents, share)
        ranked = find_ranks(run, db, folder, found, counted, {ALL: [rank]}, by_lang=False)
        return {"documents": documents, "threshold": ranked[ALL][rank]}

    def pieces(folder: Path, done: Done) -> dict[str, Any]:
        told = {"threshold": done.facts["threshold"], "method": step.name, "folder": str(folder)}
        tasks = [{**group.dump(), **told} for group in found]
        return {"kept": sum(d["kept"] for d in run_tasks(run, f"{__name__}:write_pieces", tasks))}

    phases = [
        Phase("seen", seen),
        Phase("threshold", threshold, frees=("seen",)),
        Phase("pieces", pieces),
    ]
    done = run_phases(sketches.folder, phases)
    join_pieces(sketches.decisions, SCHEMA, piece_files(done.folder("pieces"), len(found)))
    forget(sketches.folder)
    counts = {name: done.facts[name] for name in ("documents", "threshold", "kept")}
    return {**counts, "dropped": counts["documents"] - counts["kept"]}


def write_pieces_files(task: Task) -> dict[str, list[str]]:
    """What `write_pieces` reads and writes."""
    group = Group.load(task)
    written = piece_files(Path(task["folder"]), group.part + 1)[-1]
    return {"reads": group.reads(), "writes": [str(written)]}


def write_pieces(task: Task) -> dict[str, Any]:
    """A task: the decisions on a group's documents, and how many of them reach the threshold. Held
    is a batch."""
    group = Group.load(task)
    kept: list[int] = []
    path = piece_files(Path(task["folder"]), group.part + 1)[-1]
    write_piece(path, SCHEMA, _pieces(task, group, kept))
    return {"kept": sum(kept)}


def _pieces(task: Task, group: Group, kept: list[int]) -> Iterator[pa.RecordBatch]:
    for batch in sketch_batches(group.files, ["score"], ROWS):
        rows, score = len(batch), batch["score"].cast(pa.float64())
        values = score.to_numpy(zero_copy_only=False)
        kept.append(int(np.count_nonzero(values >= task["threshold"])))
        known = {"part": batch["part"], "n": batch["n"], "id": batch["id"], "score": score}
        known |= {"drop": pa.repeat(pa.scalar(False), rows)}
        known |= {"method": pa.repeat(pa.scalar(task["method"]), rows)}
        known |= {"threshold": pa.repeat(pa.scalar(task["threshold"], pa.float64()), rows)}
        arrays = [known[f.name] if f.name in known else pa.nulls(rows, f.type) for f in SCHEMA]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
