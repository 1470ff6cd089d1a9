"""A MinHash resolve killed in any phase decides the same when it is run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from curate.dedup.minhash.near_duplicates import DedupMinhash
from tests.curate.command_line import environment
from tests.curate.dedup.minhash_sketches import SETTINGS, decide, sketched, texts, write


class Killed(BaseException):
    pass


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_resolve_that_died_in_any_phase_decides_the_same(tmp_path, monkeypatch, settings):
    """It dies with each phase's files written, before and after they are committed; what was
    committed is not made again."""
    step = DedupMinhash(bands=12, rows=3, **settings)
    table = sketched(step, texts(200))
    (tmp_path / "whole").mkdir()
    decide(tmp_path / "whole", write(tmp_path / "whole", table), step)
    want = (tmp_path / "whole/decisions.parquet").read_bytes()
    folder = tmp_path / "killed"
    folder.mkdir()
    files = write(folder, table)
    names = ["keys", "buckets", "candidates", "ordered", "compared", "edges"]
    if not step.verify:
        names.remove("compared")
    real, committed = Path.rename, []

    def rename(path, target):
        if not Path(target).name.startswith("phase-"):
            return real(path, target)
        committed.append(Path(target).name.removeprefix("phase-"))
        if len(committed) > 1:
            real(path, target)
        raise Killed

    monkeypatch.setattr(Path, "rename", rename)
    for name in names:
        committed.clear()
        with pytest.raises(Killed):
            decide(folder, files, step)
        assert committed == [name]
        committed[:] = ["an earlier one"]
        with pytest.raises(Killed):
            decide(folder, files, step)
        assert committed == ["an earlier one", name]
    assert not (folder / "decisions.parquet").exists()
    decide(folder, files, step)
    assert (folder / "decisions.parquet").read_bytes() == want
    assert list((folder / "own").iterdir()) == []


KILLER = """
import os, signal, sys
from pathlib import Path
from curate.corpus import phases
from curate.dedup.minhash import clusters as minhash_resolve
from curate.dedup.minhash.near_duplicates import DedupMinhash
from tests.curate.dedup.minhash_sketches import decide
from curate.corpus.sketches import SketchFile

folder, victim = Path(sys.argv[1]), sys.argv[2]
commit, forget = phases._commit, minhash_resolve.forget

def dying(done, phase):
    if phase.name == victim:
        make = phase.make
        def halfway(aside, done):
            make(aside, done)
            os.kill(os.getpid(), signal.SIGKILL)
        phase = phases.Phase(phase.name, halfway, phase.frees)
    commit(done, phase)

phases._commit = dying
if victim == "decisions":
    minhash_resolve.forget = lambda home: os.kill(os.getpid(), signal.SIGKILL)
files = tuple(SketchFile(p, folder / f"part-{p}.parquet", p) for p in range(3))
decide(folder, files, DedupMinhash(bands=12, rows=3, verify=0.6))
"""


@pytest.mark.parametrize(
    "victims",
    [["edges"], pytest.param(["buckets", "edges", "decisions"], marks=pytest.mark.slow)],
    ids=len,
)
def test_kill_9_in_some_phases_and_the_last_process_decides_the_same(tmp_path, victims):
    step = DedupMinhash(bands=12, rows=3, verify=0.6)
    table = sketched(step, texts(200))
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        files = write(tmp_path / name, table)
    decide(tmp_path / "whole", write(tmp_path / "whole", table), step)
    folder = tmp_path / "killed"
    test_folder = str(Path(__file__).parent)
    paths = os.pathsep.join(
        [environment()["PYTHONPATH"], test_folder, str(Path(test_folder).parent)]
    )
    for victim in victims:
        done = subprocess.run(
            [sys.executable, "-c", KILLER, str(folder), victim],
            env={**os.environ, "PYTHONPATH": paths},
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (folder / "decisions.parquet").exists()
    decide(folder, files, step)
    both = [(tmp_path / name / "decisions.parquet").read_bytes() for name in ("whole", "killed")]
    assert both[0] == both[1]
