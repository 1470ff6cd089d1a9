"""A refresh that ends anywhere goes on as the same one and leaves the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from curate.corpus.manifests import manifest_path
from curate.refresh import run, snapshot
from curate.refresh.state import State
from llmcurate.base.errors import RunFailed
from tests.curate.command_line import ROOT
from tests.curate.refresh.growing import Home, inputs
from tests.parameters import mostly_slow


class Died(Exception):
    pass


# Where it ends, in order: (object, name, whether the work is done before it dies).
MOMENTS = [
    (State, "begin", True),
    (run, "run_planned", False),
    (run, "run_planned", True),
    (run, "_keep_ids", True),
    (snapshot, "sync_path", False),
    (snapshot, "remove_beside", True),
    (snapshot, "write_manifest", False),
    (snapshot, "write_manifest", True),
    (snapshot, "point_current_to", False),
    (snapshot, "point_current_to", True),
    (State, "end", True),
]


def parts(home: Home) -> dict[str, str]:
    paths = sorted((home.path / "current").glob("part-*.parquet"))
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


def test_a_refresh_that_dies_at_any_step_continues_as_the_same_one(bench, monkeypatch):
    a, b, c = (bench.jsonl(f"{n}.jsonl", r) for n, r in zip("abc", inputs(20), strict=True))
    calm = Home(bench, [{"dedup_exact": {}}], "calm")
    home = Home(bench, calm.steps)
    for grown in (calm, home):
        grown.refresh(a)
    calm.refresh(b)
    before = parts(home)
    for owner, name, done in MOMENTS:
        work = getattr(owner, name)

        def dies(*args, work=work, done=done, **more):
            if done:
                work(*args, **more)
            raise Died

        with monkeypatch.context() as patch, pytest.raises(Died):
            patch.setattr(owner, name, dies)
            home.refresh(b)
        # A reader sees the old corpus or the new one.
        assert parts(home) in (before, parts(calm))
    done = home.refresh(b)
    assert not done.new  # the last death came when all was recorded
    assert parts(home) == parts(calm) and home.rows() == calm.rows()
    assert len(home.snapshots()) == 2
    names = [p.name for p in home.path.rglob("*") if p.name.startswith(".")]
    assert names == []
    for grown in (calm, home):
        grown.refresh(c)
    assert parts(home) == parts(calm)
    assert [p.name for p in home.path.glob("runs/*/stages")] == []


def test_new_inputs_wait_until_an_unfinished_refresh_is_done(bench, monkeypatch):
    a, b, c = (bench.jsonl(f"{n}.jsonl", r) for n, r in zip("abc", inputs(5), strict=True))
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(a)
    with monkeypatch.context() as patch, pytest.raises(Died):

        def dies(*args):
            raise Died

        patch.setattr(snapshot, "tidy", dies)
        home.refresh(b)
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(snapshot, "point_current_to", dies)
        home.refresh(c)
    done = home.refresh(bench.folder / "a.jsonl", b, bench.jsonl("d.jsonl", [{"text": "New."}]))
    assert done.inputs == 1 and done.totals.read == 5
    assert home.refresh(bench.folder / "d.jsonl").totals.kept == 1


@pytest.mark.slow  # the test above ends refreshes at every step in every run of the tests
def test_killed_twenty_times_refreshes_keep_what_one_run_keeps():
    script = ROOT / "scripts/kill_refresh.py"
    done = subprocess.run(
        [sys.executable, str(script), "--kills", "20"],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  killed input") == 20


def test_killed_by_a_signal_it_continues(bench):
    (bench.folder / "r.yaml").write_text("steps:\n  - dedup_exact\n")
    files = [bench.jsonl(f"{n}.jsonl", r) for n, r in zip("ab", inputs(30)[:2], strict=True)]
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(files[0])
    process = bench.start("refresh", "r.yaml", files[1], "-o", home.path, "--workers", 1)
    for line in process.stderr:
        if "deciding over" in line:
            process.kill()
            break
    process.wait()
    process.stderr.close()
    assert process.returncode == -9
    name = [p.name for p in (home.path / "runs").iterdir()]
    done = home.refresh(files[1])
    assert done.new and done.name in name and done.totals.read == 30


@pytest.mark.parametrize("kind", mostly_slow(["part", "manifest", "ids"]))
def test_a_refresh_compares_what_it_continues_from(bench, kind):
    a, b, _ = (bench.jsonl(f"{n}.jsonl", r) for n, r in zip("abc", inputs(20), strict=True))
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(a)
    (run_folder,) = (home.path / "runs").iterdir()
    path = {
        "part": home.folder() / "part-00000.parquet",
        "manifest": manifest_path(home.folder()),
        "ids": run_folder / "ids.parquet",
    }[kind]
    whole, when = path.read_bytes(), path.stat()
    # A figure of the manifest that is still one; a bit of a page.
    old, new = (b'"documents": 1', b'"documents": 2') if kind == "manifest" else (b"d", b"e")
    assert old in whole
    path.write_bytes(whole.replace(old, new, 1))
    with pytest.raises(
        RunFailed, match=f"{path.name} is not what was written: restore it from a backup"
    ):
        home.refresh(b)
    path.write_bytes(whole)
    os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))
    home.refresh(b)
    calm = Home(bench, home.steps, "calm")
    calm.refresh(a)
    calm.refresh(b)
    assert home.ids() == calm.ids()
