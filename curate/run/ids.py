"""Ids that only the whole input decides, after the first stage.

A document without an own id is `path-relative-to-IN#ordinal`; where its file was read in slices,
a slice knows the ordinals of its own documents only. A repeated id gets `~2`, `~3` in input order.
Both are found here, once, out of core; the stage's files stay as they are, and whoever reads them
next takes the settled ids from `ids.parquet` (part, _n, id; changed documents only).

A run that goes on from earlier ones repeats their ids too, and gets the numbers that a run over all
of their inputs would give. What earlier runs gave is read in one pass and looked up among this
run's ids, so memory is for these alone.

Of a large input tasks do what the one query does of a small one: hashes of ids are shuffled, so
that each range of hashes says which documents may share their id, and the query sees these alone.
"""

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

ISSUED = "issued.parquet"  # all ids of a run that others go on from
# What stands before the last `~number` of an id, and the number.
_SPLIT = r"regexp_extract(id, '(?s)^(.*)~([1-9][0-9]{0,17})$', ['id', 'k'])"


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


SEEN = f"SELECT part, {NUMBER} AS n, own, slice, ordinal FROM read_parquet"
# Documents of a slice; of one that is read in part, a row with a negative number counts them.
COUNTED = """SELECT part, slice, max(ordinal + (n >= 0)::BIGINT) AS size FROM seen GROUP BY ALL"""
# Documents of the same file in earlier slices.
BASES = """SELECT part, slice, rel,
    coalesce(sum(coalesce(size, 0)) OVER (
      PARTITION BY file ORDER BY start
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::BIGINT AS base
    FROM slices JOIN names USING (file) LEFT JOIN counted USING (part, slice)"""
NAMED = """SELECT seen.part, n, own IS NULL AND base > 0 AS moved,
    coalesce(own, rel || '#' || (ordinal + base)) AS id
    FROM seen JOIN bases USING (part, slice) WHERE n >= 0"""
KEYS = pa.schema(
    [("key", pa.uint64()), ("part", pa.int32()), ("n", pa.int64()), ("own", pa.bool_())]
)
BASED, SHARED = "ids-bases.parquet", "ids-shared.parquet"  # of all groups, and of all ranges
MEMORY = "512MB"  # of a task's database
RANGE_BITS = 10  # at most: of hashes, whose ranges are a task each


@dataclass(frozen=True)
class _Groups:
    """Partitions [first, last) of each group, whose ids are settled by tasks in a folder."""

    folder: Path  # of the stage
    bounds: list[tuple[int, int]]

    @property
    def bits(self) -> int:
        """Of a hash, that say which range it lies in."""
        return min(RANGE_BITS, (len(self.bounds) - 1).bit_length())

    def files(self, kind: str, ranges: bool = False) -> list[Path]:
        """One a group, or a range of hashes."""
        count = 1 << self.bits if ranges else len(self.bounds)
        return [_file(self.folder, kind, number) for number in range(count)]

    def run(self, run: Run, name: str, ranges: bool = False) -> None:
        """Runs a function for each group, or each range of hashes."""
        bounds = [(0, len(self.bounds))] * (1 << self.bits) if ranges else self.bounds
        tasks = [IdTask(n, self.folder, *bound, self.bits) for n, bound in enumerate(bounds)]
        for _ in run(f"{__name__}:{name}", tasks, object):
            pass


def _file(folder: Path, kind: str, number: int) -> Path:
    return folder / f"ids-{kind}-{number:05d}.parquet"


@dataclass(frozen=True)
class IdTask(Task):
    """A group of partitions [first, last), or a range of hashes of so many groups. folder: the
    stage's; bits: as of `_Groups`."""

    folder: Path
    first: int
    last: int
    bits: int

    def file(self, kind: str) -> Path:
        """Return the group's, or the range's, file of a kind."""
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
    """One file of the ids of partitions from `first` to before `last`, with the partition's number:
    of a million small files a query would hold the footers, 11 kB each."""
    with writing(task.file("gathered")) as writer:
        for part in range(task.first, task.last):
            rows = pq.read_table(part_path(task.folder, part, "ids"))
            numbers = pa.repeat(pa.scalar(part, pa.int32()), len(rows))
            writer.write(rows.append_column("part", numbers))


@contextmanager
def _of_group(task: IdTask, named: bool = True) -> Iterator[Any]:
    """A database with the view `seen` of a group's documents, and `named` if bases are known."""
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
    """The documents of a group's slices."""
    with _of_group(task, named=False) as db:
        _write(db, COUNTED, task.file("counted"))


def key_ids(task: IdTask) -> None:
    """Hashes of a group's ids, by range of hashes; and of what stands before the number of one that
    has a number of its own, which a document with that id must not be given."""
    with _of_group(task) as db:
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
    """The documents of a range of hashes that may share their id with another one; and those whose
    own number may be in the way of one that these are given."""
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
    """The ids of a group's documents that another one may have, or that are not as they were
    written."""
    with _of_group(task) as db:
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


def _narrow(db: Any, groups: _Groups, run: Run) -> None:
    """Makes `named` a view of the documents whose ids may change, or be in the way, by tasks; ids
    are gathered."""
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
    """Writes folder/ids.parquet, and issued.parquet where runs go on from each other; returns how
    many documents got another id. run: who does tasks, where there are many ids."""
    groups = _groups(folder, len(plan.partitions), sizes)
    many = len(groups.bounds) > 1
    if many:
        groups.run(run, "gather_ids")
    with scratch_database(folder / ".spill-ids") as db, replacing(folder / "ids.parquet") as aside:
        # part, slice (in the partition), file, start; and rel of each file.
        db.register("slices", Partitions.of(plan.partitions).table())
        rels = [f.rel for f in plan.files]
        db.register("names", pa.table({"file": np.arange(len(rels)), "rel": rels}))
        if many and earlier is None:
            _narrow(db, groups, run)
        else:
            _view(db, groups, many)
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


def _view(db: Any, groups: _Groups, gathered: bool) -> None:
    """Makes `named` a table of all documents, out of their own files, or a view of the gathered."""
    files = [part_path(groups.folder, p, "ids") for bound in groups.bounds for p in range(*bound)]
    number = "regexp_extract(filename, 'part-(\\d+)\\.ids\\.parquet$', 1)"
    source = f"SELECT CAST({number} AS INTEGER) AS part, * FROM read_parquet"
    seen = f"{SEEN}({paths_literal(groups.files('gathered'))})"
    if not gathered:
        source = f"({source}({paths_literal(files)}, filename = true))"
        seen = SEEN.replace("read_parquet", source)
    kind = "VIEW" if gathered else "TABLE"  # few ids are read once, not by each query again
    db.execute(f"CREATE {kind} seen AS {seen}")
    db.execute(f"CREATE TABLE counted AS {COUNTED}")
    db.execute(f"CREATE TABLE bases AS {BASES}")
    db.execute(f"CREATE {kind} named AS {NAMED}")
