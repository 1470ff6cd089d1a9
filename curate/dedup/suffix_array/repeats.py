"""Exact substring deduplication of a corpus, from sketches to decisions; the phases in order.

The result of each phase (regions of text that may repeat; each sorted chunk; the search index) is
written atomically, so a killed run resumes after the last result. The last phase turns passages
into clusters of matches, spans in bytes and the table of decisions, in DuckDB. A cluster is a
passage of one document together with its matches; overlapping passages share a cluster. If a cut
matches several documents, the table of decisions has a row for each match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from curate.corpus import journal
from curate.corpus.sketches import Run, run_here
from curate.dedup import survivors
from curate.dedup.suffix_array.merge import Passages, RegionText, find_passages, sort
from curate.dedup.suffix_array.windows import (
    ROWS,
    Regions,
    Request,
    continues,
    dtype_of,
    list_values,
    regions_of,
)
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.disk.database import literal
from llmcurate.base.disk.files import remove
from llmcurate.base.disk.process import Threads
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.corpus.sketches import Sketches


# Spans shrink to characters, words or lines and never grow, so a cut is always part of a passage
# that occurs twice.

CHARACTER, WORD, LINE = range(3)
BOUNDARIES = {"character": CHARACTER, "word": WORD, "line": LINE}


@njit(cache=True, nogil=True)
def _to_bytes(rows, start, end, ends, first_of, token_start, token_end, linked):
    """Convert spans of tokens to spans of bytes, in place. A span loses tokens that share a
    character with a token outside of the span. A linked span starts where the previous span ends.
    Document r begins with token first_of[r] and is ends[r] bytes long."""
    for s in range(len(rows)):
        r = rows[s]
        base, stop = first_of[r], first_of[r + 1]
        a, z = base + start[s], base + end[s]
        start[s] = token_start[a]
        if a > base:
            start[s] = max(start[s], token_end[a - 1])
        end[s] = token_end[z - 1]
        if z < stop:
            end[s] = min(end[s], token_start[z])
        start[s], end[s] = min(start[s], ends[r]), min(end[s], ends[r])
        if linked[s]:
            start[s] = end[s - 1]


@njit(nogil=True)
def _forward(data, a, z):
    while a < z and continues(data[a]):
        a += 1
    return a


@njit(nogil=True)
def _back(data, a, z, stop):
    while z > a and z < stop and continues(data[z]):
        z -= 1
    return z


@njit(nogil=True)
def _out_of_words(a, z, word_start, word_end):
    k = np.searchsorted(word_start, a) - 1  # the last word that starts before a
    if k >= 0 and word_end[k] > a:
        a = word_end[k]
    k = np.searchsorted(word_start, z) - 1
    if k >= 0 and word_end[k] > z:
        z = word_start[k]
    return a, z


@njit(nogil=True)
def _out_of_lines(data, a, z, first, stop):
    while a < z and a > first and data[a - 1] != 10:
        a += 1
    while z > a and z < stop and data[z] != 10 and data[z - 1] != 10:
        z -= 1
    return a, z


@njit(cache=True, nogil=True)
def _fit_spans(data, offsets, rows, start, end, linked, boundary, word_start, word_end):
    s = 0
    while s < len(rows):
        last = s
        while last + 1 < len(rows) and linked[last + 1]:
            last += 1
        first, stop = offsets[rows[s]], offsets[rows[s] + 1]
        a = _forward(data, first + start[s], first + end[last])
        z = _back(data, a, first + end[last], stop)
        if boundary == WORD:
            a, z = _out_of_words(a, z, word_start, word_end)
        elif boundary == LINE:
            a, z = _out_of_lines(data, a, z, first, stop)
        for k in range(s, last + 1):
            if k < last:
                end[k] = _forward(data, first + end[k], stop) - first
            if k > s:
                start[k] = end[k - 1]
            if k == s:
                start[k] = a - first
            if k == last:
                end[k] = z - first
            start[k] = max(start[k], a - first)
            end[k] = min(end[k], z - first)
        s = last + 1


def fit_spans(
    data: np.ndarray,
    offsets: np.ndarray,
    spans: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    boundary: str,
    tokens: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Shrink spans to whole characters, words or lines, as `boundary` says. Return the new (start,
    end), int64[spans], in bytes of the document. A span that vanishes has end <= start.

    `data` and `offsets` are the documents' text. `spans` is (rows, start, end, linked), ordered by
    row and start, in symbols (bytes or tokens). `linked` is True if the span starts where the
    previous one ends: linked spans are shrunk as one. If symbols are tokens, `tokens` is (rows,
    start, end): the index of each document's first token, and the byte range of each token in its
    document."""
    rows, start, end, linked = spans
    start, end = start.copy(), end.copy()
    if tokens is not None:
        sizes = np.diff(offsets)
        _to_bytes(rows, start, end, sizes, *tokens, linked)
    word_start = word_end = np.empty(0, np.int64)
    if boundary == "word":
        from curate.text.words import word_table

        table = word_table(data, offsets)
        word_start, word_end = table.start.astype(np.int64), table.end.astype(np.int64)
    _fit_spans(data, offsets, rows, start, end, linked, BOUNDARIES[boundary], word_start, word_end)
    return start, end


METHOD = "suffix-array"
_ROWS = 50_000


def number_documents(db: Any, order: str) -> None:
    """Create the table `documents` with the columns k (order of arrival), rank (order of
    preference), part and n (together the document's key), id."""
    db.execute(
        f"""CREATE OR REPLACE TABLE documents AS
        SELECT row_number() OVER (ORDER BY part, n) - 1 AS k,
               row_number() OVER (ORDER BY {order}) - 1 AS rank, part, n, id
        FROM sketches"""
    )


def insert_passages(db: Any, passages: Iterable[Passages], regions: Regions) -> None:
    """Create the table `passages`, which has one row per repeated passage and its match. Columns: k
    (document), a (first symbol) and z (last symbol, exclusive) of the passage; other, oa and oz of
    the match; later is true if the match comes after the passage."""
    db.execute(
        "CREATE OR REPLACE TABLE passages"
        "(k BIGINT, a BIGINT, z BIGINT, other BIGINT, oa BIGINT, oz BIGINT, later BOOLEAN)"
    )
    for p in passages:
        shift = regions.start - regions.at
        columns = {
            "k": regions.document[p.region],
            "a": p.start + shift[p.region],
            "z": p.end + shift[p.region],
            "other": regions.document[p.other],
            "oa": p.other_start + shift[p.other],
            "oz": p.other_end + shift[p.other],
            "later": p.other_start > p.start,
        }
        table = pa.table(columns)
        db.register("some_passages", table)
        db.execute("INSERT INTO passages SELECT * FROM some_passages")
        db.unregister("some_passages")


def make_spans(db: Any, keep_none: bool) -> None:
    """Create the table `spans` from `passages`. Overlapping passages of a document become spans to
    cut, which do not overlap. If not `keep_none`, first occurrences become spans to keep. Columns:
    k, a and z as in `passages`, "drop" (true: cut), cluster, owner (the document with the cluster's
    first occurrence), partner (the document with the passage's match; null for a span to keep), and
    linked (true if the span starts where the previous one ends)."""
    # The first occurrence is the match, or the passage itself if the match comes later.
    db.execute(
        """CREATE OR REPLACE TABLE homes AS
        SELECT p.*, CASE WHEN later THEN p.k ELSE other END AS owner,
               CASE WHEN later THEN a ELSE oa END AS ca, CASE WHEN later THEN z ELSE oz END AS cz
        FROM passages p"""
    )
    db.execute("DROP TABLE passages")
    db.execute(
        """CREATE OR REPLACE TABLE numbered AS
        WITH seen AS (
          SELECT h.*, d.rank, max(cz) OVER (PARTITION BY owner ORDER BY ca, cz, h.k, a
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM homes h JOIN documents d ON d.k = h.owner)
        SELECT k, a, z, other, owner, ca, cz,
               sum(CASE WHEN before IS NULL OR ca >= before THEN 1 ELSE 0 END)
                 OVER (ORDER BY rank, ca, cz, k, a ROWS UNBOUNDED PRECEDING) - 1 AS cluster
        FROM seen"""
    )
    db.execute("DROP TABLE homes")
    kept = (
        ""
        if keep_none
        else """UNION ALL
        SELECT owner, min(ca), max(cz), false, cluster, owner, NULL, false
        FROM numbered GROUP BY owner, cluster"""
    )
    db.execute(
        f"""CREATE OR REPLACE TABLE spans AS
        SELECT k, greatest(a, coalesce(before, 0)) AS a, z, true AS "drop", cluster, owner,
               other AS partner, coalesce(before >= a, false) AS linked
        FROM (SELECT *, lag(z) OVER (PARTITION BY k ORDER BY a) AS before FROM numbered)
        {kept}"""
    )
    db.execute("DROP TABLE numbered")


def spans_in_order(db: Any) -> Iterator[pa.Table]:
    """Yield the table `spans` in batches, ordered by document, kept spans of a document before cut
    ones. Columns: k, a, z, linked, and row (the number in this order)."""
    db.execute(
        """CREATE OR REPLACE TABLE spans AS
        SELECT *, row_number() OVER (ORDER BY k, "drop", a, cluster) - 1 AS row FROM spans"""
    )
    last = -1
    while True:
        columns = db.execute(
            f"""SELECT k, a, z, linked, row FROM spans WHERE row > {last}
            AND row <= {last + _ROWS} ORDER BY row"""
        ).fetchnumpy()
        if len(columns["k"]) == 0:
            return
        yield pa.table({name: np.asarray(values) for name, values in columns.items()})
        last += len(columns["k"])


def replace_spans(db: Any, fitted: Iterable[pa.Table]) -> None:
    """Replace the positions (a, z) of the spans by those in `fitted`, tables of row, a and z."""
    db.execute("CREATE OR REPLACE TABLE fitted(row BIGINT, a BIGINT, z BIGINT)")
    for table in fitted:
        db.register("some_spans", table)
        db.execute("INSERT INTO fitted SELECT row, a, z FROM some_spans")
        db.unregister("some_spans")
    db.execute(
        """CREATE OR REPLACE TABLE spans AS
        SELECT s.* REPLACE (f.a AS a, f.z AS z) FROM spans s JOIN fitted f USING (row)
        WHERE f.z > f.a"""
    )
    db.execute("DROP TABLE fitted")


def write_decisions(db: Any, path: Path, keep_none: bool) -> dict[str, int]:
    """Write the table of decisions, with a row per span that is cut or kept. Return the counts,
    among them `cut_bytes`. `keep_none` leaves `kept_id` empty."""
    kept_id = "NULL::VARCHAR" if keep_none else "o.id"
    db.execute(
        f"""COPY (
        WITH real AS (SELECT DISTINCT cluster FROM spans WHERE "drop")
        SELECT d.part, d.n, s."drop", d.id, s.cluster::BIGINT AS cluster, {kept_id} AS kept_id,
               p.id AS partner_id, CASE WHEN s."drop" THEN 1.0::DOUBLE END AS similarity,
               '{METHOD}' AS method, s.a::BIGINT AS span_start, s.z::BIGINT AS span_end,
               coalesce(s.partner = s.k, false) AS local
        FROM spans s SEMI JOIN real USING (cluster)
             JOIN documents d ON d.k = s.k JOIN documents o ON o.k = s.owner
             LEFT JOIN documents p ON p.k = s.partner
        ORDER BY d.part, d.n, s.a, s.z, s."drop", s.cluster
        ) TO {literal(path)} (FORMAT parquet)"""
    )
    row = db.execute(
        f"""SELECT count(DISTINCT cluster), count(*), count(*) FILTER ("drop"),
                   coalesce(sum(span_end - span_start) FILTER ("drop"), 0)::BIGINT
        FROM read_parquet({literal(path)})"""
    ).fetchone()
    names = ("clusters", "members", "dropped", "cut_bytes")
    return dict(zip(names, map(int, row), strict=True))


WORK = "work"


def resolve(
    request: Request, sketches: Sketches, sort_bytes: int, keep_index: bool
) -> dict[str, int]:
    """Run all phases and write the decisions. Return the counts of the step."""
    sort_bytes = sketches.sizes.sort_bytes or sort_bytes
    if not keep_index:
        return _decide(request, sketches, sort_bytes)
    from curate.dedup.suffix_array.search_index import chunk_bytes

    total = "SELECT coalesce(sum(size + 1), 0)::BIGINT FROM sketches WHERE part >= 0"
    if sketches.connection.execute(total).fetchone()[0] > chunk_bytes(sort_bytes // 2):
        _keep_index(sketches, sort_bytes // 2, sketches.run)
        return _decide(request, sketches, sort_bytes // 2)
    # Compiled sorting takes most of the time, so a thread builds the index while this one decides.
    with Threads(1) as thread:
        index = thread.submit(_keep_index, sketches, sort_bytes // 2, run_here)
        decided = _decide(request, sketches, sort_bytes // 2)
        index.result()
    return decided


def _decide(request: Request, sketches: Sketches, sort_bytes: int) -> dict[str, int]:
    db, work = sketches.connection, sketches.folder / WORK
    work.mkdir(exist_ok=True)
    number_documents(db, survivors.preference(request.survivor))
    regions = regions_of(request, sketches, work)
    none = request.keep == "none"
    region_text = RegionText(work, dtype_of(work).str, request.window, request.unit == "characters")
    orders = sort(sketches.run, region_text, regions.symbols, sort_bytes)
    earlier = db.execute("SELECT count(*) FROM documents WHERE part < 0").fetchone()[0]
    first_own = int(np.searchsorted(regions.document, earlier)) if earlier else 0
    own_begin = int(regions.at[first_own]) if first_own < len(regions.at) else regions.symbols
    size = sketches.sizes.task_windows
    passages = find_passages(sketches.run, region_text, orders, none, own_begin, size)
    insert_passages(db, passages, regions)
    make_spans(db, none)
    if request.unit != "characters" or request.boundary != "character":
        replace_spans(db, _fitted(request, sketches))
    counts = write_decisions(db, sketches.decisions, none)
    journal.release(work)
    remove(work, inside=sketches.folder, must=True)
    return counts


def _keep_index(sketches: Sketches, sort_bytes: int, run: Run) -> None:
    from curate.dedup.suffix_array.search_index import IndexWriter, is_complete

    if is_complete(sketches.folder):
        return
    writer = IndexWriter(sketches.folder, sort_bytes)
    for batch in sketches.batches(["text"], ROWS):
        if len(batch) and batch.column("part")[0].as_py() >= 0:
            writer.add(batch.column("id"), as_large_string(batch.column("text")))
    writer.close(run)


def _fitted(request: Request, sketches: Sketches) -> Iterator[pa.Table]:
    tokens = request.unit == "tokens"
    waiting: list[pa.Table] = []
    spans = spans_in_order(sketches.connection)
    pending = next(spans, None)
    columns = ["text", "token_start", "token_end"] if tokens else ["text"]
    first = 0
    for batch in sketches.batches(columns, ROWS):
        if pending is None:
            return
        stop = first + len(batch)
        while pending is not None:  # collect all spans of these documents
            cut = int(np.searchsorted(pending["k"].to_numpy(), stop))
            waiting.append(pending.slice(0, cut))
            if cut < pending.num_rows:
                pending = pending.slice(cut)
                break
            pending = next(spans, None)
        spans_of_batch = pa.concat_tables(waiting)
        waiting = []
        if spans_of_batch.num_rows:
            yield _fit_batch(request, batch, first, spans_of_batch)
        first = stop


def _fit_batch(request: Request, batch: pa.RecordBatch, first: int, spans: pa.Table) -> pa.Table:
    at, rows = np.unique(spans["k"].to_numpy() - first, return_inverse=True)
    batch = batch.take(pa.array(at))
    data, offsets = text_buffers(as_large_string(batch.column("text")))
    tokens = None
    if request.unit == "tokens":
        start, first_of = list_values(batch.column("token_start"))
        end, _ = list_values(batch.column("token_end"))
        tokens = (first_of, start.astype(np.int64), end.astype(np.int64))
    linked = spans["linked"].to_numpy()
    start, end = spans["a"].to_numpy(), spans["z"].to_numpy()
    a, z = fit_spans(data, offsets, (rows, start, end, linked), request.boundary, tokens)
    return pa.table({"row": spans["row"], "a": a, "z": z})
