"""DuckDB for what is larger than memory: grouping, sorting and joining over parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MEMORY = "1GB"


def literal(path: Path | str) -> str:
    """The path as an SQL string."""
    return "'" + str(path).replace("'", "''") + "'"


def paths_literal(paths: list[Path]) -> str:
    """A list of paths as an SQL list of strings."""
    return "[" + ", ".join(literal(p) for p in paths) + "]"


@contextmanager
def database(spill: Path, threads: int = 1) -> Iterator[Any]:
    """A connection with bounded memory that spills into a folder, which is removed afterwards.

    Full disks come back as one line (errors.disk_error), whatever DuckDB calls them.
    """
    import duckdb

    from curate.disk.inside import remove
    from curate.errors import disk_error

    spill.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect()
    try:
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        connection.execute(f"SET threads = {threads}")
        connection.execute(f"SET temp_directory = {literal(spill)}")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    except duckdb.Error as error:
        raise disk_error(error) or error from None
    finally:
        connection.close()
        remove(spill, inside=spill.parent)


def arrow_batches(relation: Any, rows: int = 100_000) -> Iterator[Any]:
    """The result of a DuckDB query as Arrow record batches of `rows` rows."""
    modern = hasattr(relation, "to_arrow_reader")  # else a DuckDB of 2025 or before
    yield from relation.to_arrow_reader(rows) if modern else relation.fetch_arrow_reader(rows)
