"""Rows of a run's own sketches, by id or drawn: only the rows that are asked for are read whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus import indexes
from curate.corpus.manifests import changed_ids, with_ids
from curate.corpus.sketches import SketchFile
from curate.documents.documents import NUMBER
from curate.lab.verify.finished_run import PARTS, FinishedRun, first
from curate.lab.verify.tally import NotChecked

Row = dict[str, Any]


def index_of(run: FinishedRun, step: Any) -> indexes.Index:
    """The index that a dedup left; NotChecked where there is none."""
    for index in indexes.all_in(run.out):
        if index.record.label == step.label:
            return index
    raise NotChecked(f"OUT/index holds no sketches of {step.label}")


def own_files(index: indexes.Index) -> list[SketchFile]:
    """The files of a run's own sketches."""
    return [replace(file, corpus="") for file in index.files(0)]


def rows_of(
    files: list[SketchFile], asked_ids: set[str], columns: list[str]
) -> Iterator[tuple[SketchFile, Row]]:
    """The rows of these ids with some columns, n and id. Of other rows only the ids are read."""
    names = pa.array(sorted(asked_ids), pa.string())
    for file in files:
        ids = _ids(file)
        yield from _read(file, ids.filter(pc.is_in(ids["id"], value_set=names)), columns)


def drawn_rows(
    run: FinishedRun, files: list[SketchFile], columns: list[str], count: int, without: set[str]
) -> Iterator[tuple[SketchFile, Row]]:
    """Rows of a few files, about `count` in all, drawn by the hash of their ids."""
    drawn = sorted(first(run.seed, range(len(files)), PARTS))
    for number in drawn:
        ids = _ids(files[number])
        names = [name for name in ids["id"].to_pylist() if name not in without]
        chosen = pa.array(first(run.seed, names, max(1, count // len(drawn))), pa.string())
        yield from _read(files[number], ids.filter(pc.is_in(ids["id"], value_set=chosen)), columns)


def _ids(file: SketchFile) -> pa.Table:
    """n (as `_n`) and final id of all rows."""
    table = pq.read_table(file.path, columns=["n", "id"]).rename_columns([NUMBER, "id"])
    return with_ids(table, changed_ids(str(file.ids) if file.ids else None, file.stored))


def _read(file: SketchFile, ids: pa.Table, columns: list[str]) -> Iterator[tuple[SketchFile, Row]]:
    if not ids.num_rows:
        return
    names = dict(zip(ids[NUMBER].to_pylist(), ids["id"].to_pylist(), strict=True))
    table = pq.read_table(file.path, columns=[*columns, "n"], filters=[("n", "in", [*names])])
    for row in table.to_pylist():
        yield file, row | {"id": names[row["n"]]}
