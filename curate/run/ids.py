"""Assign final ids to documents, after the first stage, because ids depend on the whole input.

A document without an id gets `path-relative-to-IN#ordinal`. If an id is repeated, later documents
in input order get `~2`, `~3` and so on added; files of one relative path count in the order of
their full paths, so the order in which inputs are given does not change the ids made for them. If a
run continues from earlier runs, the ids of those runs are also taken. The changed ids are written
to `ids.parquet`, with columns part (partition), _n (number in the partition) and id. The files of
the stage stay unchanged.

For a large input, tasks first compare hashes of ids. Then database queries are run only on
documents that may share an id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.manifests import part_path
from curate.corpus.shuffle.tasks import read_slice, write_slices
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, run_here
from curate.documents.documents import NUMBER
from curate.formats.inputs import InputPlan, Partitions
from curate.run.plan import EarlierIds
from llmcurate.base.disk.database import arrow_batches, literal, paths_literal, scratch_database
from llmcurate.base.disk.files import remove_files, replacing
from llmcurate.base.disk.parquet_writer import writing
from llmcurate.base.messages import Task

ISSUED = "issued.parquet"  # all ids of a run, for runs that continue from it
# Splits an id at its last `~number`: the part before it, and the number.
_SPLIT = r"regexp_extract(id, '(?s)^(.*)~([1-9][0-9]{0,17})$', ['id', 'k'])"


def _number_repeated(db: Any) -> None:
    # Numbers in use are skipped: if the ids are `a`, `a` and `a~2`, the second `a` becomes `a~3`.
    # So every new id is unique: the part before its last `~number` is the old id.
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
          SELECT part, n, id, row_number() OVER (PARTITION BY id ORDER BY turn, part, n) - 1
                 + (id IN (SELECT id FROM before))::BIGINT AS nth
          FROM repeated)
        SELECT part, n, numbered.id || '~' || coalesce(numbers.k, nth + 1) AS id
        FROM numbered LEFT JOIN numbers USING (id, nth) WHERE nth > 0"""
    )
    db.execute(
        "DELETE FROM changed USING fresh WHERE changed.part = fresh.part AND changed.n = fresh.n"
    )
    db.execute("INSERT INTO changed SELECT part, n, id FROM fresh")


SEEN = f"SELECT part, {NUMBER} AS n, own, slice, ordinal FROM read_parquet"
# Documents of a slice. If a slice is read in part, a row with a negative number counts them.
COUNTED = """SELECT part, slice, max(ordinal + (n >= 0)::BIGINT) AS size FROM seen GROUP BY ALL"""
# Documents of the same file in earlier slices.
BASES = """SELECT part, slice, rel, turn,
    coalesce(sum(coalesce(size, 0)) OVER (
      PARTITION BY file ORDER BY start
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::BIGINT AS base
    FROM slices JOIN names USING (file) LEFT JOIN counted USING (part, slice)"""
NAMED = """SELECT seen.part, n, own IS NULL AND base > 0 AS moved, turn,
    coalesce(own, rel || '#' || (ordinal + base)) AS id
    FROM seen JOIN bases USING (part, slice) WHERE n >= 0"""
KEYS = pa.schema(
    [("key", pa.uint64()), ("part", pa.int32()), ("n", pa.int64()), ("own", pa.bool_())]
)
BASED, SHARED = "ids-bases.parquet", "ids-shared.parquet"  # over all groups, and over all ranges
MEMORY = "512MB"  # per task, for its database
RANGE_BITS = 10  # at most; each range of hashes, given by its first bits, is a task


@dataclass(frozen=True)
class _Groups:
    folder: Path  # the stage's
    bounds: list[tuple[int, int]]

    @property
    def bits(self) -> int:
        return min(RANGE_BITS, (len(self.bounds) - 1).bit_length())

    def files(self, kind: str, ranges: bool = False) -> list[Path]:
        count = 1 << self.bits if ranges else len(self.bounds)
        return [_file(self.folder, kind, number) for number in range(count)]

    def run(self, run: Run, name: str, ranges: bool = False) -> None:
        bounds = [(0, len(self.bounds))] * (1 << self.bits) if ranges else self.bounds
        tasks = [IdTask(n, self.folder, *bound, self.bits) for n, bound in enumerate(bounds)]
        for _ in run(f"{__name__}:{name}", tasks, object):
            pass


def _file(folder: Path, kind: str, number: int) -> Path:
    return folder / f"ids-{kind}-{number:05d}.parquet"


@dataclass(frozen=True)
class IdTask(Task):
    """A task on document ids: for some functions, the ids of a group of partitions; for others, all
    ids whose hashes begin with the same bits (a range)."""

    folder: Path  # the stage's folder
    first: int  # first partition of the group
    last: int  # end of the group; for a task on hashes, the number of groups
    bits: int  # number of leading bits of a hash

    def file(self, kind: str) -> Path:
        return _file(self.folder, kind, self.part)


def _groups(folder: Path, parts: int, sizes: Sizes) -> _Groups:
    bounds: list[tuple[int, int]] = []
    size = sizes.id_bytes
    for part in range(parts):
        if size >= sizes.id_bytes or part - bounds[-1][0] >= sizes.task_partitions:
            bounds.append((part, part))
            size = 0
        bounds[-1] = bounds[-1][0], part + 1
        size += part_path(folder, part, "ids").stat().st_size
    return _Groups(folder, bounds)


def gather_ids(task: IdTask) -> None:
    """Write the ids of a group's partitions into one file. If a query read a million small files
    instead, it would hold the footer of each file in memory, 11 kB per file."""
    with writing(task.file("gathered")) as writer:
        for part in range(task.first, task.last):
            rows = pq.read_table(part_path(task.folder, part, "ids"))
            numbers = pa.repeat(pa.scalar(part, pa.int32()), len(rows))
            writer.write(rows.append_column("part", numbers))


@contextmanager
def _group_database(task: IdTask, named: bool = True) -> Iterator[Any]:
    with scratch_database(task.folder / f".spill-ids-{task.part:05d}") as db:
        db.execute(f"SET memory_limit = '{MEMORY}'")
        db.execute(f"CREATE VIEW seen AS {SEEN}({literal(task.file('gathered'))})")
        if named:
            db.execute(
                f"""CREATE VIEW bases AS SELECT * FROM read_parquet({literal(task.folder / BASED)})
                WHERE part >= {task.first} AND part < {task.last}"""
            )
            db.execute(f"CREATE VIEW named AS {NAMED}")
        yield db


def _write(db: Any, sql: str, path: str | Path) -> None:
    with replacing(Path(path), sync=False) as aside:
        db.execute(f"COPY ({sql}) TO {literal(aside)} (FORMAT parquet)")


def count_ids(task: IdTask) -> None:
    with _group_database(task, named=False) as db:
        _write(db, COUNTED, task.file("counted"))


def key_ids(task: IdTask) -> None:
    """Write the hashes of the ids in a group of partitions, ordered by the first bits of the hash.
    Repeats of an id get `~2`, `~3` and so on added. So for an id that ends like this, such as
    `a~2`, also write the hash of `a`: a repeat of `a` must not get the id `a~2` too."""
    with _group_database(task) as db:
        rows = db.sql(
            f"""SELECT md5_number_lower(id)::UBIGINT AS key, part, n, true AS own FROM named
            UNION ALL SELECT md5_number_lower(s.id)::UBIGINT, part, n, false
            FROM (SELECT part, n, {_SPLIT} AS s FROM named WHERE contains(id, '~'))
            WHERE s.k <> ''"""
        )
        table = pa.Table.from_batches(arrow_batches(rows), KEYS)
    bits = task.bits
    ranges = table["key"].to_numpy() >> np.uint64(64 - bits) if bits else np.zeros(len(table))
    order = np.argsort(ranges, kind="stable")
    table, ends = table.take(order), np.searchsorted(ranges[order], np.arange((1 << bits) + 1))
    slices = (table.slice(a, b - a) for a, b in pairwise(ends.tolist()))
    write_slices(task.file("keyed"), KEYS, slices)


def share_ids(task: IdTask) -> None:
    """Write a list of the documents that may need a new id: those with a repeated id, such as `a`,
    and those with an id such as `a~2`, because a repeat of `a` would be renamed to `a~2`. Ids are
    compared by hash. Each task reads only the hashes that begin with the bits of its range."""
    keyed = [_file(task.folder, "keyed", number) for number in range(task.last)]
    rows = pa.Table.from_batches(read_slice(keyed, task.part), KEYS)
    with scratch_database(task.folder / f".spill-shared-{task.part:05d}") as db:
        db.execute(f"SET memory_limit = '{MEMORY}'")
        db.register("rows", rows)
        _write(
            db,
            """SELECT DISTINCT part, n FROM rows WHERE key IN (
              SELECT key FROM rows WHERE own GROUP BY key HAVING count(*) > 1)""",
            task.file("shared"),
        )


def name_ids(task: IdTask) -> None:
    """Write the ids of some documents in a group of partitions: each document whose id has changed
    or may equal another document's."""
    with _group_database(task) as db:
        shared = literal(task.folder / SHARED)
        db.execute(f"CREATE VIEW shared AS SELECT * FROM read_parquet({shared})")
        _write(
            db,
            """SELECT * FROM named WHERE moved
            UNION ALL SELECT * FROM named SEMI JOIN shared USING (part, n) WHERE NOT moved""",
            task.file("candidates"),
        )


def _parquet(files: list[Path]) -> str:
    return f"SELECT * FROM read_parquet({paths_literal(files)})"


def _select_candidates(db: Any, groups: _Groups, run: Run) -> None:
    groups.run(run, "count_ids")
    db.execute(f"CREATE VIEW counted AS {_parquet(groups.files('counted'))}")
    _write(db, f"{BASES} ORDER BY part", groups.folder / BASED)
    groups.run(run, "key_ids")
    groups.run(run, "share_ids", ranges=True)
    shared = _parquet(groups.files("shared", ranges=True))
    _write(db, f"{shared} ORDER BY part, n", groups.folder / SHARED)
    groups.run(run, "name_ids")
    db.execute(f"CREATE VIEW named AS {_parquet(groups.files('candidates'))}")


def assign_ids(
    plan: InputPlan,
    folder: Path,
    earlier: EarlierIds | None = None,
    run: Run = run_here,
    sizes: Sizes = Sizes(),
) -> int:
    """Give each document its final id, which differs from its first id if that is repeated. Write
    the ids that differ to folder/ids.parquet, and all final ids to folder/issued.parquet if
    `earlier` is given. Return how many differ. `run` runs tasks if there are many ids."""
    groups = _groups(folder, len(plan.partitions), sizes)
    many = len(groups.bounds) > 1
    if many:
        groups.run(run, "gather_ids")
    with scratch_database(folder / ".spill-ids") as db, replacing(folder / "ids.parquet") as aside:
        # part, slice (in the partition), file, start; and rel of each file.
        db.register("slices", Partitions.of(plan.partitions).table())
        paths, rels = [f.path for f in plan.files], [f.rel for f in plan.files]
        first = {rel: n for n, rel in reversed([*enumerate(rels)])}
        order = sorted(range(len(rels)), key=lambda n: (first[rels[n]], paths[n]))
        names = {"file": np.arange(len(rels)), "rel": rels, "turn": np.argsort(order)}
        db.register("names", pa.table(names))
        if many and earlier is None:
            _select_candidates(db, groups, run)
        else:
            _name_all(db, groups, many)
        db.execute("CREATE TABLE changed AS SELECT part, n, id FROM named WHERE moved")
        # Ids of earlier runs, and those of them that this run has used too.
        files = list(earlier.files) if earlier else []
        given = (
            f"read_parquet({paths_literal(files)})" if files else "(SELECT '' AS id WHERE false)"
        )
        db.execute(f"CREATE VIEW given AS SELECT id FROM {given}")
        db.execute(
            "CREATE TABLE before AS SELECT DISTINCT id FROM given SEMI JOIN named USING (id)"
        )
        db.execute(
            """CREATE TABLE repeated AS
            SELECT part, n, id, turn FROM named
            WHERE id IN (SELECT id FROM named GROUP BY id HAVING count(*) > 1)
            OR id IN (SELECT id FROM before)"""
        )
        if db.execute("SELECT 1 FROM repeated LIMIT 1").fetchone():
            _number_repeated(db)
        if earlier is not None:
            issued = """SELECT coalesce(changed.id, named.id) AS id
                FROM named LEFT JOIN changed USING (part, n) ORDER BY part, n"""
            _write(db, issued, folder / ISSUED)
        db.execute(
            f"""COPY (SELECT part::INTEGER AS part, n::BIGINT AS {NUMBER}, id FROM changed
            ORDER BY part, n) TO {literal(aside)} (FORMAT parquet)"""
        )
        count: int = db.execute("SELECT count(*) FROM changed").fetchone()[0]
    remove_files(folder.glob("ids-*.parquet"), inside=folder)
    return count


def _name_all(db: Any, groups: _Groups, gathered: bool) -> None:
    files = [part_path(groups.folder, p, "ids") for bound in groups.bounds for p in range(*bound)]
    number = "regexp_extract(filename, 'part-(\\d+)\\.ids\\.parquet$', 1)"
    source = f"SELECT CAST({number} AS INTEGER) AS part, * FROM read_parquet"
    seen = f"{SEEN}({paths_literal(groups.files('gathered'))})"
    if not gathered:
        source = f"({source}({paths_literal(files)}, filename = true))"
        seen = SEEN.replace("read_parquet", source)
    kind = "VIEW" if gathered else "TABLE"  # a table reads few ids once, not once per query
    db.execute(f"CREATE {kind} seen AS {seen}")
    db.execute(f"CREATE TABLE counted AS {COUNTED}")
    db.execute(f"CREATE TABLE bases AS {BASES}")
    db.execute(f"CREATE {kind} named AS {NAMED}")
