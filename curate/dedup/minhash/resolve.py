"""MinHash from sketches to decisions, in phases that a killed run goes on after.

keys -> buckets -> candidates -> ordered -> (compared) -> edges -> decisions. What reads sketches,
makes shingles, sorts keys or verifies pairs is split into tasks. The order of candidates, the
forest over buckets and the merging of what tasks found are one process's: beside fixed buffers its
memory is for a bit a document, and arrays of up to 20 bytes a candidate, which shares a bucket;
each of them lies in a mapped file from 64 MB on (shuffle/arrays.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.corpus.phases import Done, Phase, forget, run_phases
from curate.corpus.shuffle.arrays import load_array
from curate.corpus.shuffle.buckets import find_buckets
from curate.corpus.shuffle.candidates import picked
from curate.corpus.shuffle.partitions import part_keys
from curate.corpus.shuffle.tasks import groups, run_tasks
from curate.corpus.sketches import Sketches
from curate.dedup.minhash.bits import packed_bytes, standard_error
from curate.dedup.minhash.candidates import ORDER, write_candidates
from curate.dedup.minhash.decisions import BINS, write_decisions
from curate.dedup.minhash.ordered import write_ordered
from curate.dedup.minhash.parts import write_parts
from curate.dedup.minhash.presets import curve, predicted
from curate.dedup.minhash.stars import write_stars

if TYPE_CHECKING:
    from curate.dedup.minhash.step import DedupMinhash


SORT_MEMORY = "128MB"


def phases(step: DedupMinhash, sketches: Sketches) -> list[Phase]:
    """The phases before decisions."""
    bands, rows = step.banding
    width = packed_bytes(bands * rows, step.kept_bits)
    first = step.survivor == "first"
    found = groups(sketches.files)

    def keys(folder: Path, done: Done) -> dict[str, Any]:
        return part_keys(sketches.run, folder, found, step.label, "bands", bands)

    def buckets(folder: Path, done: Done) -> dict[str, Any]:
        return find_buckets(sketches.run, folder, done.folder("keys"), done.facts)

    def candidates(folder: Path, done: Done) -> dict[str, Any]:
        count, bits = done.facts["candidates"], done.folder("buckets")
        return write_candidates(folder, sketches, found, bits, count, step.survivor)

    def ordered(folder: Path, done: Done) -> dict[str, Any]:
        order = load_array(done.file("candidates", ORDER), np.uint32)
        found = done.folder("buckets"), done.facts["pieces"], order
        return (write_ordered if step.verify is None else write_parts)(folder, *found)

    def compare(folder: Path, done: Done) -> dict[str, Any]:
        name = "sign_group" if step.kept_bits else "shingle_group"
        told = {"ordered": str(done.folder("ordered")), **step.shingling()}
        tasks = picked(found, done.folder("buckets"), folder, **told)
        run_tasks(sketches.run, f"curate.dedup.minhash.verify:{name}", tasks)
        return {}

    def edges(folder: Path, done: Done) -> dict[str, Any]:
        ordered, count = done.folder("ordered"), done.facts["candidates"]
        if step.verify is None:
            return write_stars(folder, ordered, count, done.facts["members"], first)
        from curate.dedup.minhash.verify import write_matches

        told: dict[str, Any] = {"bits": step.kept_bits, "values": bands * rows, "width": width}
        told |= {"least": step.verify, "first": first, "groups": len(found)}
        told |= {"compared": str(done.folder("compared"))}
        order = done.file("candidates", ORDER)
        return write_matches(folder, sketches.run, ordered, order, told)

    verified = step.verify is not None
    return [
        Phase("keys", keys),
        Phase("buckets", buckets, frees=("keys",)),
        Phase("candidates", candidates),
        Phase("ordered", ordered, frees=() if verified else ("buckets",)),
        *([Phase("compared", compare, frees=("buckets",))] if verified else ()),
        Phase("edges", edges, frees=("ordered", "compared")),
    ]


def notes(step: DedupMinhash, facts: dict[str, Any], histogram: np.ndarray) -> list[str]:
    """What the report says of how it was decided."""
    bands, rows = step.banding
    chance = predicted(bands, rows, step.least)
    found = [
        f"{bands} bands of {rows} rows: two documents of Jaccard similarity {step.least:.3f} share"
        f" a band with probability {chance:.3f}. {facts['candidates']:,} of"
        f" {facts['documents']:,} documents share one with another."
    ]
    if step.kept_bits:
        error = standard_error(step.least, bands * rows, step.kept_bits)
        found.append(
            f"Similarities are estimates from {step.kept_bits} bits of each of {bands * rows} hash"
            f" values; at {step.least:g} their standard error is {error:.3f}."
        )
    elif step.verify is None:
        found.append(
            "Similarities are estimates from the share of bands in common, which are rough: of"
            f" {bands} bands, one more or less."
        )
    else:
        found.append("Similarities are exact: every pair's sets of shingles were compared.")
    total = int(histogram.sum())
    if total:
        low, middle = (
            int(np.searchsorted(np.cumsum(histogram), share * total)) / BINS for share in (0.1, 0.5)
        )
        found.append(
            f"Of the {total:,} documents dropped, half have a similarity of {middle:.3f} or more to"
            f" their partner, nine in ten {low:.3f} or more."
        )
    return found


def resolve(step: DedupMinhash, sketches: Sketches) -> dict[str, Any]:
    """Writes the decisions; returns counts, notes and curves for the report."""
    # Two sorts are all that is asked of the database; more memory does not make them faster.
    sketches.connection.execute(f"SET memory_limit = '{SORT_MEMORY}'")
    done = run_phases(sketches.folder, phases(step, sketches))
    counts, histogram = write_decisions(
        sketches.connection,
        sketches.decisions,
        done.folder("candidates"),
        done.facts["groups"],
        done.folder("edges"),
        step.banding,
        step.method,
    )
    forget(sketches.folder)
    return {
        **counts,
        "candidates": done.facts["candidates"],
        "notes": notes(step, done.facts, histogram),
        "curves": [curve(*step.banding)],
    }
