"""DuckDB for data larger than memory: grouping, sorting and joining over parquet files."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MEMORY = "1GB"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(path: Path | str) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def paths_literal(paths: list[Path]) -> str:
    return "[" + ", ".join(literal(p) for p in paths) + "]"


# Idle instances, at most two: each takes 20 ms of CPU to create.
_idle: list[Any] = []


@atexit.register
def _close_idle() -> None:
    """Close idle connections at exit. If one is left open, DuckDB 2 prints names of functions."""
    while _idle:
        _idle.pop().close()


def _open(instance: Any, spill: Path, threads: int) -> Any:
    import duckdb

    connection = instance.cursor()
    if duckdb.__version__ < "2":  # it fails to push bounds of 2**63 and more down to Arrow tables
        connection.execute("SET disabled_optimizers = 'join_filter_pushdown'")
    connection.execute(f"SET memory_limit = '{MEMORY}'")
    connection.execute(f"SET threads = {threads}")
    connection.execute(f"SET temp_directory = {literal(spill)}")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("ATTACH ':memory:' AS work")
    connection.execute("USE work")
    return connection


def _reset(connection: Any) -> bool:
    """Drop the connection's database and close the connection. Return True if no error occurred, so
    that the DuckDB instance can be used again."""
    import duckdb

    try:
        connection.execute("USE memory")
        connection.execute("DETACH work")
        connection.execute("SET memory_limit = '1MB'")  # frees DuckDB's memory
        connection.execute("SET temp_directory = ''")  # an error if DuckDB has used the folder
    except duckdb.Error:
        return False
    finally:
        connection.close()
    return True


@contextmanager
def scratch_database(spill: Path, threads: int = 1) -> Iterator[Any]:
    """Open a DuckDB connection with bounded memory that spills to the folder `spill`. The folder
    and its content are removed at the end. If the folder cannot be created, a temporary folder of
    the system is used. Raises RunFailed if the disk is full or DuckDB cannot read a file. DuckDB's
    other errors are raised unchanged."""
    import duckdb

    from llmcurate.base.disk.files import remove
    from llmcurate.base.errors import RunFailed, disk_error, may_not_write

    try:
        spill.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if not may_not_write(error):
            raise
        # A run of another user, or on a read-only medium, can still be inspected.
        spill = Path(tempfile.mkdtemp(prefix="llmcurate-spill-"))
    try:
        instance = _idle.pop()  # another thread may take the last one first
    except IndexError:
        instance = duckdb.connect()
    reusable = False
    try:
        connection = _open(instance, spill, threads)
        yield connection
        reusable = _reset(connection)
    except (duckdb.InvalidInputException, duckdb.IOException) as error:
        reason = f"{str(error).splitlines()[0]}; run the same command again"
        raise disk_error(error) or RunFailed(reason) from error
    except duckdb.Error as error:
        raise disk_error(error) or error from None
    finally:
        if reusable and len(_idle) < 2:
            _idle.append(instance)
        else:
            instance.close()
        remove(spill, inside=spill.parent)


def arrow_batches(relation: Any, rows: int = 100_000) -> Iterator[Any]:
    """Yield the result of a DuckDB query as Arrow record batches of `rows` rows."""
    modern = hasattr(relation, "to_arrow_reader")  # False for DuckDB of 2025 and before
    yield from relation.to_arrow_reader(rows) if modern else relation.fetch_arrow_reader(rows)
