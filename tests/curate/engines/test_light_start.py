"""What makes a short command short: no scipy.linalg for numba, no second start of Python."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

KERNEL = """
import sys
from curate.engines import quick
quick.numba()
from curate.text import warm  # runs a kernel
assert "scipy.linalg" not in sys.modules
import scipy.linalg.cython_blas  # is there for whoever wants it
from numba.np.linalg import ensure_blas
ensure_blas()
"""
COPIED = """
import os, sys
import {loaded}
from curate.engines import ahead
from curate.engines.local import LocalEngine, WorkerBug
from curate.errors import RunFailed
{alone}
ahead.copy()
with LocalEngine(1) as engine:
    (_, found), = engine.map("copied:found", [{{}}])
    assert found["copied"] == {copied}, found
    assert found["parent"] == os.getpid() and found["session"] != os.getsid(0)
    assert found["threads"] == "1"
    deaths = []
    again = lambda task, death: deaths.append(death.describe()) or {{"die": False}}
    (_, after), = engine.map("copied:found", [{{"die": True}}], again)
    assert deaths == ["signal SIGKILL"] and not after["copied"], (deaths, after)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("all are gone")
"""
WORK = """
import os, signal, sys
def found(task):
    if task.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"copied": "plistlib" in sys.modules, "parent": os.getppid(),
            "session": os.getsid(0), "threads": os.environ["OMP_NUM_THREADS"]}
"""


def said_by(code: str, *paths: object) -> str:
    found = filter(None, [*map(str, paths), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(found)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_first_kernel_loads_no_linear_algebra_and_whoever_wants_it_has_it():
    assert said_by(KERNEL) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are copies on Linux alone")
@pytest.mark.parametrize("alone", [True, False], ids=["command", "within-another-program"])
def test_a_command_of_its_own_works_in_a_copy_that_may_die(tmp_path, alone):
    (tmp_path / "copied.py").write_text(WORK)
    code = COPIED.format(loaded="plistlib", alone="ahead.alone()" if alone else "", copied=alone)
    assert said_by(code, tmp_path) == "all are gone\n"
