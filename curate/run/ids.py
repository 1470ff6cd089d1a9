"""Ids that only the whole input decides, after the first stage.

A document without an own id is `path-relative-to-IN#ordinal`; where its file was read in slices,
a slice knows the ordinals of its own documents only. A repeated id gets `~2`, `~3` in input order.
Both are found here, once, out of core; the stage's files stay as they are, and whoever reads them
next takes the settled ids from `ids.parquet` (part, _n, id; changed documents only).

A run that goes on from earlier ones repeats their ids too, and gets the numbers that a run over all
of their inputs would give. What earlier runs gave is read in one pass and looked up among this
run's ids, so memory is for these alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, run_here
from curate.corpus.stage_files import part_path
from curate.disk.database import database, literal, paths_literal
from curate.disk.files import replacing
from curate.disk.parquet_writer import writing
from curate.documents.documents import NUMBER
from curate.formats.inputs import InputPlan
from curate.formats.partitions import Partitions
from curate.run.plan import EarlierIds

ISSUED = "issued.parquet"  # all ids of a run that others go on from
# What stands before the last `~number` of an id, and the number.
_SPLIT = r"regexp_extract(id, '(?s)^(.*)~([1-9][0-9]{0,17})$', ['id', 'k'])"


def _slices(plan: InputPlan) -> tuple[pa.Table, pa.Table]:
    """part, slice (in the partition), file, start; and rel of each file."""
    names = pa.table({"file": np.arange(len(plan.files)), "rel": [f.rel for f in plan.files]})
    return Partitions.of(plan.partitions).table(), names


def _earlier(db: Any, earlier: EarlierIds | None) -> None:
    """The view `given` of the ids that earlier runs gave, and the table `before` of those among
    them that documents of this one have too."""
    files = list(earlier.files) if earlier else []
    source = f"read_parquet({paths_literal(files)})" if files else "(SELECT '' AS id WHERE false)"
    db.execute(f"CREATE VIEW given AS SELECT id FROM {source}")
    db.execute("CREATE TABLE before AS SELECT DISTINCT id FROM given SEMI JOIN named USING (id)")


def _number_repeated(db: Any) -> None:
    """Gives ids that come again their numbers: from `named`, `given`, `before` and `repeated` into
    `changed`."""
    # Numbers that documents of their own carry already (`a~2` beside two of `a`) are left to
    # them; so every new id is new, as what stands before its last `~number` is its old one.
    db.execute(
        f"""CREATE TABLE taken AS
        WITH split AS (
          SELECT DISTINCT {_SPLIT} AS s
          FROM (SELECT id FROM named UNION ALL SELECT id FROM given) WHERE contains(id, '~'))
        SELECT s.id AS id, s.k::BIGINT AS k FROM split
        WHERE s.k <> '' AND s.id IN (SELECT id FROM repeated)"""
    )
    db.execute(
        """CREATE TABLE numbers AS
        WITH sizes AS (
          SELECT id, count(*) AS size, coalesce(any_value(t.ks), []) AS ks
          FROM repeated LEFT JOIN (SELECT id, list(k) AS ks FROM taken GROUP BY id) t USING (id)
          WHERE id IN (SELECT id FROM taken) GROUP BY id),
        free AS (SELECT id, unnest(range(2, size + len(ks) + 2)) AS k FROM sizes)
        SELECT free.id, free.k, row_number() OVER (PARTITION BY free.id ORDER BY free.k) AS nth
        FROM free ANTI JOIN taken ON free.id = taken.id AND free.k = taken.k"""
    )
    db.execute(
        """CREATE TABLE fresh AS
        WITH numbered AS (
          SELECT part, n, id, row_number() OVER (PARTITION BY id ORDER BY part, n) - 1
                 + (id IN (SELECT id FROM before))::BIGINT AS nth
          FROM repeated)
        SELECT part, n, numbered.id || '~' || coalesce(numbers.k, nth + 1) AS id
        FROM numbered LEFT JOIN numbers USING (id, nth) WHERE nth > 0"""
    )
    db.execute(
        "DELETE FROM changed USING fresh WHERE changed.part = fresh.part AND changed.n = fresh.n"
    )
    db.execute("INSERT INTO changed SELECT part, n, id FROM fresh")


def gather_ids_files(payload: dict[str, Any]) -> dict[str, list[str]]:
    """What `gather_ids` reads and writes."""
    folder, parts = Path(payload["folder"]), range(payload["first"], payload["last"])
    reads = [str(part_path(folder, part, "ids")) for part in parts]
    return {"reads": reads, "writes": [payload["gathered"]]}


def gather_ids(payload: dict[str, Any]) -> dict[str, Any]:
    """One file of the ids of partitions from `first` to before `last`, with the partition's number:
    of a million small files the one query would hold the footers, 11 kB each."""
    with writing(Path(payload["gathered"])) as writer:
        for part in range(payload["first"], payload["last"]):
            rows = pq.read_table(part_path(Path(payload["folder"]), part, "ids"))
            numbers = pa.repeat(pa.scalar(part, pa.int32()), len(rows))
            writer.write(rows.append_column("part", numbers))
    return {}


def _gathered(folder: Path, parts: int, run: Run, most: int) -> list[Path]:
    """The files of gathered ids."""
    bounds = [(first, min(first + most, parts)) for first in range(0, parts, most)]
    files = [folder / f"ids-{number:05d}.parquet" for number in range(len(bounds))]
    tasks = [
        {"part": n, "folder": str(folder), "gathered": str(file), "first": first, "last": last}
        for n, (file, (first, last)) in enumerate(zip(files, bounds, strict=True))
    ]
    for _ in run("curate.run.ids:gather_ids", tasks):
        pass
    return files


def assign_ids(
    plan: InputPlan,
    folder: Path,
    earlier: EarlierIds | None = None,
    run: Run = run_here,
    most: int = Sizes.task_partitions,
) -> int:
    """Writes folder/ids.parquet, and issued.parquet where runs go on from each other; returns how
    many documents got another id. run: who gathers the ids of more than `most` partitions."""
    parts = len(plan.partitions)
    gathered = _gathered(folder, parts, run, most) if parts > most else []
    files = gathered or [part_path(folder, p, "ids") for p in range(parts)]
    number = "regexp_extract(filename, 'part-(\\d+)\\.ids\\.parquet$', 1)"
    part = "part" if gathered else f"CAST({number} AS INTEGER) AS part"
    with database(folder / ".spill-ids") as db, replacing(folder / "ids.parquet") as aside:
        for name, table in zip(("slices", "names"), _slices(plan), strict=True):
            db.register(name, table)
        db.execute(
            f"""CREATE VIEW seen AS SELECT {part}, {NUMBER} AS n, own, slice, ordinal
            FROM read_parquet({paths_literal(files)}, filename = true)"""
        )
        # Documents of the same file in earlier slices: of a slice that is read in part, a row with
        # a negative number counts them.
        db.execute(
            """CREATE TABLE bases AS
            WITH counted AS (
              SELECT part, slice, max(ordinal + (n >= 0)::BIGINT) AS size FROM seen GROUP BY ALL)
            SELECT part, slice, rel,
                   coalesce(sum(coalesce(size, 0)) OVER (
                     PARTITION BY file ORDER BY start
                     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::BIGINT AS base
            FROM slices JOIN names USING (file) LEFT JOIN counted USING (part, slice)"""
        )
        db.execute(
            """CREATE VIEW named AS
            SELECT seen.part, n, own IS NULL AND base > 0 AS moved,
                   coalesce(own, rel || '#' || (ordinal + base)) AS id
            FROM seen JOIN bases USING (part, slice) WHERE n >= 0"""
        )
        db.execute("CREATE TABLE changed AS SELECT part, n, id FROM named WHERE moved")
        _earlier(db, earlier)
        db.execute(
            """CREATE TABLE repeated AS
            SELECT part, n, id FROM named
            WHERE id IN (SELECT id FROM named GROUP BY id HAVING count(*) > 1)
            OR id IN (SELECT id FROM before)"""
        )
        if db.execute("SELECT 1 FROM repeated LIMIT 1").fetchone():
            _number_repeated(db)
        if earlier is not None:
            with replacing(folder / ISSUED) as issued:
                db.execute(
                    f"""COPY (SELECT coalesce(changed.id, named.id) AS id
                    FROM named LEFT JOIN changed USING (part, n) ORDER BY part, n)
                    TO {literal(issued)} (FORMAT parquet)"""
                )
        db.execute(
            f"""COPY (SELECT part::INTEGER AS part, n::BIGINT AS {NUMBER}, id FROM changed
            ORDER BY part, n) TO {literal(aside)} (FORMAT parquet)"""
        )
        count: int = db.execute("SELECT count(*) FROM changed").fetchone()[0]
    for file in gathered:
        file.unlink()
    return count
