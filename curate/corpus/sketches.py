"""Sketches: what a CorpusStep sees of a whole corpus and of earlier ones.

A run's sketches lie in the files of a stage, one a partition. Those of earlier corpora (`against`)
come before them with negative partitions, so that an order by (part, n) is the order of arrival.

What a resolve can split goes as tasks to `Sketches.run`: an engine's workers, or this process.
"""

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

# The mark before the name of an earlier corpus, and between it and an id.
MARK = "\x1e"

T = TypeVar("T")
R = TypeVar("R")


class Run(Protocol):
    """Maps a function, "module:function", over tasks that are numbered by `part`. Gives (task,
    result) in any order; `result` is the type of what the function returns."""

    def __call__(
        self, function: str, tasks: Sequence[T], result: type[R]
    ) -> Iterator[tuple[T, R]]: ...


def run_here(function: str, tasks: Iterable[T], result: type[R]) -> Iterator[tuple[T, R]]:
    """The tasks one after the other in this process."""
    work = resolve_name(function)
    for task in tasks:
        yield task, work(task)


def lone_here(run: Run) -> Run:
    """As `run`, but a single task is done in this process: a small corpus waits for no worker."""

    def chosen(function: str, tasks: Sequence[T], result: type[R]) -> Iterator[tuple[T, R]]:
        return (run if len(tasks) != 1 else run_here)(function, tasks, result)

    return chosen


@dataclass(frozen=True)
class SketchFile:
    """One partition's sketches. corpus: the earlier corpus they belong to, "" for this run's own;
    stored: the partition's number in the file; ids: final ids by it."""

    part: int
    path: Path
    stored: int
    ids: Path | None = None
    corpus: str = ""


@dataclass(frozen=True)
class SketchedCorpus:
    """The sketches of a stage. folder: the stage's; parts: its partitions; kind: the name of its
    sketch files; ids_changed: whether ids.parquet in the folder changes ids."""

    folder: Path
    parts: int
    kind: str
    ids_changed: bool

    @property
    def ids(self) -> Path | None:
        """The final ids."""
        return self.folder / "ids.parquet" if self.ids_changed else None

    def paths(self) -> list[Path]:
        """One file a partition."""
        return [part_path(self.folder, p, self.kind) for p in range(self.parts)]

    def files(self) -> tuple[SketchFile, ...]:
        """The same, as `Sketches` has them."""
        return tuple(SketchFile(p, path, p, self.ids) for p, path in enumerate(self.paths()))


@dataclass(frozen=True)
class Sketches:
    """All sketches of a corpus, for `resolve`.

    connection: DuckDB with the view `sketches`, whose columns are those that `sketch` returned,
    and `part`, `n` (the document's key in the run) and `id` (final); of a step `in_tasks` without
    that view until `make_view`. decisions: the file to write. folder: the step's own, kept after
    the run as part of its index; what a killed `resolve` left there is still there when it starts
    again. run: who does its tasks; they may be on other machines, which see the same files. sizes:
    of its tasks.
    """

    connection: Any
    decisions: Path
    folder: Path
    files: tuple[SketchFile, ...] = ()
    earlier: tuple[tuple[str, Path], ...] = ()  # name and folder of the indexes of earlier corpora
    run: Run = run_here
    sizes: Sizes = field(default_factory=Sizes)

    def make_view(self) -> None:
        """Makes the view, which takes some 8 kB of memory a file."""
        view(self.connection, self.files)

    def batches(self, columns: list[str], rows: int = 10_000) -> Iterator[pa.RecordBatch]:
        """As `sketch_batches`, of all of them."""
        yield from sketch_batches(self.files, columns, rows)


def sketch_batches(
    files: Sequence[SketchFile], columns: list[str], rows: int = 10_000
) -> Iterator[pa.RecordBatch]:
    """The sketches in order of (part, n): the columns, then part, n and id.

    Ids of an earlier corpus are MARK, its name, MARK and the id.
    """
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
    """Makes the view `sketches` over the files."""
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
