"""Run a resolve over sketch files in this process, and read its decisions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, Sketches, SketchFile, run_here, view
from llmcurate.base.disk.database import scratch_database


@contextmanager
def opened(
    folder: Path, files: tuple[SketchFile, ...], run: Run = run_here, sizes: Sizes = Sizes()
) -> Iterator[Sketches]:
    """Sketches as `resolve` gets them, which leaves nothing in its own folder once it ended."""
    own = folder / "own"
    own.mkdir(exist_ok=True)
    with scratch_database(folder / "spill") as db:
        view(db, files)
        yield Sketches(db, folder / "decisions.parquet", own, files, run=run, sizes=sizes)
    assert list(own.iterdir()) == []


def decide(
    folder: Path,
    files: tuple[SketchFile, ...],
    step: Any,
    run: Run = run_here,
    sizes: Sizes = Sizes(),
) -> tuple[bytes, Any]:
    """(the decisions' file, what resolve returned)."""
    with opened(folder, files, run, sizes) as sketches:
        summary = step.resolve(sketches).record()
    return sketches.decisions.read_bytes(), summary
