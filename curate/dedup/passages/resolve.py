"""Which copies of each passage go: from the sketches of a corpus to decisions, by tasks.

keys -> shared -> rows -> owners -> pieces. Only hashes and positions are looked at. Passages that
stand once leave at `shared`; a group of sketch files says of each key that is left how often it has
it and in which document it should stay (rows), one task a slice of the keys compares what groups
say (owners), and each group decides on its own passages (pieces). The caller keeps nothing of the
corpus: it copies the pieces, one after the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from curate.decision_pieces import join_pieces, piece_files
from curate.dedup.passages.decided import DECISIONS
from curate.dedup.passages.packed import passages_about
from curate.dedup.passages.shared import find_shared, part_passages
from curate.dedup.phases import Done, Phase, forget, run_phases
from curate.dedup.shuffle.groups import Group, groups, run_tasks
from curate.sketches import Sketches

if TYPE_CHECKING:
    from curate.dedup.passages.step import DedupPassages

PASSAGES = 2_000_000  # of a group, about; a file that holds more is a group by itself
SLICE = 1_000_000  # rows of a slice that are aimed at


def phases(step: DedupPassages, sketches: Sketches, found: list[Group]) -> list[Phase]:
    """The phases before the decisions' file."""
    run, count = sketches.run, len(found)
    chosen = {"survivor": step.survivor, "keep": step.keep}

    def keys(folder: Path, done: Done) -> dict[str, Any]:
        about = sum(passages_about(pq.read_metadata(file.path)) for file in sketches.files)
        return part_passages(run, folder, found, about)

    def shared(folder: Path, done: Done) -> dict[str, Any]:
        return find_shared(run, folder, done.folder("keys"), done.facts)

    def rows(folder: Path, done: Done) -> dict[str, Any]:
        # More than there will be: of a key that a group has twice and more one row is left.
        most = (done.facts["shared"] + done.facts["repeated"]) * (1 + (step.keep == "none"))
        told: dict[str, Any] = {"slices": max(1, -(-most // SLICE)), **chosen}
        told |= {"pieces": done.facts["pieces"], "folder": str(folder)}
        told |= {name: str(done.folder(name)) for name in ("keys", "shared")}
        each = zip(found, done.facts["passages"], strict=True)
        tasks = [{**group.dump(), **told, "passages": passages} for group, passages in each]
        run_tasks(run, "curate.dedup.passages.rows:write_rows", tasks)
        return {"slices": told["slices"]}

    def owners(folder: Path, done: Done) -> dict[str, Any]:
        told = {"rows": str(done.folder("rows")), "folder": str(folder), "groups": count, **chosen}
        tasks = [{"part": part, **told} for part in range(done.facts["slices"])]
        answers = run_tasks(run, "curate.dedup.passages.owners:write_owners", tasks)
        names = ("clusters", "members", "dropped", "lost")
        totals = {name: sum(answer[name] for answer in answers) for name in names}
        return {**totals, "by_slice": [answer["clusters"] for answer in answers]}

    def pieces(folder: Path, done: Done) -> dict[str, Any]:
        by_slice = done.facts["by_slice"]
        before = (np.cumsum(by_slice) - by_slice).tolist()
        told = {"clusters": before, "method": step.method, "folder": str(folder)}
        told |= {name: str(done.folder(name)) for name in ("rows", "owners")}
        tasks = [{**group.dump(), **told} for group in found]
        cut = run_tasks(run, "curate.dedup.passages.decided:write_pieces", tasks)
        return {"cut": sum(d["cut"] for d in cut)}

    return [
        Phase("keys", keys),
        Phase("shared", shared),
        Phase("rows", rows, frees=("keys", "shared")),
        Phase("owners", owners),
        Phase("pieces", pieces, frees=("rows", "owners")),
    ]


def resolve(step: DedupPassages, sketches: Sketches) -> dict[str, Any]:
    """Writes the decisions on every passage that stands more than once; returns counts, and `cut`,
    how many bytes go."""
    found = groups(sketches.files, PASSAGES, passages_about)
    done = run_phases(sketches.folder, phases(step, sketches, found))
    join_pieces(sketches.decisions, DECISIONS, piece_files(done.folder("pieces"), len(found)))
    forget(sketches.folder)
    counts: dict[str, Any] = {n: done.facts[n] for n in ("clusters", "members", "dropped", "cut")}
    if step.keep == "none":
        counts["notes"] = [
            f"{done.facts['lost']:,} passages stood in more than one document; no copy of them was"
            " kept (keep: none)."
        ]
    return counts
