"""Tests of the engines have workers that are started, not forked (forked_workers.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from curate.engines import idle_workers
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
