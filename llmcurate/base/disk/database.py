"""DuckDB for what is larger than memory: grouping, sorting and joining over parquet files."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MEMORY = "1GB"


def quoted(name: str) -> str:
    """A column's name as SQL has it, whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def literal(path: Path | str) -> str:
    """The path as an SQL string."""
    return "'" + str(path).replace("'", "''") + "'"


def paths_literal(paths: list[Path]) -> str:
    """A list of paths as an SQL list of strings."""
    return "[" + ", ".join(literal(p) for p in paths) + "]"


# Instances that nobody uses, one within another at most: each takes 20 ms of CPU to make.
_idle: list[Any] = []


@atexit.register
def _close_idle() -> None:
    """DuckDB 2 prints a list of its functions when Python ends with a connection open."""
    while _idle:
        _idle.pop().close()


def _open(instance: Any, spill: Path, threads: int) -> Any:
    """A connection to an empty database of its own in the instance."""
    connection = instance.cursor()
    connection.execute(f"SET memory_limit = '{MEMORY}'")
    connection.execute(f"SET threads = {threads}")
    connection.execute(f"SET temp_directory = {literal(spill)}")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("ATTACH ':memory:' AS work")
    connection.execute("USE work")
    return connection


def _empty(connection: Any) -> bool:
    """Drops the database of a connection and closes it; whether its instance can serve again."""
    import duckdb

    try:
        connection.execute("USE memory")
        connection.execute("DETACH work")
        connection.execute("SET memory_limit = '1MB'")  # gives its memory back
        connection.execute("SET temp_directory = ''")  # refused where it has been used
    except duckdb.Error:
        return False
    finally:
        connection.close()
    return True


@contextmanager
def scratch_database(spill: Path, threads: int = 1) -> Iterator[Any]:
    """A connection with bounded memory that spills into the folder `spill`, which is removed
    afterwards with all that is in it; into one of the system's where that one may not be made.

    Full disks come back as one line (errors.disk_error), whatever DuckDB calls them, and files that
    it cannot read, too.
    """
    import duckdb

    from llmcurate.base.disk.files import remove
    from llmcurate.base.errors import RunFailed, disk_error, may_not_write

    try:
        spill.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if not may_not_write(error):
            raise
        # Somebody else's run, or one on a medium for reading: it can be looked at all the same.
        spill = Path(tempfile.mkdtemp(prefix="llmcurate-spill-"))
    try:
        instance = _idle.pop()  # another thread may take the last one first
    except IndexError:
        instance = duckdb.connect()
    reusable = False
    try:
        connection = _open(instance, spill, threads)
        yield connection
        reusable = _empty(connection)
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
    """The result of a DuckDB query as Arrow record batches of `rows` rows."""
    modern = hasattr(relation, "to_arrow_reader")  # else a DuckDB of 2025 or before
    yield from relation.to_arrow_reader(rows) if modern else relation.fetch_arrow_reader(rows)
