"""The tasks that compute percentiles: independent of each other, and resumed after a death."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.corpus.sizes import Sizes
from curate.corpus.sketches import SketchFile
from curate.scoring.quality.buckets import QualityBuckets
from tests.curate.corpus.resolving import decide
from tests.curate.dying_process import Dying, Killed
from tests.curate.isolated_tasks import Alone

STEP = QualityBuckets(scores=("a", "b"), combine="learned", target="grade", by="topic")
TASKS = ("count_scores", "pick_scores", "add_products", "combine", "write_pieces")
SMALL = Sizes(task_documents=9)


def write(folder: Path) -> tuple[SketchFile, ...]:
    """Three files of sketches: two scores, a grade, a topic."""
    files = []
    for part in range(3):
        draw = np.random.default_rng(part)
        score = draw.random((2, 9))
        columns: dict[str, Any] = {f"score{k}": score[k] for k in range(2)}
        columns |= {"target": score[0] + score[1] / 3, "lang": ["x", "y", "none"] * 3}
        columns |= {"part": pa.array([part] * 9, pa.int32()), "n": np.arange(7, 16)}
        columns |= {"id": [f"é{part}-{i}" for i in range(9)]}
        files.append(SketchFile(part, folder / f"part-{part}.parquet", part))
        pq.write_table(pa.table(columns), files[-1].path)
    return tuple(files)


def test_tasks_of_one_phase_are_independent(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    files = write(folder)
    want = decide(folder, files, STEP)
    alone = Alone(folder, tmp_path / "aside")
    assert decide(folder, files, STEP, alone, SMALL) == want
    assert alone.seen == dict.fromkeys(TASKS, 3)


def test_a_resolve_that_died_in_any_phase_continues_after_it(tmp_path: Path) -> None:
    files = write(tmp_path)
    want = decide(tmp_path, files, STEP)
    dying = Dying()
    for _ in TASKS:
        with pytest.raises(Killed):
            decide(tmp_path, files, STEP, dying, SMALL)
    assert decide(tmp_path, files, STEP, dying, SMALL) == want
