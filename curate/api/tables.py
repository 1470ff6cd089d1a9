"""Documents in memory, tables and rows, kept as parquet files that runs and workers read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llmcurate.base.disk.files import cache_folder, file_digest, temporary_name
from llmcurate.base.errors import UsageError

ROWS = 10_000  # of a row group, whatever pieces a table comes in
TAKES = "files, folders, URLs, tables (pandas, polars, Arrow, datasets) or a list of dicts"


def names_of(inputs: Any) -> list[str]:
    """The names of one input or of several; those of tables and rows, of files with their content.
    UsageError names the type of what is no input."""
    if isinstance(inputs, (str, os.PathLike)):
        return [os.fspath(inputs)]
    if _is_table(inputs):
        return [_kept(_tables(inputs))]
    if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable):
        raise UsageError(f"documents are read from {TAKES}, not from {type(inputs).__name__}")
    items = list(inputs)
    if items and all(isinstance(item, Mapping) for item in items):
        return [_kept(_tables(items))]
    return [name for item in items for name in names_of(item)]


def _is_table(value: Any) -> bool:
    return any(
        hasattr(value, n) for n in ("__arrow_c_stream__", "__arrow_c_array__", "with_format")
    )


def _tables(value: Any) -> Iterator[Any]:
    """The Arrow tables of a table, or of rows."""
    import pyarrow as pa

    if isinstance(value, list):
        names = dict.fromkeys(name for row in value for name in row)
        yield pa.table({name: [row.get(name) for row in value] for name in names})
    elif hasattr(value, "with_format"):  # of Hugging Face's datasets
        yield from value.with_format("arrow").iter(ROWS)
    else:
        streams = hasattr(value, "__arrow_c_stream__")
        yield pa.table(value) if streams else pa.table(pa.record_batch(value))


def _kept(tables: Iterator[Any]) -> str:
    """The parquet file of the tables, in a folder of the cache that has its content's name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    home = cache_folder() / "tables"
    home.mkdir(parents=True, exist_ok=True)
    aside = home / temporary_name("table.parquet")
    try:
        first = next(tables, pa.table({}))
        names = [n for n in first.column_names if not n.startswith("__index_level_")]
        schema = first.select(names).schema.remove_metadata()
        with pq.ParquetWriter(aside, schema, compression="zstd", store_schema=False) as writer:
            writer.write_table(_whole(first, schema), ROWS)
            for table in tables:
                writer.write_table(_whole(table, schema), ROWS)
        path = home / file_digest(aside, "xxh3-128") / "table.parquet"
        path.parent.mkdir(exist_ok=True)
        aside.replace(path)
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(f"the rows are no table: {' '.join(str(error).split())}") from None
    finally:
        aside.unlink(missing_ok=True)
    return str(path)


def _whole(table: Any, schema: Any) -> Any:
    return table.select(schema.names).cast(schema).combine_chunks()
