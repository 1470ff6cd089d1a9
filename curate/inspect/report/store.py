"""The store of a run: corpus, rejected documents and decisions as DuckDB views and as files.

Figures are pieces, made of groups of files and then merged: a query's rows over each group
(`Store.pieces`), or a function of each group's files (`Store.map`). Of a small run there is one
group, read in this process; of a large one a task each. What merges them looks at no order in which
they come, so that figures are the same for any number of groups and of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.sketches import R, Run, run_here
from curate.documents.rejected import REASON_COLUMNS, SQL_COLUMNS
from curate.inspect.report.bins import numeric_columns
from curate.run.homes import Corpus, corpus_of
from llmcurate.base.disk.database import literal, paths_literal, scratch_database
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.process import in_order
from llmcurate.base.messages import Message, Task

Position = tuple[str, int]  # a file and a row in it
K = TypeVar("K")
# DuckDB's md5 is the same in all its versions, which its hash is not.
KEY = "md5_number_lower(id)"
KEY_MOST = 2**64
THREADS = 8  # at most: the database divides its memory among them


# Of documents, in the views: those of the input have any names, also such as queries use.
FEW = ("id", "lang", "url", "date", "source")
MEMORY = "512MB"  # of a task's database
GROUPS_A_RANGE = 64  # whose pieces a task merges


@dataclass(frozen=True)
class Store:
    """kept, gone: files of corpus/ and rejected/; views of the same names hold ids, languages, what
    is known of where documents are from, and reasons, `gone_rows` all columns of rejected
    documents, `decisions` decisions.parquet.

    run: who makes the pieces of more than group_bytes of files; folder: where pieces lie meanwhile.
    Of several groups this process has no views but `decisions`.
    """

    db: Any
    kept: list[Path]
    gone: list[Path]
    columns: dict[str, bool]  # numeric ones: name -> whole numbers
    names: frozenset[str]  # all columns of documents
    has_decisions: bool
    threads: int = 1
    decisions: Path | None = None  # the file, of a run
    run: Run = run_here
    folder: Path = Path()
    group_bytes: int = KEY_MOST

    @property
    def paths(self) -> list[Path]:
        """All files of documents."""
        return [*self.kept, *self.gone]

    def rows(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """The result of a query that is known to be small."""
        rows: list[tuple[Any, ...]] = self.db.execute(sql, values or []).fetchall()
        return rows

    @cached_property
    def groups(self) -> list[tuple[list[Path], list[Path]]]:
        """The files in groups, of corpus/ and of rejected/, partition by partition."""
        return _groups(self.kept, self.gone, self.group_bytes)

    def tasks(self, kind: Callable[..., K], *more: Any, decided: bool = False) -> list[K]:
        """A task of the kind on each group's files. more: its further fields; decided: whether it
        reads decisions."""
        decisions = self.decisions if decided else None
        threads = self.threads if len(self.groups) == 1 else 1
        return [
            kind(number, kept, gone, decisions, self.folder, threads, *more)
            for number, (kept, gone) in enumerate(self.groups)
        ]

    def map(self, function: str, tasks: list[K], result: type[R]) -> Iterator[tuple[K, R]]:
        """(task, result) of a function of each group's files, `module:function`, as they come; of
        one group here and at once."""
        yield from (self.run if len(tasks) > 1 else run_here)(function, tasks, result)

    def pieces(
        self,
        queries: dict[str, str],
        merged: dict[str, str] | None = None,
        decided: bool = False,
    ) -> None:
        """Makes a table of each query's rows over every group. merged: by name, a query over the
        table {piece} of one that has a column `key`, of 64 bits; its rows for ranges of keys come
        in its place. decided: whether they read decisions."""
        merged = merged or {}
        count = len(self.groups)
        if count == 1:
            for name, sql in queries.items():
                if name in merged:
                    sql = merged[name].replace("{piece}", f"({sql})")
                self.db.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
            return
        ordered = {n: f"{sql} ORDER BY key" if n in merged else sql for n, sql in queries.items()}
        each = self.tasks(QueryTask, ordered, decided=decided)
        for _ in self.map(f"{__name__}:query_group", each, NoneType):
            pass
        for name in queries:
            files = [piece_path(self.folder, name, number) for number in range(count)]
            if name in merged:
                ranges = -(-count // GROUPS_A_RANGE)
                tasks = [
                    MergeTask(number, ranges, name, merged[name], self.folder, files)
                    for number in range(ranges)
                ]
                for _ in self.run(f"{__name__}:merge_pieces", tasks, NoneType):
                    pass
                files = [merged_path(self.folder, name, number) for number in range(ranges)]
            self.db.execute(
                f"CREATE OR REPLACE TEMP TABLE {name} AS"
                f" SELECT * FROM read_parquet({paths_literal(files)})"
            )

    def find(self, ids: Iterable[str], gone: bool = False) -> dict[str, Position]:
        """The positions of the documents with these ids; gone: of rejected ones."""
        keys = sorted(set(ids))
        positions: dict[str, Position] = {}
        if keys:
            tasks = self.tasks(FindTask, keys, gone)
            for _, found in self.map(f"{__name__}:find_in_group", tasks, Found):
                for name, position in found.positions.items():
                    positions[name] = max(positions.get(name, ("", 0)), position)
        return positions


def _groups(
    all_kept: list[Path], all_gone: list[Path], group_bytes: int
) -> list[tuple[list[Path], list[Path]]]:
    if len(all_kept) != len(all_gone):  # of a HOME, whose parts are no partitions
        return [(all_kept, all_gone)]
    groups: list[tuple[list[Path], list[Path]]] = []
    size = group_bytes
    for kept, gone in zip(all_kept, all_gone, strict=True):
        if size >= group_bytes:
            groups.append(([], []))
            size = 0
        groups[-1][0].append(kept)
        groups[-1][1].append(gone)
        size += kept.stat().st_size + gone.stat().st_size
    return groups


def piece_path(folder: Path, name: str, number: int) -> Path:
    """The rows of a query over a group."""
    return folder / f"{name}-{number:05d}.parquet"


def merged_path(folder: Path, name: str, number: int) -> Path:
    """The merged rows of a range of keys."""
    return folder / f"{name}-merged-{number:05d}.parquet"


@dataclass(frozen=True)
class FilesTask(Task):
    """A task on a group of files, with the database in a folder."""

    kept: list[Path]
    gone: list[Path]
    decisions: Path | None
    folder: Path
    threads: int


@contextmanager
def of_group(task: FilesTask) -> Iterator[Store]:
    """The store of a group's files alone."""
    decisions = [task.decisions] if task.decisions else []
    with scratch_database(task.folder / f".spill-{task.part:05d}", task.threads) as db:
        db.execute(f"SET memory_limit = '{MEMORY}'")
        yield _store(db, task.kept, task.gone, "", decisions, task.threads)


@dataclass(frozen=True)
class QueryTask(FilesTask):
    """The rows of queries, by name, are to be written."""

    queries: dict[str, str]


def query_group(task: QueryTask) -> None:
    """The rows of queries over a group, a file each."""
    with of_group(task) as store:
        for name, sql in task.queries.items():
            _copy(store.db, sql, piece_path(task.folder, name, task.part))


def _copy(db: Any, sql: str, path: Path) -> None:
    with replacing(path, sync=False) as aside:
        db.execute(f"COPY ({sql}) TO {literal(aside)} (FORMAT parquet, ROW_GROUP_SIZE 20480)")


@dataclass(frozen=True)
class MergeTask(Task):
    """The pieces of a query are to be merged in one of so many ranges of keys."""

    ranges: int
    name: str
    query: str
    folder: Path
    pieces: list[Path]


def merge_pieces(task: MergeTask) -> None:
    """A query over the rows of all groups whose keys lie in a range."""
    low, high = (KEY_MOST * n // task.ranges for n in (task.part, task.part + 1))
    files = paths_literal(task.pieces)
    piece = f"(SELECT * FROM read_parquet({files}) WHERE key BETWEEN {low} AND {high - 1})"
    with scratch_database(task.folder / f".spill-{task.name}-{task.part:05d}") as db:
        db.execute(f"SET memory_limit = '{MEMORY}'")
        sql = task.query.replace("{piece}", piece)
        _copy(db, sql, merged_path(task.folder, task.name, task.part))


@dataclass(frozen=True)
class FindTask(FilesTask):
    """Documents with these ids are to be found. gone_only: among rejected ones."""

    ids: list[str]
    gone_only: bool


@dataclass(frozen=True)
class Found(Message):
    """Where documents are, by id."""

    positions: dict[str, Position]


def find_in_group(task: FindTask) -> Found:
    """The positions of the documents with the task's ids in a group's files."""
    paths = [*([] if task.gone_only else task.kept), *task.gone]
    return Found(find_rows(paths, task.ids, task.threads))


@contextmanager
def opened(
    out: Path,
    spill: str = ".spill-report",
    threads: int = 1,
    run: Run = run_here,
    group_bytes: int = KEY_MOST,
) -> Iterator[Store | None]:
    """The store of a run's folder; None where no stage wrote documents. threads: that may read;
    run, group_bytes: as the store has them."""
    threads = min(threads, THREADS)
    corpus = corpus_of(out)
    if not corpus.kept or not corpus.gone:
        yield None
        return
    named = ", union_by_name = true" if corpus.is_home else ""
    one_group = len(_groups(corpus.kept, corpus.gone, group_bytes)) == 1
    with scratch_database(out / spill, threads) as db:
        store = _store(db, corpus.kept, corpus.gone, named, [], threads, views=one_group)
        if corpus.decisions:
            db.execute(f"CREATE VIEW decisions AS {_decisions(db, corpus)}")
        yield replace(
            store,
            has_decisions=bool(corpus.decisions),
            decisions=None if corpus.is_home else next(iter(corpus.decisions), None),
            run=run,
            folder=out / spill,
            group_bytes=group_bytes,
        )


def _store(
    db: Any,
    kept: list[Path],
    gone: list[Path],
    named: str,
    decisions: list[Path],
    threads: int,
    views: bool = True,
) -> Store:
    """The views of these files. named: how `read_parquet` takes those of different columns; views:
    whether there are any but of decisions."""
    # Files of one run have the same columns; later runs of a HOME may have more.
    schemas = [
        pq.read_schema(p) for paths in (kept, gone) for p in dict.fromkeys((paths[0], paths[-1]))
    ]
    columns: dict[str, bool] = {}
    for schema in schemas:
        columns |= numeric_columns(schema, hidden=REASON_COLUMNS)
    names = frozenset(n for s in schemas for n in s.names)
    without_texts = ", ".join(name for name in FEW if name in names)
    all_views = (
        ("kept", without_texts, kept),
        ("gone", f"{without_texts}, {SQL_COLUMNS}", gone),
        ("gone_rows", "*", gone),
    )
    for view, chosen, paths in all_views if views else ():
        source = f"read_parquet({paths_literal(paths)}{named})"
        db.execute(f"CREATE VIEW {view} AS SELECT {chosen} FROM {source}")
    for path in decisions:
        db.execute(f"CREATE VIEW decisions AS SELECT * FROM read_parquet({literal(path)})")
    return Store(db, kept, gone, columns, names, bool(decisions), threads)


def _decisions(db: Any, files: Corpus) -> str:
    """All decisions, clusters numbered through the runs of a HOME, whose documents are all here."""
    selects, before = [], 0
    for path in files.decisions:
        # Only runs against earlier corpora have the column.
        against = "partner_corpus" in pq.read_schema(path).names
        source = f"read_parquet({literal(path)})"
        chosen = "* EXCLUDE (partner_corpus)" if against else "*"
        corpus = "partner_corpus" if against and not files.is_home else "NULL::VARCHAR"
        if files.is_home:
            # In an earlier run that one is in a cluster of its own number.
            chosen = f"{chosen} REPLACE (cluster + {before} AS cluster)"
            (most,) = db.execute(f"SELECT max(cluster) FROM {source}").fetchone()
            before += 0 if most is None else most + 1
        selects.append(f"SELECT {chosen}, {corpus} AS partner_corpus FROM {source}")
    return " UNION ALL BY NAME ".join(selects)


def find_rows(paths: Sequence[Path], ids: Iterable[str], threads: int = 1) -> dict[str, Position]:
    """The positions of the documents with these ids. One pass over the ids of all files."""
    keys = pa.array(sorted(set(ids)), pa.string())

    def of(path: Path) -> dict[str, Position]:
        in_file: dict[str, Position] = {}
        start = 0
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(50_000, columns=["id"], use_threads=False):
                column = batch["id"].cast(pa.string())
                for row in np.flatnonzero(pc.is_in(column, keys)).tolist():
                    in_file[column[row].as_py()] = (str(path), start + row)
                start += batch.num_rows
        return in_file

    positions: dict[str, Position] = {}
    if len(keys):
        for in_file in in_order(of, paths, threads):
            positions |= in_file
    return positions


def read_rows(
    positions: Iterable[Position], columns: list[str], most_chars: int
) -> dict[Position, dict[str, Any]]:
    """The rows at the given positions; strings are cut, lists left as they are.

    A file is read row group by row group, in small batches, so that a few rows of a large corpus
    cost a few row groups.
    """
    by_file: dict[str, list[int]] = {}
    for path, row in positions:
        by_file.setdefault(path, []).append(row)
    rows: dict[Position, dict[str, Any]] = {}
    for path in sorted(by_file):
        with pq.ParquetFile(path) as file:
            stored = set(file.schema_arrow.names)
            have = [name for name in columns if name in stored]
            start = 0
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                inside = sorted({r - start for r in by_file[path] if start <= r < start + size})
                if inside:
                    for row, values in _group_rows(file, group, inside, have, most_chars):
                        rows[path, start + row] = values
                start += size
    return rows


def _group_rows(
    file: pq.ParquetFile, group: int, inside: list[int], columns: list[str], most_chars: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    at = 0
    for batch in file.iter_batches(200, row_groups=[group], columns=columns, use_threads=False):
        for row in inside:
            if at <= row < at + batch.num_rows:
                yield row, {n: _cut(batch[n][row - at], most_chars) for n in columns}
        at += batch.num_rows
        if at > inside[-1]:
            return


def _cut(value: pa.Scalar, most_chars: int) -> Any:
    plain = value.as_py()
    return plain[:most_chars] if isinstance(plain, str) else plain
