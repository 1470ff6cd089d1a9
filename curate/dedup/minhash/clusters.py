"""MinHash from sketches to decisions, in phases that a killed run resumes after.

keys -> buckets -> candidates -> ordered -> (compared) -> edges -> decisions. Reading sketches,
making shingles, sorting keys and verifying pairs are split into tasks. The order of candidates, the
connected components and the merging of what tasks return are one process's: beside fixed buffers
its memory is for a bit a document, and arrays of up to 20 bytes a candidate; each of them lies in a
mapped file where it is large (corpus/shuffle/byte_rows.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.decisions import COLUMNS
from curate.corpus.phases import Done, Phase, forget, run_phases
from curate.corpus.shuffle.buckets import find_buckets
from curate.corpus.shuffle.byte_rows import load_array, map_array, new_array, unmap
from curate.corpus.shuffle.candidates import candidate_tasks, set_bits
from curate.corpus.shuffle.partitions import partition_keys
from curate.corpus.shuffle.tasks import groups, run_tasks
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Sketches
from curate.dedup.minhash.banding import curve, predicted
from curate.dedup.minhash.candidates import (
    ORDER,
    Ids,
    all_rows,
    null_where,
    write_candidates,
    write_ordered,
    write_parts,
)
from curate.dedup.minhash.components import (
    NONE,
    PARTNERS,
    ROOTS,
    SHARED,
    SIMILARITY,
    members_of_two,
    write_stars,
)
from curate.dedup.minhash.signatures import packed_bytes, standard_error
from llmcurate.base.disk.database import arrow_batches, literal
from llmcurate.base.disk.units import counted

if TYPE_CHECKING:
    from curate.dedup.minhash.near_duplicates import DedupMinhash


SCHEMA = COLUMNS.append(pa.field("cluster_size", pa.int64()))  # members, earlier ones too
BINS = 1000  # of the histogram that the summary of similarities is read from


def _number_clusters(
    db: Any,
    ids: Ids,
    root: np.ndarray,
    member: np.ndarray,
    partner: np.ndarray,
    scratch: Path,
    batch_size: int,
) -> int:
    """Puts into partner[r] of every root r of two or more, which has no partner, the number of its
    component in order of the ids of the roots; returns how many there are."""
    rows = scratch / ".part-roots.parquet"
    schema = pa.schema([("k", pa.uint32()), ("id", pa.large_string())])
    with pq.ParquetWriter(rows, schema, compression="lz4") as writer:
        for begin in range(0, len(root), batch_size):
            stop = min(begin + batch_size, len(root))
            k = set_bits(member, begin, stop) + begin
            k = k[root[k] == k]
            writer.write_table(pa.table([pa.array(k, pa.uint32()), ids.of(k)], schema=schema))
            ids.forget()
    count = 0
    query = f"SELECT k FROM read_parquet({literal(rows)}) ORDER BY id"
    for batch in arrow_batches(db.sql(query), batch_size):
        k = batch.column(0).to_numpy()
        partner[k] = np.arange(count, count + len(k), dtype=np.uint32)
        count += len(k)
    rows.unlink()
    return count


def _similarities(edges: Path, bands: int, rows: int, mapped_bytes: int) -> tuple[np.ndarray, Any]:
    """(values by k, what makes similarities of them): of verified pairs the values themselves,
    else shared buckets, whose share of the bands estimates s^rows."""
    if (edges / SIMILARITY).exists():
        return map_array(edges / SIMILARITY, np.float64), lambda values_of_rows: values_of_rows
    shared = load_array(edges / SHARED, np.uint16, mapped_bytes)
    of = (np.arange(bands + 1) / bands) ** (1.0 / rows)
    return shared, lambda values_of_rows: of[values_of_rows]


def write_decisions(
    db: Any,
    path: Path,
    candidates: Path,
    pieces: int,
    edges: Path,
    banding: tuple[int, int],
    method: str,
    sizes: Sizes,
) -> tuple[dict[str, int], np.ndarray]:
    """Writes the decisions on all members of components, by (part, n); returns counts, and how many
    of the dropped have a similarity of 0.000, 0.001, ... 1.000.

    The folders are those of the phases `candidates`, in so many pieces, and `edges`.
    """
    mapped, batch_size = sizes.mapped_bytes, sizes.batch_candidates
    root = load_array(edges / ROOTS, np.uint32, mapped)
    partner = new_array(len(root), np.uint32, path.parent, mapped)
    partner[:] = load_array(edges / PARTNERS, np.uint32, mapped)
    size = new_array(len(root), np.uint32, path.parent, mapped)
    size[:] = 0
    for begin in range(0, len(root), batch_size):
        np.add.at(size, root[begin : begin + batch_size], 1)
    values, similarity_of = _similarities(edges, *banding, mapped)
    member = members_of_two(root)
    ids = Ids(candidates)
    count = _number_clusters(db, ids, root, member, partner, path.parent, batch_size)
    histogram = np.zeros(BINS + 1, np.int64)
    members = 0
    with (
        (candidates / ORDER).open("rb") as order,
        pq.ParquetWriter(path, SCHEMA) as writer,
    ):
        for batch in all_rows(candidates, pieces, batch_size):
            k = np.fromfile(order, np.uint32, len(batch))
            rows_of_members = np.flatnonzero(
                member[k >> 6] >> (k & 63).astype(np.uint64) & np.uint64(1)
            )
            rows, k = batch.take(pa.array(rows_of_members)), k[rows_of_members]
            kept = root[k]
            drop = kept != k
            other = np.where(drop, partner[k], NONE)
            similarity = similarity_of(values[k])
            histogram += np.bincount(
                np.round(similarity[drop] * BINS).astype(np.int64), minlength=BINS + 1
            )
            columns = [
                rows.column(0).cast(pa.int32()),
                rows.column(1).cast(pa.int64()),
                pa.array(drop),
                rows.column(2).cast(pa.string()),
                pa.array(partner[kept], pa.int64()),
                ids.of(kept).cast(pa.string()),
                null_where(ids.of(other).cast(pa.string()), ~drop),
                pa.array(similarity, mask=~drop),
                pa.repeat(method, len(k)),
                pa.nulls(len(k), pa.int64()),
                pa.nulls(len(k), pa.int64()),
                pa.array(size[kept], pa.int64()),
            ]
            writer.write_table(pa.table(columns, schema=SCHEMA))
            members += len(k)
            unmap(values)
            ids.forget()
    return {"clusters": count, "members": members, "dropped": members - count}, histogram


SORT_MEMORY = "128MB"


def phases(step: DedupMinhash, sketches: Sketches) -> list[Phase]:
    """The phases before decisions."""
    bands, rows = step.banding
    width = packed_bytes(bands * rows, step.kept_bits)
    first = step.survivor == "first"
    sizes = sketches.sizes
    sketch_groups = groups(sketches, sizes.task_documents)

    def keys(folder: Path, done: Done) -> dict[str, Any]:
        return partition_keys(sketches, folder, sketch_groups, step.label, "bands", bands)

    def buckets(folder: Path, done: Done) -> dict[str, Any]:
        return find_buckets(sketches, folder, done.folder("keys"), done.facts)

    def candidates(folder: Path, done: Done) -> dict[str, Any]:
        count, bits = done.facts["candidates"], done.folder("buckets")
        return write_candidates(folder, sketches, sketch_groups, bits, count, step.survivor)

    def ordered(folder: Path, done: Done) -> dict[str, Any]:
        order = load_array(done.file("candidates", ORDER), np.uint32, sizes.mapped_bytes)
        arguments = done.folder("buckets"), done.facts["pieces"], order, sizes
        return (write_ordered if step.verify is None else write_parts)(folder, *arguments)

    def compare(folder: Path, done: Done) -> dict[str, Any]:
        name = "sign_group" if step.kept_bits else "shingle_group"
        settings = {"ordered": str(done.folder("ordered")), "sizes": sizes.dump()}
        settings |= step.shingling()
        tasks = candidate_tasks(sketch_groups, done.folder("buckets"), folder, **settings)
        run_tasks(sketches.run, f"curate.dedup.minhash.verify:{name}", tasks)
        return {}

    def edges(folder: Path, done: Done) -> dict[str, Any]:
        ordered, count = done.folder("ordered"), done.facts["candidates"]
        if step.verify is None:
            return write_stars(folder, ordered, count, done.facts["members"], first, sizes)
        from curate.dedup.minhash.verify import write_matches

        settings: dict[str, Any] = {"bits": step.kept_bits, "values": bands * rows, "width": width}
        settings |= {"least": step.verify, "first": first, "groups": len(sketch_groups)}
        settings |= {"compared": str(done.folder("compared"))}
        order = done.file("candidates", ORDER)
        return write_matches(folder, sketches.run, ordered, order, settings, sizes)

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
    """Sentences of the report on how the decisions were made."""
    bands, rows = step.banding
    chance = predicted(bands, rows, step.least)
    sentences = [
        f"{bands} bands of {counted(rows, 'row')}: two documents of Jaccard similarity"
        f" {step.least:.3f} share"
        f" a band with probability {chance:.3f}. {facts['candidates']:,} of"
        f" {counted(facts['documents'], 'document')} share one with another."
    ]
    if step.kept_bits:
        error = standard_error(step.least, bands * rows, step.kept_bits)
        sentences.append(
            f"Similarities are estimates from {step.kept_bits} bits of each of {bands * rows} hash"
            f" values; at {step.least:g} their standard error is {error:.3f}."
        )
    elif step.verify is None:
        sentences.append(
            "Similarities are estimates from the share of bands in common, which are rough: of"
            f" {bands} bands, one more or less."
        )
    else:
        sentences.append("Similarities are exact: every pair's sets of shingles were compared.")
    total = int(histogram.sum())
    if total:
        low, middle = (
            int(np.searchsorted(np.cumsum(histogram), share * total)) / BINS for share in (0.1, 0.5)
        )
        sentences.append(
            f"Of the {counted(total, 'document')} dropped, half have a similarity of"
            f" {middle:.3f} or more to"
            f" their partner, nine in ten {low:.3f} or more."
        )
    return sentences


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
        sketches.sizes,
    )
    forget(sketches.folder)
    return {
        **counts,
        "candidates": done.facts["candidates"],
        "notes": notes(step, done.facts, histogram),
        "curves": [curve(*step.banding)],
    }
