"""A damaged HOME: damage is named, never enters a snapshot, and the advised commands work."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from curate.refresh import run
from curate.refresh.state import Plan, State
from curate.run.ledger import row_digest
from llmcurate.base.errors import RunFailed
from tests.curate.conftest import Bench
from tests.curate.refresh.growing import Home, inputs
from tests.parameters import few

A, B, C = inputs(10)
STEPS = [{"dedup_exact": {}}, {"dedup_minhash": {}}]


def flip(path: Path, at: float = 0.5, keep_time: bool = True) -> None:
    """Turns one bit of a file, with its time of change as it was, or later."""
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 16
    path.unlink()  # another file: links of other snapshots are not meant here
    path.write_bytes(data)
    if keep_time:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


REFRESH = ("refresh", "r.yaml", "in", "-o", "home", "-q")


def copied(source: Path, target: Path) -> Home:
    """A copy of a folder with a HOME, its inputs and its recipe."""
    shutil.copytree(source, target, symlinks=True)
    db = sqlite3.connect(target / "home" / "refresh.db")
    rows = db.execute("SELECT * FROM inputs").fetchall()
    for refresh, position, path, *row, _ in rows:  # they are known by their paths
        moved = (refresh, position, path.replace(str(source), str(target)), *row)
        digest = row_digest(("inputs", *moved))
        db.execute(
            "UPDATE inputs SET path = ?, digest = ? WHERE refresh = ? AND position = ?",
            (moved[2], digest, refresh, position),
        )
    db.commit()
    db.close()
    home = Home(Bench(target), STEPS)
    home._minutes = 10
    return home


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A folder with a HOME of two refreshes, a third input, the recipe; and the texts that a third
    refresh holds."""
    top = tmp_path_factory.mktemp("grown")
    bench = Bench(top / "first")
    home = Home(bench, STEPS)
    for name, rows in (("a", A), ("b", B)):
        bench.jsonl(f"in/{name}.jsonl", rows)
        home.refresh(bench.folder / "in")
    assert bench.command("forget", home.path, "--domain", "h1.test").returncode == 0
    bench.jsonl("in/c.jsonl", C)
    (bench.folder / "r.yaml").write_text(json.dumps({"steps": STEPS}))
    whole = copied(bench.folder, top / "whole")
    assert whole.bench.command(*REFRESH).returncode == 0
    return bench.folder, texts(whole)


@pytest.fixture
def home(grown, tmp_path):
    """A copy of that HOME."""
    return copied(grown[0], tmp_path / "copy")


def texts(home: Home) -> list[str]:
    return sorted(row["text"] for row in home.rows())


def advised(message: str) -> list[list[str]]:
    """The commands in a message, with the recipe and the inputs of this test."""
    commands = re.findall(r"`llmcurate ([^`]*)`", message)
    return [shlex.split(c.replace("RECIPE IN...", "r.yaml in")) for c in commands]


def part(home: Home) -> Path:
    return sorted(home.folder().glob("part-*"))[0]


def one(home: Home, pattern: str) -> Path:
    return sorted(home.path.glob(pattern))[0]


HARMED: dict[str, Callable[[Home], Path]] = {
    "part": part,
    "last part": lambda home: sorted(home.folder().glob("part-*"))[-1],
    "manifest": lambda home: home.folder().with_name(f"{home.folder().name}.json"),
    "removed": lambda home: home.folder().with_name(f"{home.folder().name}.removed.parquet"),
    "ids": lambda home: one(home, "runs/*/ids.parquet"),
    "sketch": lambda home: one(home, "runs/*/index/dedup_minhash/sketch-*"),
    "index": lambda home: one(home, "runs/*/index/dedup_exact/index.json"),
}


def ways(name: str, home: Home) -> list[list[str]]:
    """The commands that a refresh advises after damage to a file."""
    flip(HARMED[name](home))
    done = home.bench.command(*REFRESH)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "restore it from a backup" in done.stderr and not (home.path / "current").is_file()
    return advised(done.stderr)


@pytest.mark.parametrize("name", few(HARMED, "part", "index", "removed"))
def test_a_refresh_verifies_its_files_and_each_advised_command_works(grown, tmp_path, name):
    first = copied(grown[0], tmp_path / "first")
    before = first.snapshots()
    commands = ways(name, first)
    assert first.snapshots() == before  # nothing began
    with closing(State(first.path)) as state:
        assert state.pending() is None
    assert any("--rebuild" in command for command in commands)
    for number, command in enumerate(commands):
        home = copied(grown[0], tmp_path / f"way{number}")
        ways(name, home)
        command = [c.replace(str(first.path), str(home.path)) for c in command]
        done = home.bench.command(*command)
        assert done.returncode == 0, done.stderr
        done = home.bench.command(*REFRESH)
        assert done.returncode in (0, 3), done.stderr
        assert texts(home) == grown[1]


def test_a_refresh_continues_after_a_backup_is_put_back(home, grown):
    path = part(home)
    aside = home.bench.folder / "aside"
    shutil.copy2(path, aside)
    ways("part", home)
    shutil.copy2(aside, path)
    assert home.bench.command(*REFRESH).returncode == 0 and texts(home) == grown[1]


def test_damage_in_the_newest_snapshot_only_can_be_rolled_back(home):
    assert any("--rollback" in command for command in ways("last part", home))


def begun(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh that was stopped before its end."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run.snapshot, "build", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        home.refresh(home.bench.folder / "in")


def test_damage_under_an_unfinished_refresh_has_ways_on_that_work(grown, tmp_path, monkeypatch):
    for number in range(2):
        home = copied(grown[0], tmp_path / str(number))
        begun(home, monkeypatch)
        commands = ways("last part", home)
        assert len(commands) == 2 and all("--abandon" in command for command in commands)
        done = home.bench.command(*commands[number])
        assert done.returncode == 0, done.stderr
        assert home.bench.command(*REFRESH).returncode in (0, 3)
        assert texts(home) == grown[1]


def test_options_that_do_not_go_together_are_refused_by_name(home, monkeypatch, grown):
    for option in ("--rebuild", "--dry-run", "--products", "--keep=2", "--changed=new"):
        done = home.bench.command("refresh", "-o", "home", "--rollback", "parent", option)
        assert done.returncode == 2 and option.partition("=")[0] in done.stderr, done.stderr
    done = home.bench.command(*REFRESH, "--rollback", "parent")
    assert done.returncode == 2 and "leave out the recipe" in done.stderr
    begun(home, monkeypatch)
    for option in (["--rebuild"], ["--rebuild", "--dry-run"]):
        done = home.bench.command(*REFRESH, *option)
        assert done.returncode == 2 and "--abandon --rebuild" in done.stderr
    done = home.bench.command("refresh", "-o", "home", "--rollback", "parent")
    assert done.returncode == 2 and "--abandon --rollback parent" in done.stderr
    back = ["--abandon", "--rollback", "parent"]
    assert home.bench.command("refresh", "-o", "home", *back).returncode == 0
    assert home.bench.command(*REFRESH, "--abandon", "--rebuild").returncode == 0
    assert texts(home) == grown[1]


def test_an_interrupted_rebuild_continues_under_the_same_command(home, monkeypatch, grown):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run.snapshot, "build", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        home.refresh(home.bench.folder / "in", rebuild=True)
    done = home.bench.command(*REFRESH, "--rebuild")
    assert done.returncode == 0 and texts(home) == grown[1], done.stderr


ROWS = {
    "removals": "UPDATE removals SET value = 'h0.test'",
    "inputs": "UPDATE inputs SET state = 'x' WHERE position = 0",
    "plan": "UPDATE refreshes SET plan = replace(plan, 'dedup', 'dedop')",
    "base": "UPDATE refreshes SET base = NULL",
    "state": "UPDATE refreshes SET state = 'begun' WHERE number = 2",
    "fact": "UPDATE facts SET value = replace(value, '-', '_') WHERE name = 'current'",
}


@pytest.mark.parametrize("name", few(ROWS, "state", "inputs"))
def test_a_changed_row_of_refresh_db_is_named_and_a_copy_put_back_works(home, grown, name):
    path, aside = home.path / "refresh.db", home.bench.folder / "aside"
    shutil.copy2(path, aside)
    with closing(sqlite3.connect(path)) as db:
        db.execute(ROWS[name])
        db.commit()
    for command in (REFRESH, ("check", "home"), ("check", "home", "--repair")):
        done = home.bench.command(*command)
        assert done.returncode == 1 and "refresh.db" in done.stderr + done.stdout, done
    assert "put back a copy of it, or begin a new HOME" in done.stderr
    shutil.copy2(aside, path)
    assert home.bench.command(*REFRESH).returncode == 0 and texts(home) == grown[1]


def test_pages_of_refresh_db_that_are_damaged_lead_to_a_new_home(home, grown):
    data = bytearray((home.path / "refresh.db").read_bytes())
    data[100:200] = bytes(100)
    (home.path / "refresh.db").write_bytes(data)
    done = home.bench.command(*REFRESH)
    assert done.returncode == 1 and "begin a new HOME" in done.stderr
    assert done.stderr.count("\n") == 1 and "move it away" not in done.stderr
    new = [word.replace("home", "new") for word in REFRESH]
    assert home.bench.command(*new).returncode == 0
    done = home.bench.command("forget", "new", "--domain", "h1.test")
    assert done.returncode == 0
    home.path = home.bench.folder / "new"
    assert texts(home) == grown[1]


@pytest.mark.parametrize("name", few(HARMED, "part", "index", "removed"))
def test_check_names_the_damage_and_what_its_repair_says_works(home, grown, name):
    flip(HARMED[name](home))
    done = home.bench.command("check", "home")
    assert done.returncode == 1 and HARMED[name](home).name.split(".")[0] in done.stdout
    (command,) = advised(done.stderr)
    assert advised(home.bench.command("check", "home", "--repair").stderr) == [command]
    done = home.bench.command(*command)
    assert done.returncode == 0, done.stderr
    assert home.bench.command("check", "home").returncode == 0
    assert texts(home) == grown[1]


def test_a_run_that_compares_with_a_damaged_home_says_what_to_do(home, grown):
    (folder,) = {p.parent for p in home.path.glob("runs/*0/index/dedup_exact/index.json")} or {
        one(home, "runs/*/index/dedup_exact")
    }
    flip(sorted(folder.glob("sketch-*"))[0])
    against = f"--set=dedup_exact.against={folder.parent.parent}"
    (home.bench.folder / "exact.yaml").write_text('{"steps": ["dedup_exact"]}')
    line = ["run", "exact.yaml", "in", "-o", "out", "-q", against]
    done = home.bench.command(*line)
    assert done.returncode == 1, done.stderr
    (command,) = advised(done.stderr)
    assert command[:2] == ["check", str(home.path)]
    (command,) = advised(home.bench.command(*command).stderr)
    assert home.bench.command(*command).returncode == 0


def test_an_index_record_that_is_damaged_is_itself_named(bench):
    source = bench.jsonl("a.jsonl", A)
    bench.run([{"dedup_exact": {}}], source, out="base")
    record = bench.folder / "base/index/dedup_exact/index.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"key": "another"}))
    (bench.folder / "r.yaml").write_text('{"steps": [{"dedup_exact": {"against": ["base"]}}]}')
    line = ["run", "r.yaml", source, "-o", "out", "-q"]
    done = bench.command(*line)
    assert "index.json was changed after it was written" in done.stderr and done.returncode == 1
    (command,) = advised(done.stderr)
    assert bench.command(*command).returncode == 0
    assert bench.command(*line, "--set", "dedup_exact.max_removal=1").returncode == 0


def test_a_ledger_that_is_moved_away_is_begun_afresh(bench):
    source = bench.jsonl("a.jsonl", A)
    (bench.folder / "r.yaml").write_text('{"steps": ["dedup_exact"]}')
    line = ["run", "r.yaml", source, "-o", "out", "-q"]
    assert bench.command(*line).returncode == 0
    before, path = bench.bytes_of(), bench.folder / "out/ledger.db"
    data = bytearray(path.read_bytes())
    data[100:200] = bytes(100)
    path.write_bytes(data)
    done = bench.command(*line)
    assert done.returncode == 1 and "move it away to start afresh" in done.stderr
    path.rename(bench.folder / "aside.db")
    assert bench.command(*line).returncode == 0 and bench.bytes_of() == before


def test_a_run_without_its_recipe_is_made_anew_by_its_command(bench):
    source = bench.jsonl("a.jsonl", A)
    (bench.folder / "r.yaml").write_text('{"steps": ["dedup_exact"]}')
    line = ["run", "r.yaml", source, "-o", "out", "-q"]
    assert bench.command(*line).returncode == 0
    before = bench.bytes_of()
    (bench.folder / "out/recipe.yaml").write_text("steps: [c4]")
    flip(sorted((bench.folder / "out/corpus").iterdir())[0])
    done = bench.command("check", "out", "--repair")
    assert done.returncode == 1 and "repeat the command of that run" in done.stderr
    assert bench.command(*line).returncode == 0 and bench.bytes_of() == before


def test_a_full_disk_is_reported_as_such_wherever_records_are_written(tmp_path):
    files = [SimpleNamespace(url="", path="x" * 9000, state="s", stamp="", size=1)] * 99
    with closing(State(tmp_path / "home")) as state:
        pages = next(state._rows("PRAGMA page_count"))[0]
        state._db.execute(f"PRAGMA max_page_count = {pages + 3}")
        for write in (
            lambda: state.begin("2026-11-20T06-00", "run", None, Plan(None), files),
            lambda: state.remove([("id", file.path + str(n)) for n, file in enumerate(files)], ""),
            lambda: state.set_fact("current", "x" * 999_999),
        ):
            with pytest.raises(RunFailed, match=r"^disk full: free some space"):
                write()
        assert state.refreshes() == [] and state.removals() == []
        state.remove([("id", "a")], "")
        assert state.removals() == [("id", "a")]


def test_a_damaged_file_of_a_run_that_is_to_forget_is_named_and_may_be_removed(home):
    (run_, *_) = sorted((home.path / "runs").iterdir())
    path = run_ / "decisions.parquet"
    path.write_bytes(path.read_bytes()[:99])
    line = ("forget", "home", "--id", home.ids()[0])
    done = home.bench.command(*line)
    assert done.returncode == 1 and f"{path.name} cannot be read" in done.stderr, done.stderr
    assert "restore it from a backup, or remove it" in done.stderr
    path.unlink()
    before = len(home.ids())
    assert home.bench.command(*REFRESH).returncode == 0  # goes on with what was begun
    assert len(home.ids()) == before - 1


@pytest.mark.slow
@pytest.mark.parametrize("keep_time", [True, False], ids=["same-time", "new-time"])
def test_a_bit_that_flips_in_any_file_of_a_home_enters_no_snapshot(grown, tmp_path, keep_time):
    """One file at a time: the refresh holds the right texts, or names a file and begins nothing."""
    files = [p for p in (grown[0] / "home").rglob("*") if p.is_file() and not p.is_symlink()]
    wrong, named = [], 0
    for number, file in enumerate(sorted(files)):
        home = copied(grown[0], tmp_path / str(number))
        path = home.path / file.relative_to(grown[0] / "home")
        flip(path, at=(0.3, 0.5, 0.7)[number % 3], keep_time=keep_time)
        done = home.bench.command(*REFRESH)
        if done.returncode:
            named += 1
            name = path.relative_to(home.bench.folder).as_posix()
            right = done.stderr.count("\n") == 1 and name in done.stderr
        else:
            right = texts(home) == grown[1]
        if not right:
            wrong.append((path, done.returncode, done.stderr))
        shutil.rmtree(home.bench.folder)
    print(f"{len(files)} files, {named} named, {len(wrong)} wrong")
    assert not wrong
