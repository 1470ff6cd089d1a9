"""Property tests draw the same examples on every run; LLMCURATE_EXPLORE=1 draws new ones,
LLMCURATE_EXAMPLES=all as many as they ask for, a number so many each (make fuzz)."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from curate.engines.worker import keep_memory
from llmcurate.base.kernels.folder import kernels_folder
from tests.parameters import drawn

# Triton's kernels are interpreted, for there is no GPU; triton reads this when it is imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Tests run side by side: threads within them would only wait for one another.
for _name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Tests give caches and homes of their own to programs that they start: kernels stay where they are.
if _kernels := kernels_folder():
    os.environ["NUMBA_CACHE_DIR"] = str(_kernels)

# Tables that tests read have room for what is in them; those of test_width have less.
os.environ["COLUMNS"] = "200"

# No test asks the network for lists that recipes name; those of fetching have servers of their own.
os.environ.setdefault("LLMCURATE_OFFLINE", "1")

# A run of ten documents waits for the disk seventy times; tests/curate/durability.py does so, too.
os.fsync = lambda file: None


def _memory() -> Path | None:
    """A folder in memory that is large enough for what tests write, half a gigabyte at a time:
    SQLite waits for a disk, and so do the many files that are removed."""
    top = Path("/dev/shm")
    if not top.is_dir() or not os.access(top, os.W_OK):
        return None
    system = os.statvfs(top)  # some let no program run that lies there
    if system.f_flag & os.ST_NOEXEC or system.f_bavail * system.f_frsize < 4 << 30:
        return None
    folder = top / f"llmcurate-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


if "TMPDIR" not in os.environ and (_folder := _memory()):
    os.environ["TMPDIR"] = str(_folder)
    tempfile.tempdir = None

# How long an example takes, or is drawn, says how much else the machine does: the limit is one of
# the whole test. Examples may share a test's fixtures.
_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
for _name in ("same", "explore"):
    settings.register_profile(
        _name, derandomize=_name == "same", deadline=None, suppress_health_check=_CHECKS
    )
settings.load_profile("explore" if os.environ.get("LLMCURATE_EXPLORE") else "same")


def pytest_itemcollected(item: pytest.Item) -> None:
    """A property test draws a few of its examples; files with some within tests are marked, too."""
    if hasattr(getattr(item, "module", None), "drawn"):
        item.add_marker("hypothesis")
    test = getattr(item, "function", None)
    chosen = getattr(test, "_hypothesis_internal_use_settings", None)
    if chosen is not None and not hasattr(test, "all_examples"):
        test.all_examples = chosen.max_examples
        count = drawn(chosen.max_examples)
        test._hypothesis_internal_use_settings = settings(chosen, max_examples=count)


keep_memory()  # as a worker does; else a twelfth of the time of small runs goes into pages

# numba makes millions of objects that stay: looking through them for garbage every 700 of them took
# a twelfth of the time that such tests take.
gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish() -> None:
    """What is there now stays to the end: ten thousand tests and what their files import."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _one_parser() -> Iterator[None]:
    """All calls of the command line share its parser, which takes 50 ms to build."""
    from tests.curate.command_line import build_once

    with pytest.MonkeyPatch.context() as patch:
        build_once(patch)
        yield


# Under nohup, or in the background of a script, Ctrl-C is ignored, and so it would be by commands
# that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: a quarter of the time of tests is waiting for processes, files
    and servers."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else 3


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Every other worker takes files from the end: neighbours need the same kernels, and two that
    stand side by side would compile them twice, each for itself."""
    from xdist.scheduler import LoadFileScheduling

    class FromBothEnds(LoadFileScheduling):
        def _assign_work_unit(self, node: object) -> None:
            if self.nodes.index(node) % 2:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return FromBothEnds(config, log) if config.getvalue("dist") == "loadfile" else None
