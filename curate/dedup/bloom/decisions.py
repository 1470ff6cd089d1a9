"""One pass of a Bloom dedup over all documents in order of arrival, and what follows from it.

Only in this pass does the filter change, and only one process runs it, so that the decisions do not
depend on how many workers made the keys. The report then gives the filter's fill and its rate of
false positives, and `drop_seen` applies the decisions to a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus import decisions as decision_pieces
from curate.dedup.bloom import kernel
from curate.dedup.bloom.filter import PROBES, BloomFilter
from curate.dedup.bloom.kernel import AHEAD, insert_new, look_up, touch
from curate.documents.cutting import cut
from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.text.lines import strip_space
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.corpus.sketches import Sketches


# Documents looked at together: a book may hold a million keys.
ROWS = 500
COLUMNS = ["keys", "first", "last", "start", "end"]
# A filter does not know what set its bits: no cluster, no copy that stays, no partner.
SCHEMA = pa.schema([*decision_pieces.COLUMNS, ("overlap", pa.float64())])


@dataclass(frozen=True)
class Rules:
    """When a unit goes: its share of keys that were seen is above the threshold, or reaches it.

    documents: a document goes too by its own share; spanning: documents are judged first, by keys
    that may span units, as bff's `both` does; whole: a unit is a document.
    """

    threshold: float
    reached: bool = False
    documents: bool = False
    spanning: bool = False
    whole: bool = False

    def exceeds(self, seen: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """bool[n]: whether seen of keys (int64[n] each) is too much."""
        share = np.divide(seen, keys, out=np.zeros(len(seen)), where=keys > 0)
        enough = share >= self.threshold if self.reached else share > self.threshold
        return enough & (keys > 0)


@njit(nogil=True)
def _exceeds(seen, keys, threshold, reached):
    if keys == 0:
        return False
    share = seen / keys
    return share >= threshold if reached else share > threshold


@njit(cache=True, nogil=True)
def check_in_order(words, slices, key_rows, keys, unit_rows, count, threshold, reached, hits, seen):
    """Looks up one unit after the other and inserts the keys of those that stay.

    seen: int64[units], how many keys of each were there. Returns what `touch` does.
    """
    read = np.uint64(0)
    ahead = np.int64(0)
    for r in range(len(key_rows) - 1):
        at = key_rows[r]
        for u in range(unit_rows[r], unit_rows[r + 1]):
            stop = at + count[u]
            if stop > ahead:
                reach = min(np.int64(len(keys)), stop + AHEAD)
                read |= touch(words, slices, keys, ahead, reach)
                ahead = reach
            seen[u] = look_up(words, slices, keys, at, stop, hits)
            if not _exceeds(seen[u], count[u], threshold, reached):
                insert_new(words, slices, keys, at, stop, hits)
            at = stop
    return read


@njit(cache=True, nogil=True)
def check_documents_first(
    words,
    slices,
    key_rows,
    keys,
    unit_rows,
    first,
    last,
    threshold,
    reached,
    hits,
    seen,
    of_document,
    total,
):
    """bff's `both` as its comments plan it: a document goes by the share of all its keys; of one
    that stays, units go by the keys within them, and what is inserted are the keys that lie in no
    unit that goes. All keys are looked up before any is inserted.

    seen, own: int64[units], keys that lie within each unit; total: int64[rows], keys that were
    there. Returns what `touch` does.
    """
    read = np.uint64(0)
    most = np.int64(0)
    for r in range(len(key_rows) - 1):
        most = max(most, key_rows[r + 1] - key_rows[r])
    begin = np.empty(most, np.int64)
    finish = np.empty(most, np.int64)
    for r in range(len(key_rows) - 1):
        at, stop = key_rows[r], key_rows[r + 1]
        read |= touch(words, slices, keys, at, stop)
        total[r] = look_up(words, slices, keys, at, stop, hits)
        k = j = 0
        for u in range(unit_rows[r], unit_rows[r + 1]):
            begin[k : k + first[u]] = u
            k += first[u]
            finish[j : j + last[u]] = u
            j += last[u]
        for k in range(stop - at):
            if begin[k] == finish[k]:
                of_document[begin[k]] += 1
                seen[begin[k]] += hits[at + k]
        if _exceeds(total[r], stop - at, threshold, reached):
            continue
        for k in range(stop - at):
            for u in range(begin[k], finish[k] + 1):
                if _exceeds(seen[u], of_document[u], threshold, reached):
                    hits[at + k] = 1  # goes with the unit: not inserted
        insert_new(words, slices, keys, at, stop, hits)
    return read


def _lists(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(offsets: int64[rows + 1], values) of a list column without nulls."""
    offsets = column.offsets.to_numpy()
    return offsets - offsets[0], column.values.to_numpy()[offsets[0] : offsets[-1]]


def own_batches(sketches: Sketches, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """This run's sketches alone, in order: earlier ones are in the filter already."""
    files = tuple(f for f in sketches.files if not f.corpus)
    return replace(sketches, files=files).batches(columns, ROWS)


def count_keys(sketches: Sketches) -> int:
    """All keys of this run, repeated ones included."""
    return sum(int(_lists(b.column(0))[1].sum()) for b in own_batches(sketches, ["first"]))


@dataclass
class Tally:
    """Counts of the pass."""

    keys: int = 0
    documents: int = 0
    passages: int = 0
    grown: int = 0


def decide(
    sketches: Sketches,
    bloom: BloomFilter,
    rules: Rules,
    method: str,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Writes the decisions and lets the filter learn what stays.

    One row for every document of which something was seen before (`overlap` is its share, `drop`
    whether it goes), and one for every passage that is cut from a document that stays.
    """
    tally = Tally()
    with pq.ParquetWriter(sketches.decisions, SCHEMA) as writer:
        for batch in own_batches(sketches, COLUMNS):
            writer.write_table(_batch(batch, bloom, rules, method, tally))
            progress(tally)
    return tally


def _batch(
    batch: pa.RecordBatch, bloom: BloomFilter, rules: Rules, method: str, tally: Tally
) -> pa.Table:
    key_rows, keys = _lists(batch.column("keys"))
    unit_rows, first = _lists(batch.column("first"))
    tally.keys += len(keys)
    tally.grown += bloom.reserve(len(keys))
    hits = np.zeros(len(keys), np.uint8)
    seen = np.zeros(len(first), np.int64)
    limit = (rules.threshold, rules.reached)
    if rules.spanning:
        last = _lists(batch.column("last"))[1]
        own = np.zeros(len(first), np.int64)
        total = np.zeros(len(batch), np.int64)
        check_documents_first(
            bloom.words,
            bloom.slices,
            key_rows,
            keys,
            unit_rows,
            first,
            last,
            *limit,
            hits,
            seen,
            own,
            total,
        )
    else:
        check_in_order(
            bloom.words, bloom.slices, key_rows, keys, unit_rows, first, *limit, hits, seen
        )
        own = first
        total = np.concatenate([[0], np.cumsum(seen)])
        total = total[unit_rows[1:]] - total[unit_rows[:-1]]
    all_keys = np.diff(key_rows)
    above = rules.exceeds(seen, own)
    whole = rules.documents or rules.whole
    dropped = rules.exceeds(total, all_keys) if whole else np.zeros(len(batch), np.bool_)
    rows = np.repeat(np.arange(len(batch)), np.diff(unit_rows))
    cut = np.flatnonzero(above & ~dropped[rows])
    share = np.divide(total, all_keys, out=np.zeros(len(batch)), where=all_keys > 0)
    recorded = np.flatnonzero((total > 0) | dropped)
    tally.documents += int(dropped.sum())
    tally.passages += len(cut)
    spans = [_lists(batch.column(c))[1][cut] for c in ("start", "end")]
    # A document's own row, then its passages.
    at = np.concatenate([recorded, rows[cut]])
    order = np.argsort(at, kind="stable")
    passage = np.repeat([False, True], [len(recorded), len(cut)])
    drop = np.concatenate([dropped[recorded], np.ones(len(cut), np.bool_)])
    similar = np.concatenate([share[recorded], seen[cut] / own[cut]])
    spans = [np.concatenate([np.zeros(len(recorded), np.int64), s]) for s in spans]
    columns: dict[str, Any] = {
        "part": batch.column("part").take(pa.array(at[order])),
        "n": batch.column("n").take(pa.array(at[order])),
        "drop": drop[order],
        "id": batch.column("id").take(pa.array(at[order])),
        "similarity": pa.array(similar[order], mask=~drop[order]),
        "method": pa.repeat(pa.scalar(method), len(at)),
        "span_start": pa.array(spans[0][order], mask=~passage[order]),
        "span_end": pa.array(spans[1][order], mask=~passage[order]),
        "overlap": share[at[order]],
    }
    nothing = {f.name: pa.nulls(len(at), f.type) for f in SCHEMA if f.name not in columns}
    return pa.table({f.name: {**columns, **nothing}[f.name] for f in SCHEMA}, schema=SCHEMA)


POINTS = 40


def _share(value: float) -> str:
    return f"{value:.4g}" if value else f"none of {PROBES:,}"


def _curve(bloom: BloomFilter, rate: float, unit: str) -> dict[str, Any]:
    """The modelled rate while the last slice fills; those before it are as they are."""
    counts = bloom.slices[:, kernel.INSERTED].astype(np.float64)
    most = max(bloom.slices[-1, kernel.CAPACITY], counts[-1])
    x = np.linspace(0, float(most), POINTS)
    y = [bloom.modelled_rate([*counts[:-1], last]) for last in x]
    return {
        "title": "False positives while the filter fills",
        "x_label": f"{unit} in the filter",
        "y_label": f"share of new {unit} taken for seen",
        "x": [float(v + counts[:-1].sum()) for v in x],
        "y": y,
        "mark": [float(counts.sum()), rate, "this run (measured)"],
    }


def report(
    bloom: BloomFilter, tally: Tally, before: int, unit: str, expected: int | None
) -> dict[str, Any]:
    """Counts, notes and the curve for run.json. before: keys that earlier runs had inserted; unit:
    the filter's keys in a word, such as `n-grams`."""
    asked = bloom.rate
    rate, fill, new = bloom.measured_rate(), bloom.fill(), bloom.inserted - before
    slices = len(bloom.slices)
    notes = [
        f"The filter holds {bloom.inserted:,} {unit} ({new:,} of this run's {tally.keys:,}) in"
        f" {bloom.bytes:,} bytes; {fill:.1%} of its bits are set.",
        f"False positives: {asked:g} asked for a full filter, {_share(rate)} measured with"
        f" {PROBES:,} random keys, {bloom.modelled_rate():.4g} expected at this fill.",
        "A Bloom filter does not know where it has seen what: decisions name no partner.",
    ]
    if before:
        notes.append(f"{before:,} of its {unit} are of earlier runs.")
    if expected is not None and tally.grown:
        notes.append(
            f"More than the {expected:,} {unit} expected came: the filter has {slices} slices now"
            " and is larger and slower than one made for all of them."
        )
    removed = tally.documents + tally.passages
    return {
        "clusters": 0,
        "members": removed,
        "dropped": removed,
        "documents": tally.documents,
        "passages": tally.passages,
        "keys": tally.keys,
        "inserted": new,
        "slices": slices,
        "filter_bytes": bloom.bytes,
        "false_positives": rate,
        "fill": fill,
        "notes": notes,
        "curves": [_curve(bloom, rate, unit)],
    }


@njit(cache=True, nogil=True)
def blank_without(data, offsets, rows, start, end):
    """bool[rows of the batch]: those with spans of which nothing but white space is left.

    rows, start, end: int64[spans], ordered, bytes within the row.
    """
    blank = np.zeros(len(offsets) - 1, np.bool_)
    s = 0
    while s < len(rows):
        r = rows[s]
        a = offsets[r]
        empty = True
        while s < len(rows) and rows[s] == r:
            if empty:
                first, stop = strip_space(data, a, offsets[r] + start[s])
                empty = first >= stop
            a = offsets[r] + end[s]
            s += 1
        if empty:
            first, stop = strip_space(data, a, offsets[r + 1])
            empty = first >= stop
        blank[r] = empty
    return blank


def drop_seen(
    docs: Documents, at: np.ndarray, decisions: pa.Table, limit: float, rule: str
) -> Documents:
    """The batch after the decisions. at: int64[decisions], rows of the batch; limit: the threshold
    that reasons name; rule: the name of the cuts.

    `overlap` is annotated for every document of which something was seen.
    """
    overlap = np.full(len(docs), np.nan)
    overlap[at] = decisions["overlap"].to_numpy()
    docs = docs.annotate("overlap", pa.array(overlap, mask=np.isnan(overlap)))
    drop = decisions["drop"].to_numpy(zero_copy_only=False)
    passage = decisions["span_start"].is_valid().to_numpy(zero_copy_only=False)
    above = np.zeros(len(docs), np.bool_)
    above[at[drop & ~passage]] = True
    docs = docs.drop(above, "seen_before", overlap, limit)
    spans = pa.array(passage)
    rows = at[passage]
    start = decisions["span_start"].filter(spans).to_numpy()
    end = decisions["span_end"].filter(spans).to_numpy()
    blank = blank_without(*docs.buffers(), rows, start, end)
    docs = docs.drop(blank, "nothing_left", overlap, limit)
    stays = ~blank[rows]
    rows, start, end = rows[stays], start[stays], end[stays]
    none = np.zeros(len(rows), np.uint8)
    return cut(docs, Spans(rows, start, end, none, (rule,), none))
