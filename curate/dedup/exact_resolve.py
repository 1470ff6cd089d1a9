"""Exact duplicates from sketches to decisions.

A corpus of AT_ONCE documents is one query of the database. Of a larger one 64 bits of each key go
through the shuffle (dedup/shuffle), which leaves candidates, documents that may share a key; their
rows are cut into slices by key, and each slice is a task that asks the same query of a database
that holds SLICE_MEMORY and spills. Clusters are numbered by the caller, over members alone.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from curate.corpus.phases import Done, Phase, forget, run_phases
from curate.corpus.shuffle import tasks as shuffle_tasks
from curate.corpus.shuffle.tasks import MOST, read_slice, write_slices
from curate.corpus.sketches import Sketches, Task
from curate.dedup import survivors
from curate.disk.atomic import TEMPORARY, replacing
from curate.disk.database import database, literal, paths_literal

if TYPE_CHECKING:
    from curate.corpus.shuffle.candidates import Picked
    from curate.dedup.exact import DedupExact

# Chosen between measured points (benchmarks/bench_resolve.py): of 1 million documents the tasks
# take 2.7 times the CPU of the query, of 16 million about as much.
AT_ONCE = 8_000_000
SLICE = 500_000  # candidates of a slice that are aimed at
SLICE_MEMORY = "512MB"


def members_query(source: str, survivor: str) -> str:
    """Which rows of `source` share their key: part, n, id, key, rank (1: stays), kept_id."""
    order = survivors.preference(survivor)
    return f"""
        WITH shared AS (
          SELECT key FROM {source} WHERE key IS NOT NULL GROUP BY key HAVING count(*) > 1)
        SELECT part, n, id, key,
               row_number() OVER (PARTITION BY key ORDER BY {order}) AS rank,
               first_value(id) OVER (PARTITION BY key ORDER BY {order}) AS kept_id
        FROM {source} WHERE key IN (SELECT key FROM shared)"""


def resolve(step: DedupExact, sketches: Sketches) -> dict[str, Any]:
    """Writes the decisions; returns counts for the report."""
    found = shuffle_tasks.groups(sketches.files)
    if not AT_ONCE < sum(group.rows for group in found) < MOST:
        query = members_query("sketches", step.survivor)
        sketches.connection.execute(f"CREATE OR REPLACE TABLE members AS {query}")
        return write_decisions(sketches.connection, sketches.decisions, step.method)
    done = run_phases(sketches.folder, phases(step, sketches, found))
    paths = member_files(done.folder("members"), done.facts["slices"])
    source = f"read_parquet({paths_literal(paths)})"
    # A table, as above: what the database knows of one, such as no nulls, is in what it writes.
    sketches.connection.execute(f"CREATE OR REPLACE TABLE members AS SELECT * FROM {source}")
    counts = write_decisions(sketches.connection, sketches.decisions, step.method)
    forget(sketches.folder)
    return counts


def phases(step: DedupExact, sketches: Sketches, found: list[shuffle_tasks.Group]) -> list[Phase]:
    """The phases before decisions, of a corpus of several groups."""
    from curate.corpus.shuffle.buckets import find_buckets
    from curate.corpus.shuffle.candidates import picked
    from curate.corpus.shuffle.partitions import part_keys

    columns = ["key", *survivors.preferred_by(step.survivor)]

    def keys(folder: Path, done: Done) -> dict[str, Any]:
        return part_keys(sketches.run, folder, found, step.label, "key", 1)

    def buckets(folder: Path, done: Done) -> dict[str, Any]:
        return find_buckets(sketches.run, folder, done.folder("keys"), done.facts)

    def rows(folder: Path, done: Done) -> dict[str, Any]:
        slices = max(1, -(-done.facts["candidates"] // SLICE))
        tasks = picked(found, done.folder("buckets"), folder, columns=columns, slices=slices)
        shuffle_tasks.run_tasks(sketches.run, f"{__name__}:write_rows", tasks)
        return {"slices": slices}

    def members(folder: Path, done: Done) -> dict[str, Any]:
        told = {"rows": str(done.folder("rows")), "groups": done.facts["groups"]}
        told |= {"folder": str(folder), "survivor": step.survivor}
        tasks = [{"part": part, **told} for part in range(done.facts["slices"])]
        shuffle_tasks.run_tasks(sketches.run, f"{__name__}:write_members", tasks)
        return {}

    return [
        Phase("keys", keys),
        Phase("buckets", buckets, frees=("keys",)),
        Phase("rows", rows, frees=("buckets",)),
        Phase("members", members, frees=("rows",)),
    ]


def row_files(folder: Path, count: int) -> list[Path]:
    """The candidates' rows of each group, Arrow files with a record batch a slice."""
    return [folder / f"rows-{group:05d}.arrow" for group in range(count)]


def member_files(folder: Path, count: int) -> list[Path]:
    """The members of each slice."""
    return [folder / f"members-{part:05d}.parquet" for part in range(count)]


def write_rows_files(task: Task) -> dict[str, list[str]]:
    """What `write_rows` reads and writes."""
    mine = _picked(task)
    written = row_files(mine.folder, mine.group.part + 1)[-1]
    return {"reads": mine.reads(), "writes": [str(written)]}


def _picked(task: Task) -> Picked:
    from curate.corpus.shuffle.candidates import Picked

    return Picked.load(task)


def write_rows(task: Task) -> dict[str, Any]:
    """A task: the rows of a group's candidates, cut into slices by their keys. Held are all."""
    from curate.corpus.shuffle.partitions import fixed_rows

    mine, slices = _picked(task), task["slices"]
    table = pa.Table.from_batches(mine.batches(task["columns"]), mine.schema(task["columns"]))
    table = table.combine_chunks()
    place = np.zeros(len(table), np.int64)
    if len(table):
        # Every candidate has a key: 32 bits of it, as a fraction of 2^32, times the slices.
        first = fixed_rows(table["key"].chunk(0), np.uint64)[:, 0] >> np.uint64(32)
        place = ((first * np.uint64(slices)) >> np.uint64(32)).astype(np.int64)
    order = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[order], np.arange(slices), "right")
    table = table.take(pa.array(order)).combine_chunks()
    bounds = [0, *ends.tolist()]
    some = (table.slice(begin, end - begin) for begin, end in pairwise(bounds))
    write_slices(row_files(mine.folder, mine.group.part + 1)[-1], table.schema, some)
    return {}


def write_members_files(task: Task) -> dict[str, list[str]]:
    """What `write_members` reads (a record batch of each) and writes."""
    reads = row_files(Path(task["rows"]), task["groups"])
    written = member_files(Path(task["folder"]), task["part"] + 1)[-1]
    return {"reads": [str(path) for path in reads], "writes": [str(written)]}


def write_members(task: Task) -> dict[str, Any]:
    """A task: the members of a slice and their ranks."""
    folder, part = Path(task["folder"]), task["part"]
    paths = row_files(Path(task["rows"]), task["groups"])
    with pa.OSFile(str(paths[0])) as file:
        schema = pa.ipc.open_file(file).schema

    with (
        replacing(member_files(folder, part + 1)[-1]) as aside,
        database(folder / f"{TEMPORARY}{os.getpid()}-spill-{part}") as db,
    ):
        db.execute(f"SET memory_limit = '{SLICE_MEMORY}'")
        db.register("arriving", pa.RecordBatchReader.from_batches(schema, read_slice(paths, part)))
        db.execute("CREATE TABLE candidates AS SELECT * FROM arriving")
        query = members_query("candidates", task["survivor"])
        db.execute(f"COPY ({query}) TO {literal(aside)} (FORMAT parquet)")
    return {}


def write_decisions(db: Any, path: Path, method: str) -> dict[str, Any]:
    """The decisions on the rows of `members`, by part and n; counts."""
    db.execute(
        """CREATE OR REPLACE TABLE numbered AS
        SELECT key, row_number() OVER (ORDER BY min(kept_id)) - 1 AS cluster
        FROM members GROUP BY key"""
    )
    db.execute(
        f"""COPY (
        SELECT part, n, rank > 1 AS drop, id, cluster::BIGINT AS cluster, kept_id,
               CASE WHEN rank > 1 THEN kept_id END AS partner_id,
               CASE WHEN rank > 1 THEN 1.0::DOUBLE END AS similarity,
               '{method}' AS method, NULL::BIGINT AS span_start, NULL::BIGINT AS span_end
        FROM members JOIN numbered USING (key) ORDER BY part, n
        ) TO {literal(path)} (FORMAT parquet)"""
    )
    clusters, members = db.execute("SELECT count(DISTINCT key), count(*) FROM members").fetchone()
    return {"clusters": clusters, "members": members, "dropped": members - clusters}
