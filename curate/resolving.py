"""A CorpusStep's decisions over a stage's sketches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate.atomic import replacing
from curate.database import database
from curate.outcome import Options
from curate.plan import MapStage
from curate.sketches import Sketches, SketchFile, view
from curate.stage_files import part_path


def resolve(
    stage: MapStage, folder: Path, parts: int, decisions: Path, kind: str, options: Options
) -> dict[str, Any]:
    """Writes the decisions; returns the step's counts. folder: the stage's; kind: its sketches'."""
    assert stage.sketch is not None
    ids = folder / "ids.parquet" if stage.index == 0 else None
    files = tuple(SketchFile(p, part_path(folder, p, kind), p, ids) for p in range(parts))
    own = folder / f"resolve-{stage.sketch_key}"
    own.mkdir(exist_ok=True)
    with (
        database(folder / ".spill-resolve", options.count()) as db,
        replacing(decisions) as aside,
    ):
        view(db, files)
        return stage.sketch.resolve(Sketches(db, aside, own, files))
