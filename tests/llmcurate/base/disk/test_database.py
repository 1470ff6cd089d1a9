"""DuckDB instances are reused: each use finds an empty database, and leaves no memory or file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from llmcurate.base.disk import database as databases
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.errors import RunFailed


def test_a_reused_database_keeps_no_tables_or_settings(tmp_path: Path) -> None:
    for _ in range(2):
        with scratch_database(tmp_path / "spill") as db:
            db.execute("CREATE TABLE numbers AS SELECT range AS n FROM range(10)")
            db.execute("CREATE TEMP VIEW few AS SELECT n FROM numbers WHERE n < 3")
            db.execute("SET memory_limit = '2GB'")
            assert db.execute("SELECT count(*) FROM few").fetchone() == (3,)
        assert not (tmp_path / "spill").exists()


def test_two_databases_open_at_once_are_separate(tmp_path: Path) -> None:
    with (
        scratch_database(tmp_path / "a") as first,
        scratch_database(tmp_path / "b", threads=2) as second,
    ):
        first.execute("CREATE TABLE numbers AS SELECT 1 AS n")
        second.execute("CREATE TABLE numbers AS SELECT 2 AS n")
        assert first.execute("FROM numbers").fetchone() == (1,)
        assert second.execute("SELECT current_setting('threads')").fetchone() == (2,)


def test_an_instance_that_spilled_does_not_serve_again(tmp_path: Path) -> None:
    databases._idle.clear()
    with scratch_database(tmp_path / "spill") as db:
        db.execute("SET memory_limit = '40MB'")
        db.execute("CREATE TABLE wide AS SELECT range AS n, hash(range) AS h FROM range(8_000_000)")
        assert list((tmp_path / "spill").iterdir())
    assert not databases._idle and not (tmp_path / "spill").exists()


def test_after_a_failed_query_an_instance_does_not_serve_again(tmp_path: Path) -> None:
    import duckdb

    databases._idle.clear()
    with pytest.raises(duckdb.Error, match="nowhere"), scratch_database(tmp_path / "spill") as db:
        db.execute("SELECT * FROM nowhere")
    assert not databases._idle


def test_memory_goes_back_when_the_use_ends(tmp_path: Path) -> None:
    before = psutil.Process().memory_info().rss
    with scratch_database(tmp_path / "spill") as db:
        db.execute("CREATE TABLE t AS SELECT range AS n, hash(range) AS h FROM range(10_000_000)")
        assert psutil.Process().memory_info().rss > before + (100 << 20)
    assert psutil.Process().memory_info().rss < before + (60 << 20)


def test_a_file_that_is_damaged_meanwhile_is_a_one_line_error(tmp_path: Path) -> None:
    damaged = tmp_path / "ids.parquet"
    damaged.write_bytes(b"PAR1 and no end")
    with (
        pytest.raises(RunFailed, match=r"No magic bytes.*ids\.parquet") as failure,
        scratch_database(tmp_path / "spill") as db,
    ):
        db.execute(f"SELECT * FROM read_parquet('{damaged}')")
    assert "\n" not in str(failure.value)


def test_no_instance_is_open_when_python_ends(tmp_path: Path) -> None:
    program = """if True:
        import atexit
        from pathlib import Path
        atexit.register(lambda: print(len(database._idle)))  # the last one, being the first
        from llmcurate.base.disk import database
        with database.scratch_database(Path("spill")):
            pass
        print(len(database._idle))"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["1", "0"] and not ended.stderr
