"""One process compiles a kernel; others take it from the cache, or do something else first."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmcurate.base.kernels import compile_time, locks, njit
from llmcurate.base.kernels.cache import _compile_lock
from llmcurate.base.kernels.locks import Busy, exclusive, refuse


def _hold(path: Path, held: Any, may_end: Any) -> None:
    with exclusive(path):
        held.set()
        may_end.wait(60)


@pytest.fixture
def held(tmp_path):
    """A path whose kernel another process compiles, and what ends that."""
    path = tmp_path / "module" / "stamp" / "kernel.nbc"
    context = multiprocessing.get_context("spawn")
    is_held, may_end = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(path, is_held, may_end), daemon=True)
    process.start()
    assert is_held.wait(60)
    yield path, may_end, process
    if process.is_alive():
        may_end.set()
        process.join()


def test_a_kernel_that_another_process_compiles_is_waited_for(held, monkeypatch):
    path, may_end, _ = held
    asked = []

    def do_something_else() -> None:
        asked.append(path)
        threading.Timer(0.2, may_end.set).start()

    monkeypatch.setattr(compile_time, "on_busy", do_something_else)
    with exclusive(path):
        assert may_end.is_set() and asked == [path]
    with exclusive(path):
        assert asked == [path], "nobody compiles it any more"
    assert not list(path.parent.glob("*.lock"))


def test_a_process_that_refuses_to_wait_can_compile_other_kernels(held, monkeypatch):
    path, _, _ = held
    monkeypatch.setattr(compile_time, "on_busy", refuse)
    with pytest.raises(Busy), exclusive(path):
        pass
    with exclusive(path.with_name("other.nbc")):
        pass


def test_on_busy_is_not_called_while_a_kernel_is_being_compiled(held, monkeypatch):
    """The compiler is at work then, and nothing else can begin."""
    path, may_end, _ = held
    monkeypatch.setattr(compile_time, "on_busy", refuse)
    threading.Timer(0.2, may_end.set).start()
    with exclusive(path.with_name("outer.nbc")), exclusive(path):
        assert may_end.is_set()


def test_a_dead_process_leaves_no_lock(held, monkeypatch):
    path, _, process = held
    process.kill()
    process.join()
    monkeypatch.setattr(compile_time, "on_busy", refuse)
    with exclusive(path):
        pass


def test_without_a_lock_folder_nothing_blocks(tmp_path):
    (tmp_path / "file").touch()
    with exclusive(tmp_path / "file" / "kernel.nbc"):
        pass


def test_waiting_for_a_lock_of_a_stopped_process_ends(held, monkeypatch):
    path, may_end, _ = held
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.1)
    with exclusive(path):
        assert not may_end.is_set()


def test_compiled_kernels_are_not_locked(tmp_path, monkeypatch):
    kernel = njit(cache=True)(lambda x: x + 1)
    path = tmp_path / "kernel.nbc"
    monkeypatch.setattr(kernel._cache, "path", lambda *_: path)
    path.touch()
    with _compile_lock(kernel, ()):
        assert not list(tmp_path.glob("*.lock"))
    path.unlink()
    with _compile_lock(kernel, ()):
        assert list(tmp_path.glob("*.lock"))


def test_a_part_is_compiled_once_for_all_constants():
    part = njit()(_power)
    kernel = njit(cache=True)(lambda x: part(x, 2) + part(x, 3) + part(x, len("four")))
    assert kernel(np.int64(2)) == 4 + 8 + 16
    assert len(part.signatures) == 1


def _power(x, n):
    value = 1
    for _ in range(n):
        value *= x
    return value
