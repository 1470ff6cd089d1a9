"""What was found of every evaluation item: OUT/contamination.parquet, and sentences by set."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.sketches import Sketches
from curate.dedup.decontaminate.windows import Windows
from curate.disk.atomic import replacing

MOST_CHARS = 500  # of the matched text of an item
_ROWS = 10_000
SCHEMA = pa.schema(
    [
        ("set", pa.string()),
        ("item", pa.string()),
        ("units", pa.int64()),  # words, or letters and digits
        ("windows", pa.int64()),  # different ones that are looked for; 0: the item is not checked
        ("documents", pa.int64()),  # that hold any of its windows
        ("contaminated", pa.int64()),  # of these, documents that hold enough of them
        ("best_overlap", pa.float64()),
        ("example", pa.string()),  # the document that holds most of it
        ("matched", pa.string()),  # the longest passage of the item that the example holds
    ]
)


def said_of_sets(windows: Windows) -> list[str]:
    """One sentence a set: how its items are looked for, and how many are not."""
    unit = "letters and digits" if windows.cutting.by_character else "words"
    lines = []
    for name, rows in _by_set(windows).items():
        units, count = windows.units[rows], np.diff(windows.rows)[rows]
        length = windows.lengths[name]
        how = f"windows of {length} {unit}"
        if windows.cutting.samples is not None:
            how = f"{windows.cutting.samples} random windows of {length} {unit} an item"
        line = f"{name}: {len(rows)} items, {how}"
        short = int(((count == 0) & (units < min(length, windows.cutting.shortest))).sum())
        if short:
            line += f"; {short} shorter than {min(length, windows.cutting.shortest)} not checked"
        whole = int(((count > 0) & (units < length)).sum())
        if whole:
            line += f"; {whole} shorter ones checked as a whole"
        shared = int((windows.shared[rows] & (count == 0)).sum())
        if shared:
            line += f"; {shared} not checked, of text that many items share"
        lines.append(line)
    if windows.dropped:
        lines.append(
            f"{windows.dropped} windows that more than {windows.cutting.max_items} items share are"
            " not looked for (max_items)"
        )
    return lines


def _by_set(windows: Windows) -> dict[str, np.ndarray]:
    """The items of each set."""
    found: dict[str, list[int]] = {}
    for k, item in enumerate(windows.items):
        found.setdefault(item.set, []).append(k)
    return {name: np.array(rows) for name, rows in found.items()}


def write(sketches: Sketches, windows: Windows, path: Path, max_hits: int | None) -> dict[str, Any]:
    """Writes one row an item, in order of the sets; returns figures by set and sentences. After
    `decontaminate_resolve.decide`, whose tables are still there."""
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
    found = db.execute(
        "SELECT documents, contaminated, share, id FROM summary ORDER BY item"
    ).fetchnumpy()
    matched = _matched(db, windows)
    distinct = windows.distinct
    with replacing(path) as aside, pq.ParquetWriter(aside, SCHEMA, compression="zstd") as writer:
        for a in range(0, len(windows.items), _ROWS):
            z = min(a + _ROWS, len(windows.items))
            columns = {
                "set": [i.set for i in windows.items[a:z]],
                "item": [i.id for i in windows.items[a:z]],
                "units": windows.units[a:z],
                "windows": distinct[a:z],
                "documents": found["documents"][a:z],
                "contaminated": found["contaminated"][a:z],
                "best_overlap": found["share"][a:z],
                "example": [v or None for v in np.ma.filled(found["id"][a:z], "").tolist()],
                "matched": [matched.get(k) for k in range(a, z)],
            }
            writer.write_table(pa.table(columns, schema=SCHEMA))
    return _told(db, windows, np.asarray(found["contaminated"]) > 0, max_hits)


def _matched(db: Any, windows: Windows) -> dict[int, str]:
    """Of each item that was found: its longest passage that the example document holds."""
    rows = db.execute(
        """SELECT b.item, h.gram FROM best b
        JOIN item_grams g USING (item)
        JOIN held h ON h.part = b.part AND h.n = b.n AND h.gram = g.gram
        ANTI JOIN common c ON c.gram = h.gram ORDER BY b.item, h.gram"""
    ).fetchnumpy()
    items, grams = np.asarray(rows["item"]), np.asarray(rows["gram"])
    texts: dict[int, str] = {}
    for item in np.unique(items).tolist():
        mine = slice(int(windows.rows[item]), int(windows.rows[item + 1]))
        known = grams[np.searchsorted(items, item) : np.searchsorted(items, item, side="right")]
        there = np.isin(windows.gram[mine], known)
        starts, ends = windows.start[mine][there], windows.end[mine][there]
        first = np.concatenate([[True], starts[1:] > np.maximum.accumulate(ends)[:-1]])
        runs = [(int(s[0]), int(e.max())) for s, e in _runs(starts, ends, first)]
        a, z = max(runs, key=lambda run: (run[1] - run[0], -run[0]))
        texts[item] = windows.items[item].text.encode()[a:z].decode("utf-8", "replace")[:MOST_CHARS]
    return texts


def _runs(starts: np.ndarray, ends: np.ndarray, first: np.ndarray) -> Any:
    cuts = np.flatnonzero(first)[1:]
    return zip(np.split(starts, cuts), np.split(ends, cuts), strict=True)


def _told(db: Any, windows: Windows, hit: np.ndarray, max_hits: int | None) -> dict[str, Any]:
    """Figures by set, and the sentences of the report."""
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
        found = int(hit[rows].sum())
        checked = int((np.diff(windows.rows)[rows] > 0).sum())
        sets[name] = {
            "items": len(rows),
            "checked": checked,
            "hit": found,
            "documents": documents[name],
        }
        notes.append(
            f"{name}: {found} of {checked} checked items ({found / max(1, checked):.1%}) are in"
            f" {documents[name]} document{'' if documents[name] == 1 else 's'}"
        )
    notes += said_of_sets(windows)
    (ignored,) = db.execute("SELECT count(*) FROM common").fetchone()
    if max_hits is not None:
        notes.append(f"{ignored} windows in more than {max_hits} documents were ignored (max_hits)")
    else:
        (often,) = db.execute(
            "SELECT count(*) FROM (SELECT gram FROM held GROUP BY gram HAVING count(*) > 10)"
        ).fetchone()
        if often:
            notes.append(
                f"{often} windows stand in more than 10 documents; GPT-3 ignored such"
                " (max_hits: 10), which lets items pass that were copied often"
            )
    return {"sets": sets, "notes": notes}
