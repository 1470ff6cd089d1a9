"""The documents and decisions of a run as DuckDB views and files, and histograms of columns.

Figures are computed per group of files and then merged, either by a query (`Store.pieces`) or by a
function (`Store.map`). The files of a small run are one group, which this process reads; a large
run has a task per group. Merging does not depend on the order of results, so figures are the same
for any number of groups and workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.sketches import R, Run, run_here
from curate.documents.attributes import DocumentsFile, read_schema, source_sql
from curate.documents.rejected import REASON_COLUMNS, SQL_COLUMNS
from curate.run.homes import Corpus, corpus_of
from llmcurate.base.disk.database import literal, paths_literal, scratch_database
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.process import in_order
from llmcurate.base.messages import Message, Task

Position = tuple[str, int]  # a file and a row in it
K = TypeVar("K")
# DuckDB's md5 is the same in all versions; its hash is not.
KEY = "md5_number_lower(id)"
KEY_MOST = 2**64
THREADS = 8  # at most: they share the memory of the database

# Columns in the views. Input columns may have any names, including those that queries use.
FEW = ("id", "lang", "url", "date", "source", "extract.replaced")
MEMORY = "512MB"  # of a task's database
GROUPS_A_RANGE = 64  # groups that a task merges


@dataclass(frozen=True)
class Store:
    """The documents and dedup decisions of a run, as files and as views of a DuckDB database.

    The views `kept` and `gone` hold ids, languages and origins of documents, `gone` also the
    reasons; `gone_rows` has all columns of rejected documents, and `decisions` is
    decisions.parquet. Files of more than `group_bytes` in all are divided into groups of about this
    size. Each group is then read by a separate task, and this database has only the view
    `decisions`.
    """

    db: Any
    kept: list[Path]  # files of corpus/
    gone: list[Path]  # files of rejected/
    columns: dict[str, bool]  # numeric column -> True for whole numbers
    names: frozenset[str]  # all columns of documents
    has_decisions: bool
    threads: int = 1
    run: Run = run_here  # executes tasks
    folder: Path = Path()  # for the results of tasks
    group_bytes: int = KEY_MOST

    @property
    def paths(self) -> list[Path]:
        return [*self.kept, *self.gone]

    def rows(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.db.execute(sql, values or []).fetchall()
        return rows

    @cached_property
    def groups(self) -> list[tuple[list[Path], list[Path]]]:
        """Groups of files, each as (files of corpus/, files of rejected/)."""
        return _groups(self.kept, self.gone, self.group_bytes)

    def tasks(self, kind: Callable[..., K], *more: Any) -> list[K]:
        """Return one task of class `kind` per group of files. `more` are further fields of the
        tasks."""
        threads = self.threads if len(self.groups) == 1 else 1
        return [
            kind(number, kept, gone, self.folder, threads, *more)
            for number, (kept, gone) in enumerate(self.groups)
        ]

    def map(self, function: str, tasks: list[K], result: type[R]) -> Iterator[tuple[K, R]]:
        """Run `function` (as `module:function`) on each task. Yield (task, result) as they end."""
        yield from (self.run if len(tasks) > 1 else run_here)(function, tasks, result)

    def pieces(self, queries: dict[str, str], merged: dict[str, str] | None = None) -> None:
        """Make a table from each of the `queries` {table: SQL}, by running it on every group of
        files. If the table has a second query in `merged`, that query combines the rows from all
        groups. It reads these rows as the table `{piece}`, one range of the 64-bit column `key` at
        a time. The results for all ranges become the table."""
        merged = merged or {}
        count = len(self.groups)
        if count == 1:
            for name, sql in queries.items():
                if name in merged:
                    sql = merged[name].replace("{piece}", f"({sql})")
                self.db.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
            return
        ordered = {n: f"{sql} ORDER BY key" if n in merged else sql for n, sql in queries.items()}
        each = self.tasks(QueryTask, ordered)
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
        """Return {id: position} of documents; with `gone`, look only among the rejected ones."""
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
    if len(all_kept) != len(all_gone):  # of a HOME, whose files are not partitions
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
    return folder / f"{name}-{number:05d}.parquet"


def merged_path(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-merged-{number:05d}.parquet"


@dataclass(frozen=True)
class FilesTask(Task):
    """A task that reads one group of files: `kept` in corpus/, `gone` in rejected/."""

    kept: list[Path]
    gone: list[Path]
    folder: Path  # for the task's database
    threads: int


@contextmanager
def of_group(task: FilesTask) -> Iterator[Store]:
    """Open a store of the group of files in a task."""
    with scratch_database(task.folder / f".spill-{task.part:05d}", task.threads) as db:
        db.execute(f"SET memory_limit = '{MEMORY}'")
        yield _store(db, task.kept, task.gone, "", task.threads)


@dataclass(frozen=True)
class QueryTask(FilesTask):
    """A task to run queries on a group of files and write the rows of each query to a file."""

    queries: dict[str, str]  # name of the table -> SQL


def query_group(task: QueryTask) -> None:
    with of_group(task) as store:
        for name, sql in task.queries.items():
            _copy(store.db, sql, piece_path(task.folder, name, task.part))


def _copy(db: Any, sql: str, path: Path) -> None:
    with replacing(path, sync=False) as aside:
        db.execute(f"COPY ({sql}) TO {literal(aside)} (FORMAT parquet, ROW_GROUP_SIZE 20480)")


@dataclass(frozen=True)
class MergeTask(Task):
    """A task to merge one query's rows from all groups of files. All keys are divided into `ranges`
    equal ranges; the task merges the rows with keys in one range."""

    ranges: int
    name: str
    query: str
    folder: Path
    pieces: list[Path]


def merge_pieces(task: MergeTask) -> None:
    """Run a task's merging query over those rows of all groups whose keys lie in the task's
    range."""
    low, high = (KEY_MOST * n // task.ranges for n in (task.part, task.part + 1))
    files = paths_literal(task.pieces)
    piece = f"(SELECT * FROM read_parquet({files}) WHERE key BETWEEN {low} AND {high - 1})"
    with scratch_database(task.folder / f".spill-{task.name}-{task.part:05d}") as db:
        db.execute(f"SET memory_limit = '{MEMORY}'")
        sql = task.query.replace("{piece}", piece)
        _copy(db, sql, merged_path(task.folder, task.name, task.part))


@dataclass(frozen=True)
class FindTask(FilesTask):
    """A task to find the documents with the given ids, in a group of files."""

    ids: list[str]
    gone_only: bool  # look only among rejected documents


@dataclass(frozen=True)
class Found(Message):
    positions: dict[str, Position]


def find_in_group(task: FindTask) -> Found:
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
    """Open the store of the run in OUT, or yield None if the run wrote no documents."""
    threads = min(threads, THREADS)
    corpus = corpus_of(out)
    if not corpus.kept or not corpus.gone:
        yield None
        return
    named = ", union_by_name = true" if corpus.is_home else ""
    one_group = len(_groups(corpus.kept, corpus.gone, group_bytes)) == 1
    with scratch_database(out / spill, threads) as db:
        store = _store(db, corpus.kept, corpus.gone, named, threads, views=one_group)
        if corpus.decisions:
            db.execute(f"CREATE VIEW decisions AS {_decisions(db, corpus)}")
        yield replace(
            store,
            has_decisions=bool(corpus.decisions),
            run=run,
            folder=out / spill,
            group_bytes=group_bytes,
        )


def _store(
    db: Any,
    kept: list[Path],
    gone: list[Path],
    named: str,
    threads: int,
    views: bool = True,
) -> Store:
    # Files of one run have the same columns; later runs of a HOME may have more.
    schemas = [
        read_schema(p) for paths in (kept, gone) for p in dict.fromkeys((paths[0], paths[-1]))
    ]
    columns: dict[str, bool] = {}
    for schema in schemas:
        columns |= numeric_columns(schema, hidden=REASON_COLUMNS)
    names = frozenset(n for s in schemas for n in s.names)
    without_texts = ", ".join(f'"{name}"' for name in FEW if name in names)
    all_views = (
        ("kept", without_texts, kept),
        ("gone", f"{without_texts}, {SQL_COLUMNS}", gone),
        ("gone_rows", "*", gone),
    )
    for view, chosen, paths in all_views if views else ():
        source = source_sql(paths, named, names & {*FEW})
        db.execute(f"CREATE VIEW {view} AS SELECT {chosen} FROM {source}")
    return Store(db, kept, gone, columns, names, False, threads)


def _decisions(db: Any, files: Corpus) -> str:
    """Return SQL that selects the dedup decisions of a run, or of all runs in the folder of
    refreshes (HOME). For a HOME, cluster numbers are shifted so that no two runs share one."""
    selects, before = [], 0
    for path in files.decisions:
        # Only runs against earlier corpora have the column.
        against = "partner_corpus" in pq.read_schema(path).names
        source = f"read_parquet({literal(path)})"
        chosen = "* EXCLUDE (partner_corpus)" if against else "*"
        corpus = "partner_corpus" if against and not files.is_home else "NULL::VARCHAR"
        if files.is_home:
            # Each run numbers its clusters from 0.
            chosen = f"{chosen} REPLACE (cluster + {before} AS cluster)"
            (most,) = db.execute(f"SELECT max(cluster) FROM {source}").fetchone()
            before += 0 if most is None else most + 1
        selects.append(f"SELECT {chosen}, {corpus} AS partner_corpus FROM {source}")
    return " UNION ALL BY NAME ".join(selects)


def find_rows(paths: Sequence[Path], ids: Iterable[str], threads: int = 1) -> dict[str, Position]:
    """Return {id: position} of documents, from the id column of every file."""
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
    """Return {position: {column: value}}, with strings cut to `most_chars` characters."""
    by_file: dict[str, set[int]] = {}
    for path, row in positions:
        by_file.setdefault(path, set()).add(row)
    rows = {}
    for path, numbers in sorted(by_file.items()):
        wanted = iter(ordered := sorted(numbers))
        with DocumentsFile(path) as file:
            have = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.rows(np.array(ordered), have):
                for values in batch.to_pylist():
                    rows[path, next(wanted)] = {n: _cut(values[n], most_chars) for n in have}
    return rows


def _cut(value: Any, most_chars: int) -> Any:
    return value[:most_chars] if isinstance(value, str) else value


# Histograms of numeric columns: edges from a column's range, counts by streaming over files.
BINS = 40
NEAR = 15  # a histogram ends at this multiple of a limit near 0
BATCH_ROWS = 50_000


@dataclass
class Range:
    """The count, least value, greatest value and sum of the finite values of a column."""

    integer: bool
    count: int = 0
    least: float = math.inf
    most: float = -math.inf
    total: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Add finite values from an array float64[n]."""
        if len(values):
            self.count += len(values)
            self.least = min(self.least, float(values.min()))
            self.most = max(self.most, float(values.max()))
            self.total += float(values.sum())

    def join(self, other: Range) -> None:
        self.count += other.count
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.total += other.total


@dataclass
class Histogram:
    """Document counts per bin. `marked` counts the documents that match a rule or were dropped."""

    JSON = ("scale", "edges", "counts", "open?", "marked?")
    edges: np.ndarray
    scale: str  # linear or log
    open: bool = False  # the last bin holds larger values too
    counts: np.ndarray = field(init=False)
    marked: np.ndarray | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.edges) - 1, np.int64)

    def add(self, values: np.ndarray) -> None:
        """Count finite values, float64[n]. The first and last bins also count values outside
        them."""
        if len(values):
            at = np.searchsorted(self.edges, values, "right") - 1
            self.counts += np.bincount(
                np.clip(at, 0, len(self.counts) - 1), minlength=len(self.counts)
            )

    def marking(self, part: Histogram) -> Histogram:
        """Return a copy of this histogram that has the counts of `part` in its field `marked`."""
        both = Histogram(self.edges, self.scale, self.open)
        both.counts, both.marked = self.counts, part.counts
        return both


def edges_of(span: Range, thresholds: Iterable[float] = ()) -> Histogram:
    """Return an empty histogram for a column's values and the `thresholds` to draw in it."""
    limits = [t for t in thresholds if math.isfinite(t)]
    low, high = min([span.least, *limits]), max([span.most, *limits])
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = 0.0, 1.0
    # A limit far above all values (100,000 words) would squeeze the values into one bin.
    if limits and span.count and span.most > 0 and high > 20 * span.most:
        high = span.most
    if span.integer and high - low < BINS:
        return Histogram(np.arange(math.floor(low), math.ceil(high) + 2) - 0.5, "linear")
    if low >= 0 and high > 50 and high > 20 * max(low, 1):
        points = 10 ** np.linspace(math.log10(1 + low), math.log10(1 + high), BINS + 1) - 1
        if span.integer:
            points = np.unique(np.round(points)) - 0.5
            points[-1] = high + 0.5
        return Histogram(points, "log")
    if 0 <= low < high / 2:
        low = 0.0
    # A limit near 0 (1 % of the characters) would lie inside the first bin.
    near = bool(limits) and low >= 0 and 0 < max(limits) < high / NEAR
    if near:
        high = NEAR * max(limits)
    step = 1.0
    if high > low:  # the next 1, 2, 2.5 or 5 times a power of ten
        least = (high - low) / BINS
        power = 10.0 ** math.floor(math.log10(least))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= least * (1 - 1e-9))
    start = math.floor(low / step + 1e-9)
    stop = max(start + 1, math.ceil(high / step - 1e-9))
    return Histogram(np.arange(start, stop + 1) * step, "linear", near)


def numeric_columns(schema: pa.Schema, hidden: Iterable[str] = ()) -> dict[str, bool]:
    """Return the numeric columns of a file, each with True if its values are whole numbers."""
    skip = set(hidden)
    return {
        f.name: pa.types.is_integer(f.type)
        for f in schema
        if (pa.types.is_integer(f.type) or pa.types.is_floating(f.type)) and f.name not in skip
    }


def finite(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return the finite values as float64[n]."""
    values = column.drop_null().to_numpy().astype(np.float64, copy=False)
    return values[np.isfinite(values)]


def columns_of(paths: Iterable[Path], names: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches of each file with those of the named columns that the file has."""
    chosen = list(names)
    for path in paths:
        with DocumentsFile(path) as file:
            stored = set(file.schema_arrow.names)
            have = [name for name in chosen if name in stored]
            if have:
                yield from file.iter_batches(BATCH_ROWS, columns=have, use_threads=False)


def ranges(paths: Sequence[Path], columns: dict[str, bool], threads: int = 1) -> dict[str, Range]:
    def of(path: Path) -> dict[str, Range]:
        spans = {name: Range(integer) for name, integer in columns.items()}
        for batch in columns_of([path], columns):
            for name in batch.schema.names:
                spans[name].add(finite(batch[name]))
        return spans

    joined = {name: Range(integer) for name, integer in columns.items()}
    for spans in in_order(of, paths, threads):
        for name, span in spans.items():
            joined[name].join(span)
    return joined


def fill(paths: Sequence[Path], bins: dict[str, list[Histogram]], threads: int = 1) -> None:
    """Count the values of each column in all files, in the column's histograms `bins`."""

    def of(path: Path) -> dict[str, list[Histogram]]:
        filled = {n: [Histogram(h.edges, h.scale) for h in own] for n, own in bins.items()}
        for batch in columns_of([path], bins):
            for name in batch.schema.names:
                values = finite(batch[name])
                for histogram in filled[name]:
                    histogram.add(values)
        return filled

    for filled in in_order(of, paths, threads):
        for name, own in filled.items():
            for histogram, counted in zip(bins[name], own, strict=True):
                histogram.counts += counted.counts
