"""The store of a run: corpus, rejected documents and decisions as DuckDB views and as files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.disk.database import database, literal, paths_literal
from curate.disk.process import in_order
from curate.documents.rejected import REASON_COLUMNS, SQL_COLUMNS
from curate.inspect.report.bins import numeric_columns
from curate.run.homes import Corpus, corpus_of

Position = tuple[str, int]  # a file and a row in it
# DuckDB's md5 is the same in all its versions, which its hash is not.
KEY = "md5_number_lower(id)"
KEY_MOST = 2**64
THREADS = 8  # at most: the database divides its memory among them


@dataclass(frozen=True)
class Store:
    """kept, gone: files of corpus/ and rejected/; views of the same names hold ids, languages and
    reasons, `gone_rows` all columns of rejected documents, `decisions` decisions.parquet."""

    db: Any
    kept: list[Path]
    gone: list[Path]
    columns: dict[str, bool]  # numeric ones: name -> whole numbers
    names: frozenset[str]  # all columns of documents
    has_decisions: bool
    threads: int = 1

    @property
    def paths(self) -> list[Path]:
        """All files of documents."""
        return [*self.kept, *self.gone]

    def rows(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """The result of a query that is known to be small."""
        rows: list[tuple[Any, ...]] = self.db.execute(sql, values or []).fetchall()
        return rows


@contextmanager
def opened(out: Path, spill: str = ".spill-report", threads: int = 1) -> Iterator[Store | None]:
    """The store of a run's folder; None where no stage wrote documents. threads: that may read."""
    threads = min(threads, THREADS)
    corpus = corpus_of(out)
    kept, gone = corpus.kept, corpus.gone
    if not kept or not gone:
        yield None
        return
    # Files of one run have the same columns; later runs of a HOME may have more.
    ends = dict.fromkeys(p for paths in (kept, gone) for p in (paths[0], paths[-1]))
    schemas = [pq.read_schema(p) for p in ends]
    columns: dict[str, bool] = {}
    for schema in schemas:
        columns |= numeric_columns(schema, hidden=REASON_COLUMNS)
    names = frozenset(n for s in schemas for n in s.names)
    with database(out / spill, threads) as db:
        # Few columns: those of the input have any names, also such as queries use.
        for view, chosen, paths in (
            ("kept", "id, lang", kept),
            ("gone", f"id, lang, {SQL_COLUMNS}", gone),
            ("gone_rows", "*", gone),
        ):
            named = ", union_by_name = true" if corpus.is_home else ""
            source = f"read_parquet({paths_literal(paths)}{named})"
            db.execute(f"CREATE VIEW {view} AS SELECT {chosen} FROM {source}")
        if corpus.decisions:
            db.execute(f"CREATE VIEW decisions AS {_decisions(db, corpus)}")
        yield Store(db, kept, gone, columns, names, bool(corpus.decisions), threads)


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
    wanted = pa.array(sorted(set(ids)), pa.string())

    def of(path: Path) -> dict[str, Position]:
        in_file: dict[str, Position] = {}
        start = 0
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(50_000, columns=["id"], use_threads=False):
                column = batch["id"].cast(pa.string())
                for row in np.flatnonzero(pc.is_in(column, wanted)).tolist():
                    in_file[column[row].as_py()] = (str(path), start + row)
                start += batch.num_rows
        return in_file

    positions: dict[str, Position] = {}
    if len(wanted):
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
