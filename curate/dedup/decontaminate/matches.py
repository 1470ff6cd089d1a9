"""Decontamination in DuckDB: from matched windows to decisions, and the report on every item.

A window is a piece of an item. A document is contaminated by an item if it contains enough of the
item's windows: any of them, or at least the given share. Windows in more than `max_hits` documents
are ignored: GPT-3 "ignored 13-grams that matched more than 10 training documents, as inspection
showed the majority of these to contain common cultural phrases, legal boilerplate" (Brown et al.
2020, appendix C).

The report is OUT/contamination.parquet, one row per item, and sentences about each evaluation set.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.sketches import Sketches
from curate.dedup.decontaminate.windows import Windows
from curate.documents.cutting import cut as cut_out
from curate.documents.documents import NUMBER, Documents
from curate.documents.edits import Spans
from curate.text.unicode import row_chars
from llmcurate.base.disk.database import literal
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.units import counted


def decide(
    sketches: Sketches,
    windows: Windows,
    method: str,
    threshold: float,
    max_hits: int | None,
    cut: bool,
) -> dict[str, float]:
    """Write the decisions on contaminated documents. Return counts for the report.

    For a document and an item, the share is the part of the item's windows that the document
    contains, or in mode `jaccard` the Jaccard similarity of the windows of both. A document that
    contains a window of an item is contaminated if the share is at least `threshold`. If `cut`,
    passages around the windows are removed instead of documents.

    Leaves three tables in the database. `common` holds the windows that are ignored because of
    `max_hits`. `matches` has one row per document and item found in it: part and n (the document's
    key), item, held (the number of windows found) and share. `contaminated` holds the rows of
    `matches` whose share is at least `threshold`."""
    db = sketches.connection
    items = {
        "item": np.arange(len(windows.items)),
        "name": pa.array([i.id for i in windows.items], pa.string()),
        "corpus": pa.array([i.set for i in windows.items], pa.string()),
        "windows": windows.distinct,
    }
    grams = dict(zip(("item", "gram"), windows.pairs, strict=True))
    for name, columns in (("items", items), ("item_grams", grams)):
        db.register("given", pa.table(columns))
        db.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")
    db.execute(
        """CREATE OR REPLACE TABLE held AS
        SELECT DISTINCT part, n, gram FROM (
          SELECT part, n, unnest(gram) AS gram FROM sketches WHERE len(gram) > 0)"""
    )
    limit = "FALSE" if max_hits is None else f"count(*) > {max_hits}"
    db.execute(
        f"""CREATE OR REPLACE TABLE common AS
        SELECT gram, count(*) AS documents FROM held GROUP BY gram HAVING {limit}"""
    )
    whole, beside = "any_value(windows)", ""
    if windows.cutting.mode == "jaccard":
        whole = "(any_value(windows) + any_value(grams) - count(*))"
        beside = "JOIN (SELECT part, n, grams FROM sketches WHERE grams > 0) USING (part, n)"
    db.execute(
        f"""CREATE OR REPLACE TABLE matches AS
        SELECT part, n, item, count(*) AS held, count(*) / {whole} AS share
        FROM held ANTI JOIN common USING (gram)
        JOIN item_grams USING (gram) JOIN items USING (item) {beside}
        GROUP BY part, n, item"""
    )
    db.execute(
        f"""CREATE OR REPLACE TABLE contaminated AS
        SELECT * FROM matches WHERE share >= {threshold!r}"""
    )
    if cut:
        rows = _passages(db)
    else:
        rows = """SELECT part, n, item, share, NULL::BIGINT AS a, NULL::BIGINT AS z
        FROM contaminated QUALIFY row_number() OVER (
          PARTITION BY part, n ORDER BY share DESC, held DESC, item) = 1"""
    db.execute(
        f"""COPY (
        SELECT c.part, c.n, TRUE AS drop, s.id, c.item::BIGINT AS cluster, i.name AS kept_id,
               i.name AS partner_id, c.share::DOUBLE AS similarity, '{method}' AS method,
               c.a AS span_start, c.z AS span_end, i.corpus AS partner_corpus
        FROM ({rows}) c JOIN items i USING (item)
        JOIN (SELECT part, n, id FROM sketches) s ON s.part = c.part AND s.n = c.n
        ORDER BY c.part, c.n, c.a) TO {literal(sketches.decisions)} (FORMAT parquet)"""
    )
    clusters, members = db.execute(
        f"SELECT count(DISTINCT cluster), count(*) FROM read_parquet({literal(sketches.decisions)})"
    ).fetchone()
    (documents,) = db.execute(
        "SELECT count(*) FROM (SELECT DISTINCT part, n FROM contaminated)"
    ).fetchone()
    return {
        "clusters": clusters,
        "members": members,
        "dropped": members,
        "contaminated_documents": documents,
    }


def _passages(db: Any) -> str:
    """Return SQL that selects the passages to cut: matched windows with context. Passages that
    touch are joined. Each is assigned to the item with most windows in it."""
    db.execute(
        """CREATE OR REPLACE TABLE matched_windows AS
        SELECT h.part, h.n, h.gram, h.a, h.z, c.item, c.share
        FROM (SELECT part, n, unnest(gram) AS gram, unnest(wide_first) AS a, unnest(wide_last) AS z
              FROM sketches WHERE len(gram) > 0) h
        ANTI JOIN common USING (gram) JOIN item_grams USING (gram)
        JOIN contaminated c USING (part, n, item)"""
    )
    db.execute(
        """CREATE OR REPLACE TABLE numbered AS
        WITH reached AS (
          SELECT part, n, a, z, max(z) OVER (
            PARTITION BY part, n ORDER BY a, z
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM (SELECT DISTINCT part, n, a, z FROM matched_windows))
        SELECT *, count(*) FILTER (before IS NULL OR a > before)
          OVER (PARTITION BY part, n ORDER BY a, z) AS run FROM reached"""
    )
    return """SELECT part, n, item, share, a, z FROM (
      SELECT part, n, run, min(a) AS a, max(z) AS z FROM numbered GROUP BY part, n, run)
    JOIN (
      SELECT part, n, run, item, any_value(share) AS share
      FROM numbered JOIN matched_windows USING (part, n, a, z) GROUP BY part, n, run, item
      QUALIFY row_number() OVER (PARTITION BY part, n, run
        ORDER BY count(DISTINCT gram) DESC, any_value(share) DESC, item) = 1
    ) USING (part, n, run)"""


Sets = dict[str, dict[str, int]]  # figures by evaluation set
MOST_CHARS = 500  # of the matched text in the report
_REPORT_ROWS = 10_000
SCHEMA = pa.schema(
    [
        ("set", pa.string()),
        ("item", pa.string()),
        ("units", pa.int64()),  # words, or letters and digits
        ("windows", pa.int64()),  # distinct windows searched for; 0: the item is not checked
        ("documents", pa.int64()),  # documents with any of its windows
        ("contaminated", pa.int64()),  # documents with enough of its windows
        ("best_overlap", pa.float64()),
        ("example", pa.string()),  # the document with most of its windows
        ("matched", pa.string()),  # the longest passage of the item in the example
    ]
)


def set_sentences(windows: Windows) -> list[str]:
    """Return one sentence per evaluation set on its windows and unchecked items, and one on omitted
    windows, if any."""
    unit = "letters and digits" if windows.cutting.by_character else "words"
    lines = []
    for name, rows in _by_set(windows).items():
        units, count = windows.units[rows], np.diff(windows.rows)[rows]
        length = windows.lengths[name]
        windows_text = f"windows of {length} {unit}"
        if windows.cutting.samples is not None:
            windows_text = f"{windows.cutting.samples} random windows of {length} {unit} per item"
        line = f"{name}: {counted(len(rows), 'item')}, {windows_text}"
        short = int(((count == 0) & (units < min(length, windows.cutting.shortest))).sum())
        if short:
            line += f"; {short} shorter than {min(length, windows.cutting.shortest)} not checked"
        whole = int(((count > 0) & (units < length)).sum())
        if whole:
            line += f"; {whole} shorter ones checked as a whole"
        shared = int((windows.shared[rows] & (count == 0)).sum())
        if shared:
            line += f"; {shared} not checked because their text is shared by many items"
        lines.append(line)
    if windows.dropped:
        lines.append(
            f"not searched for (max_items): {counted(windows.dropped, 'window')} shared by more"
            f" than {counted(windows.cutting.max_items or 0, 'item')}"
        )
    return lines


def _by_set(windows: Windows) -> dict[str, np.ndarray]:
    items: dict[str, list[int]] = {}
    for k, item in enumerate(windows.items):
        items.setdefault(item.set, []).append(k)
    return {name: np.array(rows) for name, rows in items.items()}


def write_report(
    sketches: Sketches, windows: Windows, path: Path, max_hits: int | None
) -> tuple[Sets, list[str]]:
    """Write the report, one row per item in order of the sets, from the tables that `decide` left.
    Return the figures of each set, and sentences about them."""
    db = sketches.connection
    db.execute(
        """CREATE OR REPLACE TABLE best AS
        SELECT m.item, m.part, m.n, m.share FROM matches m
        QUALIFY row_number() OVER (PARTITION BY m.item ORDER BY share DESC, part, n) = 1"""
    )
    db.execute(
        """CREATE OR REPLACE TABLE summary AS
        SELECT i.item, coalesce(m.documents, 0) AS documents,
               coalesce(c.documents, 0) AS contaminated, coalesce(b.share, 0.0) AS share, s.id
        FROM items i
        LEFT JOIN (SELECT item, count(*) AS documents FROM matches GROUP BY item) m USING (item)
        LEFT JOIN (SELECT item, count(*) AS documents FROM contaminated GROUP BY item) c
          USING (item)
        LEFT JOIN best b USING (item)
        LEFT JOIN (SELECT part, n, id FROM sketches) s ON s.part = b.part AND s.n = b.n"""
    )
    summary = db.execute(
        "SELECT documents, contaminated, share, id FROM summary ORDER BY item"
    ).fetchnumpy()
    matched = _matched(db, windows)
    distinct = windows.distinct
    with replacing(path) as aside, pq.ParquetWriter(aside, SCHEMA, compression="zstd") as writer:
        for a in range(0, len(windows.items), _REPORT_ROWS):
            z = min(a + _REPORT_ROWS, len(windows.items))
            columns = {
                "set": [i.set for i in windows.items[a:z]],
                "item": [i.id for i in windows.items[a:z]],
                "units": windows.units[a:z],
                "windows": distinct[a:z],
                "documents": summary["documents"][a:z],
                "contaminated": summary["contaminated"][a:z],
                "best_overlap": summary["share"][a:z],
                "example": [v or None for v in np.ma.filled(summary["id"][a:z], "").tolist()],
                "matched": [matched.get(k) for k in range(a, z)],
            }
            writer.write_table(pa.table(columns, schema=SCHEMA))
    return _summary(db, windows, np.asarray(summary["contaminated"]) > 0, max_hits)


def _matched(db: Any, windows: Windows) -> dict[int, str]:
    rows = db.execute(
        """SELECT b.item, h.gram FROM best b
        JOIN item_grams g USING (item)
        JOIN held h ON h.part = b.part AND h.n = b.n AND h.gram = g.gram
        ANTI JOIN common c ON c.gram = h.gram ORDER BY b.item, h.gram"""
    ).fetchnumpy()
    items, grams = np.asarray(rows["item"]), np.asarray(rows["gram"])
    texts: dict[int, str] = {}
    for item in np.unique(items).tolist():
        windows_of_item = slice(int(windows.rows[item]), int(windows.rows[item + 1]))
        grams_of_item = grams[
            np.searchsorted(items, item) : np.searchsorted(items, item, side="right")
        ]
        present = np.isin(windows.gram[windows_of_item], grams_of_item)
        starts, ends = (
            windows.start[windows_of_item][present],
            windows.end[windows_of_item][present],
        )
        first = np.concatenate([[True], starts[1:] > np.maximum.accumulate(ends)[:-1]])
        cuts = np.flatnonzero(first)[1:]
        parts = zip(np.split(starts, cuts), np.split(ends, cuts), strict=True)
        runs = [(int(s[0]), int(e.max())) for s, e in parts]
        a, z = max(runs, key=lambda run: (run[1] - run[0], -run[0]))
        texts[item] = windows.items[item].text.encode()[a:z].decode("utf-8", "replace")[:MOST_CHARS]
    return texts


def _summary(
    db: Any, windows: Windows, hit: np.ndarray, max_hits: int | None
) -> tuple[Sets, list[str]]:
    documents: Counter[str] = Counter(
        dict(
            db.execute(
                """SELECT corpus, count(*) FROM (
                  SELECT DISTINCT i.corpus, c.part, c.n
                  FROM contaminated c JOIN items i USING (item)) GROUP BY corpus"""
            ).fetchall()
        )
    )
    sets = {}
    notes = []
    for name, rows in _by_set(windows).items():
        hits = int(hit[rows].sum())
        checked = int((np.diff(windows.rows)[rows] > 0).sum())
        sets[name] = {
            "items": len(rows),
            "checked": checked,
            "hit": hits,
            "documents": documents[name],
        }
        notes.append(
            f"{name}: {hits} of {checked} checked items ({hits / max(1, checked):.1%}) are in"
            f" {documents[name]} document{'' if documents[name] == 1 else 's'}"
        )
    notes += set_sentences(windows)
    (ignored,) = db.execute("SELECT count(*) FROM common").fetchone()
    if max_hits is not None:
        notes.append(
            f"ignored (max_hits): {counted(ignored, 'window')} in more than"
            f" {counted(max_hits, 'document')}"
        )
    else:
        (often,) = db.execute(
            "SELECT count(*) FROM (SELECT gram FROM held GROUP BY gram HAVING count(*) > 10)"
        ).fetchone()
        if often:
            notes.append(
                f"in more than 10 documents: {counted(often, 'window')}; GPT-3 ignored such windows"
                " (max_hits: 10), and so missed items that occur often"
            )
    return sets, notes


# Passages are cut as in GPT-3 (Brown et al. 2020, appendix C): a match is removed with 200
# characters on each side, "splitting the original document into pieces", "pieces less than 200
# characters long were discarded", "documents split into more than 10 pieces were considered
# contaminated and removed entirely". In GPT-3 the pieces became documents; here they remain one,
# with an empty line at each cut.

RULES = ("passage", "short_piece")
PASSAGE, SHORT = range(len(RULES))
_JOIN = "\n\n"


def cut_passages(
    docs: Documents, decisions: pa.Table, min_piece: int, max_pieces: int
) -> Documents:
    """Return the batch without the passages that the decisions cut, which must not overlap, and
    without remaining pieces of fewer than `min_piece` characters. Documents of more than
    `max_pieces` pieces are dropped."""
    dropped = decisions.filter(decisions["drop"])
    if dropped.num_rows == 0:
        return docs
    row = np.searchsorted(docs.table[NUMBER].to_numpy(), dropped["n"].to_numpy())
    first, last = dropped["span_start"].to_numpy(), dropped["span_end"].to_numpy()
    data, offsets = docs.buffers()
    pieces = np.zeros(len(docs), np.int64)
    long_pieces = np.zeros(len(docs), np.int64)
    cuts: list[tuple[int, int, int, int]] = []  # row, start, end, rule
    for r in np.unique(row).tolist():
        passages = slice(*np.searchsorted(row, [r, r + 1]))
        size = int(offsets[r + 1] - offsets[r])
        edges = np.empty(2 * (passages.stop - passages.start) + 2, np.int64)
        edges[0], edges[-1] = 0, size
        edges[1:-1:2], edges[2:-1:2] = first[passages], last[passages]
        chars = row_chars(data, offsets[r] + edges)[::2]
        pieces[r] = (chars > 0).sum()
        long_pieces[r] = (chars >= max(1, min_piece)).sum()
        for k, n in enumerate(chars.tolist()):
            if 0 < n < min_piece:
                cuts.append((r, int(edges[2 * k]), int(edges[2 * k + 1]), SHORT))
            if 2 * k + 2 < len(edges):
                cuts.append((r, int(edges[2 * k + 1]), int(edges[2 * k + 2]), PASSAGE))
    docs = docs.drop(pieces > max_pieces, "many_pieces", pieces, max_pieces)
    touched = np.zeros(len(docs), np.bool_)
    touched[row] = True
    docs = docs.drop(touched & (long_pieces == 0), "nothing_left", long_pieces, 1)
    return cut_out(docs, _spans(docs, cuts, offsets))


def _spans(docs: Documents, cuts: list[tuple[int, int, int, int]], offsets: np.ndarray) -> Spans:
    """Return the cuts in kept documents. Where text remains on both sides of one or more adjacent
    cuts, an empty line replaces the first."""
    marked = docs.marked()
    cuts = [f for f in cuts if not marked[f[0]]]
    rows, start, end, rule = np.array(cuts, np.int64).reshape(-1, 4).T
    joined = np.zeros(len(rows), np.int64)
    k = 0
    while k < len(rows):
        j = k
        while j + 1 < len(rows) and rows[j + 1] == rows[k] and start[j + 1] == end[j]:
            j += 1
        size = offsets[rows[k] + 1] - offsets[rows[k]]
        joined[k] = start[k] > 0 and end[j] < size
        k = j + 1
    return Spans(rows, start, end, rule.astype(np.uint8), RULES, joined, ("", _JOIN))
