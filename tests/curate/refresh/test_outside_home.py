"""A HOME from somebody else cannot make a command remove or write files outside of it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from curate.corpus.manifests import manifest_path
from curate.run.ledger import row_digest
from llmcurate.base.disk.seals import seal
from llmcurate.base.errors import RunFailed
from tests.curate.refresh.growing import Home, inputs


@pytest.fixture(scope="module")
def grown(shared_bench):
    files = [
        shared_bench.jsonl(f"{n}.jsonl", rows) for n, rows in zip("abc", inputs(12), strict=True)
    ]
    home = Home(shared_bench, [{"dedup_exact": {}}])
    for file in files[:2]:
        home.refresh(file)
    return home, files[2]


@pytest.fixture
def sent(grown, tmp_path):
    """(a copy of HOME, an input that it does not know, a folder that is somebody else's)."""
    first, file = grown
    victim = tmp_path / "victim"
    (victim / "corpus").mkdir(parents=True)
    (victim / "corpus/file").write_text("mine")
    home = Home(first.bench, first.steps)
    home.path, home._minutes = tmp_path / "home", 10
    shutil.copytree(first.path, home.path, symlinks=True)
    return home, file, victim


def untouched(victim: Path) -> bool:
    names = sorted(p.relative_to(victim).as_posix() for p in victim.rglob("*"))
    return names == ["corpus", "corpus/file"] and (victim / "corpus/file").read_text() == "mine"


def sql(home: Home, text: str, *values: Any) -> None:
    """Changes rows, and gives all of them the digests that they should have."""
    with sqlite3.connect(home.path / "refresh.db") as db:
        db.execute(text, values)
        for table in ("refreshes", "inputs", "removals", "facts"):
            for number, *row, _ in db.execute(f"SELECT rowid, * FROM {table}").fetchall():
                digest = row_digest((table, *row))
                db.execute(f"UPDATE {table} SET digest = ? WHERE rowid = ?", (digest, number))
    db.close()


@pytest.mark.parametrize("state", ["done", "begun"])
@pytest.mark.parametrize("column", ["name", "base"])
def test_a_refresh_that_is_called_as_a_path_is_refused(sent, column, state):
    home, file, victim = sent
    (victim / "corpus.json").touch()  # so that a snapshot would stand there
    sql(
        home,
        f"UPDATE refreshes SET {column} = ?, state = ? WHERE number = 1",
        "../../victim",
        state,
    )
    for how in ({"keep": 1}, {"abandon": True}, {"rebuild": True}):
        with pytest.raises(RunFailed, match=r"refresh\.db names a refresh '\.\./\.\./victim'"):
            home.refresh(file, **how)
    (victim / "corpus.json").unlink()
    assert untouched(victim)


def test_a_current_snapshot_named_as_a_path_is_refused(sent):
    home, file, victim = sent
    sql(home, "UPDATE facts SET value = ? WHERE name = 'current'", json.dumps("../../victim"))
    with pytest.raises(RunFailed, match="names a refresh"):
        home.refresh(file)
    assert untouched(victim)


def test_a_snapshot_that_is_a_link_goes_and_what_it_leads_to_stays(sent):
    home, file, victim = sent
    first = home.folder(home.snapshots()[0])
    shutil.rmtree(first)
    first.symlink_to(victim)
    home.refresh(file, keep=1)
    assert not first.is_symlink() and untouched(victim)


@pytest.mark.parametrize("name", ["corpus", "runs", "runs/*"])
def test_a_folder_of_home_that_is_a_link_is_refused(sent, name):
    home, file, victim = sent
    path = sorted(home.path.glob(name))[0]
    shutil.copytree(path, victim / "copy", symlinks=True)
    before = sorted(victim.rglob("*"))
    shutil.rmtree(path)
    path.symlink_to(victim / "copy")
    with pytest.raises(RunFailed, match=r"is not inside|leads out of"):
        home.refresh(file, keep=1)
    with suppress(RunFailed):  # which needs no earlier run, and may go to its end
        home.refresh(file, rebuild=True, keep=1)
    assert sorted(victim.rglob("*")) == before


@pytest.mark.parametrize("name", ["../../victim/x.parquet", "part-0.parquet", "/etc/x", "other"])
def test_a_manifest_names_parts_alone(sent, name):
    home, file, victim = sent
    path = manifest_path(home.folder())
    manifest = json.loads(path.read_text())
    (entry,) = list(manifest["files"].values())[:1]
    path.write_text(json.dumps(manifest | {"files": {name: entry}}))
    seals = json.dumps({f"corpus/{path.name}": seal(path)})
    sql(home, f"UPDATE facts SET value = ? WHERE name = 'files {home.folder().name}'", seals)
    with pytest.raises(RunFailed, match=r"has no manifest that can be read \(it names "):
        home.refresh(file)
    assert untouched(victim)
