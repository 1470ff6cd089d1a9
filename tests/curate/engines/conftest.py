"""Tests of the engines have workers that are started, not forked (forked_workers.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from curate.engines import idle_workers
from curate.engines.hosts import HostsEngine
from tests.curate.forked_workers import start_one


@pytest.fixture(scope="module", autouse=True)
def _started() -> Iterator[None]:
    kept = idle_workers._kept
    idle_workers.keep(0)
    idle_workers.stop()
    idle_workers.keep(kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_workers, "spawn", start_one)
        yield


@pytest.fixture
def apart(monkeypatch):
    """By the name of OUT all other machines have a folder of their own, without the marker."""
    must_see = HostsEngine.must_see

    def unseen(engine: HostsEngine) -> list[str]:
        marker, *others = must_see(engine)
        Path(marker).unlink()
        return [marker, *others]

    monkeypatch.setattr(HostsEngine, "must_see", unseen)
