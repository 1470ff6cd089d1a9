"""An OUT or a HOME of somebody else, damaged: nothing beside it is touched, and one line at most.

That a run over damaged files gives the right bytes is held by the tests of `llmcurate check`.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.curate.conftest import Bench, pages
from tests.fuzz.mutations import (
    FUZZ,
    SEEDS,
    assert_one_line,
    contents,
    damaged,
    damaged_tree,
    outcome,
)

# Errors of Python where nobody looked at a value. Arrow's and DuckDB's name the file.
RAW = re.compile(r"(Key|Type|Value|Index|Attribute|Assertion|Unicode\w+|JSONDecode|Overflow)Error:")
DB = "refresh.db"
STEPS: list[Any] = [
    {"c4": {"min_sentences": 1}},
    {"dedup_exact": {}},
    {"dedup_suffix_array": {"threshold": 60}},
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an input, a run `whole`, a HOME `grown`, and a `victim` beside them."""
    bench = Bench(tmp_path_factory.mktemp("state"))
    source = bench.jsonl("in.jsonl", pages(30))
    bench.run(STEPS, source, out="whole")
    (bench.folder / "recipe.yaml").write_text(json.dumps({"steps": STEPS[:2]}))
    done = bench.command("refresh", "recipe.yaml", "in.jsonl", "-o", "grown", "-q")
    assert done.returncode == 0, done.stderr
    for name in ("victim", "victim/folder"):
        (bench.folder / name).mkdir()
        (bench.folder / name / "file.txt").write_text("mine")
    return bench.folder


def _rows(path: Path, seed: int) -> None:
    """Values of a database's rows, at random."""
    draw = random.Random(seed)
    with sqlite3.connect(path) as db:
        names = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(draw.choice((1, 3))):
            table = draw.choice(names)
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            rows = db.execute(f"SELECT rowid, * FROM {table}").fetchall()
            if not rows:
                continue
            row, column = draw.choice(rows), draw.randrange(len(columns))
            value: Any = draw.choice(["../victim", "../../victim", "/", None, -1, 2**62, "x", b""])
            if isinstance(row[column + 1], str) and row[column + 1][:1] in "[{":
                with suppress(ValueError):
                    value = json.dumps(damaged_tree(json.loads(row[column + 1]), seed))
            with suppress(sqlite3.Error, OverflowError, UnicodeError):
                sql = f"UPDATE OR IGNORE {table} SET {columns[column]} = ? WHERE rowid = ?"
                db.execute(sql, (value, row[0]))
    db.close()


def _harm(path: Path, seed: int) -> None:
    data = path.read_bytes()
    if path.suffix == ".json" and seed % 4:
        with suppress(ValueError):  # damaged before
            path.write_text(json.dumps(damaged_tree(json.loads(data), seed)))
    elif path.suffix == ".db" and seed % 8:
        with suppress(sqlite3.DatabaseError):
            _rows(path, seed)
    else:
        path.write_bytes(damaged(data, seed))


def _copy(home: Path, name: str, seed: int, among: Callable[[Path], bool]) -> Path:
    """A copy of the folder, one or two of its files damaged."""
    out = home / "out"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(home / name, out, symlinks=True)
    files = sorted(p for p in out.rglob("*") if p.is_file() and among(p))
    draw = random.Random(seed)
    for number in range(draw.choice((1, 1, 2))):
        _harm(draw.choice(files), seed + number)
    return out


def _beside(home: Path) -> dict[str, bytes | None]:
    return {k: v for k, v in contents(home).items() if k.split("/")[0] not in ("out", "new")}


@pytest.mark.slow
@FUZZ
@given(seed=SEEDS)
def test_a_run_in_a_damaged_out_touches_nothing_beside_it(home: Path, seed: int) -> None:
    before = _beside(home)
    _copy(home, "whole", seed, lambda path: "stages" not in path.parts or path.suffix == ".json")
    steps = STEPS[: 1 + seed % 3]
    outcome(lambda: Bench(home).run(steps, home / "in.jsonl"))
    assert _beside(home) == before


@FUZZ
@given(seed=SEEDS)
def test_a_refresh_of_a_damaged_home_touches_nothing_beside_it(home: Path, seed: int) -> None:
    before = _beside(home)
    _copy(home, "grown", seed, lambda path: path.suffix in (".json", ".yaml", ".db"))
    line = ["recipe.yaml", "in.jsonl", "-o", "out", "--keep", "1", "-q"]
    done = Bench(home).command("refresh", *line)
    if done.returncode not in (0, 3):  # nothing new
        assert_one_line(done.stderr)
        assert not RAW.search(done.stderr), done.stderr
    assert _beside(home) == before


LOOKS: list[list[str]] = [
    ["explain", "d0003", "--in", "out"],
    ["stats", "out"],
    ["whatif", "out", "--set", "c4.min_sentences=3"],
    ["search", "out", "the house"],
    ["search", "out", "--longest", "the house stands on"],
]


@FUZZ
@given(seed=SEEDS)
def test_looking_at_a_damaged_out_is_an_answer_or_one_line(home: Path, seed: int) -> None:
    before = _beside(home)
    look = LOOKS[seed % len(LOOKS)]
    top = {"search": ("index",), "explain": ("corpus", "rejected", "")}.get(look[0], ("",))
    out = home / "out"

    def of_the_command(path: Path) -> bool:
        parts = path.relative_to(out).parts
        return (parts[0] if len(parts) > 1 else "") in top

    _copy(home, "whole", seed, of_the_command)
    done = outcome(lambda: Bench(home).command(*look))
    assert not isinstance(done, Exception)
    if done.returncode:
        assert_one_line(done.stderr)
        assert not RAW.search(done.stderr), (look, done.stderr)
    assert _beside(home) == before


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE refreshes SET base = name",
        "UPDATE refreshes SET plan = '{'",
        "UPDATE refreshes SET plan = '{}'",
        "UPDATE facts SET value = '{'",
    ],
)
def test_a_damaged_record_of_refreshes_is_a_one_line_error(home: Path, sql: str) -> None:
    shutil.rmtree(home / "out", ignore_errors=True)
    shutil.copytree(home / "grown", home / "out", symlinks=True)
    with sqlite3.connect(home / "out" / DB) as db:
        db.execute(sql)
    db.close()
    done = Bench(home).command("refresh", "recipe.yaml", "in.jsonl", "-o", "out", "-q")
    assert_one_line(done.stderr)
    assert done.returncode == 1 and "refresh.db is damaged (a row of its" in done.stderr


@pytest.mark.parametrize("change", [{"removals": "x"}, {"text_bytes": None}, {"files": [1]}])
def test_a_snapshot_whose_manifest_has_no_numbers_is_a_one_line_error(
    home: Path, change: dict[str, Any]
) -> None:
    from curate.run.homes import manifest
    from llmcurate.base.errors import RunFailed

    path = next((home / "grown" / "corpus").glob("*.json"))
    folder = home / "snapshot"
    folder.mkdir(exist_ok=True)
    values = json.loads(path.read_text())
    (home / "snapshot.json").write_text(json.dumps(values))
    assert manifest(folder) == values
    (home / "snapshot.json").write_text(json.dumps(values | change))
    with pytest.raises(RunFailed, match="no manifest that can be read"):
        manifest(folder)
