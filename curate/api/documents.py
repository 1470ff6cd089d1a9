"""The documents that a run left, for Arrow and for the libraries that read it.

Nothing is read before it is asked for, and `dataset` and `files` are the ways to documents that do
not fit into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    import datasets
    import pandas
    import polars
    import pyarrow as pa
    import pyarrow.dataset


class StoredDocuments:
    """The documents in parquet files, one a row, with all columns that steps gave them.

    It speaks Arrow's C stream interface, so that `pyarrow.table(...)` and others take it as it is.
    """

    def __init__(self, files: Sequence[Path], of: str) -> None:
        self.files, self._of = tuple(files), of

    def dataset(self) -> pyarrow.dataset.Dataset:
        """All files as one data set, which reads what a query asks for, batch by batch. UsageError
        where there are no files."""
        import pyarrow as pa
        import pyarrow.dataset
        import pyarrow.parquet as pq

        if not self.files:
            raise UsageError(f"there are no documents: {self._of} holds none")
        # The files of a run have one schema; a refreshed corpus has those of several runs.
        schemas = [pq.read_schema(path) for path in {p.parent: p for p in self.files}.values()]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        return pyarrow.dataset.dataset([str(path) for path in self.files], schema=schema)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.dataset().schema.names)

    def __len__(self) -> int:
        import pyarrow.parquet as pq

        return sum(pq.read_metadata(path).num_rows for path in self.files)

    def head(self, rows: int = 5) -> pa.Table:
        """The first documents."""
        return self.dataset().head(rows)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All documents in memory. columns: by name; None: all of them. UsageError names a column
        that is not there."""
        dataset = self.dataset()
        missing = [name for name in columns or () if name not in dataset.schema.names]
        if missing:
            names = ", ".join(dataset.schema.names)
            raise UsageError(f"{self._of} has no column {missing[0]!r}; there are {names}")
        return dataset.to_table(columns=None if columns is None else list(columns))

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """All documents in memory as a frame of pandas; columns: as of `to_arrow`."""
        _need("pandas")
        return self.to_arrow(columns).to_pandas(split_blocks=True, self_destruct=True)

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """All documents in memory as a frame of polars; columns: as of `to_arrow`."""
        frame: polars.DataFrame = _need("polars").from_arrow(self.to_arrow(columns))
        return frame

    def to_datasets(self, streaming: bool = False) -> datasets.Dataset | datasets.IterableDataset:
        """The documents as a data set of Hugging Face's `datasets`, which copies them into its
        cache and maps that into memory; streaming: reads them one after the other instead."""
        library = _need("datasets")
        if not self.files:
            raise UsageError(f"there are no documents: {self._of} holds none")
        files = [str(path) for path in self.files]
        return library.load_dataset("parquet", data_files=files, split="train", streaming=streaming)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.dataset().scanner().to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        if not self.files:
            return f"{self._of}: no documents"
        return f"{self._of}: {counted(len(self), 'document')} with {', '.join(self.columns)}"


def _need(library: str) -> Any:
    """The module of a library that is no dependency of ours; UsageError says how to get it."""
    from importlib import import_module

    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        raise UsageError(f"this needs {error.name}: pip install {error.name}") from None
