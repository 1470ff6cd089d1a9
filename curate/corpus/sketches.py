"""Sketches: short descriptions of documents (such as hashes). A step of the class CorpusStep makes
its decisions from the sketches of all documents. A run writes one file of sketches per partition.
In the column `part`, the partitions of earlier corpora (`against`) have negative numbers. So the
order by `part`, then `n` (the number in the partition), is the order of arrival."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.manifests import changed_ids, part_path, with_ids
from curate.corpus.sizes import Sizes
from llmcurate.base.disk.database import literal, paths_literal

# Separator before the name of an earlier corpus, and between the name and an id.
MARK = "\x1e"

T = TypeVar("T")
R = TypeVar("R")


class Run(Protocol):
    """A function that runs another function, named "module:function", on tasks numbered by `part`.
    It yields (task, result) in any order. `result` is the type that the named function returns."""

    def __call__(
        self, function: str, tasks: Iterable[T], result: type[R]
    ) -> Iterator[tuple[T, R]]: ...


def run_here(function: str, tasks: Iterable[T], result: type[R]) -> Iterator[tuple[T, R]]:
    """Run the tasks in order in this process. Yield (task, result)."""
    work = resolve_name(function)
    for task in tasks:
        yield task, work(task)


def lone_here(run: Run) -> Run:
    """Return a `Run` that runs a single task in this process, without waiting for a worker. It
    passes two or more tasks to `run`."""

    def chosen(function: str, tasks: Iterable[T], result: type[R]) -> Iterator[tuple[T, R]]:
        tasks = [*tasks]
        return (run if len(tasks) != 1 else run_here)(function, tasks, result)

    return chosen


@dataclass(frozen=True)
class SketchFile:
    """The file with the sketches (short descriptions) of one partition's documents."""

    part: int  # number of the partition in this run; negative for an earlier corpus
    path: Path
    stored: int  # number of the partition in the files `path` and `ids`
    ids: Path | None = None  # file with new ids for repeated ids
    corpus: str = ""  # name of the earlier corpus, or "" for this run


@dataclass(frozen=True)
class SketchedCorpus:
    """The sketch files that a stage (a pass over the documents) wrote."""

    folder: Path  # the stage's folder
    parts: int  # number of partitions
    kind: str  # a part of the names of the sketch files
    ids_changed: bool  # True if the folder's ids.parquet changes ids

    @property
    def ids(self) -> Path | None:
        return self.folder / "ids.parquet" if self.ids_changed else None

    def paths(self) -> list[Path]:
        return [part_path(self.folder, p, self.kind) for p in range(self.parts)]

    def files(self) -> tuple[SketchFile, ...]:
        return tuple(SketchFile(p, path, p, self.ids) for p, path in enumerate(self.paths()))


@dataclass(frozen=True)
class Sketches:
    """All sketches (short descriptions of documents) of a corpus: the input of a step's `resolve`,
    which decides on the documents. The DuckDB view `sketches` has the columns that the step's
    `sketch` returned, and three more: `part`, `n` (together a document's key in the run) and `id`
    (final). The view may be missing if the step's `in_tasks` is True: `make_view` creates it.
    `folder` is for the step's own files: later runs and a resumed `resolve` use them."""

    connection: Any  # DuckDB connection
    decisions: Path  # file to write the decisions to
    folder: Path
    files: tuple[SketchFile, ...] = ()
    earlier: tuple[tuple[str, Path], ...] = ()  # (name of an earlier corpus, folder of its index)
    run: Run = run_here  # runs tasks, perhaps on machines that share the files
    sizes: Sizes = field(default_factory=Sizes)

    def make_view(self) -> None:
        """Create the DuckDB view `sketches`, which takes some 8 kB of memory per file."""
        view(self.connection, self.files)

    def batches(self, columns: list[str], rows: int = 10_000) -> Iterator[pa.RecordBatch]:
        yield from sketch_batches(self.files, columns, rows)


def sketch_batches(
    files: Sequence[SketchFile], columns: list[str], rows: int = 10_000
) -> Iterator[pa.RecordBatch]:
    """Yield the sketches in batches, ordered by part, then n, with the columns `columns`, part, n,
    id. In an earlier corpus, each id is MARK + the corpus's name + MARK + id."""
    names = [*columns, "n", "id"]
    for file in files:
        changed = changed_ids(str(file.ids) if file.ids else None, file.stored)
        with pq.ParquetFile(file.path, pre_buffer=False) as source:
            for batch in source.iter_batches(rows, columns=names, use_threads=False):
                table = pa.Table.from_batches([batch]).select(names)
                table = with_ids(table.rename_columns([*columns, "_n", "id"]), changed)
                if file.corpus:
                    ids = [f"{MARK}{file.corpus}{MARK}{i}" for i in table["id"].to_pylist()]
                    table = table.set_column(len(names) - 1, "id", pa.array(ids, pa.string()))
                part = pa.repeat(pa.scalar(file.part, pa.int32()), len(table))
                table = table.rename_columns(names).add_column(len(columns), "part", part)
                yield from table.combine_chunks().to_batches()


def view(connection: Any, files: tuple[SketchFile, ...]) -> None:
    groups: dict[tuple[str, Path | None, int], list[Path]] = {}
    for file in files:
        key = (file.corpus, file.ids, file.part - file.stored)
        groups.setdefault(key, []).append(file.path)
    selects = []
    for (corpus, ids, shift), paths in groups.items():
        id_expression = "s.id"
        joined = ""
        if ids is not None:
            id_expression = "coalesce(i.id, s.id)"
            joined = (
                f" LEFT JOIN (SELECT part, _n AS n, id FROM read_parquet({literal(ids)})) i"
                " ON s.part = i.part AND s.n = i.n"
            )
        if corpus:
            id_expression = f"{literal(MARK + corpus + MARK)} || {id_expression}"
        selects.append(
            f"SELECT s.* REPLACE ({id_expression} AS id, (s.part + {shift})::INTEGER AS part)"
            f" FROM read_parquet({paths_literal(paths)}) s{joined}"
        )
    connection.execute(f"CREATE OR REPLACE VIEW sketches AS {' UNION ALL BY NAME '.join(selects)}")
