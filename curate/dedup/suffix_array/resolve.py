"""Exact substring dedup of a corpus, from its sketches to decisions; the phases in their order.

What a phase leaves in the step's folder is whole or absent, so that a killed run goes on from
there: the regions, each sorted chunk, the search index.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from curate.corpus.sketches import Run, run_here
from curate.dedup import survivors
from curate.dedup.suffix_array import decide
from curate.dedup.suffix_array.decide import fit
from curate.dedup.suffix_array.find import ROWS, dtype_of, list_values, regions_of
from curate.dedup.suffix_array.merge import find_passages
from curate.dedup.suffix_array.sort import RegionText, sort
from curate.disk.inside import remove
from curate.text.buffers import as_large_string, text_buffers

if TYPE_CHECKING:
    from curate.corpus.sketches import Sketches
    from curate.dedup.suffix_array.step import DedupSuffixArray

WORK = "work"


def resolve(
    step: DedupSuffixArray, sketches: Sketches, room: int | None = None, size: int | None = None
) -> dict[str, Any]:
    """Writes sketches.decisions; the step's counts, notes.

    room: bytes that sorting may take, where not as the step says; size: as `find_passages` has it.
    """
    room = room or step.room
    if not step.keep_index:
        return _decide(step, sketches, room, size)
    from curate.dedup.suffix_array.search_index import chunk_bytes

    total = "SELECT coalesce(sum(size + 1), 0)::BIGINT FROM sketches WHERE part >= 0"
    if sketches.connection.execute(total).fetchone()[0] > chunk_bytes(room // 2):
        _keep_index(sketches, room // 2, sketches.run)
        return _decide(step, sketches, room // 2, size)
    # One chunk is sorted here. Most of the time compiled code sorts, on either side: both go on at
    # once.
    with ThreadPoolExecutor(1) as thread:
        index = thread.submit(_keep_index, sketches, room // 2, run_here)
        counts = _decide(step, sketches, room // 2, size)
        index.result()
    return counts


def _decide(
    step: DedupSuffixArray, sketches: Sketches, room: int, size: int | None
) -> dict[str, Any]:
    db, work = sketches.connection, sketches.folder / WORK
    work.mkdir(exist_ok=True)
    decide.number_documents(db, survivors.preference(step.survivor))
    regions = regions_of(step, sketches, work)
    none = step.keep == "none"
    of = RegionText(work, dtype_of(work).str, step.window, step.of == "characters")
    orders = sort(sketches.run, of, regions.symbols, room)
    earlier = db.execute("SELECT count(*) FROM documents WHERE part < 0").fetchone()[0]
    own = int(np.searchsorted(regions.document, earlier)) if earlier else 0
    own_place = int(regions.at[own]) if own < len(regions.at) else regions.symbols
    found = find_passages(sketches.run, of, orders, none, own_place, size)
    decide.take_passages(db, found, regions)
    decide.make_spans(db, none)
    if step.of != "characters" or step.boundary != "character":
        decide.replace_spans(db, _fitted(step, sketches))
    counts: dict[str, Any] = decide.write_decisions(db, sketches.decisions, none)
    remove(work, inside=sketches.folder, must=True)
    cut = counts.pop("cut_bytes")
    counts["notes"] = [f"{step.told}: {counts['dropped']:,} passages, {cut:,} bytes are cut."]
    return counts


def _keep_index(sketches: Sketches, room: int, run: Run) -> None:
    from curate.dedup.suffix_array.search_index import IndexWriter, is_complete

    if is_complete(sketches.folder):
        return
    writer = IndexWriter(sketches.folder, room)
    for batch in sketches.batches(["text"], ROWS):
        if len(batch) and batch.column("part")[0].as_py() >= 0:
            writer.add(batch.column("id"), as_large_string(batch.column("text")))
    writer.close(run)


def _fitted(step: DedupSuffixArray, sketches: Sketches) -> Iterator[pa.Table]:
    """The spans in bytes, within the documents that they are spans of."""
    tokens = step.of == "tokens"
    waiting: list[pa.Table] = []
    spans = decide.spans_in_order(sketches.connection)
    some = next(spans, None)
    columns = ["text", "token_start", "token_end"] if tokens else ["text"]
    first = 0
    for batch in sketches.batches(columns, ROWS):
        if some is None:
            return
        stop = first + len(batch)
        while some is not None:  # all spans of these documents
            cut = int(np.searchsorted(some["k"].to_numpy(), stop))
            waiting.append(some.slice(0, cut))
            if cut < some.num_rows:
                some = some.slice(cut)
                break
            some = next(spans, None)
        mine = pa.concat_tables(waiting)
        waiting = []
        if mine.num_rows:
            yield _fit_batch(step, batch, first, mine)
        first = stop


def _fit_batch(
    step: DedupSuffixArray, batch: pa.RecordBatch, first: int, mine: pa.Table
) -> pa.Table:
    at, rows = np.unique(mine["k"].to_numpy() - first, return_inverse=True)
    batch = batch.take(pa.array(at))
    data, offsets = text_buffers(as_large_string(batch.column("text")))
    tokens = None
    if step.of == "tokens":
        start, first_of = list_values(batch.column("token_start"))
        end, _ = list_values(batch.column("token_end"))
        tokens = (first_of, start.astype(np.int64), end.astype(np.int64))
    linked = mine["linked"].to_numpy()
    start, end = mine["a"].to_numpy(), mine["z"].to_numpy()
    a, z = fit(data, offsets, (rows, start, end, linked), step.boundary, tokens)
    return pa.table({"row": mine["row"], "a": a, "z": z})
